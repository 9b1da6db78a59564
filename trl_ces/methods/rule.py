"""What a token rule is: one object that names its function, its settings and what it needs.

A rule turns the advantages of a micro-batch, (B,), into A', (B, T). Everything about it is in one file: the function,
its settings as a dataclass whose fields are made by [`setting`] and [`share`], and the [`Rule`] that joins them. From
it follow the fields of `CESConfig`, their ranges and help, the model card and the docs.

`shaping` names a rule in one of three ways, which all end in [`find_rule`]: a name of [`built_in`]; a path
`my_package.rules:my_rule`, for which the working directory is searched too; a name that an installed package registers
in the entry-point group `trl_ces.methods`. docs/examples/my_rule.py is a rule to start from, and
`trl-ces check my_package.rules:my_rule` tries one out.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Any

from ..support.errors import nearest
from ..support.imports import import_path
from .shaped import ShapedAdvantages

ENTRY_POINTS = "trl_ces.methods"
# With at most nine decimals in a share, the numerator of len * share * b fits int64 while len * G < nine billion.
MAX_DECIMALS = 9
# Ends a refusal of a setting of TRL's.
OR_OFF = 'or set `shaping="none"` (a field of `CESConfig`)'

# Says what is wrong: the name of a setting, and a clause with the way out.
Refuse = Callable[[str, str], None]


class Need(Enum):
    """What a rule reads, or asks of the trainer."""

    VERDICTS = "`correct`, `scored`, `group_correct` and `group_scored`, (B,): `ces/*` is logged for it"
    RATIOS = "a clipped objective with an importance ratio per token, Eq. 1"
    WHOLE_MICRO_BATCHES = "a mean or a rank over the rows of a micro-batch, so that rows cannot be rearranged"


@dataclass(frozen=True)
class Rule:
    """
    A token rule.

    Args:
        name (`str`): As in `shaping`, in metrics, and before its settings in `CESConfig`.
        title (`str`): What the model card says after "trained with".
        function (`Callable`):
            `function(batch, entropies_nats, mask, **settings)`, which returns [`ShapedAdvantages`]. `batch`
            (`dict[str, Tensor]`) holds the rollout's tensors: `advantages` (B,), A of Eq. 3; what `needs` names; and,
            (B, T), natural logs, `logps`, of the policy being updated and in the graph, and `old_logps`, of the policy
            that sampled. `entropies_nats` (B, T), nats, in the graph, 0 on padding. `mask` (B, T), the loss mask.
        settings (`type`): A dataclass with a default for every field, see [`setting`].
        needs (`frozenset[Need]`): See [`Need`].
        differentiates (`str`, *optional*):
            Through what the loss gets a gradient beside the importance ratio: `"entropies"`, `"logps"` or nothing.
        check (`Callable[[CESConfig, Refuse], None]`, *optional*):
            Refuses settings of the run, the rule's own together or TRL's, that would not train what the rule defines.
        given (`Callable[[CESConfig], dict]`, *optional*): More keyword arguments of the function, from TRL's settings.
        control (`Callable[[dict, float], None]`, *optional*):
            `control(state, entropy, **settings)`, called after each rollout with the policy's mean entropy over the
            tokens of its optimizer steps, of all processes, in nats. Changes `state` in place: numbers by name, empty
            at first, which are logged, saved with checkpoints, and given to the function as `state`.
    """

    name: str
    title: str
    function: Callable[..., ShapedAdvantages]
    settings: type
    needs: frozenset[Need] = frozenset()
    differentiates: str | None = None
    check: Callable[[Any, Refuse], None] | None = None
    given: Callable[[Any], dict[str, Any]] | None = None
    control: Callable[..., None] | None = None

    def read(self, values: Mapping[str, Any], refuse: Refuse) -> dict[str, Any]:
        """The settings with their defaults; `refuse` is told of an unknown name and of a value out of range."""
        own = {entry.name: entry for entry in dataclasses.fields(self.settings)}
        for name in values.keys() - own.keys():
            refuse(
                name, f"{self.name} has no such setting.{nearest(name, own)} There are: {', '.join(own) or 'none'}."
            )
        found = {name: values.get(name, entry.default) for name, entry in own.items()}
        for name, value in found.items():
            problem = problem_with(own[name], value)
            if problem is not None:
                refuse(name, problem)
        return found


def setting(
    default: Any,
    help: str,
    holds: Callable[[Any], bool] | None = None,
    reason: str = "",
    words: tuple[str, ...] = (),
) -> Any:
    """
    A field of a rule's settings.

    Args:
        default (`Any`): A number, a bool or a text, which also gives the type; `None`: a number or nothing.
        help (`str`): What it is, with its symbol and equation in the paper, in one sentence.
        holds (`Callable`, *optional*): Whether a value is in range.
        reason (`str`): What is said of a value that is not: a clause with the way out.
        words (`tuple[str, ...]`): What may stand in a number's place.
    """
    if holds is None and isinstance(default, float):
        holds, reason = math.isfinite, "it must be a finite number."
    return field(default=default, metadata={"help": help, "holds": holds, "reason": reason, "words": words})


def share(default: float, help: str, *, zero: bool, words: tuple[str, ...] = ()) -> Any:
    """
    A [`setting`] that is a share of tokens in [0, 1], counted exactly.

    `zero`: whether 0 is allowed. `words`: what may stand in its place.
    """
    interval = "in [0, 1]" if zero else 'in (0, 1], and at least one token is chosen (for none set `shaping="none"`)'
    reason = f"it is a share of tokens {interval}, counted exactly: round it to {MAX_DECIMALS} decimals at most; "

    def holds(value: float) -> bool:
        return (zero or value > 0) and 0 <= value <= 1 and (exact(value) * 10**MAX_DECIMALS).denominator == 1

    return setting(default, help, holds, f"{reason}{default:g} is the default.", words)


def exact(value: float) -> Fraction:
    """A number as the decimal that the user wrote, without the float's rounding."""
    return Fraction(repr(float(value)))


