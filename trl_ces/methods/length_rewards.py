"""
Length rewards, computed per group. Each method has a function and a factory that turns it into a reward function.

`NAME_length_reward(groups, *, settings)` computes the rewards of a rollout, given as [`Groups`], and
`get_NAME_length_reward(settings)` returns the reward function for `reward_funcs`. In the formulas, l_i is the length
of completion i in tokens that the policy generated, G is the group size, and p is the group accuracy (Eq. 2): the
share of correct completions among the scored completions, or 0 if no completion is scored.

Every function returns shape (P, G), float32. The values of unscored completions are arbitrary; the `GroupRewards`
layer replaces them with `None`. A truncated completion has the length at which it was cut off, and its accuracy reward
decides whether it is correct. With `scale_rewards="group"`, TRL divides by the group's standard deviation, so the
strength of a length reward cancels out if all completions of a group have the same accuracy.
"""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .group_reward import group_reward
from .groups import Groups


def kimi_length_reward(groups: Groups, *, correct_only: bool = False) -> Tensor:
    """
    Compute the length reward of Kimi k1.5, arXiv 2501.12599, section 2.3.3.

        lambda_i = 0.5 - (l_i - min l) / (max l - min l)
        reward_i = lambda_i if correct, min(0, lambda_i) if incorrect

    The minimum and maximum are taken over the whole group, including unscored completions, so one very long completion
    sets the scale for the others. The strength is set by the reward's entry in `reward_weights`. open-r1's
    `len_reward` instead measures characters and takes the minimum and maximum over the whole batch.

    The reward is 0 if all lengths are equal, and at most 0 if no completion is correct.

    Args:
        groups ([`Groups`]): Reads `correct` and `lengths`.
        correct_only (`bool`, *optional*, defaults to `False`): Whether incorrect completions get 0.

    Returns:
        `Tensor`: Shape (P, G), float32, in [-0.5, 0.5].
    """
    shortest = groups.lengths.amin(dim=1, keepdim=True)
    span = groups.lengths.amax(dim=1, keepdim=True) - shortest
    lam = 0.5 - (groups.lengths - shortest) / span.clamp(min=1)
    rewards = torch.where(groups.correct, lam, lam.clamp(max=0)) * (span > 0)
    return _only_correct(rewards, groups) if correct_only else rewards


def get_kimi_length_reward(correct_only: bool = False) -> Callable[..., Any]:
    """Create a reward function from [`kimi_length_reward`]."""
    return _reward_function(kimi_length_reward, correct_only=correct_only)


def arora_length_reward(groups: Groups, *, alpha: float) -> Tensor:
    """
    Compute the length penalty of Arora & Zanette, "Training Language Models to Reason Efficiently", arXiv 2502.04463.

        reward_i = -alpha * sigmoid(z_i) if correct, 0 if incorrect;    z_i = (l_i - mean) / (std + 1e-7)

    The mean and population standard deviation are taken over the group's correct completions, as in the authors' code
    (efficient-reasoning, reward_server/math_server.py). The paper's reward is the accuracy reward plus this term,
    with alpha from 0.05 to 0.4. The authors count a completion without an end-of-sequence token as incorrect.

    If no completion is correct, all rewards are 0. If exactly one completion is correct, or all correct lengths
    are equal, the reward of correct completions is -alpha / 2.

    Args:
        groups ([`Groups`]): Reads `correct` and `lengths`.
        alpha (`float`): Largest penalty. If it is below 1, correct completions always outscore incorrect ones.

    Returns:
        `Tensor`: Shape (P, G), float32, in (-alpha, 0].
    """
    return -alpha * torch.sigmoid(_z_scores(groups)) * groups.correct


def get_arora_length_reward(alpha: float) -> Callable[..., Any]:
    """Create a reward function from [`arora_length_reward`]."""
    return _reward_function(arora_length_reward, alpha=alpha)


def alp_length_reward(
    groups: Groups, *, beta: float, normalizer: float | None = None, correct_only: bool = False
) -> Tensor:
    """
    Compute the Adaptive Length Penalty (ALP), "Just Enough Thinking", arXiv 2506.05256.

        reward_i = -(beta / N) * max(p, 1 / G) * l_i

    The penalty per token is higher on problems that the policy solves more often. It also applies to incorrect
    completions.

    If no completion is correct, the penalty is the same as with p = 1 / G. If all lengths are equal, all penalties
    are equal, so A = 0.

    Args:
        groups ([`Groups`]): Reads `correct`, `scored`, `lengths`, and `max_length` if `normalizer` is `None`.
        beta (`float`): Penalty for a completion of N tokens if p = 1.
        normalizer (`float`, *optional*): N, in tokens. `None`: `groups.max_length`.
        correct_only (`bool`, *optional*, defaults to `False`): Whether incorrect completions get 0.

    Returns:
        `Tensor`: Shape (P, G), float32, at most 0.

    Raises:
        `ValueError`: Both `normalizer` and `groups.max_length` are `None`.
    """
    if normalizer is None:
        normalizer = groups.max_length
    if normalizer is None:
        raise ValueError(
            "alp_length_reward divides lengths by `max_completion_length`, which is None: set it, or pass "
            "`normalizer` (a number of tokens)."
        )
    scale = groups.group_accuracy.clamp(min=1 / groups.lengths.size(1)).unsqueeze(1)
    rewards = -beta / normalizer * scale * groups.lengths
    return _only_correct(rewards, groups) if correct_only else rewards


