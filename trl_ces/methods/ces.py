"""Conditional Entropy Shaping, Eqs. 2 and 4-7 of arXiv 2605.19358, as pure functions on tensors.

CES changes one tensor of DAPO, the advantage: its shape becomes (B, T) instead of (B,), and a differentiable entropy
term is added at the few tokens where the policy is least certain.

Symbols: B completions, T token positions, G completions per prompt (a group). Entropies are in bits (log2 in Eq. 4)
unless a name contains `nats`. A loss mask is 1 on tokens in the loss and 0 on padding and tool output.
"""

import math
from typing import Any

import torch
from torch import Tensor

from .rule import OR_OFF, Need, Reject, Rule, ShapedAdvantages, entropy_in_bits, to_fraction


def multiplier(correct: Tensor, group_correct: Tensor, group_scored: Tensor) -> tuple[Tensor, Tensor]:
    """
    Compute b of Eq. 6 as an exact fraction: the group accuracy if the completion is correct, else 1 - group accuracy.

    Args:
        correct (`Tensor`): Shape (B,), bool, r_acc = 1.
        group_correct (`Tensor`): Shape (B,), int64, see [`group_counts`].
        group_scored (`Tensor`): Shape (B,), int64, see [`group_counts`].

    Returns:
        `tuple[Tensor, Tensor]`: Numerator and denominator of b, shape (B,), int64; b = 0 if no completion is scored.
    """
    numerator = torch.where(correct, group_correct, group_scored - group_correct)
    return numerator, group_scored.clamp(min=1)