def problem_with(entry: Any, value: Any) -> str | None:
    """Why a value does not fit the field of a rule's settings; `None` if it does."""
    if (value is None and entry.default is None) or value in entry.metadata.get("words", ()):
        return None
    if entry.default is None or isinstance(entry.default, float):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return "it must be a number."
    elif type(value) is not type(entry.default):
        return f"it must be a {type(entry.default).__name__}."
    holds = entry.metadata.get("holds")
    return None if holds is None or holds(value) else entry.metadata["reason"]


@cache
def find_rule(name: str) -> Rule | None:
    """
    The rule that `shaping` names; `None` for `"none"`.

    Raises:
        `ValueError`: There is none, or its path names something else.
    """
    if name == "none":
        return None
    found: Any = None
    if ":" in name:
        found = import_path(name, "shaping")
    elif (found := built_in().get(name)) is None:
        registered = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
        if name not in registered:
            known = [*built_in(), "none", *registered]
            raise ValueError(
                f"`shaping` is {name!r}:{nearest(name, known)} choose one of {', '.join(map(repr, known))}, or give a "
                "path such as 'my_package.rules:my_rule'."
            )
        found = registered[name].load()
    if not isinstance(found, Rule):
        raise ValueError(f"`shaping` is {name!r}, which is a {type(found).__name__}, not a trl_ces.methods.rule.Rule.")
    return found


@cache
def built_in() -> dict[str, Rule]:
    """The rules of this package by name: of each file beside this one that has a `rule`."""
    here = import_module(__package__)
    modules = [import_module(f"{__package__}.{found.name}") for found in iter_modules(here.__path__)]
    return {module.rule.name: module.rule for module in modules if isinstance(getattr(module, "rule", None), Rule)}
