"""
Layers over TRL's rollout and optimizer step; docs/architecture.md says what each does. Of CES they know
`ces_tau: auto` alone, which `Verdicts` decides.

Each subclasses [`~trl.GRPOTrainer`], takes a [`CESConfig`] and works alone:

    class Plain(RealTokens, GRPOTrainer): ...
"""

from .dynamic_sampling import DynamicSampling
from .ended_rows import EndedRows
from .entropy_control import EntropyControl
from .exact_resume import ExactResume
from .finite_steps import FiniteSteps
from .group_filter import GroupFilter
from .group_rewards import GroupRewards
from .outlier_truncation import OutlierTruncation
from .real_tokens import RealTokens
from .reward_calls import RewardCalls
from .token_whitening import TokenWhitening
from .upstream import (
    Float32Outputs,
    FrozenBase,
    KnownHead,
    ModeAfterGeneration,
    OffloadedAdam,
    OwnSeed,
    ServerTimeout,
    ToolRounds,
)
from .verdicts import Verdicts

__all__ = [
    "DynamicSampling",
    "EndedRows",
    "EntropyControl",
    "ExactResume",
    "FiniteSteps",
    "Float32Outputs",
    "FrozenBase",
    "GroupFilter",
    "GroupRewards",
    "KnownHead",
    "ModeAfterGeneration",
    "OffloadedAdam",
    "OutlierTruncation",
    "OwnSeed",
    "RealTokens",
    "RewardCalls",
    "ServerTimeout",
    "TokenWhitening",
    "ToolRounds",
    "Verdicts",
]
