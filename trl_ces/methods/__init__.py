"""Pure functions on tensors: token rules that shape advantages, and group rewards.

- `ces.py`: Conditional Entropy Shaping, arXiv 2605.19358, and its two ablations.
- `entropy_advantage.py`: the paper's baseline "Entropy Advantage", arXiv 2506.14758.
- `on_policy_sft.py`: On-policy SFT, arXiv 2602.13407.
- `length_rewards.py`: length rewards; `group_reward.py` turns them into reward functions.
- `rule.py`: the interface of a token rule.
- `groups.py`: correctness of completions and accuracy of groups.
- `metrics.py`: logged metrics.
"""

from functools import cache
from importlib.metadata import entry_points
from typing import Any

from ..support.errors import nearest
from ..support.imports import import_path
from . import ces, entropy_advantage, on_policy_sft
from .rule import Rule

ENTRY_POINTS = "trl_ces.methods"
BUILT_IN: dict[str, Rule] = {
    "ces": ces.rule,
    "entropy_advantage": entropy_advantage.rule,
    "on_policy_sft": on_policy_sft.rule,
}


@cache
def find_rule(name: str) -> Rule | None:
    """
    Return the rule selected by `shaping`.

    Args:
        name (`str`):
            `"none"`; a key of `BUILT_IN`; a path such as `my_package.rules:my_rule`, where the module may be in the
            working directory; or a name that an installed package registers in the entry-point group
            `trl_ces.methods`.

    Returns:
        [`Rule`], or `None` for `"none"`.

    Raises:
        `ValueError`: The name is unknown, or does not refer to a [`Rule`].
    """
    if name == "none":
        return None
    if not isinstance(name, str):
        raise ValueError(f"`shaping` is {name!r}: set it to a name; 'none' turns shaping off.")
    rule: Any = BUILT_IN.get(name)
    if rule is None and ":" in name:
        rule = import_path(name, "shaping")
    elif rule is None:
        registered = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
        if name not in registered:
            known = [*BUILT_IN, "none", *registered]
            raise ValueError(
                f"`shaping` is {name!r}, which is unknown.{nearest(name, known)} Choose one of "
                f"{', '.join(map(repr, known))}, or set a path such as 'my_package.rules:my_rule'."
            )
        rule = registered[name].load()
    if not isinstance(rule, Rule):
        raise ValueError(
            f"`shaping` is {name!r}, which refers to a {type(rule).__name__}, not to a trl_ces.methods.rule.Rule."
        )
    return rule