def get_alp_length_reward(
    beta: float, normalizer: float | None = None, correct_only: bool = False
) -> Callable[..., Any]:
    """Create a reward function from [`alp_length_reward`]."""
    return _reward_function(alp_length_reward, beta=beta, normalizer=normalizer, correct_only=correct_only)


def linear_length_reward(groups: Groups, *, coefficient: float = 0.25, correct_only: bool = False) -> Tensor:
    """
    Compute the linear length penalty of prime-rl (`length_penalty` in its algorithm documentation, for output tokens).

        reward_i = -c * p * l_i / max l

    As in ALP, the penalty per token is higher on problems that the policy solves more often, but lengths are relative
    to the group's longest completion, scored or unscored. For p, prime-rl uses the group's mean reward, which is the
    same if rewards are 0 or 1.

    If no completion is correct, all rewards are 0. If all lengths are equal, all rewards are -c * p, so A = 0.

    Args:
        groups ([`Groups`]): Reads `correct`, `scored` and `lengths`.
        coefficient (`float`, *optional*, defaults to 0.25): c, penalty for the longest completion if p = 1.
        correct_only (`bool`, *optional*, defaults to `False`): Whether incorrect completions get 0.

    Returns:
        `Tensor`: Shape (P, G), float32, in [-c, 0].
    """
    longest = groups.lengths.amax(dim=1, keepdim=True).clamp(min=1)
    scale = -coefficient * groups.group_accuracy.unsqueeze(1)
    rewards = scale * (groups.lengths / longest)
    return _only_correct(rewards, groups) if correct_only else rewards


def get_linear_length_reward(coefficient: float = 0.25, correct_only: bool = False) -> Callable[..., Any]:
    """Create a reward function from [`linear_length_reward`]."""
    return _reward_function(linear_length_reward, coefficient=coefficient, correct_only=correct_only)


def shorter_length_reward(groups: Groups, *, beta: float = 0.001, correct_only: bool = False) -> Tensor:
    """
    Compute the length term of ShorterBetter, arXiv 2504.21370.

        reward_i = -beta * abs(l_i - l*);    l* = shortest correct length, or mean length if no completion is correct

    Completions shorter than l* are also penalized. The paper's reward is alpha * 1[correct] plus this term, where
    alpha is the accuracy reward's entry in `reward_weights`. The authors' code uses alpha = 2 and beta = 0.001.

    The mean length includes unscored completions. If all lengths are equal, all rewards are 0.

    Args:
        groups ([`Groups`]): Reads `correct` and `lengths`.
        beta (`float`, *optional*, defaults to 0.001): Penalty per token of distance from l*.
        correct_only (`bool`, *optional*, defaults to `False`): Whether incorrect completions get 0.

    Returns:
        `Tensor`: Shape (P, G), float32, at most 0.
    """
    too_long = torch.iinfo(groups.lengths.dtype).max
    shortest = groups.lengths.masked_fill(~groups.correct, too_long).amin(dim=1, keepdim=True)
    from_mean = _difference_from_mean(groups.lengths, torch.ones_like(groups.correct))
    any_correct = groups.correct.any(dim=1, keepdim=True)
    rewards = -beta * torch.where(any_correct, groups.lengths - shortest, from_mean).abs()
    return _only_correct(rewards, groups) if correct_only else rewards


def get_shorter_length_reward(beta: float = 0.001, correct_only: bool = False) -> Callable[..., Any]:
    """Create a reward function from [`shorter_length_reward`]."""
    return _reward_function(shorter_length_reward, beta=beta, correct_only=correct_only)


