"""What `trl-ces inspect` prints: the table of pairs and how to read it; the same numbers as files."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ...support.files import write_json
from ...support.tables import percent
from .facts import SIDES, shorter_share
from .tokens import token_text

WIDTH = 119
# Name, unit and width of a column; a branch's come twice. The token takes the width that is left.
PAIR_COLUMNS = [("count", "", 5), ("share", "%", 5), ("entropy", "bits", 7)]
BRANCH_COLUMNS = [("mean P", "", 6), ("sampled", "%", 7), ("tokens left", "mean", 11)]
CORRECT_COLUMN = ("correct", "%", 7)
MAX_TOKEN_WIDTH = 18
# Of small worlds CES ruined 58 of 61 below this share of correct completions, and 1 of 49 above (experiments/).
MOSTLY_WRONG, HARDLY_EVER = 0.5, 0.1


def pairs_report(
    facts: dict[str, Any], pairs: pd.DataFrame, tokenizer: Any, top: int, reason: str | None = None
) -> str:
    """What is printed."""
    rest = ""
    if len(pairs) > top:
        weight = pairs["count"] * pairs.entropy
        part = percent(weight[:top].sum() / weight.sum() if weight.any() else math.nan)
        rest = f"\n{len(pairs) - top} more pairs are not shown (--top); those shown hold {part} % of count x entropy."
    table = pairs_table(pairs[:top], tokenizer, with_correct=not math.isnan(facts["accuracy"]))
    parts = [opening(facts), table + rest, reading(facts, shorter_share(pairs))]
    if reason is not None:
        without = "Without the share of correct completions: " if math.isnan(facts["accuracy"]) else ""
        parts.append(textwrap.fill(without + reason, WIDTH))
    return "\n\n".join(parts)


def opening(facts: dict[str, Any]) -> str:
    """What was sampled, and the completions as a whole."""
    sampled = (
        f"{facts['model']}: {facts['completions']} completions ({facts['num_prompts']} prompts x "
        f"{facts['num_samples']}) at temperature {facts['temperature']:g}, at most "
        f"{facts['max_new_tokens']} tokens, seed {facts['seed']}"
    )
    lines = [
        ("mean length, end token included", f"{facts['mean_length']:.1f}", "tokens"),
        ("cut off at the limit", percent(facts["truncated"]), "%"),
        ("mean entropy of all tokens", f"{facts['entropy']:.3f}", "bits"),
        (f"mean entropy of the forking tokens (tau {facts['tau']:g})", f"{facts['fork_entropy']:.3f}", "bits"),
    ]
    if not math.isnan(facts["accuracy"]):
        lines.append(("correct", percent(facts["accuracy"]), "%"))
    if not math.isnan(facts["shaped_share"]):
        size = facts["num_generations"]
        lines += [
            (f"groups of {size} without a correct completion", percent(facts["groups_all_incorrect"]), "%"),
            (f"groups of {size} with correct completions only", percent(facts["groups_all_correct"]), "%"),
            ("tokens that CES shapes (Eq. 5)", percent(facts["shaped_share"]), "%"),
            ("  of these, in groups with equal verdicts", percent(facts["shaped_in_equal_groups"]), "%"),
            ("  of these, wrong and rewarded (A' > 0)", percent(facts["shaped_incorrect_rewarded"]), "%"),
        ]
    return "\n".join(
        [
            textwrap.fill(sampled, WIDTH, break_long_words=False, break_on_hyphens=False),
            *(f"  {name:<48}{value:>8} {unit}" for name, value, unit in lines),
        ]
    )


def pairs_table(pairs: pd.DataFrame, tokenizer: Any, with_correct: bool) -> str:
    """One line per pair, its likelier branch on the left, at most 119 columns wide."""
    of_branch = [*BRANCH_COLUMNS, CORRECT_COLUMN] if with_correct else BRANCH_COLUMNS
    left = sum(width + 2 for _, _, width in PAIR_COLUMNS) - 2
    numbers = sum(width + 2 for _, _, width in of_branch)
    token_width = min((WIDTH - left) // 2 - numbers - 2, MAX_TOKEN_WIDTH)
    half = token_width + numbers
    columns = [*PAIR_COLUMNS, *2 * [("token", "", token_width), *of_branch]]
    names, units, _ = zip(*columns, strict=True)

    def line(cells: Sequence[str]) -> str:
        padded = [
            _cut(cell, width).ljust(width) if name == "token" else cell.rjust(width)
            for cell, (name, _, width) in zip(cells, columns, strict=True)
        ]
        return "  ".join(padded).rstrip()

    rule = "-" * (left + 2 * (half + 2))
    lines = [f"{'':<{left}}  {'likelier branch':<{half}}  other branch", line(names), line(units), rule]
    for pair in pairs.to_dict("records"):
        cells = [str(pair["count"]), percent(pair["share"]), f"{pair['entropy']:.3f}"]
        for side in SIDES:
            tokens_left = pair[f"{side}_tokens_left"]
            cells += [
                token_text(tokenizer, pair[f"{side}_token"]),
                f"{pair[f'{side}_probability']:.3f}",
                percent(pair[f"{side}_sampled"]),
                "-" if math.isnan(tokens_left) else f"{tokens_left:.1f}",
            ]
            cells += [percent(pair[f"{side}_correct"])] if with_correct else []
        lines.append(line(cells))
    return "\n".join(lines)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def reading(facts: dict[str, Any], shorter: float) -> str:
    """How to read the table, with its caveats."""
    text = (
        "CES lowers the entropy of correct completions at such tokens, which sharpens a fork towards the branch that "
        "is likelier there (mostly the left one). "
    )
    if math.isnan(shorter):
        text += (
            "Which way it leads is unknown: no fork had both of its branches drawn in completions that ended. Sample "
            "more (--num_samples), or longer (--max_new_tokens)."
        )
    else:
        text += f"Weighted by count x entropy, that branch is the shorter one in {percent(shorter)} % of the forks."
    paragraphs = [text]
    if facts["truncated"] > 0:
        paragraphs.append(
            f"{percent(facts['truncated'])} % of the completions were cut off and do not count in `tokens left`, so "
            "branches that go on look shorter than they are: raise --max_new_tokens."
        )
    if facts["too_short"] > 0:
        paragraphs.append(
            f"{percent(facts['too_short'])} % of the completions are so short that floor(length x tau) is 0 and CES "
            "would choose none of their tokens; here the one of highest entropy counts. A larger tau chooses more."
        )
    if math.isnan(facts["shaped_share"]) and not math.isnan(facts["accuracy"]):
        paragraphs.append(
            f"The shares of groups and of the tokens that CES shapes need {facts['num_generations']} completions with "
            f"a verdict to some prompt: --num_samples {facts['num_generations']}."
        )
    if facts["accuracy"] < MOSTLY_WRONG:
        paragraphs.append(
            f"Only {percent(facts['accuracy'])} % of the completions are correct. Of 61 small models below "
            f"{percent(MOSTLY_WRONG)} %, 58 lost more than half of their accuracy with CES at tau 0.2, one with DAPO; "
            "at 0.02 none of seven, without a gain."
        )
    if facts["accuracy"] < HARDLY_EVER:
        paragraphs.append(
            "Take easier problems or a stronger model first, and see that the reward reads answers correctly."
        )
    elif facts["accuracy"] >= HARDLY_EVER:  # not NaN
        limit = min(facts["max_new_tokens"], math.ceil(2 * facts["mean_length"]))
        paragraphs.append(
            "For short completions take the overlay `ces_mai`, for accuracy `on_policy_sft` with "
            f"`--max_completion_length {limit}`; if only longer completions solve some problems, `ces_correct_only`."
        )
    return "\n".join(textwrap.fill(paragraph, WIDTH) for paragraph in paragraphs)


def write_file(folder: Path, facts: dict[str, Any], pairs: pd.DataFrame, tokenizer: Any) -> Path:
    """Writes `forks.json`: settings, facts and all pairs; shares in [0, 1], entropies in bits, lengths in tokens."""
    texts = {f"{side}_text": [token_text(tokenizer, token) for token in pairs[f"{side}_token"]] for side in SIDES}
    rows = [_without_nan(row) for row in pairs.assign(**texts).to_dict("records")]
    file = folder / "forks.json"
    write_json(file, {**_without_nan(facts), "forks": rows})
    return file


def _without_nan(values: dict[str, Any]) -> dict[str, Any]:
    """NaN as `None`, which JSON has."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()}
