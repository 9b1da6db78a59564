"""The length rewards as plain loops over one group, in Python's float64. Imports nothing from trl_ces.

Each takes `rewards`, the accuracy rewards (None: no verdict), `lengths`, and the rule's settings, and returns one
number per completion. A completion is correct at a reward of 1 or more. What stands at an unscored one is not used.
"""

import math
from fractions import Fraction


def is_right(reward):
    return reward is not None and reward >= 1


def right_lengths(rewards, lengths):
    return [length for reward, length in zip(rewards, lengths, strict=True) if is_right(reward)]


def share_right(rewards):
    known = [reward for reward in rewards if reward is not None]
    return sum(is_right(reward) for reward in known) / len(known) if known else 0.0


def for_correct_only(rewards, values, correct_only):
    pairs = zip(rewards, values, strict=True)
    return [value if is_right(reward) or not correct_only else 0.0 for reward, value in pairs]


def kimi(rewards, lengths, correct_only=False):
    shortest, longest = min(lengths), max(lengths)
    if shortest == longest:
        return [0.0] * len(lengths)
    result = []
    for reward, length in zip(rewards, lengths, strict=True):
        lam = 0.5 - (length - shortest) / (longest - shortest)
        result.append(lam if is_right(reward) else min(0.0, lam))
    return for_correct_only(rewards, result, correct_only)


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


def alp(rewards, lengths, beta, normalizer, correct_only=False):
    price = max(share_right(rewards), 1 / len(lengths))
    return for_correct_only(rewards, [-(beta / normalizer) * price * length for length in lengths], correct_only)


def linear(rewards, lengths, coefficient=0.25, correct_only=False):
    values = [-coefficient * share_right(rewards) * length / max(lengths) for length in lengths]
    return for_correct_only(rewards, values, correct_only)


def shorter(rewards, lengths, beta, correct_only=False):
    right = right_lengths(rewards, lengths)
    target = min(right) if right else sum(lengths) / len(lengths)
    return for_correct_only(rewards, [-beta * abs(length - target) for length in lengths], correct_only)


def laser(rewards, lengths, alpha, target):
    return [
        alpha if is_right(reward) and length <= target else 0.0
        for reward, length in zip(rewards, lengths, strict=True)
    ]


def laser_d(rewards, lengths, alpha, step=1024, every=20):
    """The first rollout's; [`LaserD`] goes on."""
    return LaserD(alpha, step, every).rollout([(rewards, lengths)])[0]


class LaserD:
    """LASER-D over rollouts, each a list of (rewards, lengths)."""

    def __init__(self, alpha, step, every):
        self.alpha, self.step, self.every = alpha, step, every
        self.calls, self.targets, self.seen = 0, {}, {"hard": [], "medium": [], "easy": []}

    def rollout(self, groups):
        result = []
        for rewards, lengths in groups:
            known = [reward for reward in rewards if reward is not None]
            share = Fraction(sum(map(is_right, known)), len(known)) if known else 0
            name = "easy" if share >= Fraction(2, 3) else "medium" if share >= Fraction(1, 3) else "hard"
            target = self.targets.get(name, math.inf)
            result.append(
                [
                    self.alpha if is_right(reward) and length <= target else 0.0
                    for reward, length in zip(rewards, lengths, strict=True)
                ]
            )
            # coverage, as the authors count it: of all completions of the class
            self.seen[name] += [length for reward, length in zip(rewards, lengths, strict=True) if reward is not None]
        self.calls += 1
        if self.calls % self.every == 0:
            size = len(groups[0][0])
            for name, expected in (("easy", int(2 * size / 3)), ("medium", int(size / 3)), ("hard", 1)):
                own, self.seen[name] = self.seen[name], []
                target = self.step
                while own:
                    if int(Fraction(sum(length <= target for length in own), len(own)) * max(1, expected)) >= 1:
                        self.targets[name] = target
                        break
                    target += self.step
        return result


def mai(rewards, lengths, weight):
    longest = max(right_lengths(rewards, lengths), default=1)
    return [
        -weight * share_right(rewards) * length / longest if is_right(reward) else 0.0
        for reward, length in zip(rewards, lengths, strict=True)
    ]


