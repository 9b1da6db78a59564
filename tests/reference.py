"""Reference implementation of Algorithm 1 and Eq. 1 of the paper: plain loops in float64, without trl_ces or TRL.

It passes one unpadded completion at a time through the model's ordinary forward pass with full logits. The code
favors clarity over speed.
"""

import copy
import math
from fractions import Fraction

import torch


def float64_copy(model):
    """Copy the model in float64, without TRL's fused `forward`, which is set on the instance."""
    clone = copy.deepcopy(model)
    clone.__dict__.pop("forward", None)
    return clone.double().train()


def logps_and_bits(model, row, temperature):
    """Return the log-prob of each completion token and the entropy of its distribution in bits."""
    ids = torch.tensor([row["prompt_ids"] + row["completion_ids"]])
    logits = model(input_ids=ids).logits[0] / temperature
    first = len(row["prompt_ids"])
    logps, bits = [], []
    for position, token in enumerate(row["completion_ids"]):
        distribution = torch.log_softmax(logits[first + position - 1], dim=-1)
        logps.append(distribution[token])
        bits.append(-(distribution.exp() * distribution / math.log(2)).sum())
    return logps, bits


def group_advantages(rewards, group_size):
    """Compute Eq. 3 with the sample standard deviation and TRL's epsilon of 1e-4; None is a missing reward."""
    advantages = []
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size]
        scored = [reward for reward in group if reward is not None]
        mean = sum(scored) / len(scored) if scored else 0.0
        variance = sum((reward - mean) ** 2 for reward in scored) / (len(scored) - 1) if len(scored) > 1 else 0.0
        for reward in group:
            advantages.append(0.0 if reward is None else (reward - mean) / (math.sqrt(variance) + 1e-4))
    return advantages


def chosen_positions(bits, mask, size):
    """Return the `size` highest-entropy positions where the mask is 1; ties go to the earlier position."""
    candidates = [position for position in range(len(bits)) if mask[position]]
    candidates.sort(key=lambda position: (-bits[position], position))
    return candidates[:size]


def selection_sizes(rows, group_size, tau, dynamic=True):
    """Compute Eqs. 2, 5 and 6 with fractions. Rows whose accuracy is None have size 0 and are excluded from Eq. 2."""
    sizes = []
    for start in range(0, len(rows), group_size):
        group = rows[start : start + group_size]
        scored = [row["accuracy"] for row in group if row["accuracy"] is not None]
        for row in group:
            if row["accuracy"] is None:
                sizes.append(0)
                continue
            accuracy = Fraction(sum(value >= 1 for value in scored), len(scored))
            b = accuracy if row["accuracy"] >= 1 else 1 - accuracy
            sizes.append(math.floor(sum(row["mask"]) * Fraction(tau) * (b if dynamic else 1)))
    return sizes


def shaped_loss(
    model,
    rows,
    group_size,
    *,
    tau="0.01",
    beta_correct=0.4,
    beta_incorrect=0.4,
    cap_incorrect=None,
    cap_correct=None,
    dynamic=True,
    entropy_gradient=True,
    rule="ces",
    alpha=0.4,
    kappa=2.0,
    old_model=None,
    temperature=1.0,
    epsilon_low=0.2,
    epsilon_high=0.28,
    loss_type="dapo",
    dr_grpo_length=None,
):
    """
    Compute -J of Eq. 1 with A' of Eq. 7 instead of A, over all rows at once (one optimizer step on one process).

    Each row is a dict of prompt_ids, completion_ids, mask (list of 0/1), accuracy (float or None) and rewards (the sum
    of the rewards, or None). `rule` is "ces", "entropy_advantage", "on_policy_sft" or "none".
    """
    # Unscored completions have no reward, except with `rule="none"`, which uses their other rewards as TRL does.
    unscored = [rule != "none" and row["accuracy"] is None for row in rows]
    rewards = [None if skip else row["rewards"] for row, skip in zip(rows, unscored, strict=True)]
    advantages = group_advantages(rewards, group_size)
    sizes = selection_sizes(rows, group_size, tau, dynamic)
    row_losses = []
    for row, advantage, size in zip(rows, advantages, sizes, strict=True):
        logps, bits = logps_and_bits(model, row, temperature)
        old_logps = [logp.detach() for logp in logps]
        if old_model is not None:
            with torch.no_grad():
                old_logps, _ = logps_and_bits(old_model, row, temperature)
        is_correct = row["accuracy"] is not None and row["accuracy"] >= 1
        selected = chosen_positions([value.item() for value in bits], row["mask"], size)
        token_losses = []
        for position in range(len(logps)):
            if not row["mask"][position]:
                continue
            shaped = torch.tensor(advantage, dtype=torch.float64)
            entropy = bits[position] if entropy_gradient else bits[position].detach()
            if rule == "ces" and position in selected:
                change = -beta_correct * entropy if is_correct else beta_incorrect * entropy
                if cap_incorrect is not None and not is_correct:
                    limit = max(0.0, -advantage) / cap_incorrect
                    change = change if change.item() < limit else limit
                if cap_correct is not None and is_correct:
                    limit = max(0.0, advantage) / cap_correct
                    change = change if -change.item() < limit else -limit
                shaped = shaped + change
            if rule == "entropy_advantage":
                nats = bits[position].item() * math.log(2)
                shaped = shaped + min(alpha * nats, abs(advantage) / kappa)
            ratio = torch.exp(logps[position] - old_logps[position])
            loss = -torch.minimum(ratio * shaped, torch.clamp(ratio, 1 - epsilon_low, 1 + epsilon_high) * shaped)
            if rule == "on_policy_sft":  # maximize the likelihood of correct completions; the value is -1 per token
                loss = is_correct * (logps[position].detach() - logps[position] - 1)
            token_losses.append(loss)
        row_losses.append(token_losses)

    zero = sum(parameter.sum() * 0 for parameter in model.parameters())
    sums = [sum(losses, zero) for losses in row_losses]
    lengths = [len(losses) for losses in row_losses]
    if loss_type in ("dapo", "bnpo"):
        return sum(sums) / sum(lengths)
    if loss_type == "grpo":
        return sum(total / max(length, 1) for total, length in zip(sums, lengths, strict=True)) / len(rows)
    if loss_type == "dr_grpo":
        return sum(sums) / (len(rows) * dr_grpo_length)
    raise ValueError(loss_type)
