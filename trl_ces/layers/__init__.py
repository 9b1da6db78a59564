"""Layers over TRL's rollout and optimizer step, independent of CES. One layer per file:

- [`RealTokens`]: forwards without padding, rows arranged by length, old log-probs at the update's shapes.
- [`DynamicSampling`]: DAPO's; drops groups of equal accuracy and draws more prompts.
- [`EndedRows`]: completions that have ended leave the batch while transformers generates.
- [`ExactResume`]: a stopped run resumes, on a CPU bit for bit.
- [`FiniteSteps`]: skips steps whose gradient is not finite.
- [`GroupFilter`]: GFPO's; only the best completions of a group get an advantage.
- [`GroupRewards`]: rewards of whole groups.
- [`RewardCalls`]: extra arguments for reward functions, and checks of their results.
- [`Verdicts`]: what each completion is, for the layers that ask.
- [`Float32Outputs`], [`FrozenBase`], [`KnownHead`], [`OffloadedAdam`], [`OwnSeed`], [`ServerTimeout`], [`ToolRounds`]:
  workarounds for what lies upstream.

Each subclasses [`~trl.GRPOTrainer`], takes a [`CESConfig`] and works alone:

    class Plain(RealTokens, GRPOTrainer): ...
"""

from .dynamic_sampling import DynamicSampling
from .ended_rows import EndedRows
from .exact_resume import ExactResume
from .finite_steps import FiniteSteps
from .group_filter import GroupFilter
from .group_rewards import GroupRewards
from .real_tokens import RealTokens
from .reward_calls import RewardCalls
from .upstream import Float32Outputs, FrozenBase, KnownHead, OffloadedAdam, OwnSeed, ServerTimeout, ToolRounds
from .verdicts import Verdicts

__all__ = [
    "DynamicSampling",
    "EndedRows",
    "ExactResume",
    "FiniteSteps",
    "Float32Outputs",
    "FrozenBase",
    "GroupFilter",
    "GroupRewards",
    "KnownHead",
    "OffloadedAdam",
    "OwnSeed",
    "RealTokens",
    "RewardCalls",
    "ServerTimeout",
    "ToolRounds",
    "Verdicts",
]
