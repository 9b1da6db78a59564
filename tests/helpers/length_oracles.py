"""The length rewards as plain loops over one group, in Python's float64. Imports nothing from trl_ces.

Each takes `rewards`, the accuracy rewards (None: no verdict), `lengths`, and the rule's settings, and returns one
number per completion. A completion is correct at a reward of 1 or more. What stands at an unscorable one is not used.
"""

import math


def is_right(reward):
    return reward is not None and reward >= 1


def right_lengths(rewards, lengths):
    return [length for reward, length in zip(rewards, lengths, strict=True) if is_right(reward)]


def share_right(rewards):
    known = [reward for reward in rewards if reward is not None]
    return sum(is_right(reward) for reward in known) / len(known) if known else 0.0


def kimi(rewards, lengths):
    shortest, longest = min(lengths), max(lengths)
    if shortest == longest:
        return [0.0] * len(lengths)
    result = []
    for reward, length in zip(rewards, lengths, strict=True):
        lam = 0.5 - (length - shortest) / (longest - shortest)
        result.append(lam if is_right(reward) else min(0.0, lam))
    return result


def arora(rewards, lengths, alpha):
    right = right_lengths(rewards, lengths)
    if not right:
        return [0.0] * len(lengths)
    mean = sum(right) / len(right)
    std = math.sqrt(sum((length - mean) ** 2 for length in right) / len(right))
    result = []
    for reward, length in zip(rewards, lengths, strict=True):
        z = (length - mean) / (std + 1e-7)
        result.append(-alpha / (1 + math.exp(-z)) if is_right(reward) else 0.0)
    return result


def alp(rewards, lengths, beta, normalizer):
    price = max(share_right(rewards), 1 / len(lengths))
    return [-(beta / normalizer) * price * length for length in lengths]


def linear(rewards, lengths, coefficient):
    return [-coefficient * share_right(rewards) * length / max(lengths) for length in lengths]


def shorter(rewards, lengths, beta):
    right = right_lengths(rewards, lengths)
    target = min(right) if right else sum(lengths) / len(lengths)
    return [-beta * abs(length - target) for length in lengths]


def laser(rewards, lengths, alpha, target):
    return [
        alpha if is_right(reward) and length <= target else 0.0
        for reward, length in zip(rewards, lengths, strict=True)
    ]


def mai(rewards, lengths, weight):
    longest = max(right_lengths(rewards, lengths), default=1)
    return [
        -weight * share_right(rewards) * length / longest if is_right(reward) else 0.0
        for reward, length in zip(rewards, lengths, strict=True)
    ]


def gr3(rewards, lengths, alpha):
    mean = sum(lengths) / len(lengths)
    result = []
    for reward, length in zip(rewards, lengths, strict=True):
        scale = 1 / (1 + alpha * length / mean)
        result.append(0.0 if reward is None else reward * scale - reward)
    return result