def laser_length_reward(groups: Groups, *, alpha: float, target: float) -> Tensor:
    """
    Compute the step reward of LASER, "Learn to Reason Efficiently with Adaptive Length-based Reward Shaping", arXiv
    2505.15612.

        reward_i = alpha if correct and l_i <= target, else 0

    The authors' code (hkust-nlp/Laser) uses alpha = 0.5 and targets of 2,048, 4,096 and 8,192 tokens for
    R1-Distill-Qwen-1.5B. A target far below the policy's lengths has no effect, because no completion meets it.

    The reward does not depend on the other completions of the group.

    Args:
        groups ([`Groups`]): Reads `correct` and `lengths`.
        alpha (`float`): Bonus for a correct completion within the target.
        target (`float`): Maximum length for the bonus, in tokens.

    Returns:
        `Tensor`: Shape (P, G), float32, 0 or alpha.
    """
    return alpha * (groups.correct & (groups.lengths <= target)).float()


def get_laser_length_reward(alpha: float, target: float) -> Callable[..., Any]:
    """Create a reward function from [`laser_length_reward`]."""
    return _reward_function(laser_length_reward, alpha=alpha, target=target)


def mai_length_reward(groups: Groups, *, weight: float = 0.25) -> Tensor:
    """
    Compute the pass-rate-scaled length penalty of MAI-Thinking-1's report (2026), as in NeMo-RL
    (`pass_rate_length_penalty_weight`).

        reward_i = -w * p * l_i / (max l over correct) if correct, 0 if incorrect

    The lengths of incorrect completions do not matter. In groups without a correct completion, group scaling would
    give a term that depends on these lengths unit variance, regardless of the term's weight (arXiv 2606.22716).

    If exactly one completion is correct, its reward is -w * p, regardless of its length.

    Args:
        groups ([`Groups`]): Reads `correct`, `scored` and `lengths`.
        weight (`float`, *optional*, defaults to 0.25): w, penalty for the longest correct completion if p = 1.

    Returns:
        `Tensor`: Shape (P, G), float32, in [-w, 0].
    """
    longest = (groups.lengths * groups.correct).amax(dim=1, keepdim=True).clamp(min=1)
    return -weight * groups.group_accuracy.unsqueeze(1) * groups.lengths / longest * groups.correct


def get_mai_length_reward(weight: float = 0.25) -> Callable[..., Any]:
    """Create a reward function from [`mai_length_reward`]."""
    return _reward_function(mai_length_reward, weight=weight)


def smart_thinker_length_reward(groups: Groups) -> Tensor:
    """
    Compute the length penalty of SmartThinker, arXiv 2603.08000, as in the authors' code (SJTU-RTEAS/SmartThinker,
    src/workers/reward_manager/SmartThinker.py).

        reward_i = -Lambda * pen_i;    pen_i = max(0, l_i - l*) if correct, 0 if incorrect
        Lambda = (1 - p) / (max pen - mean pen + 1e-6)

        l* = min l                                              if all are correct, or v2 > v1
           = (v1 mu2 - v2 mu1) / (v1 - v2), in [min l, max l]   if v2 < v1
           = max l if mu2 < mu1, else min l                     if v2 = v1 up to 1e-6

    mu1 and v1 are the mean and variance (dividing by n) of all lengths; mu2 and v2 are those of the correct lengths.
    If both sets of lengths are normally distributed, l* is the length at which correct completions are most
    over-represented. Unscored completions count only towards mu1, v1, min and max.

    All rewards are 0 if all completions are correct (Lambda = 0), if no completion is correct, or if exactly one
    completion is correct (l* is its length).

    Args:
        groups ([`Groups`]): Reads `correct`, `scored` and `lengths`.

    Returns:
        `Tensor`: Shape (P, G), float32, at most 0.
    """
    lengths, correct = groups.lengths.double(), groups.correct
    shortest, longest = lengths.amin(dim=1), lengths.amax(dim=1)
    mean, variance = _mean_and_variance(lengths, torch.ones_like(correct))
    mean_correct, variance_correct = _mean_and_variance(lengths, correct)
    gap = variance - variance_correct
    crossing = (variance * mean_correct - variance_correct * mean) / gap
    target = torch.where(gap < 0, shortest, crossing.clamp(shortest, longest))
    equal = torch.where(mean_correct < mean, longest, shortest)
    target = torch.where(gap.abs() < 1e-6, equal, target)

    penalty = (lengths - target.unsqueeze(1)).clamp(min=0) * correct
    mean_penalty = penalty.sum(dim=1) / groups.scored.sum(dim=1).clamp(min=1)
    scale = (1 - groups.group_accuracy) / (penalty.amax(dim=1) - mean_penalty + 1e-6)
    return -(scale.unsqueeze(1) * penalty).float()


def get_smart_thinker_length_reward() -> Callable[..., Any]:
    """Create a reward function from [`smart_thinker_length_reward`]."""
    return _reward_function(smart_thinker_length_reward)


