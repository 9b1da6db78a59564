"""
Reward functions for TRL.

- [`accuracy_reward`], [`boxed_accuracy_reward`] and [`think_format_reward`] grade each completion separately. They
  take into account whether the chat template already opened `<think>` (docs/deviations.md, rows 17 and 18).
- `get_NAME_length_reward`: length rewards, computed per group. [`group_reward`] turns your own function into a
  group reward.

For DAPO's soft overlong punishment, use TRL's `get_soft_overlong_punishment`.
"""

import functools
import logging
from collections.abc import Sequence
from typing import Any

from .grading.judge import judge, usable_golds
from .methods.group_reward import group_reward
from .methods.groups import Groups
from .methods.length_rewards import (
    get_alp_length_reward,
    get_arora_length_reward,
    get_gr3_length_reward,
    get_grpo_lead_length_reward,
    get_kimi_length_reward,
    get_laser_length_reward,
    get_linear_length_reward,
    get_mai_length_reward,
    get_shorter_length_reward,
    get_smart_thinker_length_reward,
)
from .support.prompts import THINK_CLOSE, THINK_OPEN, opens_thinking

__all__ = [
    "Groups",
    "accuracy_reward",
    "boxed_accuracy_reward",
    "get_alp_length_reward",
    "get_arora_length_reward",
    "get_gr3_length_reward",
    "get_grpo_lead_length_reward",
    "get_kimi_length_reward",
    "get_laser_length_reward",
    "get_linear_length_reward",
    "get_mai_length_reward",
    "get_shorter_length_reward",
    "get_smart_thinker_length_reward",
    "group_reward",
    "think_format_reward",
]

logger = logging.getLogger(__name__)

Completion = str | list[dict[str, Any]]

# Limits on the CPU time of a comparison, in seconds (docs/grading.md, "Limits"). On a slow, busy machine, 15 of 300
# comparisons of correct final answers took over 0.2 s, and none took over 0.5 s.
_FIRST_LIMIT_S = 0.5
_LIMIT_S = 1.0


def accuracy_reward(
    completions: Sequence[Completion],
    solution: Sequence[str | None],
    thinking_prefilled: bool | Sequence[bool] | None = None,
    last_turns: Sequence[str] | None = None,
    boxes_only: bool = False,
    **kwargs: Any,
) -> list[float | None]:
    r"""
    Reward final answers that are mathematically equal to the reference answer (r_acc in Eq. 2 of the paper).

    Args:
        completions (`Sequence[str | list[dict]]`):
            Plain or conversational completions. In a conversation, the last assistant message is graded.
        solution (`Sequence[str]`):
            Reference answers, one per completion, in LaTeX or plain text.
        thinking_prefilled (`bool` or `Sequence[bool]`, *optional*):
            Whether the prompt already opened `<think>`: one value for all completions, or one per completion.
            [`CESTrainer`] passes it. If `None`, it is inferred from string prompts and is `False` for conversations.
        last_turns (`Sequence[str]`, *optional*):
            The model's last turns as generated, including the thinking. [`CESTrainer`] passes them, because TRL may
            have removed the thinking from a completion's `content`. Set it to `None` to grade edited `completions`.
        boxes_only (`bool`): Whether to accept only boxed final answers; see [`boxed_accuracy_reward`].
        **kwargs:
            Additional columns that TRL passes. `prompts` determines the expected units, base, order and options;
            a formula copied from the prompt is not accepted.

    Returns:
        `list[float | None]`: 1.0 if the final answer equals the reference answer and the thinking is closed, 0.0
        otherwise. `None`, with a warning, if the reference answer cannot be parsed or the comparison times out
        (`first_limit_s` of [`judge`]).

    Raises:
        `ValueError`: The arguments differ in length.

    Example:
        ```python
        >>> accuracy_reward([r"\boxed{\frac{1}{3}}", r"\boxed{0.3}"], ["1/3", "1/3"])
        [1.0, 0.0]
        ```
    """
    prompts = kwargs.get("prompts")
    golds = ["" if gold is None else gold for gold in solution]
    for gold, usable in zip(golds, usable_golds(golds), strict=True):
        if not usable:
            _warn_once(f"The solution {gold!r} cannot be parsed as a reference answer, so the reward is None.")
    if prompts is None:
        _warn_once(
            "accuracy_reward was called without `prompts`, so it accepts a formula copied from the question if the "
            "formula equals the reference answer. Pass the prompts, as TRL does."
        )
    grades = judge(
        last_turns or [_last_text(completion, "assistant") for completion in completions],
        golds,
        questions=None if prompts is None else [_last_text(prompt, "user") for prompt in prompts],
        thinking_prefilled=_thinking_prefilled(thinking_prefilled, len(completions), prompts),
        boxes_only=boxes_only,
        limit_s=_LIMIT_S,
        first_limit_s=_FIRST_LIMIT_S,
    )
    return [None if grade.correct is None else float(grade.correct) for grade in grades]


def boxed_accuracy_reward(
    completions: Sequence[Completion], solution: Sequence[str | None], **kwargs: Any
) -> list[float | None]:
    r"""Apply [`accuracy_reward`], but accept a final answer only in `\boxed{...}` or `\fbox{...}`, not in prose."""
    return accuracy_reward(completions, solution, boxes_only=True, **kwargs)


def think_format_reward(
    completions: Sequence[Completion],
    thinking_prefilled: bool | Sequence[bool] | None = None,
    last_turns: Sequence[str] | None = None,
    **kwargs: Any,
) -> list[float]:
    """
    Reward completions that consist of one block of thinking followed by a final answer.

    Args:
        completions, thinking_prefilled, last_turns:
            As in [`accuracy_reward`].
        **kwargs:
            Additional columns that TRL passes. `prompts` is read if `thinking_prefilled` is `None`.

    Returns:
        `list[float]`: 1.0 for a well-formed completion, else 0.0. If the prompt opened `<think>`, a completion needs
        exactly one `</think>` and no `<think>`. Otherwise it needs one `<think>`, with only whitespace before it, and
        one `</think>` after it. Both the thinking and the text after it must contain a letter or a digit.
    """
    prefilled = _thinking_prefilled(thinking_prefilled, len(completions), kwargs.get("prompts"))
    texts = last_turns or [_last_text(completion, "assistant") for completion in completions]
    return [float(_is_well_formed(text, opened)) for text, opened in zip(texts, prefilled, strict=True)]


def _is_well_formed(text: str, prefilled: bool) -> bool:
    if not prefilled:
        before, _, text = text.partition(THINK_OPEN)
        if before.strip():
            return False
    parts = text.split(THINK_CLOSE)
    return len(parts) == 2 and THINK_OPEN not in text and all(any(map(str.isalnum, part)) for part in parts)


def _last_text(messages: Completion, role: str) -> str:
    """Return the text of the last message with this role; return a string unchanged."""
    if isinstance(messages, str):
        return messages
    content = next((message.get("content") for message in reversed(messages) if message["role"] == role), None)
    if content is None:  # a message that only calls a tool
        return ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content if part["type"] == "text")


def _thinking_prefilled(flags: bool | Sequence[bool] | None, count: int, prompts: Sequence[Any] | None) -> list[bool]:
    """Return whether each prompt opened `<think>`, as given by `flags` or inferred from string prompts."""
    if flags is None:
        flags = prompts is not None and [isinstance(prompt, str) and opens_thinking(prompt) for prompt in prompts]
    return [flags] * count if isinstance(flags, bool) else list(flags)


@functools.cache
def _warn_once(message: str) -> None:
    logger.warning(message)
