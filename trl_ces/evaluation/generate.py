"""Answers by transformers, and the interface that it shares with vllm_backend.py.

Both backends get token ids and a seed for each answer and give token ids back. Left to `generate`, transformers would
draw a batch from one random state and would count the padding among the tokens that the repetition penalty applies to,
so that an answer depended on its neighbours; `Sampler` draws each answer from its own seed, as vLLM does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ..support.errors import UserError, first_line, hub_errors
from .models import ModelFacts, cut_at_end
from .settings import EvaluationSettings


@dataclass(frozen=True)
class Completion:
    """One answer: the number of its prompt, its tokens without the end token, and `"stop"` or `"length"`."""

    index: int
    tokens: list[int]
    finish_reason: str


class Backend(Protocol):
    """
    What generates.

    Attributes:
        batch_size (`int` or `None`):
            Answers that are generated together, where an answer's last bits can depend on its neighbours: the same
            batches are asked again after a kill. `None`: everything that is missing may be asked at once.
    """

    batch_size: int | None

    def generate(self, prompts: Sequence[list[int]], seeds: Sequence[int]) -> Iterator[list[Completion]]:
        """
        Answers prompts.

        Args:
            prompts (`Sequence[list[int]]`): Token ids, special tokens included.
            seeds (`Sequence[int]`): One for each prompt, below 2^31.

        Returns:
            Iterator over lists of [`Completion`]s that are finished, in any order.
        """
        ...

    def close(self) -> None:
        """Frees the model."""
        ...


class Sampler:
    """
    A logits processor that leaves one token to each row: the one that row draws from its own seed.

    Args:
        prompts (`Sequence[list[int]]`): Token ids without padding; the repetition penalty applies to them.
        seeds (`Sequence[int]`): One for each row.
        temperature (`float`): 0 takes the likeliest token.
        top_p (`float`): The likeliest tokens whose probabilities reach it are drawn from.
        repetition_penalty (`float`): Divides positive and multiplies negative logits of tokens that were there.
    """

    def __init__(
        self,
        prompts: Sequence[list[int]],
        seeds: Sequence[int],
        temperature: float,
        top_p: float,
        repetition_penalty: float,
    ):
        self.prompts, self.temperature, self.top_p = prompts, temperature, top_p
        self.repetition_penalty = repetition_penalty
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.seen: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """`input_ids` (B, T) int64 and `scores` (B, V) float -> (B, V): 0 for the token drawn, -inf for the others."""
        rows = torch.arange(len(scores), device=scores.device)
        if self.seen is None:
            self.seen = torch.zeros_like(scores, dtype=torch.bool)
            for row, prompt in enumerate(self.prompts):
                self.seen[row, torch.tensor(prompt, device=scores.device)] = True
        else:
            self.seen[rows, input_ids[:, -1]] = True
        penalized = torch.where(scores > 0, scores / self.repetition_penalty, scores * self.repetition_penalty)
        scores = torch.where(self.seen, penalized, scores).float()
        uniforms = [torch.rand((), generator=generator, dtype=torch.float64) for generator in self.generators]
        drawn = self._draw(scores, torch.stack(uniforms).to(scores.device))
        chosen = torch.full_like(scores, -torch.inf)
        chosen[rows, drawn] = 0.0
        return chosen

    def _draw(self, scores: Tensor, uniforms: Tensor) -> Tensor:
        if self.temperature == 0:
            return scores.argmax(dim=-1)
        # Stable, so that equal logits keep the vocabulary's order on every device.
        ordered, tokens = (scores / self.temperature).sort(dim=-1, descending=True, stable=True)
        probabilities = ordered.softmax(dim=-1)
        reached = probabilities.cumsum(dim=-1)
        # A token is drawn from if those before it do not reach top_p: the first always is.
        probabilities = probabilities.masked_fill(reached - probabilities >= self.top_p, 0.0)
        reached = probabilities.double().cumsum(dim=-1)
        target = uniforms[:, None] * reached[:, -1:]
        # The first token whose cumulated probability lies above the target, hence never one of probability 0.
        place = (reached <= target).sum(dim=-1, keepdim=True).clamp(max=scores.shape[-1] - 1)
        return tokens.gather(1, place)[:, 0]


class TransformersBackend:
    """Left-padded batches by `generate`; see [`Backend`]."""

    def __init__(self, model: Any, ends: Sequence[int], pad: int, settings: EvaluationSettings):
        self.model, self.ends, self.pad, self.settings = model.eval(), list(ends), pad, settings
        self.batch_size: int | None = settings.batch_size

    @classmethod
    def load(cls, facts: ModelFacts, settings: EvaluationSettings) -> "TransformersBackend":
        """
        Loads the weights, and an adapter over them.

        Raises:
            UserError: if they cannot be loaded.
        """
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        refusals: tuple[type[Exception], ...] = (*hub_errors(), ValueError, ImportError, KeyError, RuntimeError)
        device = str(torch.accelerator.current_accelerator()) if torch.accelerator.is_available() else "cpu"
        try:
            model = AutoModelForCausalLM.from_pretrained(
                facts.base,
                dtype=settings.dtype,
                device_map=device,
                trust_remote_code=settings.trust_remote_code,
            )
            if facts.adapter is not None:
                model = PeftModel.from_pretrained(model, facts.adapter).merge_and_unload()
        except refusals as error:
            raise UserError(f"The model {settings.model!r} cannot be loaded: {first_line(error)}") from error
        pad = facts.tokenizer.pad_token_id
        return cls(model, facts.ends, (facts.ends or [0])[0] if pad is None else pad, settings)

    def generate(self, prompts: Sequence[list[int]], seeds: Sequence[int]) -> Iterator[list[Completion]]:
        """See [`Backend`]."""
        for start in range(0, len(prompts), self.settings.batch_size):
            batch = slice(start, start + self.settings.batch_size)
            answers = self._answer(prompts[batch], seeds[batch])
            yield [Completion(start + row, *cut_at_end(tokens, self.ends)) for row, tokens in enumerate(answers)]

    def _answer(self, prompts: Sequence[list[int]], seeds: Sequence[int]) -> list[list[int]]:
        from transformers import GenerationConfig

        settings, width, device = self.settings, max(map(len, prompts)), self.model.device
        ids = torch.tensor([[self.pad] * (width - len(prompt)) + prompt for prompt in prompts], device=device)
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
        sampler = Sampler(prompts, seeds, settings.temperature, settings.top_p, settings.repetition_penalty)
        plain = GenerationConfig(
            do_sample=False,  # the sampler has drawn: one token is left to each row
            max_new_tokens=settings.max_new_tokens,
            eos_token_id=self.ends or None,
            pad_token_id=self.pad,
            disable_compile=True,
        )
        # transformers fills what is unset from the model's own settings, and these often have a penalty of their own.
        own, self.model.generation_config = self.model.generation_config, plain
        try:
            with torch.no_grad():
                output = self.model.generate(input_ids=ids, attention_mask=mask, logits_processor=[sampler])
        finally:
            self.model.generation_config = own
        return output[:, width:].tolist()

    def close(self) -> None:
        """Frees the model."""
        del self.model
