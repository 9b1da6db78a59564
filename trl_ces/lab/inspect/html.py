"""HTML page of `trl-ces inspect --html`: sampled completions with the tokens that CES would shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ...methods.ces import conditional_entropy_shaping
from ...methods.groups import group_counts
from ..evaluation.tables import percent
from .facts import advantage_of_incorrect, mean
from .sampling import RecipeSample, SampledCompletion
from .tokens import token_text

if TYPE_CHECKING:
    from ...train.recipe import Recipe

LEVELS = (0.05, 0.25, 0.5, 1.0, 2.0)  # lower bounds of the tints 1, 2, ... in bits
MAX_TOKENS = 1000  # maximum number of tokens shown per completion
TITLES = {True: "Correct", False: "Incorrect", None: "Unscored"}


def render_page(recipe: Recipe, samples: Sequence[RecipeSample], tau: float) -> str:
    """
    Render one self-contained HTML page with a column per sample; all samples must have the same prompts.

    Prompts, completions and names are escaped, and the page's content security policy forbids scripts and requests.
    """
    from jinja2 import Environment, StrictUndefined

    names = ("beta_correct", "beta_incorrect", "cap_incorrect", "cap_correct", "dynamic_multiplier")
    settings = {"tau": tau, **{name: recipe.setting(f"ces_{name}") for name in names}}
    mask_truncated = bool(recipe.setting("mask_truncated_completions"))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(Path(__file__).with_name("page.html.j2").read_text(encoding="utf-8"))
    models = [model_view(sample, token_shaping(sample, settings, mask_truncated)) for sample in samples]
    return template.render(models=models, prompts=samples[0].prompts, levels=LEVELS, settings=settings)


def token_shaping(sample: RecipeSample, settings: dict[str, Any], mask_truncated: bool = False) -> Tensor:
    """Compute A' - A of all tokens, shape (B, T), float64, treating all completions of a prompt as one group."""
    completions = sample.completions
    scores = sample.correct or [None] * len(completions)
    correct = torch.tensor([score is True for score in scores])
    scored = torch.tensor([score is not None for score in scores])
    group_correct, group_scored = group_counts(correct, scored, len(completions) // len(sample.prompts))
    entropies = [torch.tensor(completion.entropies, dtype=torch.float64) for completion in completions]
    in_loss = [
        torch.full((len(completion.tokens),), float(completion.ended or not mask_truncated))
        for completion in completions
    ]
    counts = zip(group_correct.tolist(), group_scored.tolist(), correct.tolist(), strict=True)
    # If correct and incorrect completions of a group swap roles, all advantages change sign.
    advantages = torch.tensor(
        [
            -advantage_of_incorrect(n - c, n) if is_correct else advantage_of_incorrect(c, n)
            for c, n, is_correct in counts
        ]
    )
    batch = {
        "advantages": advantages,
        "correct": correct,
        "scored": scored,
        "group_correct": group_correct,
        "group_scored": group_scored,
    }
    nats = pad_sequence(entropies, batch_first=True) * math.log(2)
    shaped = conditional_entropy_shaping(batch, nats, pad_sequence(in_loss, batch_first=True), **settings)
    return shaped.advantages - advantages.unsqueeze(1)


def model_view(sample: RecipeSample, shaping: Tensor) -> dict[str, Any]:
    """Build a sample's column: per prompt, the correct and the incorrect completion with the most shaped tokens."""
    scores = sample.correct or [None] * len(sample.completions)
    counts = (shaping != 0).sum(dim=1).tolist()
    best: list[dict[bool | None, int]] = [{} for _ in sample.prompts]  # score -> row
    for row, (completion, score) in enumerate(zip(sample.completions, scores, strict=True)):
        rows = best[completion.prompt]
        if score not in rows or counts[row] > counts[rows[score]]:
            rows[score] = row
    shown_rows = [[rows[score] for score in (True, False) if score in rows] or [rows[None]] for rows in best]
    entropies = [bits for completion in sample.completions for bits in completion.entropies]
    scored = [score for score in scores if score is not None]
    facts = [
        f"{percent(mean(scored))} % correct" if scored else "unscored",
        f"{len(entropies) / len(sample.completions):.1f} tokens per completion",
        f"{mean(entropies):.3f} bits per token",
        f"{percent(sum(counts) / len(entropies))} % of the tokens shaped",
    ]
    views = [
        [completion_view(sample.tokenizer, sample.completions[row], scores[row], shaping[row]) for row in rows]
        for rows in shown_rows
    ]
    return {"name": sample.name, "facts": ", ".join(facts), "note": sample.reason, "completions": views}


def completion_view(
    tokenizer: Any, completion: SampledCompletion, correct: bool | None, shaping: Tensor
) -> dict[str, Any]:
    """Build the view of a completion; `shaping`: A' - A of its tokens, shape (T,)."""
    top_tokens = {top.position: top for top in completion.top_tokens}
    changes = shaping.tolist()
    views = []
    for position, (token, bits) in enumerate(zip(completion.tokens[:MAX_TOKENS], completion.entropies, strict=False)):
        text, change = token_text(tokenizer, token), changes[position]
        tip, mark = f"{bits:.2f} bits", ""
        if change:
            mark = "lowered" if change < 0 else "raised"
            top = top_tokens[position]
            pair = zip(top.pair, top.probabilities, strict=True)
            alternatives = " and ".join(f"“{token_text(tokenizer, token)}” {100 * p:.0f} %" for token, p in pair)
            tip += f" between {alternatives}; advantage {change:+.2f}"
            text = text.replace(" ", "␣").replace("\n", "↵\n")
        views.append({"text": text, "level": sum(bits >= start for start in LEVELS), "tip": tip, "mark": mark})
    count = sum(map(bool, changes))
    return {
        "title": TITLES[correct],
        "facts": f"{len(completion.tokens)} tokens, {count} shaped{'' if completion.ended else ', truncated'}",
        "tokens": views,
        "hidden": max(0, len(completion.tokens) - MAX_TOKENS),
    }
