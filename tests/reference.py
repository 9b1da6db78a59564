"""Algorithm 1 of the paper inside Eq. 1, as plain loops in float64. Imports nothing from trl_ces or TRL.

One completion at a time, unpadded, through the model's ordinary forward with full logits. Slow and obvious on purpose.
"""

import copy
import math
from fractions import Fraction

import torch


def float64_copy(model):
    """The same weights in float64, with the class's own forward; TRL replaces the instance's with a fused one."""
    clone = copy.deepcopy(model)
    clone.__dict__.pop("forward", None)
    return clone.double().train()


def logps_and_bits(model, row, temperature):
    """Log-prob of each completion token, and entropy, in bits, of the distribution it was sampled from."""
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
    """Eq. 3 with the sample standard deviation and TRL's 1e-4. None: no reward function scored the completion."""
    advantages = []
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size]
        known = [reward for reward in group if reward is not None]
        mean = sum(known) / len(known) if known else 0.0
        variance = sum((reward - mean) ** 2 for reward in known) / (len(known) - 1) if len(known) > 1 else 0.0
        for reward in group:
            advantages.append(0.0 if reward is None else (reward - mean) / (math.sqrt(variance) + 1e-4))
    return advantages


def gfpo_kept(group, keep, metric):
    """Places of the `keep` best of a group of (length, reward or None), arXiv 2508.09726; without a reward last."""

    def rank(place):
        length, reward = group[place]
        if reward is None:
            return (1, 0, place)
        return (0, length if metric == "length" else -Fraction(reward) / max(length, 1), place)

    return sorted(range(len(group)), key=rank)[:keep]


def rewards_of_gfpo(rows, group_size, keep, metric):
    """Each row's reward, None where GFPO rejects the row."""
    rewards = []
    for start in range(0, len(rows), group_size):
        group = [(sum(row["mask"]), row["rewards"]) for row in rows[start : start + group_size]]
        kept = gfpo_kept(group, keep, metric)
        rewards += [reward if place in kept else None for place, (_, reward) in enumerate(group)]
    return rewards


def chosen_positions(bits, mask, size):
    """The `size` highest-entropy positions where the mask is 1; ties go to the earlier one."""
    candidates = [position for position in range(len(bits)) if mask[position]]
    candidates.sort(key=lambda position: (-bits[position], position))
    return candidates[:size]


def selection_sizes(rows, group_size, tau, dynamic=True):
    """Eqs. 2, 5, 6 with fractions. A row with accuracy None is left out of its group's accuracy and has size 0."""
    sizes = []
    for start in range(0, len(rows), group_size):
        group = rows[start : start + group_size]
        known = [row["accuracy"] for row in group if row["accuracy"] is not None]
        for row in group:
            if row["accuracy"] is None:
                sizes.append(0)
                continue
            accuracy = Fraction(sum(value >= 1 for value in known), len(known))
            b = accuracy if row["accuracy"] >= 1 else 1 - accuracy
            sizes.append(math.floor(sum(row["mask"]) * Fraction(tau) * (b if dynamic else 1)))
    return sizes


def covariance_of(token, tokens):
    """Eq. 10 of arXiv 2505.22617, for one of `tokens`: dicts with logp (float) and advantage."""
    mean_logp = sum(other["logp"] for other in tokens) / len(tokens)
    mean_advantage = sum(other["advantage"] for other in tokens) / len(tokens)
    return (token["logp"] - mean_logp) * (token["advantage"] - mean_advantage)


def tokens_in_loss(rows, advantages, distributions):
    """The tokens of the mask, row by row, each with its place (row, position)."""
    return [
        {
            "place": (number, position),
            "logp": logps[position].item(),
            "old": old[position].item(),
            "advantage": advantage,
        }
        for number, (row, advantage, (logps, old)) in enumerate(zip(rows, advantages, distributions, strict=True))
        for position in range(len(logps))
        if row["mask"][position]
    ]


def tokens_of_clip_cov(tokens, ratio, low, high, epsilon_low, epsilon_high, delta, priorities):
    """Eq. 11, with verl's minimum of one: places drawn, those of highest priority first."""
    found = []
    for token in tokens:
        importance = math.exp(token["logp"] - token["old"])
        clipped = importance > 1 + epsilon_high if token["advantage"] > 0 else importance < 1 - epsilon_low
        clipped = clipped or (token["advantage"] < 0 and importance > delta)  # delta > 1 + epsilon_high
        if low < covariance_of(token, tokens) < high and not (clipped and token["advantage"] != 0):
            found.append(token["place"])
    found.sort(key=lambda place: -priorities[place[0]][place[1]])
    return found[: max(1, math.floor(Fraction(ratio) * len(tokens)))]


