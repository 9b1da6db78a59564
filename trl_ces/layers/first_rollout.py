"""Says before and after the first rollout why a run teaches nothing, if it does not."""

from collections.abc import Mapping
from typing import Any

import torch

from ..methods.groups import Groups
from ..methods.rule import exact
from .reward_guard import parameters_of

_SHOWN = 160  # characters of a completion and of a gold


def tau_for(mean_length: float) -> float:
    """
    What `ces_tau: auto` stands for: 4 / mean length, but no less than the paper's 0.01.

    Eq. 5 then shapes about four tokens of a completion where b is 1. How long a model's completions are is known only
    once it has written some, so the first rollout decides, and the number stays for the run: it is logged, written to
    the run's recipe.yaml and run.json, and kept in checkpoints.
    """
    return round(min(max(4 / mean_length, 0.01), 1), 4)


def never_shapes(tau: float | str, longest: int | None) -> str:
    """Why completions of at most `longest` tokens have no shaped one (Eq. 5), for the log; empty if some may."""
    if longest is None or isinstance(tau, str) or tau == 0 or longest * exact(tau) >= 1:
        return ""
    return (
        f"Nothing will be shaped: a completion of at most {longest} tokens (`max_completion_length`) has no token to "
        f"spare for `ces_tau` {tau:g} (Eq. 5). Set it to {4 / longest:.2g}, about 4 shaped tokens."
    )


def lost_to_rounding(weight: torch.Tensor, rate: float) -> str:
    """Why weights of 16 bits do not follow Adam, whose steps are about `rate`, for the log; empty if most do."""
    if weight.dtype not in (torch.bfloat16, torch.float16):
        return ""
    sample = weight.detach().flatten()[:1_000_000]
    stay = (sample + rate == sample).float().mean().item()
    if stay < 0.5:
        return ""
    kind = str(weight.dtype).removeprefix("torch.")
    return (
        f"Little will be learned: {100 * stay:.1f} % of the {kind} weights are too coarse for a step of "
        f"`learning_rate` {rate:g}. Load the model with `dtype: float32`, train an adapter (`use_peft: true`), or use "
        "DeepSpeed, which keeps float32 copies."
    )


def teaches_nothing(groups: Groups, tau: float | None, seen: str) -> str:
    """
    Sentences with the likeliest cause and the way out; empty if the first rollout, of all processes, teaches.

    `tau` is the share of a completion that is shaped, or `None` where nothing depends on it; `seen` is what
    [`what_it_saw`] says.
    """
    count = groups.correct.numel()
    if not groups.scored.any():
        return (
            f"The accuracy reward is None for all {count} completions of the first rollout, so nothing is trained: no "
            f"gold can be graded against. {seen}"
        )
    if not groups.correct.any():
        cut_off = 100 * groups.truncated.float().mean().item()
        return (
            f"None of the {count} completions of the first rollout is correct ({cut_off:.0f} % were cut off at "
            f"`max_completion_length`). {seen} If that completion is correct, the reward expects another form. "
            "Else try easier problems, longer completions, or a stronger model. `trl-ces inspect` shows more."
        )
    if groups.correct[groups.scored].all():
        return (
            f"All {count} completions of the first rollout are correct: with equal rewards nothing is learned but "
            "length. Take harder problems."
        )
    longest = groups.lengths.max().item()
    if tau and longest * tau < 1:
        mean = groups.lengths.float().mean().item()
        return (
            f"No token of the first rollout is shaped: its longest completion has {longest:.0f} tokens, and `ces_tau` "
            f"{tau:g} takes one in {1 / tau:.0f}. Set it to about {4 / mean:.1g}, four tokens a completion."
        )
    return ""


def what_it_saw(reward: Any, completion: Any, row: Mapping[str, Any]) -> str:
    """What an accuracy reward got of a completion and its row of the data, and whether it takes a number for text."""
    text = str(completion if isinstance(completion, str) else completion[-1].get("content") or "")
    gold = "" if row.get("solution") is None else f" against the gold {str(row['solution'])[:_SHOWN]!r}"
    said = f"For example, it got {'...' if len(text) > _SHOWN else ''}{text[-_SHOWN:]!r}{gold}."
    numbers = [one.name for one in parameters_of(reward) if type(row.get(one.name)) in (int, float)]
    if numbers:
        said += f" `{numbers[0]}` is a number, never equal to text: if the reward compares the two, take `str(...)`."
    return said
