"""Compute the objective token by token, and record the shaping of each micro-batch."""

import math
import statistics

import torch
from reference import chosen_positions, logps_and_bits, selection_sizes


def watch_shaping(trainer):
    """Record A' - A of shape (B, T) for every micro-batch; it is nonzero exactly at the selected tokens."""
    changes, shape = [], trainer._shaped_advantages

    def record_change(inputs, *args, **kwargs):
        shaped = shape(inputs, *args, **kwargs)
        changes.append((shaped - inputs["advantages"].unsqueeze(1)).detach())
        return shaped

    trainer._shaped_advantages = record_change
    return changes


TAU, BETA = "0.3", 0.4


def shaping_of(row, bits, size):
    """Compute A' - A for each token of a completion."""
    sign = -1 if row["accuracy"] >= 1 else 1
    selected = chosen_positions([value.item() for value in bits], row["mask"], size)
    return [sign * BETA * bits[position] if position in selected else 0.0 for position in range(len(bits))]


def objective(models, rows, advantages, *, old=None, ref=None, kl=0.0, delta=math.inf, weights=None):
    """Compute the DAPO loss token by token. `models` and `weights` have one entry per row."""
    sizes, losses = selection_sizes(rows, 4, TAU), []
    for index, row in enumerate(rows):
        logps, bits = logps_and_bits(models[index], row, 1.0)
        with torch.no_grad():
            old_logps = logps_and_bits(old, row, 1.0)[0] if old else [logp.detach() for logp in logps]
            ref_logps = logps_and_bits(ref, row, 1.0)[0] if ref else old_logps
        for position, shaping in enumerate(shaping_of(row, bits, sizes[index])):
            shaped = advantages[index] + shaping
            ratio = torch.exp(logps[position] - old_logps[position])
            loss = -torch.minimum(ratio.clamp(max=delta) * shaped, ratio.clamp(0.8, 1.28) * shaped)
            if weights is not None:
                loss = loss * weights[index][position]
            gap = ref_logps[position] - logps[position]
            losses.append(loss + kl * ratio * (torch.exp(gap) - gap - 1))  # the ratio makes TRL's KL gradient unbiased
    return sum(losses) / len(losses)


def normalize(values, deviation=None):
    deviation = statistics.stdev(values) if deviation is None else deviation
    return [(value - statistics.mean(values)) / (deviation + 1e-4) for value in values]


def by_group(change, values):
    return [value for start in range(0, len(values), 4) for value in change(values[start : start + 4])]


def expected_advantages(case, accuracy, bonus):
    sums = [a + b for a, b in zip(accuracy, bonus, strict=True)]
    if case == "reward_weights":
        return by_group(normalize, [0.5 * a + 2 * b for a, b in zip(accuracy, bonus, strict=True)])
    if case == "scale_rewards none":
        return by_group(lambda group: [value - statistics.mean(group) for value in group], sums)
    if case == "scale_rewards batch":
        return by_group(lambda group: normalize(group, statistics.stdev(sums)), sums)
    if case == "normalize_then_sum":
        each = zip(by_group(normalize, accuracy), by_group(normalize, bonus), strict=True)
        return normalize([a + b for a, b in each])
    return by_group(normalize, sums)
