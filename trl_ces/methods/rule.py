"""Interface of a token rule: its function, its settings and what it needs from the trainer.

A rule turns the advantages of a micro-batch, (B,), into A', (B, T). The settings of the built-in rules are fields of
[`CESConfig`]. The settings of your own rule are fields of a dataclass, created with [`setting`] and [`share`] and set
by `shaping_kwargs`. docs/examples/my_rule.py is an example, and [`check_rule`](../lab/testing.py) tests a rule.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any

from torch import Tensor

from ..support.errors import nearest

# Decimal places of a share. With nine, the numerator of Eq. 5 fits in int64 if length * group size is below 9e9.
MAX_DECIMALS = 9
# Alternative remedy, appended to error messages about TRL's settings.
OR_OFF = 'or set `shaping="none"` (a field of `CESConfig`)'

# Function that raises an error about a setting; takes the setting's name and a clause with the remedy.
Reject = Callable[[str, str], None]


class Need(Enum):
    """What a rule needs from the trainer."""

    CORRECTNESS = "`correct`, `scored`, `group_correct` and `group_scored`, (B,); also logs the `ces/*` metrics"
    RATIOS = "a clipped objective with an importance ratio per token, Eq. 1"


@dataclass(frozen=True)
class ShapedAdvantages:
    """
    Result of a rule.

    Args:
        advantages (`Tensor`): Shape (B, T), A'. It requires gradients if the rule keeps the entropy gradient.
        selected (`Tensor`): Shape (B, T), bool, S_H: tokens whose advantage the rule changed.
    """

    advantages: Tensor
    selected: Tensor


@dataclass(frozen=True)
class Rule:
    """
    A token rule.

    Args:
        name (`str`): Name in `shaping` and in metrics.
        title (`str`): The method's name in the model card, after "trained with".
        function (`Callable`):
            `function(batch, entropies_nats, mask, **settings)`, which returns [`ShapedAdvantages`]. `batch`
            (`dict[str, Tensor]`) contains the rollout's tensors: `advantages` (B,), A of Eq. 3; the tensors listed in
            `needs`; `logps` (B, T), differentiable log-probs (natural) of the policy being updated; and `old_logps`
            (B, T), log-probs of the policy that generated the rollout. `entropies_nats` (B, T): differentiable, in
            nats, 0 on padding. `mask` (B, T): the loss mask.
        settings (`type`, *optional*):
            Settings of a custom rule: a dataclass with a default for every field; see [`setting`].
        needs (`frozenset[Need]`): See [`Need`].
        differentiates (`str`, *optional*):
            Source of gradients besides the importance ratio: `"entropies"`, `"logps"` or `None`.
        check (`Callable[[CESConfig, Reject], None]`, *optional*):
            Rejects TRL settings and combinations of the rule's own settings that contradict the rule's definition.
        config_fields (`tuple[str, ...]`):
            Names of a built-in rule's settings. Each is a keyword argument of `function` and the end of a field name
            of [`CESConfig`], `NAME_SETTING`.
    """

    name: str
    title: str
    function: Callable[..., ShapedAdvantages]
    settings: type | None = None
    needs: frozenset[Need] = frozenset()
    differentiates: str | None = None
    check: Callable[[Any, Reject], None] | None = None
    config_fields: tuple[str, ...] = ()

    def read_settings(self, values: Mapping[str, Any], reject: Reject) -> dict[str, Any]:
        """Fill in the defaults that `values` lacks; call `reject` for an unknown name or a value out of range."""
        entries = {entry.name: entry for entry in dataclasses.fields(self.settings)} if self.settings else {}
        for name in values.keys() - entries.keys():
            names = ", ".join(entries) or "none"
            reject(name, f"{self.name} has no such setting.{nearest(name, entries)} Its settings: {names}.")
        settings = {name: values.get(name, entry.default) for name, entry in entries.items()}
        for name, value in settings.items():
            problem = _problem(entries[name], value)
            if problem is not None:
                reject(name, problem)
        return settings


def setting(default: Any, help: str, is_valid: Callable[[Any], bool] | None = None, reason: str = "") -> Any:
    """
    Create a field of a rule's settings.

    Args:
        default (`Any`):
            A number, bool or string, which also sets the type. If the default is `None`, values are numbers or `None`.
        help (`str`): The setting's meaning, with its symbol and equation in the paper, in one sentence.
        is_valid (`Callable`, *optional*): Function that returns whether a value is in range.
        reason (`str`): Clause at the end of the error message for a value out of range. It states the remedy.
    """
    if is_valid is None and isinstance(default, float):
        is_valid, reason = math.isfinite, "it must be a finite number."
    return field(default=default, metadata={"help": help, "is_valid": is_valid, "reason": reason})


def share(default: float, help: str) -> Any:
    """Create a [`setting`] for a share of tokens in [0, 1]."""
    limit = f"at most {MAX_DECIMALS} decimal places"
    reason = f"it must be a share of tokens in [0, 1] with {limit}; {default:g} is the default."
    return setting(default, help, is_share, reason)


def is_share(value: Any) -> bool:
    """Return whether `value` is a number in [0, 1] with at most `MAX_DECIMALS` decimals."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= 1 and (to_fraction(value) * 10**MAX_DECIMALS).denominator == 1


def to_fraction(value: float) -> Fraction:
    """Convert a number to a fraction equal to the decimal that the user wrote, without float rounding."""
    return Fraction(repr(float(value)))


def entropy_in_bits(entropies_nats: Tensor) -> Tensor:
    """Convert TRL's entropies, in nats, to the bits of Eq. 4. Any shape; differentiable."""
    return entropies_nats / math.log(2)


def _problem(entry: Any, value: Any) -> str | None:
    """Return why `value` is not valid for a field of a rule's settings, or `None` if it is valid."""
    if value is None and entry.default is None:
        return None
    if entry.default is None or isinstance(entry.default, float):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return "it must be a number."
    elif type(value) is not type(entry.default):
        return f"it must be of type {type(entry.default).__name__}."
    is_valid = entry.metadata.get("is_valid")
    return None if is_valid is None or is_valid(value) else entry.metadata["reason"]
