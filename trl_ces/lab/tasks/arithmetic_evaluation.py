"""Measure a model's accuracy, length and entropy on the toy task of arithmetic.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...support.errors import UserError
from .arithmetic import arithmetic_accuracy_reward, carries, load_problems, read_prompt

if TYPE_CHECKING:
    from datasets import Dataset


def measure(
    model_dir: str | Path, problems: Dataset, num_samples: int = 8, seed: int = 0, max_new_tokens: int = 96
) -> tuple[dict[str, float], list[list[str]]]:
    """Sample `num_samples` completions per problem at temperature 1 on the CPU; return measures and completions.

    `accuracy`: share of correct completions. `length_tokens`: mean completion length in tokens, including the
    end-of-text token. `area`: mean accuracy over all token budgets up to `max_new_tokens`. `entropy_bits`: mean
    entropy of the sampling distribution over all generated tokens, in bits; `entropy_bits_correct` and
    `entropy_bits_incorrect`: the same mean over correct and over incorrect completions, if any.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_dir, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    prompts = tokenizer(list(problems["prompt"]), return_tensors="pt", padding=True)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
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
            cache_implementation="static",  # a growing cache is copied at each token, which doubles the time
            return_dict_in_generate=True,
            output_logits=True,
        )
    tokens = output.sequences[:, prompts["input_ids"].shape[1] :]  # (problems * samples, T)
    ended = (tokens == tokenizer.eos_token_id).cumsum(dim=1)
    generated = (ended == 0) | ((ended == 1) & (tokens == tokenizer.eos_token_id))  # including the first end token
    log_probs = torch.stack(output.logits, dim=1).log_softmax(dim=-1)
    entropies = -(log_probs.exp() * log_probs).sum(dim=-1) / torch.log(torch.tensor(2.0))  # (.., T), bits
    texts = tokenizer.batch_decode(tokens, skip_special_tokens=True)
    solutions = [solution for solution in problems["solution"] for _ in range(num_samples)]
    rewards = arithmetic_accuracy_reward(texts, solutions)
    lengths = generated.sum(dim=1)
    # A correct completion of n tokens is correct at all budgets from n to the maximum.
    budget_shares = (1 - lengths / max_new_tokens).tolist()
    measures = {
        "accuracy": sum(rewards) / len(rewards),
        "length_tokens": lengths.float().mean().item(),
        "area": sum(reward * share for reward, share in zip(rewards, budget_shares, strict=True)) / len(rewards),
        "entropy_bits": entropies[generated].mean().item(),
    }
    is_correct = torch.tensor(rewards) == 1.0
    for name, rows in (("correct", is_correct), ("incorrect", ~is_correct)):
        if rows.any():
            measures[f"entropy_bits_{name}"] = entropies[rows][generated[rows]].mean().item()
    return measures, [texts[start : start + num_samples] for start in range(0, len(texts), num_samples)]


def evaluate(
    model_dir: str | Path,
    num_problems: int = 200,
    num_samples: int = 8,
    seed: int = 0,
    max_new_tokens: int = 96,
    group_by: str | None = None,
    digits: int = 2,
    min_terms: int = 2,
    max_terms: int = 2,
    sums: int = 1,
) -> dict[str, dict[str, float]]:
    """
    Measure a model on held-out problems of the toy task; an `evaluation` function for studies.

    `group_by="carry"` creates two benchmarks: problems with and without a carry from the units.
    """
    if group_by not in (None, "carry"):
        raise UserError(f"`evaluation`: `group_by` must be carry or null, got {group_by!r}.")
    shape = {"digits": digits, "min_terms": min_terms, "max_terms": max_terms, "sums": sums}
    problems = load_problems("held_out", num_problems, seed, **shape)
    groups = ["held out"] * num_problems
    if group_by == "carry":
        with_carry = [any(map(carries, read_prompt(prompt))) for prompt in problems["prompt"]]
        groups = ["with a carry" if carry else "without a carry" for carry in with_carry]
    benchmarks = {}
    for group in sorted(set(groups)):
        rows = [row for row, name in enumerate(groups) if name == group]
        measures, completions = measure(model_dir, problems.select(rows), num_samples, seed, max_new_tokens)
        texts = [text for samples in completions for text in samples]
        benchmarks[group] = measures | {"checks": sum("?" in text for text in texts) / len(texts)}
    return benchmarks
