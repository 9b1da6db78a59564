"""
Mixins ("layers") that extend TRL's rollout and optimizer step. They are independent of CES; docs/architecture.md
describes each layer.

Each layer subclasses [`~trl.GRPOTrainer`], takes a [`CESConfig`] and can be used alone:

    class Plain(RealTokens, GRPOTrainer): ...
"""

from .correctness import Correctness
from .dynamic_sampling import DynamicSampling
from .ended_rows import EndedRows
from .exact_resume import ExactResume
from .finite_steps import FiniteSteps
from .group_rewards import GroupRewards
from .real_tokens import RealTokens
from .reward_calls import RewardCalls
from .upstream import UpstreamFixes

__all__ = [
    "Correctness",
    "DynamicSampling",
    "EndedRows",
    "ExactResume",
    "FiniteSteps",
    "GroupRewards",
    "RealTokens",
    "RewardCalls",
    "UpstreamFixes",
]
