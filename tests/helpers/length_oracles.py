"""Plain reference implementation of the length rewards of one group. This file imports nothing from trl_ces.

Each function takes the accuracy rewards (`None` if unscored), the lengths and the settings, and returns one value per
completion. A completion is correct if its reward is at least 1. The values of unscored completions are not used.
"""

import math

# Settings to test, by method. The first entry is also compared with values computed by hand.
SETTINGS = {
    "kimi": [{}, {"correct_only": True}, {"correct_only": False}],
    "arora": [{"alpha": 0.2}, {"alpha": 1.0}],
    "alp": [
        {"beta": 0.5, "normalizer": 2000},
        {"beta": 0.5, "normalizer": 9, "correct_only": True},
        {"beta": 0.02, "normalizer": 100.5},
    ],
    "linear": [{"coefficient": 0.25}, {"correct_only": True}, {"coefficient": 1.0}],
    "shorter": [{"beta": 0.001}, {"beta": 0.3, "correct_only": True}, {"beta": 0.02}],
    "laser": [{"alpha": 0.5, "target": 300}, {"alpha": 0.3, "target": 13.5}],
    "mai": [{"weight": 0.25}, {"weight": 1.0}],
    "smart_thinker": [{}],
    "grpo_lead": [{"alpha": 0.1}, {"alpha": 1.0}],
    "gr3": [{"alpha": 0.33}, {"alpha": 2.0}],
}


def is_correct(reward):
    return reward is not None and reward >= 1


def correct_lengths(rewards, lengths):
    return [length for reward, length in zip(rewards, lengths, strict=True) if is_correct(reward)]


def pass_rate(rewards):
    scored = [reward for reward in rewards if reward is not None]
    return sum(map(is_correct, scored)) / len(scored) if scored else 0.0


def mean_and_variance(values):
    mean = sum(values) / len(values)
    return mean, sum((value - mean) ** 2 for value in values) / len(values)


def where_correct(rewards, values, otherwise=0.0):
    return [value if is_correct(reward) else otherwise for reward, value in zip(rewards, values, strict=True)]


def kimi(rewards, lengths, correct_only=False):
    shortest, longest = min(lengths), max(lengths)
    if shortest == longest:
        return [0.0] * len(lengths)
    result = []
    for reward, length in zip(rewards, lengths, strict=True):
        lam = 0.5 - (length - shortest) / (longest - shortest)
        result.append(lam if is_correct(reward) else min(0.0, lam))
    return where_correct(rewards, result) if correct_only else result


def z_scores(rewards, lengths):
    mean, variance = mean_and_variance(correct_lengths(rewards, lengths) or [0.0])
    return [(length - mean) / (math.sqrt(variance) + 1e-7) if variance else 0.0 for length in lengths]


def arora(rewards, lengths, alpha):
    scores = where_correct(rewards, z_scores(rewards, lengths))
    return where_correct(rewards, [-alpha / (1 + math.exp(-z)) for z in scores])


def alp(rewards, lengths, beta, normalizer, correct_only=False):
    factor = max(pass_rate(rewards), 1 / len(lengths))
    values = [-(beta / normalizer) * factor * length for length in lengths]
    return where_correct(rewards, values) if correct_only else values


def linear(rewards, lengths, coefficient=0.25, correct_only=False):
    values = [-coefficient * pass_rate(rewards) * length / max(lengths) for length in lengths]
    return where_correct(rewards, values) if correct_only else values


def shorter(rewards, lengths, beta, correct_only=False):
    correct = correct_lengths(rewards, lengths)
    target = min(correct) if correct else sum(lengths) / len(lengths)
    values = [-beta * abs(length - target) for length in lengths]
    return where_correct(rewards, values) if correct_only else values


def laser(rewards, lengths, alpha, target):
    return where_correct(rewards, [alpha if length <= target else 0.0 for length in lengths])


def mai(rewards, lengths, weight):
    longest = max(correct_lengths(rewards, lengths), default=1)
    return where_correct(rewards, [-weight * pass_rate(rewards) * length / longest for length in lengths])


def smart_thinker(rewards, lengths):
    correct, p = correct_lengths(rewards, lengths), pass_rate(rewards)
    if p in (0, 1):
        return [0.0] * len(lengths)
    (mu1, v1), (mu2, v2) = mean_and_variance(lengths), mean_and_variance(correct)
    if abs(v2 - v1) < 1e-6:
        target = max(lengths) if mu2 < mu1 else min(lengths)
    elif v2 > v1:
        target = min(lengths)
    else:
        target = max(min(lengths), min(max(lengths), (v1 * mu2 - v2 * mu1) / (v1 - v2)))
    excess = where_correct(rewards, [max(0.0, length - target) for length in lengths])
    scored = [value for value, reward in zip(excess, rewards, strict=True) if reward is not None]
    factor = (1 - p) / (max(scored) - sum(scored) / len(scored) + 1e-6)
    return [-factor * value for value in excess]


def grpo_lead(rewards, lengths, alpha):
    scores = where_correct(rewards, z_scores(rewards, lengths))
    return where_correct(rewards, [math.exp(-alpha * z) for z in scores], otherwise=-1.0)


def gr3(rewards, lengths, alpha):
    mean = sum(lengths) / len(lengths)
    result = []
    for reward, length in zip(rewards, lengths, strict=True):
        scale = 1 / (1 + alpha * length / mean)
        result.append(reward * scale - reward if reward is not None and reward > 0 else 0.0)
    return result
