"""The methods: what each makes of a rollout's advantages, as pure functions on tensors.

- `ces.py`: Conditional Entropy Shaping, arXiv 2605.19358, and its two ablations.
- `entropy_advantage.py`: the paper's baseline "Entropy Advantage", arXiv 2506.14758.
- `groups.py`: which completions are right, and how their groups did.
- `metrics.py`: what is logged of a shaping.
"""

from collections.abc import Callable

from .ces import conditional_entropy_shaping
from .entropy_advantage import entropy_advantage
from .shaped import ShapedAdvantages

# Another rule is one function above, one entry here and its settings in CESConfig.shaping_settings.
SHAPING_RULES: dict[str, Callable[..., ShapedAdvantages]] = {
    "ces": conditional_entropy_shaping,
    "entropy_advantage": entropy_advantage,
}


# Those that read `correct`, `scorable`, `group_correct` or `group_scorable`: the trainer judges completions for them.
NEED_VERDICTS = frozenset({"ces"})
