"""A forecast in words, and as rows for a file."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from .forecast import CERTAIN, Forecast, Reason
from .table import WIDTH, without_nan
from .tokens import token_text

# With fewer answers per prompt, a rare right branch goes unseen at many prompts, which the error does not show.
ENOUGH = 32
# Verdict -> how often it was right, and was told, in the test on 30 worlds (docs/study/forecast/worlds.csv), and how
# often lengths fell, of those that changed.
CAME_TRUE = {"shortens": (37, 38), "lengthens": (4, 8)}
FELL = (51, 59)


def forecast_text(forecasts: Sequence[Forecast] | None, tokenizer: Any, num_samples: int) -> str:
    """
    What is printed.

    Args:
        forecasts (`Sequence[Forecast]`, *optional*): From [`forecast`]; `None` without verdicts.
        tokenizer (`PreTrainedTokenizerBase`): Decodes the branches.
        num_samples (`int`): Answers per prompt.
    """
    if forecasts is None:
        said = "No forecast of the length: it needs to know which answers are correct (--config, or --reward_funcs)."
        return textwrap.fill(said, WIDTH)
    if not forecasts:
        return "No forecast of the length: no answer with a verdict has a fork."
    opening = (
        f"Forecast of the mean length, now {forecasts[0].length:.1f} tokens, for a training about as long as that of "
        f"recipes/arithmetic; ± {CERTAIN:g} standard errors of this sample:"
    )
    lines = [textwrap.fill(opening, WIDTH), *(forecast_line(one, tokenizer) for one in forecasts)]
    if num_samples < ENOUGH:
        hint = (
            f"Where the right branch is rare, {num_samples} answers per prompt can give the wrong sign: "
            f"--num_samples {ENOUGH}."
        )
        lines.append(f"  {hint}")
    told = [verdict for verdict in CAME_TRUE if verdict in {one.verdict for one in forecasts}]
    if told:
        record = " and ".join('"{}" was right in {} of {}'.format(verdict, *CAME_TRUE[verdict]) for verdict in told)
        fell = "lengths fell in {} of {}".format(*FELL)
        lines.append(f"  In its test on 30 small worlds {record}; {fell}.")
    return "\n".join(lines)


def forecast_line(one: Forecast, tokenizer: Any) -> str:
    """One method's forecast with its reason, indented."""
    if one.reason is None:
        said = f"{one.method}: cannot tell. No fork of this sample moves."
    else:
        margin = f" ± {CERTAIN * one.error:.1f}" if math.isfinite(one.error) else ""
        size = f"{one.change:+.1f}{margin} tokens, to {one.length + one.change:.1f}"
        said = f"{one.method}: {one.verdict} ({size}). {reason_text(one.reason, tokenizer)}"
    return textwrap.fill(said, WIDTH, initial_indent="  ", subsequent_indent="    ")


def reason_text(reason: Reason, tokenizer: Any) -> str:
    """Which fork, which branch, and the tokens that hang on it."""
    gains, loses = token_text(tokenizer, reason.gains), token_text(tokenizer, reason.loses)
    left = [
        f"{name} has {tokens:.1f} to go"
        for name, tokens in ((gains, reason.gains_left), (loses, reason.loses_left))
        if not math.isnan(tokens)
    ]
    return (
        f"At {gains} or {loses}, {gains} goes from {reason.before:.2f} to {reason.after:.2f}"
        f"{'; ' if left else ''}{', '.join(left)}. That fork alone: {reason.change:+.1f} tokens."
    )


def forecast_rows(forecasts: Sequence[Forecast] | None, tokenizer: Any) -> list[dict[str, Any]]:
    """One row per method: the fields of [`Forecast`], its verdict, and the branches' texts; `None` for NaN."""
    rows = []
    for one in forecasts or []:
        row = without_nan({**asdict(one), "verdict": one.verdict})
        if one.reason is not None:
            texts = {f"{side}_text": token_text(tokenizer, getattr(one.reason, side)) for side in ("gains", "loses")}
            row["reason"] = texts | without_nan(asdict(one.reason))
        rows.append(row)
    return rows
