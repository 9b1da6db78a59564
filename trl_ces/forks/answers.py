"""Answers drawn from a model's whole distribution, each with its forking tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..support.errors import UserError
from .sampling import Sampling
from .tokens import ForkingToken, forking_tokens


@dataclass(frozen=True)
class SampledAnswer:
    """One sampled completion."""

    prompt: int  # index of its prompt
    tokens: list[int]  # the end token included
    ended: bool  # whether it has an end token; if not, it was cut off
    entropies: list[float]  # bits, one per token
    forks: list[ForkingToken]  # by place


def encode_prompt(
    tokenizer: Any, prompt: str | list[dict[str, str]], chat_template_kwargs: dict[str, Any] | None = None
) -> list[int]:
    """
    A prompt's token ids, as TRL makes them: a text as it stands, chat messages by the tokenizer's chat template.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): The model's.
        prompt (`str` or `list[dict]`): A text, or messages with `role` and `content`.
        chat_template_kwargs (`dict`, *optional*): As in [`~trl.GRPOConfig`].

    Raises:
        UserError: if there are messages and no chat template, or no tokens.
    """
    if isinstance(prompt, str):
        ids = tokenizer(prompt)["input_ids"]
    elif tokenizer.chat_template is None:
        raise UserError(
            "The prompts are chat messages and the tokenizer has no chat template: name a chat model, or give texts "
            "with `--prompt`."
        )
    else:
        ids = tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, tokenize=True, return_dict=True, **(chat_template_kwargs or {})
        )["input_ids"]
    if not ids:
        raise UserError(f"The prompt {prompt!r} has no tokens: write something in it.")
    return list(ids)


def sample_answers(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[list[int]],
    sampling: Sampling,
    on_batch: Callable[[int, int], None] | None = None,
) -> list[SampledAnswer]:
    """
    Samples answers from the whole distribution (no top-k, no top-p) and finds their forking tokens.

    Args:
        model (`PreTrainedModel`): A causal language model; its own generation settings are ignored.
        tokenizer (`PreTrainedTokenizerBase`): Its tokenizer, for the end and the padding token.
        prompts (`Sequence[list[int]]`): Token ids, none empty.
        sampling ([`Sampling`]): How to draw. The caller's random state is left as it was.
        on_batch (`Callable`, *optional*): Called after each batch with the answers so far and their total.

    Returns:
        `list[SampledAnswer]`: The first prompt's answers first.
    """
    model.eval()
    ends, pad = end_tokens(model, tokenizer), pad_token(model, tokenizer)
    rows = [number for number in range(len(prompts)) for _ in range(sampling.num_samples)]
    answers: list[SampledAnswer] = []
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.manual_seed(sampling.seed)
        for start in range(0, len(rows), sampling.batch_size):
            numbers = rows[start : start + sampling.batch_size]
            asked = [prompts[number] for number in numbers]
            written = _generate(model, asked, ends, pad, sampling)
            found = forking_tokens(model, asked, written, temperature=sampling.temperature, tau=sampling.tau, pad=pad)
            for number, tokens, (entropies, forks) in zip(numbers, written, found, strict=True):
                answers.append(SampledAnswer(number, tokens, tokens[-1] in ends, entropies, forks))
            if on_batch is not None:
                on_batch(len(answers), len(rows))
    return answers


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end an answer, as TRL takes them: the tokenizer's and those of the generation settings."""
    ends = model.generation_config.eos_token_id
    ends = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
    own = tokenizer.eos_token_id
    return ends if own is None or own in ends else [own, *ends]


def pad_token(model: Any, tokenizer: Any) -> int:
    """The tokenizer's padding token, else an end token, else 0: any will do, nothing attends to it."""
    candidates = [tokenizer.pad_token_id, *end_tokens(model, tokenizer), 0]
    return next(token for token in candidates if token is not None)


def _generate(model: Any, prompts: list[list[int]], ends: list[int], pad: int, sampling: Sampling) -> list[list[int]]:
    """One answer per prompt, up to and including its first end token."""
    from transformers import GenerationConfig

    width = max(map(len, prompts))
    ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts], device=model.device)
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=model.device)
    plain = GenerationConfig(
        do_sample=True,
        temperature=sampling.temperature,
        top_k=0,
        top_p=1.0,
        max_new_tokens=sampling.max_new_tokens,
        eos_token_id=ends or None,
        pad_token_id=pad,
        disable_compile=True,
    )
    # transformers fills what is unset from the model's own settings, and these often have a top-p or a penalty.
    own, model.generation_config = model.generation_config, plain
    try:
        output = model.generate(input_ids=ids, attention_mask=mask)
    finally:
        model.generation_config = own
    answers = []
    for row in output[:, width:].tolist():
        end = next((place for place, token in enumerate(row) if token in ends), len(row) - 1)
        answers.append(row[: end + 1])
    return answers
