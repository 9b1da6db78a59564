"""The methods, as pure functions on tensors: how each shapes the advantages of a rollout, or rewards whole groups.

- `ces.py`: Conditional Entropy Shaping, arXiv 2605.19358, and its two ablations.
- `entropy_advantage.py`: the paper's baseline "Entropy Advantage", arXiv 2506.14758.
- `kimi.py`, `arora.py`, `alp.py`, `linear.py`, `shorter.py`, `laser.py`, `gr3.py`: length rewards of whole groups;
  `group_reward.py` makes reward functions of such rules, `lengths.py` is what two of them share.
- `groups.py`: correctness and group accuracy.
- `metrics.py`: logged metrics.
"""

from collections.abc import Callable

from .ces import conditional_entropy_shaping
from .entropy_advantage import entropy_advantage
from .shaped import ShapedAdvantages

# A new rule needs a function in this folder, an entry here, and its settings in CESConfig.shaping_settings.
SHAPING_RULES: dict[str, Callable[..., ShapedAdvantages]] = {
    "ces": conditional_entropy_shaping,
    "entropy_advantage": entropy_advantage,
}


# Rules that read `correct`, `scorable`, `group_correct` or `group_scorable`; the trainer adds these to the batch.
NEED_VERDICTS = frozenset({"ces"})