def smart_thinker(rewards, lengths):
    def moments(values):
        mean = sum(values) / len(values)
        return mean, sum((value - mean) ** 2 for value in values) / len(values)

    right, p = right_lengths(rewards, lengths), share_right(rewards)
    if p in (0, 1):
        return [0.0] * len(lengths)
    (mu1, v1), (mu2, v2) = moments(lengths), moments(right)
    if abs(v2 - v1) < 1e-6:
        target = max(lengths) if mu2 < mu1 else min(lengths)
    elif v2 > v1:
        target = min(lengths)
    else:
        target = max(min(lengths), min(max(lengths), (v1 * mu2 - v2 * mu1) / (v1 - v2)))
    excess = [
        max(0.0, length - target) if is_right(reward) else 0.0 for reward, length in zip(rewards, lengths, strict=True)
    ]
    known = [value for value, reward in zip(excess, rewards, strict=True) if reward is not None]
    price = (1 - p) / (max(known) - sum(known) / len(known) + 1e-6)
    return [-price * value for value in excess]


def grpo_lead(rewards, lengths, alpha):
    right = right_lengths(rewards, lengths)
    if not right:
        return [-1.0] * len(lengths)
    mean = sum(right) / len(right)
    std = math.sqrt(sum((length - mean) ** 2 for length in right) / len(right))
    return [
        math.exp(-alpha * (length - mean) / (std + 1e-7)) if is_right(reward) else -1.0
        for reward, length in zip(rewards, lengths, strict=True)
    ]


def acoer(rewards, lengths, budget, alpha=0.02):
    """The first rollout's; [`Acoer`] goes on."""
    return [
        alpha * math.log(1 + 5 * max(0.0, 1 - length / budget)) / math.log(6) if is_right(reward) else 0.0
        for reward, length in zip(rewards, lengths, strict=True)
    ]


class Acoer:
    """ACOER over rollouts, each a list of (rewards, lengths)."""

    def __init__(self, budget, warmup, window):
        self.first, self.warmup, self.window = budget, warmup, window
        self.alpha, self.budget, self.accuracies, self.lengths, self.calls = 0.02, budget, [], [], 0

    def rollout(self, groups):
        result = [acoer(rewards, lengths, self.budget, self.alpha) for rewards, lengths in groups]
        known = [reward for rewards, _ in groups for reward in rewards if reward is not None]
        right = [length for rewards, lengths in groups for length in right_lengths(rewards, lengths)]
        self.calls += 1
        if known:
            self.accuracies.append(sum(map(is_right, known)) / len(known))
        if right:
            self.lengths.append(sum(right) / len(right))
        averages = [self.average(self.accuracies[: end + 1]) for end in range(len(self.accuracies))]
        if self.calls >= self.warmup and len(averages) >= self.window:
            drop = averages[-self.window] - averages[-1]
            self.alpha = max(0.01, self.alpha * 0.95) if drop > 0.02 else min(0.5, self.alpha * 1.02)
            if self.lengths:
                self.budget = max(self.first / 8, 0.85 * self.average(self.lengths))
        return result

    @staticmethod
    def average(values):
        result = values[0]
        for value in values[1:]:
            result = 2 / 51 * value + 49 / 51 * result
        return result


def toggle(rewards, lengths, solved, every, percentile=0.5):
    """The first rollout's; [`Toggle`] goes on."""
    return Toggle(solved, every, percentile).rollout([(0, rewards, lengths)])[0]


class Toggle:
    """Toggle over rollouts, each a list of (prompt, rewards, lengths)."""

    def __init__(self, solved, every, percentile):
        self.solved, self.every, self.percentile = solved, every, percentile
        self.calls, self.budgets = 0, {}

    def rollout(self, groups):
        result = []
        for prompt, rewards, lengths in groups:
            right = sorted(right_lengths(rewards, lengths))
            if right and prompt not in self.budgets:
                within = [sum(other <= length for other in right) / len(right) for length in right]
                self.budgets[prompt] = next(
                    length for length, part in zip(right, within, strict=True) if part >= self.percentile
                )
            free = self.calls // self.every % 2 == 1 or share_right(rewards) < self.solved
            budget = self.budgets.get(prompt, math.inf)
            result.append(
                [
                    0.0 if free or length <= budget or reward is None or reward <= 0 else -float(reward)
                    for reward, length in zip(rewards, lengths, strict=True)
                ]
            )
        self.calls += 1
        return result


def gr3(rewards, lengths, alpha):
    mean = sum(lengths) / len(lengths)
    result = []
    for reward, length in zip(rewards, lengths, strict=True):
        scale = 1 / (1 + alpha * length / mean)
        result.append(reward * scale - reward if reward is not None and reward > 0 else 0.0)
    return result
