"""TRL's rollout and step made better, knowing nothing of CES. One layer a file:

- [`RealTokens`]: forwards without padding, rows placed by length, old log-probs as the update sees them.
- [`DynamicSampling`]: DAPO's; groups of equal accuracy are dropped, further prompts drawn.
- [`ExactResume`]: a stopped run goes on bit for bit.
- [`FiniteSteps`]: a loss or gradient that is not finite makes no step.
- [`RewardCalls`]: what reward functions are told, and the check of what they return.

Each subclasses [`~trl.GRPOTrainer`], takes a [`CESConfig`] and serves alone:

    class Plain(RealTokens, GRPOTrainer): ...
"""

from .dynamic_sampling import DynamicSampling
from .exact_resume import ExactResume
from .finite_steps import FiniteSteps
from .real_tokens import RealTokens
from .reward_calls import RewardCalls

__all__ = ["DynamicSampling", "ExactResume", "FiniteSteps", "RealTokens", "RewardCalls"]
