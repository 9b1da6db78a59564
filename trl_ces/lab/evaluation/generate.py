"""
Generation with transformers or vLLM.

A backend takes token ids and one seed per completion, and yields completions as they finish. `batch_size` is the
number of completions generated together; a resumed run forms the same batches. For vLLM, which schedules the requests
itself, `batch_size` is `None`.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...support.errors import UserError, first_line, hub_errors
from ...support.settings import replace_generation_config
from .models import ModelFacts, cut_at_end
from .settings import EvaluationSettings


@dataclass(frozen=True)
class GeneratedCompletion:
    """One generated completion."""

    index: int  # index of its prompt
    tokens: list[int]  # token ids, without the end token
    finish_reason: str  # `"stop"` or `"length"`


class Sampler:
    """
    Logits processor that draws each row's token with the row's own random generator and masks all other tokens.

    With `generate` alone, the rows of a batch would share one random state, and the repetition penalty would apply to
    padding.
    """

    def __init__(self, prompts: Sequence[list[int]], seeds: Sequence[int], settings: EvaluationSettings):
        self.prompts, self.settings = prompts, settings
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.occurred: Tensor | None = None  # (B, V) bool: tokens that occur in the row's prompt or completion

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return scores (B, V): 0 at the drawn token, -inf elsewhere. `input_ids`: (B, T) int64; `scores`: (B, V)."""
        rows = torch.arange(len(scores), device=scores.device)
        if self.occurred is None:
            self.occurred = torch.zeros_like(scores, dtype=torch.bool)
            for row, prompt in enumerate(self.prompts):
                self.occurred[row, torch.tensor(prompt, device=scores.device)] = True
        else:
            self.occurred[rows, input_ids[:, -1]] = True
        penalty = self.settings.repetition_penalty
        penalized = torch.where(scores > 0, scores / penalty, scores * penalty)
        scores = torch.where(self.occurred, penalized, scores).float()
        uniforms = [torch.rand((), generator=generator, dtype=torch.float64) for generator in self.generators]
        sampled = self._draw(scores, torch.stack(uniforms).to(scores.device))
        masked = torch.full_like(scores, -torch.inf)
        masked[rows, sampled] = 0.0
        return masked

    def _draw(self, scores: Tensor, uniforms: Tensor) -> Tensor:
        if self.settings.temperature == 0:
            return scores.argmax(dim=-1)
        # A stable sort keeps equal logits in vocabulary order on every device.
        ordered, tokens = (scores / self.settings.temperature).sort(dim=-1, descending=True, stable=True)
        if self.settings.top_k is not None:
            ordered[:, self.settings.top_k :] = -torch.inf
        probabilities = ordered.softmax(dim=-1)
        cumulative = probabilities.cumsum(dim=-1)
        # Keep a token if the cumulative probability before it is below top_p. This always keeps the first token.
        probabilities = probabilities.masked_fill(cumulative - probabilities >= self.settings.top_p, 0.0)
        cumulative = probabilities.double().cumsum(dim=-1)
        target = uniforms[:, None] * cumulative[:, -1:]
        # Select the first token with a cumulative probability above the target; its probability is never 0.
        index = (cumulative <= target).sum(dim=-1, keepdim=True).clamp(max=scores.shape[-1] - 1)
        return tokens.gather(1, index)[:, 0]


