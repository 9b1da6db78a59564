"""Plain reference implementation of the evaluation's confidence intervals. This file imports nothing from trl_ces."""

import math
import random
from statistics import fmean, variance

Z = 1.959963984540054


def bisect(inside, outside, holds):
    """Find by bisection where `holds` becomes false; return `outside` if `holds(outside)` is true."""
    if holds(outside):
        return outside
    for _ in range(100):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside


def wilson(share, size):
    """Return the lowest and highest p with |share - p| <= z sqrt(p (1 - p) / size), as in a score test at 5 %."""

    def holds(p):
        return abs(share - p) <= Z * math.sqrt(p * (1 - p) / size) + 1e-15

    return bisect(share, 0.0, holds), bisect(share, 1.0, holds)


def effective_size(problems):
    """Compute the effective number of independent completions from (correct share, number of completions) pairs."""
    n = len(problems)
    shares = [share for share, _ in problems]
    mean = fmean(shares)
    if all(count == 1 for _, count in problems):
        return n
    total = n * mean * (1 - mean) + (variance(shares) if n > 1 else 0)
    within = n * fmean(share * (1 - share) * count / (count - 1) for share, count in problems if count > 1)
    rho = min(1, max(0, 1 - within / (total + 0.125)))
    return n / (rho + (1 - rho) * fmean(1 / count for _, count in problems))


def accuracy(sets):
    """Return (mean, low, high) of the unweighted mean over sets of problems."""
    means = [fmean(share for share, _ in problems) for problems in sets]
    sizes = [effective_size(problems) for problems in sets]
    smooth = [(mean * size + 0.5) / (size + 1) for mean, size in zip(means, sizes, strict=True)]
    middle, count = fmean(smooth), len(sets)
    spread = sum(p * (1 - p) / size for p, size in zip(smooth, sizes, strict=True)) / count**2
    return fmean(means), *wilson(fmean(means), middle * (1 - middle) / spread)


def difference(first, second):
    """Return (mean, low, high) of the first run minus the second, by Newcombe's method 10."""
    (m1, l1, u1), (m2, l2, u2) = accuracy(first), accuracy(second)
    covariance = squares1 = squares2 = 0
    for a, b in zip(first, second, strict=True):
        x, y, n = [share for share, _ in a], [share for share, _ in b], len(a)
        for p, q in zip(x, y, strict=True):
            covariance += (p - fmean(x)) * (q - fmean(y)) / n**2
        squares1 += (sum((p - fmean(x)) ** 2 for p in x) + 0.125) / n**2
        squares2 += (sum((q - fmean(y)) ** 2 for q in y) + 0.125) / n**2
    phi = covariance / math.sqrt(squares1 * squares2)
    low = math.sqrt(max(0, (m1 - l1) ** 2 - 2 * phi * (m1 - l1) * (u2 - m2) + (u2 - m2) ** 2))
    high = math.sqrt(max(0, (u1 - m1) ** 2 - 2 * phi * (u1 - m1) * (m2 - l2) + (m2 - l2) ** 2))
    return m1 - m2, m1 - m2 - low, m1 - m2 + high


def bootstrap_t(sets, resamples=4000):
    """Return (mean, low, high) of the unweighted mean over sets of values."""

    def statistics(sample):
        errors = [variance(values) / len(values) if len(values) > 1 else 0 for values in sample]
        return fmean(map(fmean, sample)), math.sqrt(sum(errors)) / len(sample)

    draw = random.Random(0)
    mean, error = statistics(sets)
    if not error:
        return mean, mean, mean
    ts = []
    for _ in range(resamples):
        other_mean, other_error = statistics([draw.choices(values, k=len(values)) for values in sets])
        ts.append((other_mean - mean) / max(other_error, error / 2))
    ts.sort()
    low, high = mean - ts[int(0.975 * resamples)] * error, mean - ts[int(0.025 * resamples)] * error
    return mean, low, high
