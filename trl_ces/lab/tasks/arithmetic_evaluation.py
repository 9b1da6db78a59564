"""Accuracy, length and entropy of a model on the small world of arithmetic.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...support.errors import UserError
from .arithmetic import arithmetic_accuracy_reward, carries, load_problems, read_prompt

if TYPE_CHECKING:
    from datasets import Dataset

# torch and transformers take seconds to import: the functions that need them do.


@dataclass(frozen=True)
class Measurement:
    """A model on a set of problems."""

    accuracy: float  # share of correct completions, in [0, 1]
    length: float  # mean tokens of a completion, its end-of-text token included
    area: float  # accuracy, in the mean over all token budgets up to `max_new_tokens`
    entropy_bits: float  # mean entropy of the sampling distribution over all generated tokens, in bits
    problems: list[str]  # the prompts
    completions: list[list[str]]  # per prompt its sampled texts


def measure(
    model_dir: str | Path,
    problems: Dataset,
    num_samples: int = 8,
    seed: int = 0,
    max_new_tokens: int = 96,
    device: str = "cpu",
) -> Measurement:
    """Samples `num_samples` completions per problem at temperature 1 and measures them."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_dir, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval().to(device)
    prompts = tokenizer(list(problems["prompt"]), return_tensors="pt", padding=True).to(device)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())), torch.no_grad():
        torch.manual_seed(seed)
        output = model.generate(
            input_ids=prompts["input_ids"],
            attention_mask=prompts["attention_mask"],
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            num_return_sequences=num_samples,
            max_new_tokens=max_new_tokens,
            return_dict_in_generate=True,
            output_logits=True,
        )
    tokens = output.sequences[:, prompts["input_ids"].shape[1] :]  # (problems * samples, T)
    ended = (tokens == tokenizer.eos_token_id).cumsum(dim=1)
    written = (ended == 0) | ((ended == 1) & (tokens == tokenizer.eos_token_id))  # the first end-of-text counts
    log_probs = torch.stack(output.logits, dim=1).log_softmax(dim=-1)
    entropies = -(log_probs.exp() * log_probs).sum(dim=-1) / torch.log(torch.tensor(2.0))  # (.., T), bits
    texts = tokenizer.batch_decode(tokens, skip_special_tokens=True)
    solutions = [solution for solution in problems["solution"] for _ in range(num_samples)]
    rewards = arithmetic_accuracy_reward(texts, solutions)
    lengths = written.sum(dim=1)
    left = (1 - lengths / max_new_tokens).tolist()
    return Measurement(
        accuracy=sum(rewards) / len(rewards),
        length=lengths.float().mean().item(),
        area=sum(reward * share for reward, share in zip(rewards, left, strict=True)) / len(rewards),
        entropy_bits=entropies[written].mean().item(),
        problems=list(problems["prompt"]),
        completions=[texts[start : start + num_samples] for start in range(0, len(texts), num_samples)],
    )


def evaluate(
    model_dir: str | Path,
    num_problems: int = 200,
    num_samples: int = 8,
    seed: int = 0,
    max_new_tokens: int = 96,
    group_by: str | None = None,
    device: str = "cpu",
    **world_fields: Any,
) -> dict[str, dict[str, float]]:
    """The `evaluation` of the studies on the small world: a model on held-out problems."""
    problems, kinds = _problems_and_kinds(num_problems, seed, group_by, world_fields)
    found = {}
    for kind in sorted(set(kinds)):
        rows = [row for row, other in enumerate(kinds) if other == kind]
        measured = measure(model_dir, problems.select(rows), num_samples, seed, max_new_tokens, device)
        texts = [text for group in measured.completions for text in group]
        found[kind] = {
            "accuracy": measured.accuracy,
            "length_tokens": measured.length,
            "area": measured.area,
            "entropy_bits": measured.entropy_bits,
            "checks": sum("?" in text for text in texts) / len(texts),
        }
    return found


def check_evaluate(num_problems: int = 200, seed: int = 0, group_by: str | None = None, **settings: Any) -> None:
    """Refuses what [`evaluate`] would refuse for any model: `trl-ces study` calls it before its first run."""
    for of_sampling in ("num_samples", "max_new_tokens", "device"):
        settings.pop(of_sampling, None)
    try:
        _problems_and_kinds(num_problems, seed, group_by, settings)
    except (TypeError, ValueError) as error:
        raise UserError(f"`evaluation`: {error}") from None


def _problems_and_kinds(
    num_problems: int, seed: int, group_by: str | None, world_fields: dict[str, Any]
) -> tuple[Dataset, list[str]]:
    """Held-out problems, and the benchmark that each belongs to."""
    if group_by not in GROUPINGS:
        raise ValueError(f"group_by is one of terms, carry or null, got {group_by!r}.")
    problems = load_problems("held_out", num_problems, seed, **world_fields)
    return problems, [GROUPINGS[group_by](read_prompt(prompt)) for prompt in problems["prompt"]]


GROUPINGS: dict[str | None, Callable[[list[list[int]]], str]] = {
    None: lambda problem: "held out",
    "terms": lambda problem: f"{max(map(len, problem))} terms",
    "carry": lambda problem: "with a carry" if any(map(carries, problem)) else "without a carry",
}