class TransformersBackend:
    """Generation with transformers' `generate`, in left-padded batches."""

    def __init__(self, model: Any, ends: Sequence[int], pad: int, settings: EvaluationSettings):
        self.model, self.ends, self.pad, self.settings = model.eval(), list(ends), pad, settings
        self.batch_size: int | None = settings.batch_size

    @classmethod
    def load(cls, facts: ModelFacts, settings: EvaluationSettings) -> "TransformersBackend":
        """Load the weights and merge the LoRA adapter, if any."""
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        load_errors: tuple[type[Exception], ...] = (*hub_errors(), ValueError, ImportError, KeyError, RuntimeError)
        device = str(torch.accelerator.current_accelerator()) if torch.accelerator.is_available() else "cpu"
        try:
            model = AutoModelForCausalLM.from_pretrained(
                facts.base, dtype=settings.dtype, device_map=device, trust_remote_code=settings.trust_remote_code
            )
            if facts.adapter is not None:
                model = PeftModel.from_pretrained(model, facts.adapter).merge_and_unload()
        except load_errors as error:
            raise UserError(f"The model {settings.model!r} cannot be loaded: {first_line(error)}") from error
        pad = facts.tokenizer.pad_token_id
        return cls(model, facts.ends, (facts.ends or [0])[0] if pad is None else pad, settings)

    def generate(self, prompts: Sequence[list[int]], seeds: Sequence[int]) -> Iterator[list[GeneratedCompletion]]:
        """Yield the completions of each batch."""
        from transformers import GenerationConfig

        config = GenerationConfig(
            do_sample=False,  # the sampler leaves exactly one token unmasked
            max_new_tokens=self.settings.max_new_tokens,
            eos_token_id=self.ends or None,
            pad_token_id=self.pad,
            disable_compile=True,
        )
        for start in range(0, len(prompts), self.settings.batch_size):
            batch = slice(start, start + self.settings.batch_size)
            sampler = Sampler(prompts[batch], seeds[batch], self.settings)
            rows = generate_batch(self.model, prompts[batch], config, logits_processor=[sampler])
            yield [GeneratedCompletion(start + row, *cut_at_end(ids, self.ends)) for row, ids in enumerate(rows)]

    def close(self) -> None:
        del self.model


def generate_batch(model: Any, prompts: Sequence[list[int]], config: Any, **options: Any) -> list[list[int]]:
    """Generate one left-padded batch with `config`; ignore the model's generation config."""
    width, pad = max(map(len, prompts)), config.pad_token_id
    ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts], device=model.device)
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=model.device)
    with replace_generation_config(model, config), torch.no_grad():
        output = model.generate(input_ids=ids, attention_mask=mask, **options)
    return output[:, width:].tolist()


class VllmBackend:
    """Generation with vLLM's synchronous engine on one GPU, one request per completion."""

    batch_size: int | None = None

    def __init__(self, facts: ModelFacts, settings: EvaluationSettings, longest: int):
        """Load the weights. `longest`: maximum number of tokens in a prompt and its completion."""
        # Run the engine in this process. A separate process could outlive this one and keep the GPU memory.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from vllm import LLM
        from vllm.lora.request import LoRARequest

        self.facts, self.settings = facts, settings
        self.adapter = None if facts.adapter is None else LoRARequest("adapter", 1, facts.adapter)
        lora = {} if facts.adapter is None else {"enable_lora": True, "max_lora_rank": lora_rank(facts.adapter_rank)}
        try:
            self.llm = LLM(
                model=facts.base,
                skip_tokenizer_init=True,  # prompts and outputs are token ids
                dtype=settings.dtype,
                seed=settings.seed,
                max_model_len=longest,
                gpu_memory_utilization=settings.gpu_memory_utilization,
                trust_remote_code=settings.trust_remote_code,
                # Without this, unset sampling parameters default to the values in the model's generation_config.json.
                generation_config="vllm",
                **lora,
            )
        except (ValueError, RuntimeError, OSError) as error:
            raise UserError(
                f"vLLM cannot run {settings.model!r} ({first_line(error)}): try `--backend transformers`."
            ) from error

    def generate(self, prompts: Sequence[list[int]], seeds: Sequence[int]) -> Iterator[list[GeneratedCompletion]]:
        """Yield completions as they finish, in any order."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        # `LLM.generate` returns only after all requests have finished, so a killed run would lose all completions.
        engine = self.llm.llm_engine
        for index, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True)):
            sampling = SamplingParams(
                temperature=self.settings.temperature,
                top_p=self.settings.top_p,
                top_k=self.settings.top_k or 0,  # 0: all
                repetition_penalty=self.settings.repetition_penalty,
                max_tokens=self.settings.max_new_tokens,
                seed=seed,
                stop_token_ids=self.facts.ends,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            engine.add_request(str(index), {"prompt_token_ids": prompt}, sampling, lora_request=self.adapter)
        while engine.has_unfinished_requests():
            finished = [output for output in engine.step() if output.finished]
            if finished:
                yield [
                    GeneratedCompletion(
                        int(output.request_id), *cut_at_end(output.outputs[0].token_ids, self.facts.ends)
                    )
                    for output in finished
                ]

    def close(self) -> None:
        del self.llm


def lora_rank(rank: int) -> int:
    """Return the smallest rank supported by vLLM that is at least `rank`."""
    return next(size for size in (1, 8, 16, 32, 64, 128, 256, 320, 512) if size >= rank)
