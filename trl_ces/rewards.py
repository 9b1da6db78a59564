"""
Reward functions for TRL.

- Is the answer correct, is the thinking well-formed (docs/deviations.md, rows 18 and 17)? Both know whether the chat
  template already opened `<think>`.
- `get_..._length_reward`: rewards of whole groups, from methods/. [`group_reward`] makes one of your own.

DAPO's soft overlong punishment is TRL's own `get_soft_overlong_punishment`.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from . import methods
from .grading.judge import judge, usable_golds
from .methods.group_reward import group_reward, reward_factory
from .methods.groups import Groups
from .support.prompts import THINK_CLOSE, THINK_OPEN, opens_thinking

__all__ = [
    "Groups",
    "accuracy_reward",
    "boxed_accuracy_reward",
    "group_reward",
    "think_format_reward",
]

logger = logging.getLogger(__name__)

# methods/NAME.py with a rule `NAME_length_reward` makes `get_NAME_length_reward`: a new one is one file.
for _module in iter_modules(methods.__path__):
    _rule = getattr(import_module(f"{methods.__name__}.{_module.name}"), f"{_module.name}_length_reward", None)
    if _rule is not None:
        globals()[f"get_{_rule.__name__}"] = reward_factory(_rule, __name__)
        __all__.append(f"get_{_rule.__name__}")

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Any]: ...


Completion = str | list[dict[str, Any]]

# Seconds of processor time of one comparison (docs/evaluation.md, "Time of a reward"). On a slow and busy machine 15
# of 300 correct answers took more than 0.2 s, and none more than 0.5 s.
_FIRST_LIMIT_S = 0.5
_LIMIT_S = 1.0

_reported_golds: set[str] = set()


def accuracy_reward(
    completions: Sequence[Completion],
    solution: Sequence[str | None],
    thinking_prefilled: bool | Sequence[bool] | None = None,
    last_turns: Sequence[str] | None = None,
    boxes_only: bool = False,
    **kwargs: Any,
) -> list[float | None]:
    r"""
    Rewards completions whose final answer is mathematically equal to the gold (r_acc in Eq. 2 of the paper).

    Args:
        completions (`Sequence[str | list[dict]]`):
            Plain or conversational completions. In a conversation the last assistant message counts.
        solution (`Sequence[str]`):
            Golds, one per completion, LaTeX or plain text.
        thinking_prefilled (`bool` or `Sequence[bool]`, *optional*):
            Whether the prompt already opened `<think>`, for all completions or one value per completion.
            [`CESTrainer`] passes what the model saw. `None`: read from string prompts; `False` for conversations.
        last_turns (`Sequence[str]`, *optional*):
            The model's last turns as generated, thinking included. [`CESTrainer`] passes them, because TRL may have
            parsed the thinking out of a completion's `content`. `None`: the `content` is graded.
        boxes_only (`bool`, *optional*, defaults to `False`):
            Whether an answer without a box is none; see [`boxed_accuracy_reward`].
        **kwargs:
            The other columns that TRL passes. `prompts` say what counts as the answer (its units, base, order and
            options), and a copy of a formula in them is none; they are also used if `thinking_prefilled` is `None`.

    Returns:
        `list[float | None]`: 1.0 for the gold; 0.0 for anything else, including unclosed thinking; `None` for an
        unusable gold, which is logged once, and for an answer that the batch has no time to decide, which is logged
        (`first_limit_s` of [`judge`](grading/judge.py)).

    Raises:
        `ValueError`: The arguments differ in length.

    Example:
        ```python
        >>> accuracy_reward([r"\boxed{\frac{1}{3}}", r"\boxed{0.3}"], ["1/3", "1/3"])
        [1.0, 0.0]
        ```
    """
    if len(solution) != len(completions):
        raise ValueError(
            f"solution has {len(solution)} entries for {len(completions)} completions: pass one for each."
        )
    prefilled = _prefilled(thinking_prefilled, len(completions), kwargs.get("prompts"))
    golds = ["" if gold is None else gold for gold in solution]
    for index, (gold, usable) in enumerate(zip(golds, usable_golds(golds), strict=True)):
        if not usable and gold not in _reported_golds:
            _reported_golds.add(gold)
            logger.warning("solution %d of the batch cannot be graded against; its reward is None: %r", index, gold)
    prompts = kwargs.get("prompts")
    if prompts is None:
        _warn_of_copies()
    grades = judge(
        _last_turns(completions, last_turns),
        golds,
        questions=None if prompts is None else [_last_text(prompt, "user") for prompt in prompts],
        thinking_prefilled=prefilled,
        boxes_only=boxes_only,
        limit_s=_LIMIT_S,
        first_limit_s=_FIRST_LIMIT_S,
    )
    return [None if grade.correct is None else float(grade.correct) for grade in grades]


def boxed_accuracy_reward(
    completions: Sequence[Completion], solution: Sequence[str | None], **kwargs: Any
) -> list[float | None]:
    r"""As [`accuracy_reward`], but only a `\boxed{...}` or `\fbox{...}` is an answer: nothing is read from prose."""
    return accuracy_reward(completions, solution, boxes_only=True, **kwargs)


@functools.cache  # said once
def _warn_of_copies() -> None:
    logger.warning(
        "accuracy_reward was called without `prompts`: a copy of the question's formula counts as an answer where it "
        "has the gold's value. Pass the prompts, as TRL does."
    )


def think_format_reward(
    completions: Sequence[Completion],
    thinking_prefilled: bool | Sequence[bool] | None = None,
    last_turns: Sequence[str] | None = None,
    **kwargs: Any,
) -> list[float]:
    """
    Rewards completions that think exactly once, first, and then answer, both in words or numbers.

    Args:
        completions (`Sequence[str | list[dict]]`):
            Plain or conversational completions. In a conversation the last assistant message counts.
        thinking_prefilled, last_turns:
            As in [`accuracy_reward`].
        **kwargs:
            The other columns that TRL passes; `prompts` is used if `thinking_prefilled` is `None`.

    Returns:
        `list[float]`: 1.0 or 0.0. If the prompt opened `<think>`, 1.0 takes exactly one `</think>` and no `<think>`;
        otherwise one `<think>`, preceded by nothing but white space, and one `</think>` after it. The thinking and
        what follows it each contain a letter or a digit.
    """
    prefilled = _prefilled(thinking_prefilled, len(completions), kwargs.get("prompts"))
    return [
        float(_is_well_formed(text, opened))
        for text, opened in zip(_last_turns(completions, last_turns), prefilled, strict=True)
    ]


def _is_well_formed(text: str, prefilled: bool) -> bool:
    if not prefilled:
        before, _, text = text.partition(THINK_OPEN)
        if before.strip():
            return False
    parts = text.split(THINK_CLOSE)
    return len(parts) == 2 and THINK_OPEN not in text and all(any(map(str.isalnum, part)) for part in parts)


def _last_turns(completions: Sequence[Completion], given: Sequence[str] | None) -> Sequence[str]:
    return [_last_text(completion, "assistant") for completion in completions] if given is None else given


def _last_text(messages: Completion, role: str) -> str:
    """A text itself, or that of a conversation's last message of `role`."""
    if isinstance(messages, str):
        return messages
    for message in reversed(messages):
        if message["role"] == role:
            content = message.get("content") or ""  # `None` in a message that only calls a tool
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
        raise ValueError(f"thinking_prefilled has {len(given)} entries for {count} completions: pass one for each.")
    return list(given)