def tokens_of_kl_cov(tokens, ratio):
    """Eq. 13, with verl's minimum of one."""
    ranked = sorted(tokens, key=lambda token: (-covariance_of(token, tokens), token["place"]))
    return [token["place"] for token in ranked[: max(1, math.floor(Fraction(ratio) * len(tokens)))]]


def tokens_of_stare(tokens, ratio):
    """The ceil(ratio N) most surprising of the N tokens with A > 0."""
    ranked = sorted(
        (token for token in tokens if token["advantage"] > 0), key=lambda token: (token["logp"], token["place"])
    )
    return [token["place"] for token in ranked[: math.ceil(Fraction(ratio) * len(ranked))]]


def shaped_loss(
    model,
    rows,
    group_size,
    *,
    tau="0.01",
    beta_correct=0.4,
    beta_incorrect=0.4,
    cap_incorrect=None,
    dynamic=True,
    entropy_gradient=True,
    rule="ces",
    alpha=0.4,
    kappa=2.0,
    ratio="0.0002",
    low=1.0,
    high=5.0,
    coef=1.0,
    weight=1.1,
    zeta=0.01,
    priorities=None,
    gfpo_keep=None,
    gfpo_metric="length",
    old_model=None,
    temperature=1.0,
    epsilon_low=0.2,
    epsilon_high=0.28,
    delta=math.inf,
    loss_type="dapo",
    dr_grpo_length=None,
):
    """
    -J of Eq. 1 with A' of Eq. 7 in place of A, over all rows at once (one optimizer step on one process).

    A row has prompt_ids, completion_ids, mask (list of 0/1), accuracy (float or None), rewards (their sum, or None).
    `rule`: ces, none, or another of trl_ces/methods; clip_cov, kl_cov and stare take all rows as one micro-batch.
    """
    kept = rewards_of_gfpo(rows, group_size, gfpo_keep or group_size, gfpo_metric)
    advantages = group_advantages(kept, group_size)
    sizes = selection_sizes(rows, group_size, tau, dynamic)
    outputs = []
    for row in rows:
        logps, bits = logps_and_bits(model, row, temperature)
        old_logps = [logp.detach() for logp in logps]
        if old_model is not None:
            with torch.no_grad():
                old_logps, _ = logps_and_bits(old_model, row, temperature)
        outputs.append((logps, bits, old_logps))
    tokens = tokens_in_loss(rows, advantages, [(logps, old) for logps, _, old in outputs])
    without_gradient, penalized, amplified = [], [], []
    if rule == "clip_cov":
        without_gradient = tokens_of_clip_cov(tokens, ratio, low, high, epsilon_low, epsilon_high, delta, priorities)
    if rule == "kl_cov":
        penalized = tokens_of_kl_cov(tokens, ratio)
    if rule == "stare":
        amplified = tokens_of_stare(tokens, ratio)
    row_losses = []
    for number, (row, advantage, size) in enumerate(zip(rows, advantages, sizes, strict=True)):
        logps, bits, old_logps = outputs[number]
        chosen = chosen_positions([value.item() for value in bits], row["mask"], size)
        token_losses = []
        for position in range(len(logps)):
            if not row["mask"][position]:
                continue
            shaped = torch.tensor(advantage, dtype=torch.float64)
            entropy = bits[position] if entropy_gradient else bits[position].detach()
            if rule == "ces" and position in chosen:
                change = -beta_correct * entropy if row["accuracy"] >= 1 else beta_incorrect * entropy
                if cap_incorrect is not None and row["accuracy"] < 1:
                    limit = max(0.0, -advantage) / cap_incorrect
                    change = change if change.item() < limit else limit
                shaped = shaped + change
            if rule == "entropy_advantage":
                nats = bits[position].item() * math.log(2)
                shaped = shaped + min(alpha * nats, abs(advantage) / kappa)
            if (number, position) in amplified:
                shaped = weight * shaped
            if rule == "repo_r":
                surprisal = -logps[position].item()
                if advantage > 0:
                    shaped = torch.tensor(max(0.0, advantage * (1 + zeta * surprisal)), dtype=torch.float64)
                else:
                    shaped = torch.tensor(min(0.0, advantage * (1 - zeta * surprisal)), dtype=torch.float64)
            importance = torch.exp(logps[position] - old_logps[position])
            clipped = torch.clamp(importance, 1 - epsilon_low, 1 + epsilon_high)
            loss = -torch.minimum(torch.clamp(importance, max=delta) * shaped, clipped * shaped)
            if rule == "kl_cov":  # no clipping at all
                loss = -importance * advantage
            if rule == "on_policy_sft":  # the likelihood of correct completions; its value is -1 a token
                right = row["accuracy"] is not None and row["accuracy"] >= 1
                loss = right * (logps[position].detach() - logps[position] - 1)
            if (number, position) in penalized:
                loss = loss + coef * abs(logps[position] - old_logps[position])  # Eq. 14
            if (number, position) in without_gradient:
                loss = 0.0 * loss  # Eq. 12
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
