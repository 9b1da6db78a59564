"""Layers over TRL's rollout and optimizer step, independent of CES. One layer per file:

- [`RealTokens`]: forwards without padding, rows arranged by length, old log-probs at the update's shapes.
- [`DynamicSampling`]: DAPO's; drops groups of equal accuracy and draws more prompts.
- [`EndedRows`]: completions that have ended leave the batch while transformers generates.
- [`ExactResume`]: a stopped run resumes bit for bit.
- [`FiniteSteps`]: skips steps whose loss or gradient is not finite.
- [`Float32Outputs`]: FSDP2 returns log-probs and entropies in float32.
- [`FrozenBase`]: syncs to vLLM leave a LoRA run's 16-bit base as it was.
- [`GroupFilter`]: GFPO's; only the best completions of a group get an advantage.
- [`RewardCalls`]: extra arguments for reward functions, and checks of their results.
- [`ServerTimeout`]: a vLLM server that stays silent stops the run.

Each subclasses [`~trl.GRPOTrainer`], takes a [`CESConfig`] and works alone:

    class Plain(RealTokens, GRPOTrainer): ...
"""

from .dynamic_sampling import DynamicSampling
from .ended_rows import EndedRows
from .exact_resume import ExactResume
from .finite_steps import FiniteSteps
from .float32_outputs import Float32Outputs
from .frozen_base import FrozenBase
from .group_filter import GroupFilter
from .real_tokens import RealTokens
from .reward_calls import RewardCalls
from .server_timeout import ServerTimeout

__all__ = [
    "DynamicSampling",
    "EndedRows",
    "ExactResume",
    "FiniteSteps",
    "Float32Outputs",
    "FrozenBase",
    "GroupFilter",
    "RealTokens",
    "RewardCalls",
    "ServerTimeout",
]
