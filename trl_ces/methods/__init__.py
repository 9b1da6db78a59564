"""The methods, as pure functions on tensors: how each shapes the advantages of a rollout, or rewards whole groups.

- `ces.py`: Conditional Entropy Shaping, arXiv 2605.19358, and its two ablations.
- `entropy_advantage.py`: the paper's baseline "Entropy Advantage", arXiv 2506.14758.
- `kimi.py`, `arora.py`, `alp.py`, `linear.py`, `shorter.py`, `laser.py`, `gr3.py`: length rewards of whole groups;
  `group_reward.py` makes reward functions of such rules, `lengths.py` is what two of them share.
- `clip_cov.py`, `kl_cov.py`: Clip-Cov and KL-Cov, arXiv 2505.22617; `covariance.py`: what they share.
- `gfpo.py`: GFPO, arXiv 2508.09726: which completions of a group get an advantage.
- `groups.py`: correctness and group accuracy.
- `metrics.py`: logged metrics.
"""

from collections.abc import Callable

from .ces import conditional_entropy_shaping
from .clip_cov import clip_cov
from .entropy_advantage import entropy_advantage
from .kl_cov import kl_cov
from .shaped import ShapedAdvantages

# A new rule needs a function in this folder, an entry here, and its settings in CESConfig.shaping_settings. `batch`
# holds the rollout's tensors and, shape (B, T), natural logs: `logps`, of the policy being updated and in the graph,
# and `old_logps`, of the policy that sampled (`logps` detached where TRL needs none).
SHAPING_RULES: dict[str, Callable[..., ShapedAdvantages]] = {
    "ces": conditional_entropy_shaping,
    "entropy_advantage": entropy_advantage,
    "clip_cov": clip_cov,
    "kl_cov": kl_cov,
}

# Rules that read `correct`, `scorable`, `group_correct` or `group_scorable`; the trainer adds these to the batch.
NEED_VERDICTS = frozenset({"ces"})
# Rules that need per-token importance ratios in the clipped objective.
NEED_RATIOS = frozenset({"ces", "clip_cov", "kl_cov"})
# Rules whose A' of a row depends on the other rows of its micro-batch.
COUPLE_ROWS = frozenset({"clip_cov", "kl_cov"})
