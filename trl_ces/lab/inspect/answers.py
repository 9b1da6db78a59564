"""Completions drawn from a model's whole distribution, each with its forking tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tqdm import tqdm
from transformers import GenerationConfig

from ...support.errors import UserError
from ..evaluation.generate import generate_batch
from ..evaluation.models import apply_template, cut_at_end, end_tokens
from .settings import Sampling
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
    """A prompt's token ids, as TRL makes them: a text as it stands, chat messages by the tokenizer's chat template."""
    if isinstance(prompt, str):
        ids = tokenizer(prompt)["input_ids"]
    elif tokenizer.chat_template is None:
        raise UserError(
            "The prompts are chat messages and the tokenizer has no chat template: name an instruct model, or give "
            "text prompts with `--prompt` or by a `dataset_builder` (docs/recipes.md has one)."
        )
    else:
        options = {"tokenize": True, "return_dict": True, **(chat_template_kwargs or {})}
        ids = apply_template(tokenizer, prompt, **options)["input_ids"]
    if not ids:
        raise UserError(f"The prompt {prompt!r} has no tokens: write something in it.")
    return list(ids)


def sample_answers(
    model: Any, tokenizer: Any, prompts: Sequence[list[int]], sampling: Sampling
) -> list[SampledAnswer]:
    """Samples completions from the whole distribution (no top-k, no top-p) and finds their forking tokens."""
    model.eval()
    ends, pad = end_and_pad_tokens(model, tokenizer)
    whole = GenerationConfig(
        do_sample=True,
        temperature=sampling.temperature,
        top_k=0,
        top_p=1.0,
        max_new_tokens=sampling.max_new_tokens,
        eos_token_id=ends or None,
        pad_token_id=pad,
        disable_compile=True,
    )
    rows = [number for number in range(len(prompts)) for _ in range(sampling.num_samples)]
    written: list[list[int]] = []
    answers: list[SampledAnswer] = []
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.manual_seed(sampling.seed)
        batches = [rows[start : start + sampling.batch_size] for start in range(0, len(rows), sampling.batch_size)]
        for numbers in tqdm(batches, desc="Sampling", unit="batch"):
            for tokens in generate_batch(model, [prompts[number] for number in numbers], whole):
                length = len(cut_at_end(tokens, ends)[0]) + 1  # the end token counts
                written.append(tokens[:length])
        tau = sampling.share([len(tokens) for tokens in written])
        for numbers in batches:
            asked, own = [prompts[number] for number in numbers], written[len(answers) :][: len(numbers)]
            found = forking_tokens(model, asked, own, temperature=sampling.temperature, tau=tau, pad=pad)
            for number, tokens, (entropies, forks) in zip(numbers, own, found, strict=True):
                answers.append(SampledAnswer(number, tokens, tokens[-1] in ends, entropies, forks))
    return answers


def end_and_pad_tokens(model: Any, tokenizer: Any) -> tuple[list[int], int]:
    """The tokens that end a completion, and the padding token: any will do if there is none, nothing attends to it."""
    ends, pad = end_tokens(tokenizer, model.generation_config.eos_token_id), tokenizer.pad_token_id
    return ends, (ends or [0])[0] if pad is None else pad