def selection_size(lengths: Tensor, tau: float, multiplier: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """
    Compute k = floor(|y| * tau * b) of Eq. 5 with exact arithmetic.

    The computation uses integers: tau is an exact decimal, as written by the user, and b is a ratio of counts.
    In float32, 300 tokens with tau 0.01 and b = 1 - 2/3 would give 0 instead of 1.

    Args:
        lengths (`Tensor`): Shape (B,), int64, |y|: tokens in the loss mask.
        tau (`float`): Top-rate in [0, 1], with at most nine decimal places.
        multiplier (`tuple[Tensor, Tensor]`, *optional*):
            Numerator and denominator of b, shape (B,), int64. `None` means b = 1, the paper's "w/o Dynamic b".

    Returns:
        `Tensor`: k, shape (B,), int64.
    """
    rate = to_fraction(tau)
    if multiplier is None:
        return lengths * rate.numerator // rate.denominator
    numerator, denominator = multiplier
    return lengths * rate.numerator * numerator // (rate.denominator * denominator)  # Eq. 5


def top_entropy_tokens(entropies: Tensor, mask: Tensor, sizes: Tensor, largest: int | None = None) -> Tensor:
    """
    Select S_H of Eq. 7: exactly the k highest-entropy tokens of each completion. Ties go to the earlier token.

    Args:
        entropies (`Tensor`): Shape (B, T), any unit. Only their order matters; no gradient flows through them.
        mask (`Tensor`): Shape (B, T), 1 on selectable tokens; each row needs at least `sizes` of these.
        sizes (`Tensor`): Shape (B,), int64, k.
        largest (`int`, *optional*): Upper bound on k; a smaller bound is faster. Default: T.

    Returns:
        `Tensor`: Shape (B, T), bool.
    """
    candidates = entropies.detach().masked_fill(mask == 0, -math.inf)
    k = sizes.unsqueeze(1)
    highest = candidates.topk(candidates.size(1) if largest is None else largest, dim=1).values
    # The k-th highest entropy of each row; +inf for k = 0, so that no token is selected.
    thresholds = torch.nn.functional.pad(highest, (1, 0), value=math.inf).gather(1, k)
    above, tied = candidates > thresholds, candidates == thresholds
    return above | tied & (tied.cumsum(dim=1) <= k - above.sum(dim=1, keepdim=True))


def ces_advantages(
    advantages: Tensor,
    entropies: Tensor,
    selected: Tensor,
    correct: Tensor,
    beta_correct: float,
    beta_incorrect: float,
    cap_incorrect: float | None = None,
    cap_correct: float | None = None,
) -> Tensor:
    """
    Compute A' of Eq. 7 on selected tokens: A - beta_1 H in correct completions, A + beta_2 H in wrong completions.

    With a cap kappa, selected tokens get A + min(beta_2 H, max(0, -A) / kappa) in wrong completions and
    A - min(beta_1 H, max(0, A) / kappa) in correct ones. The gradient of H flows only if the cap does not bind. For
    kappa >= 1, shaping does not raise a wrong completion's advantage above max(A, 0) or lower a correct completion's
    advantage below min(A, 0) (docs/algorithm.md, "The caps").

    Args:
        advantages (`Tensor`): Shape (B,), A of Eq. 3.
        entropies (`Tensor`): Shape (B, T), bits. Gradients flow through them unless the caller detaches them.
        selected (`Tensor`): Shape (B, T), bool, S_H.
        correct (`Tensor`): Shape (B,), bool, r_acc = 1.
        beta_correct (`float`): beta_1, advantage per bit.
        beta_incorrect (`float`): beta_2, advantage per bit.
        cap_incorrect (`float`, *optional*): kappa of wrong completions. `None` means no cap, as in the paper.
        cap_correct (`float`, *optional*): kappa of correct completions. `None` means no cap, as in the paper.

    Returns:
        `Tensor`: A', shape (B, T).
    """
    advantages, correct = advantages.unsqueeze(1), correct.unsqueeze(1)
    shaping = torch.where(correct, -beta_correct, beta_incorrect) * entropies
    for capped, sign, cap in ((~correct, 1, cap_incorrect), (correct, -1, cap_correct)):
        if cap is not None:
            bound = (-sign * advantages).clamp(min=0.0) / cap
            # Do not use torch.minimum, which halves the gradient if its arguments are equal.
            shaping = torch.where(capped & ~(sign * shaping < bound), sign * bound, shaping)
    return advantages + torch.where(selected, shaping, 0.0)


def conditional_entropy_shaping(
    batch: dict[str, Tensor],
    entropies_nats: Tensor,
    mask: Tensor,
    *,
    tau: float,
    beta_correct: float,
    beta_incorrect: float,
    cap_incorrect: float | None = None,
    cap_correct: float | None = None,
    dynamic_multiplier: bool = True,
    entropy_gradient: bool = True,
) -> ShapedAdvantages:
    """
    Apply Algorithm 1 of the paper to one micro-batch, with k = 0 for completions that are unscored or whose beta is 0.

    Args:
        batch (`dict[str, Tensor]`):
            Shape (B,) each: `advantages`; `correct`, `scored` (bool); `group_correct`, `group_scored` (int64).
        entropies_nats (`Tensor`): Shape (B, T), entropies of the policy being updated, in nats; 0 on padding.
        mask (`Tensor`): Shape (B, T), the loss mask.
        tau, beta_correct, beta_incorrect, cap_incorrect, cap_correct: The `ces_*` fields of [`CESConfig`].
        dynamic_multiplier (`bool`): `False` is the paper's ablation "w/o Dynamic b".
        entropy_gradient (`bool`): `False` is the paper's ablation "w/o Entropy Gradient".

    Returns:
        [`ShapedAdvantages`]
    """
    correct, scored = batch["correct"], batch["scored"]
    entropies = entropy_in_bits(entropies_nats)  # Eq. 4
    if not entropy_gradient:
        entropies = entropies.detach()
    b = multiplier(correct, batch["group_correct"], batch["group_scored"]) if dynamic_multiplier else None
    lengths = mask.sum(dim=1, dtype=torch.int64)
    is_shaped = scored & torch.where(correct, beta_correct != 0, beta_incorrect != 0)
    k = selection_size(lengths, tau, b) * is_shaped
    largest = math.floor(mask.size(1) * to_fraction(tau))  # unlike k.max(), does not synchronize the device
    selected = top_entropy_tokens(entropies, mask, k, largest)
    betas = beta_correct, beta_incorrect, cap_incorrect, cap_correct
    shaped = ces_advantages(batch["advantages"], entropies, selected, correct, *betas)
    return ShapedAdvantages(shaped, selected)


AUTO = "auto"  # value of `ces_tau`; see [`automatic_tau`]
LARGEST_AUTO = 0.05


def automatic_tau(mean_length: float) -> float:
    """
    Compute the value of `ces_tau: auto`: 2 / mean length, but at least the paper's 0.01 and at most 0.05.

    Eq. 5 then shapes about two tokens of a completion with b = 1. In toy tasks, five of seven weak models
    diverged at tau 0.1, one at 0.05 and none at 0.02. The first rollout's mean length determines the value for the
    whole run. The value is logged, written to the run's recipe.yaml and run.json, and saved in checkpoints.
    """
    return round(max(0.01, min(2 / max(mean_length, 1), LARGEST_AUTO)), 4)


def short_completion_warning(length: float) -> str:
    """Return a warning if `ces_tau: auto` shapes at most one token of `length`, else an empty string."""
    if length * LARGEST_AUTO >= 2:
        return ""
    return "Under 40 tokens, shaping two tokens needs a `ces_tau` above 0.05, with which a weak model can diverge."


def unshaped_warning(tau: float | str, longest: int | None) -> str:
    """Return a warning if Eq. 5 selects no token in completions of `longest` tokens, else an empty string."""
    largest = LARGEST_AUTO if isinstance(tau, str) else tau
    if longest is None or largest == 0 or longest * to_fraction(largest) >= 1:
        return ""
    auto = " Set `ces_tau` to `auto`." if longest * LARGEST_AUTO >= 1 else ""
    return (
        f"No token will be shaped: a completion of at most {longest} tokens (`max_completion_length`) is too short "
        f"for `ces_tau` {tau} (Eq. 5).{auto} {short_completion_warning(longest)}".rstrip()
    )


def unshaped_rollout_warning(facts: dict[str, Tensor], lengths: Tensor, settings: dict[str, Any]) -> str:
    """Return a warning if Eq. 5 shapes under a tenth of the scored completions with a nonzero beta, else ""."""
    correct, tau = facts["correct"], settings["tau"]
    b: Any = multiplier(correct, facts["group_correct"], facts["group_scored"])
    if not settings["dynamic_multiplier"]:
        b = 1, 1
    betas = [settings["beta_correct"], settings["beta_incorrect"]]
    counts = facts["scored"] & (torch.where(correct, *betas) != 0)
    shaped, total = (selection_size(lengths, tau, b) > 0)[counts].sum().item(), counts.sum().item()
    if tau == 0 or 10 * shaped >= total:
        return ""
    needed = math.ceil(1e4 / max(1, (lengths * b[0] / b[1])[counts].median().item())) / 1e4
    kind = "" if all(betas) else "correct " if betas[0] else "incorrect "
    risk = " With 0.05 or more, a weak model can diverge." if needed >= LARGEST_AUTO and betas[1] > 0 else ""
    return (
        f"CES shapes tokens in {shaped} of the first rollout's {total} {kind}completions, so this run is close to one "
        "without shaping. Eq. 5 selects floor(length * `ces_tau` * b) tokens, where b is the share of the prompt's "
        "completions that are correct (for a correct completion) or incorrect (for an incorrect one). `ces_tau: "
        f"{needed:g}` would shape at least half of them.{risk}"
    )


def negative_beta_warning(beta_correct: float, beta_incorrect: float) -> str:
    """Return a warning that describes the effect of negative betas, or an empty string if no beta is negative."""
    if beta_correct < 0 and beta_incorrect < 0:
        return (
            "`ces_beta_correct` and `ces_beta_incorrect` are negative: they raise the entropy of correct completions "
            "and lower the entropy of wrong completions, as in AsymGRPO (arXiv 2604.04894). CES does the opposite."
        )
    if beta_correct < 0:
        return f"`ces_beta_correct` is {beta_correct:g}: it raises the entropy of correct completions; CES lowers it."
    if beta_incorrect < 0:
        return (
            f"`ces_beta_incorrect` is {beta_incorrect:g}: it lowers the entropy of wrong completions; CES raises it."
        )
    return ""


def check(args: Any, reject: Reject) -> None:
    """Reject a second entropy term in the loss, and settings that would drop tokens or groups that CES needs."""
    if args.entropy_coef != 0.0:
        reject("entropy_coef", f"CES already adds the entropy to the loss: set it to 0.0, {OR_OFF}.")
    if args.use_adaptive_entropy:
        reject("use_adaptive_entropy", f"CES already adds the entropy to the loss: set it to False, {OR_OFF}.")
    if args.top_entropy_quantile < 1.0:
        reject("top_entropy_quantile", f"it would drop the tokens that CES does not shape: set it to 1.0, {OR_OFF}.")
    if args.dynamic_sampling and not args.ces_allow_dynamic_sampling:
        reject(
            "dynamic_sampling",
            "it drops groups whose completions all have the same accuracy. CES keeps them (section 3.2 of the paper): "
            "A is 0, but A' = -/+ beta H still has a gradient. Set `dynamic_sampling=False`, or set "
            "`ces_allow_dynamic_sampling=True` if this is intended.",
        )


rule = Rule(
    name="ces",
    title="Conditional Entropy Shaping (CES)",
    function=conditional_entropy_shaping,
    needs=frozenset({Need.CORRECTNESS, Need.RATIOS}),
    differentiates="entropies",
    check=check,
    config_fields=(
        "tau",
        "beta_correct",
        "beta_incorrect",
        "cap_incorrect",
        "cap_correct",
        "dynamic_multiplier",
        "entropy_gradient",
    ),
)
