"""The report that `trl-ces inspect` prints, and its JSON version."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ...support.files import write_json
from ..evaluation.tables import percent
from .facts import SIDES, shorter_share
from .tokens import token_text

WIDTH = 119
# Name, unit and width of each column. Token columns appear once per alternative; the token fills the remaining width.
PAIR_COLUMNS = [("count", "", 5), ("share", "%", 5), ("entropy", "bits", 7)]
TOKEN_COLUMNS = [("mean P", "", 6), ("sampled", "%", 7), ("tokens left", "mean", 11)]
CORRECT_COLUMN = ("correct", "%", 7)
MAX_TOKEN_WIDTH = 18
MOSTLY_INCORRECT, RARELY_CORRECT = 0.5, 0.1  # accuracies below which a warning is printed


def report(facts: dict[str, Any], pairs: pd.DataFrame, tokenizer: Any, top: int, reason: str | None = None) -> str:
    """Render the report with the first `top` pairs; `reason`: see [`RecipeSample`]."""
    note = ""
    if len(pairs) > top:
        weight = pairs["count"] * pairs.entropy
        part = percent(weight[:top].sum() / weight.sum() if weight.any() else math.nan)
        hidden = len(pairs) - top
        note = f"\n{hidden} more pairs are not shown (--top). The rows above account for {part} % of count x entropy."
    table = pairs_table(pairs[:top], tokenizer, with_correct=not math.isnan(facts["accuracy"]))
    parts = [summary(facts), table + note, explanation(facts, shorter_share(pairs))]
    if reason is not None:
        ungraded = "The completions are not graded: " if math.isnan(facts["accuracy"]) else ""
        parts.append(textwrap.fill(ungraded + reason, WIDTH))
    return "\n\n".join(parts)


def summary(facts: dict[str, Any]) -> str:
    """Render the sampling settings and the means over all completions."""
    heading = (
        f"{facts['model']}: {facts['completions']} completions ({facts['num_prompts']} prompts x "
        f"{facts['num_samples']}) at temperature {facts['temperature']:g}, at most "
        f"{facts['max_new_tokens']} tokens, seed {facts['seed']}"
    )
    lines = [
        ("mean length including end token", f"{facts['mean_length']:.1f}", "tokens"),
        ("truncated", percent(facts["truncated"]), "%"),
        ("mean entropy of all tokens", f"{facts['entropy']:.3f}", "bits"),
        (f"mean entropy of high-entropy tokens (tau {facts['tau']:g})", f"{facts['top_entropy']:.3f}", "bits"),
    ]
    if not math.isnan(facts["accuracy"]):
        lines.append(("correct", percent(facts["accuracy"]), "%"))
    if not math.isnan(facts["shaped_share"]):
        size = facts["num_generations"]
        lines += [
            (f"all-incorrect groups of {size}", percent(facts["groups_all_incorrect"]), "%"),
            (f"all-correct groups of {size}", percent(facts["groups_all_correct"]), "%"),
            ("tokens that CES shapes (Eq. 5)", percent(facts["shaped_share"]), "%"),
            ("  of these, in all-incorrect or all-correct groups", percent(facts["shaped_in_equal_groups"]), "%"),
            ("  of these, in incorrect completions with A' > 0", percent(facts["shaped_incorrect_rewarded"]), "%"),
        ]
    return "\n".join(
        [
            textwrap.fill(heading, WIDTH, break_long_words=False, break_on_hyphens=False),
            *(f"  {name:<51}{value:>8} {unit}" for name, value, unit in lines),
        ]
    )


def pairs_table(pairs: pd.DataFrame, tokenizer: Any, with_correct: bool) -> str:
    """Render a table at most 119 columns wide, one line per pair, with the likelier alternative on the left."""
    per_token = [*TOKEN_COLUMNS, CORRECT_COLUMN] if with_correct else TOKEN_COLUMNS
    left_width = sum(width + 2 for _, _, width in PAIR_COLUMNS) - 2
    numbers = sum(width + 2 for _, _, width in per_token)
    token_width = min((WIDTH - left_width) // 2 - numbers - 2, MAX_TOKEN_WIDTH)
    half_width = token_width + numbers
    columns = [*PAIR_COLUMNS, *2 * [("token", "", token_width), *per_token]]
    names, units, _ = zip(*columns, strict=True)

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if name == "token" else cell.rjust(width)
            for cell, (name, _, width) in zip(cells, columns, strict=True)
        ]
        return "  ".join(padded).rstrip()

    rule = "-" * (left_width + 2 * (half_width + 2))
    header = f"{'':<{left_width}}  {'likelier alternative':<{half_width}}  other alternative"
    lines = [header, line(names), line(units), rule]
    for pair in pairs.to_dict("records"):
        cells = [str(pair["count"]), percent(pair["share"]), f"{pair['entropy']:.3f}"]
        for side in SIDES:
            text, tokens_left = repr(token_text(tokenizer, pair[f"{side}_token"])), pair[f"{side}_tokens_left"]
            cells += [
                text if len(text) <= token_width else f"{text[: token_width - 1]}…",
                f"{pair[f'{side}_probability']:.3f}",
                percent(pair[f"{side}_sampled"]),
                "-" if math.isnan(tokens_left) else f"{tokens_left:.1f}",
            ]
            cells += [percent(pair[f"{side}_correct"])] if with_correct else []
        lines.append(line(cells))
    return "\n".join(lines)


def explanation(facts: dict[str, Any], shorter: float) -> str:
    """Explain what the numbers mean for training with CES; `shorter`: see [`shorter_share`]."""
    text = (
        "CES lowers the entropy of correct completions at these tokens, which makes the likelier alternative (usually "
        "the left one) even likelier. "
    )
    if math.isnan(shorter):
        text += (
            "Whether this shortens completions is unknown: no pair has samples of both alternatives in "
            "completions that ended. Sample more (--num_samples) or longer (--max_new_tokens) completions."
        )
    else:
        text += f"This shortens completions at {percent(shorter)} % of positions (weighted by count x entropy)."
    paragraphs = [text]
    if facts["truncated"] > 0:
        paragraphs.append(
            f"{percent(facts['truncated'])} % of the completions were truncated and are excluded from `tokens left`, "
            "which is therefore too low for alternatives that lead to long completions: increase --max_new_tokens."
        )
    if facts["too_short"] > 0:
        paragraphs.append(
            f"{percent(facts['too_short'])} % of the completions are so short that floor(length x tau) is 0, so "
            "CES would not shape them. This report uses the highest-entropy token of each such completion. A larger "
            "tau selects more tokens."
        )
    if math.isnan(facts["shaped_share"]) and not math.isnan(facts["accuracy"]):
        paragraphs.append(
            "The shares of groups and of shaped tokens are not computed, because they require a prompt with "
            f"{facts['num_generations']} scored completions: use --num_samples {facts['num_generations']}."
        )
    if facts["accuracy"] < MOSTLY_INCORRECT:
        paragraphs.append(
            f"Only {percent(facts['accuracy'])} % of the completions are correct. Below 50 %, CES's bonus for "
            "incorrect completions can make training diverge; see docs/results.md."
        )
    if facts["accuracy"] < RARELY_CORRECT:
        paragraphs.append(
            "Start with easier problems or a stronger model, and check that the reward extracts the final answers."
        )
    elif facts["accuracy"] >= RARELY_CORRECT:  # not NaN
        limit = min(facts["max_new_tokens"], math.ceil(2 * facts["mean_length"]))
        paragraphs.append(
            "To shorten completions, use the `ces_mai` overlay; to maximize accuracy, use `on_policy_sft` with "
            f"`--max_completion_length {limit}`. If some problems require longer completions, use `ces_correct_only`."
        )
    return "\n".join(textwrap.fill(paragraph, WIDTH) for paragraph in paragraphs)


def write_numbers(file: Path, facts: dict[str, Any], pairs: pd.DataFrame, tokenizer: Any) -> None:
    """Write the facts and all pairs as JSON: shares in [0, 1], entropies in bits, lengths in tokens."""
    texts = {
        f"{side}_text": [repr(token_text(tokenizer, token)) for token in pairs[f"{side}_token"]] for side in SIDES
    }
    rows = [_without_nan(row) for row in pairs.assign(**texts).to_dict("records")]
    write_json(file, {**_without_nan(facts), "pairs": rows})


def _without_nan(values: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN, which JSON does not support, with `None`."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()}
