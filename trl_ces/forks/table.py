"""What `trl-ces inspect` shows: the table of forks, how to read it, and the same numbers as files."""

from __future__ import annotations

import csv
import json
import math
import textwrap
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .pairs import CLOSE, Branch, Direction, Fork
from .tokens import token_text

WIDTH = 119
# Name, unit and width of a column; those of a branch stand there twice. The token takes what is left.
FORK_COLUMNS = [("count", "", 5), ("share", "%", 5), ("entropy", "bits", 7)]
BRANCH_COLUMNS = [("mean P", "", 6), ("sampled", "%", 7), ("tokens left", "mean", 11)]
CORRECT_COLUMN = ("correct", "%", 7)
MAX_TOKEN_WIDTH = 18


def report(facts: dict[str, Any], forks: Sequence[Fork], leads: Direction, tokenizer: Any, top: int) -> str:
    """
    What is printed.

    Args:
        facts (`dict`): Settings, and what [`summarize`] says.
        forks (`Sequence[Fork]`): In the order in which they are to be shown.
        leads ([`Direction`]): Of all forks.
        tokenizer (`PreTrainedTokenizerBase`): Writes the tokens.
        top (`int`): Forks to show.
    """
    shown = forks[:top]
    rest = ""
    if len(forks) > top:
        weight = sum(fork.weight for fork in forks)
        part = percent(sum(fork.weight for fork in shown) / weight if weight else math.nan)
        rest = f"\n{len(forks) - top} more pairs are not shown (--top); those shown hold {part} % of count x entropy."
    table = fork_table(shown, tokenizer, with_correct=not math.isnan(facts["accuracy"]))
    return f"{opening(facts)}\n\n{table}{rest}\n\n{reading(facts, leads)}"


def opening(facts: dict[str, Any]) -> str:
    """What was sampled, and what it is like as a whole."""
    sampled = (
        f"{facts['model']}: {facts['answers']} answers ({facts['num_prompts']} prompts x {facts['num_samples']}) at "
        f"temperature {facts['temperature']:g}, at most {facts['max_new_tokens']} tokens, seed {facts['seed']}"
    )
    lines = [
        ("mean length, the end token counts", f"{facts['mean_length']:.1f}", "tokens"),
        ("cut off at the most tokens", percent(facts["truncated"]), "%"),
        ("mean entropy of all tokens", f"{facts['entropy']:.3f}", "bits"),
        (f"mean entropy of the forking tokens (tau {facts['tau']:g})", f"{facts['fork_entropy']:.3f}", "bits"),
    ]
    if not math.isnan(facts["accuracy"]):
        lines.append(("correct", percent(facts["accuracy"]), "%"))
    return "\n".join(
        [
            textwrap.fill(sampled, WIDTH, break_long_words=False, break_on_hyphens=False),
            *(f"  {name:<48}{value:>8} {unit}" for name, value, unit in lines),
        ]
    )


