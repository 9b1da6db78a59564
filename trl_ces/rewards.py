"""
Reward functions for TRL: is the answer right (fidelity row 18), is the thinking well-formed (row 17)? Both know
whether the chat template already opened `<think>`. DAPO's soft overlong punishment is TRL's own:
`get_soft_overlong_punishment`.
"""

import logging
from collections.abc import Sequence
from typing import Any

from .grading import usable_golds
from .grading.early import EarlyGrading
from .support.prompts import THINK_CLOSE, THINK_OPEN, opens_thinking

logger = logging.getLogger(__name__)

Completion = str | list[dict[str, Any]]

_reported_golds: set[str] = set()
_early = EarlyGrading()


def accuracy_reward(
    completions: Sequence[Completion],
    solution: Sequence[str | None],
    thinking_prefilled: bool | Sequence[bool] | None = None,
    last_turns: Sequence[str] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    r"""
    Rewards a completion whose final answer is mathematically the gold (paper, r_acc in Eq. 2).

    Args:
        completions (`Sequence[str | list[dict]]`):
            Plain or conversational completions. Of a conversation with several turns the last assistant message
            counts.
        solution (`Sequence[str]`):
            Golds, one for each completion, LaTeX or plain.
        thinking_prefilled (`bool` or `Sequence[bool]`, *optional*):
            Whether the prompt already opened `<think>`, for all completions or for each. [`CESTrainer`] passes what
            the model saw. `None`: string prompts are looked at, conversational ones count as not prefilled.
        last_turns (`Sequence[str]`, *optional*):
            The model's last turn as it wrote it, thinking included. [`CESTrainer`] passes it, because TRL may have
            parsed the thinking out of the completion's `content`. `None`: the content is taken.
        **kwargs:
            The other columns that TRL passes; `prompts` is used where `thinking_prefilled` is `None`.

    Returns:
        `list[float | None]`: 1.0 for the gold, else 0.0, also where thinking was never closed. `None` where the gold
        is unusable, which is reported once for each gold.

    Raises:
        `ValueError`: The lengths of the arguments differ.

    Example:
        ```python
        >>> accuracy_reward([r"\boxed{\frac{1}{3}}", r"\boxed{0.3}"], ["1/3", "1/3"])
        [1.0, 0.0]
        ```
    """
    if len(solution) != len(completions):
        raise ValueError(
            f"solution has {len(solution)} entries for {len(completions)} completions: give one for each."
        )
    prefilled = _prefilled(thinking_prefilled, len(completions), kwargs.get("prompts"))
    golds = _golds(solution)
    for index, (gold, usable) in enumerate(zip(golds, usable_golds(golds), strict=True)):
        if not usable and gold not in _reported_golds:
            _reported_golds.add(gold)
            logger.warning("solution %d of the batch cannot be graded against, its reward is None: %r", index, gold)
    verdicts = _early.verdicts(_last_turns(completions, last_turns), golds, prefilled)
    return [None if correct is None else float(correct) for correct in verdicts]


def _start_grading(
    solution: Sequence[str | None] | None = None,
    thinking_prefilled: Sequence[bool] | None = None,
    last_turns: Sequence[str] | None = None,
    **kwargs: Any,
) -> None:
    """Begins what [`accuracy_reward`] will be asked: see `reward_interface.start_early`."""
    if solution is not None and last_turns is not None and thinking_prefilled is not None:
        _early.start(last_turns, _golds(solution), thinking_prefilled)


accuracy_reward.start_early = _start_grading  # type: ignore[attr-defined]


def _golds(solution: Sequence[str | None]) -> list[str]:
    return ["" if gold is None else gold for gold in solution]


def think_format_reward(
    completions: Sequence[Completion],
    thinking_prefilled: bool | Sequence[bool] | None = None,
    last_turns: Sequence[str] | None = None,
    **kwargs: Any,
) -> list[float]:
    """
    Rewards a completion that thinks exactly once, first, and then answers.

    Args:
        completions (`Sequence[str | list[dict]]`):
            Plain or conversational completions. Of a conversation with several turns the last assistant message
            counts.
        thinking_prefilled, last_turns:
            As in [`accuracy_reward`].
        **kwargs:
            The other columns that TRL passes; `prompts` is used where `thinking_prefilled` is `None`.

    Returns:
        `list[float]`: 1.0 or 0.0. Where the prompt opened `<think>`: exactly one `</think>` and no `<think>`. Else:
        `<think>` once, at the start (white space may precede it), and `</think>` once, after it.
    """
    prefilled = _prefilled(thinking_prefilled, len(completions), kwargs.get("prompts"))
    return [
        float(_is_well_formed(text, opened))
        for text, opened in zip(_last_turns(completions, last_turns), prefilled, strict=True)
    ]


def _is_well_formed(text: str, prefilled: bool) -> bool:
    opened, closed = text.count(THINK_OPEN), text.count(THINK_CLOSE)
    if prefilled:
        return (opened, closed) == (0, 1)
    return (opened, closed) == (1, 1) and text.lstrip().startswith(THINK_OPEN)


def _last_turns(completions: Sequence[Completion], given: Sequence[str] | None) -> Sequence[str]:
    return [_last_assistant_text(completion) for completion in completions] if given is None else given


def _last_assistant_text(completion: Completion) -> str:
    if isinstance(completion, str):
        return completion
    for message in reversed(completion):
        if message["role"] == "assistant":
            content = message.get("content") or ""  # a message that only calls a tool has none
            if isinstance(content, str):
                return content
            return "".join(part["text"] for part in content if part["type"] == "text")
    return ""


def _prefilled(given: bool | Sequence[bool] | None, count: int, prompts: Sequence[Any] | None) -> list[bool]:
    if given is None:
        if prompts is None:
            return [False] * count
        given = [isinstance(prompt, str) and opens_thinking(prompt) for prompt in prompts]
    if isinstance(given, bool):
        return [given] * count
    if len(given) != count:
        raise ValueError(f"thinking_prefilled has {len(given)} entries for {count} completions: give one for each.")
    return list(given)
