"""Layers over TRL's rollout and optimizer step, independent of CES. One layer per file:

- [`RealTokens`]: forwards without padding, rows arranged by length, old log-probs at the update's shapes.
- [`DynamicSampling`]: DAPO's; drops groups of equal accuracy and draws more prompts.
- [`EndedRows`]: completions that have ended leave the batch while transformers generates.
- [`EntropyControl`]: the upper clip bound, and token rules, that follow the policy's entropy.
- [`ExactResume`]: a stopped run resumes, on a CPU bit for bit.
- [`FiniteSteps`]: skips steps whose gradient is not finite.
- [`GroupFilter`]: GFPO's; only the best completions of a group get an advantage.
- [`GroupRewards`]: rewards of whole groups.
- [`OutlierTruncation`]: DOT's; cuts completions far longer than others of an all-correct group.
- [`RewardCalls`]: extra arguments for reward functions, and checks of their results.
- [`TokenWhitening`]: DLER's advantages, whitened over the tokens of a rollout.
- [`Verdicts`]: what each completion is, for the layers that ask.
- [`Float32Outputs`], [`FrozenBase`], [`KnownHead`], [`OffloadedAdam`], [`OwnSeed`], [`ServerTimeout`], [`ToolRounds`]:
  workarounds for what lies upstream.

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
from .upstream import Float32Outputs, FrozenBase, KnownHead, OffloadedAdam, OwnSeed, ServerTimeout, ToolRounds
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