def grpo_lead_length_reward(groups: Groups, *, alpha: float) -> Tensor:
    """
    Compute the length-dependent accuracy of GRPO-LEAD, arXiv 2504.09696.

        reward_i = exp(-alpha * z_i) if correct, -1 if incorrect;    z_i = (l_i - mean) / (std + 1e-7)

    The mean and population standard deviation are taken over the group's correct completions. This reward includes
    correctness, so set the weight of the accuracy reward to 0. The formula is from the paper, because the authors'
    public code has no length term. The paper's weighting of advantages by difficulty is not implemented.

    If exactly one completion is correct, or all correct lengths are equal, the reward of correct completions is 1. If
    no completion is correct, all rewards are -1, so A = 0.

    Args:
        groups ([`Groups`]): Reads `correct` and `lengths`.
        alpha (`float`): Decay of a correct completion's reward per standard deviation of length.

    Returns:
        `Tensor`: Shape (P, G), float32, positive or -1.
    """
    return torch.where(groups.correct, torch.exp(-alpha * _z_scores(groups)), -1.0)


def get_grpo_lead_length_reward(alpha: float) -> Callable[..., Any]:
    """Create a reward function from [`grpo_lead_length_reward`]."""
    return _reward_function(grpo_lead_length_reward, alpha=alpha)


def gr3_length_reward(groups: Groups, *, alpha: float = 0.33) -> Tensor:
    """
    Compute the change that Group Relative Reward Rescaling (GR3), arXiv 2603.10535, makes to the accuracy reward.

        R'_i = R_i / (1 + alpha * l_i / mean l)
        reward_i = R'_i - R_i if R_i > 0, else 0

    If this reward and the accuracy reward both have weight 1, they sum to R'_i. The mean is over the whole group,
    including unscored completions. prime-rl's implementation (pull request 2029) recommends alpha = 0.33; the paper's
    calibration of alpha on the advantages is not implemented. A negative reward is not rescaled, because scaling it
    towards 0 would reward length.

    If all lengths are equal, the reward is -R_i * alpha / (1 + alpha) for R_i > 0.

    Args:
        groups ([`Groups`]): Reads `lengths` and `rewards`.
        alpha (`float`, *optional*, defaults to 0.33):
            Strength. A correct completion of mean length keeps 1 / (1 + alpha) of its reward.

    Returns:
        `Tensor`: Shape (P, G), float32, at most 0.
    """
    total = groups.lengths.sum(dim=1, keepdim=True).clamp(min=1)
    relative = alpha * (groups.lengths * groups.lengths.size(1) / total)
    return -groups.rewards.clamp(min=0) * relative / (1 + relative)


def get_gr3_length_reward(alpha: float = 0.33) -> Callable[..., Any]:
    """Create a reward function from [`gr3_length_reward`]."""
    return _reward_function(gr3_length_reward, alpha=alpha)


def _only_correct(rewards: Tensor, groups: Groups) -> Tensor:
    """Set the rewards of incorrect completions to 0. Shape (P, G)."""
    return torch.where(groups.correct, rewards, 0.0)


def _difference_from_mean(lengths: Tensor, counted: Tensor) -> Tensor:
    """
    Subtract the mean of the counted lengths from each length; shape (P, G), float32, 0 if no length is counted.

    n * l - sum is exact. A float32 mean near 12,000 is off by up to 0.0005 tokens; division by a small standard
    deviation would magnify this error.
    """
    n = counted.sum(dim=1, keepdim=True)
    total = (lengths * counted).sum(dim=1, keepdim=True)
    return (n * lengths - total) / n.clamp(min=1)


def _z_scores(groups: Groups) -> Tensor:
    """Standardize lengths by the mean and population standard deviation of the correct lengths. Shape (P, G)."""
    difference = _difference_from_mean(groups.lengths, groups.correct)
    n = groups.correct.sum(dim=1, keepdim=True).clamp(min=1)
    return difference / (((difference**2 * groups.correct).sum(dim=1, keepdim=True) / n).sqrt() + 1e-7)


def _mean_and_variance(lengths: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and population variance of each group's counted lengths, shape (P,); 0 if none are counted."""
    n = counted.sum(dim=1).clamp(min=1)
    mean = (lengths * counted).sum(dim=1) / n
    return mean, ((lengths - mean.unsqueeze(1)) ** 2 * counted).sum(dim=1) / n


def _reward_function(rule: Callable[..., Tensor], **settings: float | bool | None) -> Callable[..., Any]:
    """Check the settings of a length reward, and create a reward function from `rule`, with the same name."""
    for name, value in settings.items():
        default = inspect.signature(rule).parameters[name].default
        if isinstance(default, bool):
            if not isinstance(value, bool):
                raise ValueError(f"`{name}` is {value!r}: expected true or false.")
        elif value is None and default is None:
            continue
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ValueError(f"`{name}` is {value!r}: expected a finite number above 0.")
    return group_reward(functools.update_wrapper(functools.partial(rule, **settings), rule))