def fork_table(forks: Sequence[Fork], tokenizer: Any, with_correct: bool) -> str:
    """A line for each fork, its likelier branch on the left, at most 119 columns wide."""
    of_branch = [*BRANCH_COLUMNS, CORRECT_COLUMN] if with_correct else BRANCH_COLUMNS
    left = sum(width + 2 for _, _, width in FORK_COLUMNS) - 2
    numbers = sum(width + 2 for _, _, width in of_branch)
    token_width = min((WIDTH - left) // 2 - numbers - 2, MAX_TOKEN_WIDTH)

    def line(fork_cells: Sequence[str], branches: Sequence[Sequence[str]]) -> str:
        cells = [f"{cell:>{width}}" for cell, (_, _, width) in zip(fork_cells, FORK_COLUMNS, strict=True)]
        for token, *rest in branches:
            cells.append(pad(token, token_width))
            cells += [f"{cell:>{width}}" for cell, (_, _, width) in zip(rest, of_branch, strict=True)]
        return "  ".join(cells).rstrip()

    half = token_width + numbers
    lines = [
        f"{'':<{left}}  {'likelier branch':<{half}}  other branch",
        line([name for name, _, _ in FORK_COLUMNS], 2 * [["token", *(name for name, _, _ in of_branch)]]),
        line([unit for _, unit, _ in FORK_COLUMNS], 2 * [["", *(unit for _, unit, _ in of_branch)]]),
        "-" * (left + 2 * (half + 2)),
    ]

    def branch_cells(branch: Branch) -> list[str]:
        cells = [token_text(tokenizer, branch.token), f"{branch.probability:.3f}", percent(branch.sampled)]
        cells.append("-" if math.isnan(branch.tokens_left) else f"{branch.tokens_left:.1f}")
        return [*cells, percent(branch.correct)] if with_correct else cells

    for fork in forks:
        own = [str(fork.count), percent(fork.share), f"{fork.entropy:.3f}"]
        lines.append(line(own, [branch_cells(fork.likelier), branch_cells(fork.other)]))
    return "\n".join(lines)


def reading(facts: dict[str, Any], leads: Direction) -> str:
    """How to read the table, and what spoils it."""
    text = (
        "CES lowers the entropy of correct answers at such tokens, which sharpens a fork towards the branch that is "
        "likelier there (mostly the left one). "
    )
    if leads.comparable == 0:
        text += (
            "Where it leads cannot be said: no fork had both of its branches drawn in answers that ended. Sample more "
            "(--num_samples), or longer (--max_new_tokens)."
        )
    else:
        more = "more" if leads.difference > 0 else "fewer"
        text += (
            f"Weighted by count x entropy, that branch is the shorter one in {percent(leads.shorter)} % of the forks "
            f"and the longer one in {percent(leads.longer)} %; on average it has {abs(leads.difference):.1f} tokens "
            f"{more} to go. (Counted where both branches were drawn in answers that ended: "
            f"{percent(leads.comparable)} % of all.)"
        )
    text += (
        f" In {percent(leads.close)} % of all, the branches are less than {CLOSE} apart at the place itself: "
        "sharpening is weak there, and rewards can turn the fork either way. This describes the sample; it does not "
        "predict the training."
    )
    paragraphs = [text]
    if facts["truncated"] > 0:
        paragraphs.append(
            f"{percent(facts['truncated'])} % of the answers were cut off and do not count in `tokens left`, so "
            "branches that go on look shorter than they are: raise --max_new_tokens."
        )
    if facts["too_short"] > 0:
        paragraphs.append(
            f"{percent(facts['too_short'])} % of the answers are so short that floor(length x tau) is 0 and CES would "
            "choose none of their tokens; here the one of highest entropy counts. A larger tau chooses more."
        )
    return "\n".join(textwrap.fill(paragraph, WIDTH) for paragraph in paragraphs)


def percent(share: float) -> str:
    """`"41.7"` for 0.417, `"-"` for NaN."""
    return "-" if math.isnan(share) else f"{100 * share:.1f}"


def pad(text: str, width: int) -> str:
    """`text` cut or filled to `width` columns of a terminal, in which a Chinese character takes two."""

    def columns(part: str) -> int:
        return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in part)

    if columns(text) > width:
        text = text[:width]
        while columns(text) > width - 1:
            text = text[:-1]
        text += "…"
    return text + " " * (width - columns(text))


def write_files(folder: Path, facts: dict[str, Any], forks: Sequence[Fork], tokenizer: Any) -> list[Path]:
    """
    Writes `forks.csv`, a row for each fork, and `forks.json`, the same with the settings; of all forks.

    Shares are in [0, 1], entropies in bits, lengths in tokens. What has no value is empty, or null.
    """
    rows = []
    for fork in forks:
        row = {name: value for name, value in vars(fork).items() if not isinstance(value, Branch)}
        for side, branch in (("likelier", fork.likelier), ("other", fork.other)):
            row[f"{side}_text"] = token_text(tokenizer, branch.token)
            row |= {f"{side}_{name}": value for name, value in vars(branch).items()}
        rows.append(_without_nan(row))
    table, whole = folder / "forks.csv", folder / "forks.json"
    with table.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    content = {**_without_nan(facts), "forks": rows}
    whole.write_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return [table, whole]


def _without_nan(values: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()}
