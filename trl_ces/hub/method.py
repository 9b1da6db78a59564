"""How a model was trained, in the card's words: true for every shaping and every ablation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..train.recipe import recipe_fields

CHENG = "the entropy advantage of Cheng et al. ([arXiv 2506.14758](https://arxiv.org/abs/2506.14758))"
CUI = "of Cui et al. ([arXiv 2505.22617](https://arxiv.org/abs/2505.22617))"
BESIDE_DAPO = {"entropy_advantage": CHENG, "clip_cov": f"Clip-Cov {CUI}", "kl_cov": f"KL-Cov {CUI}"}
CES_PAPER = "([arXiv 2605.19358](https://arxiv.org/abs/2605.19358))"
# Signs of beta for correct and incorrect answers -> what happens at their most uncertain tokens.
EFFECTS = {
    (1, 1): "it takes entropy from correct answers and gives it to wrong ones, at the most uncertain tokens",
    (1, 0): "it takes entropy from correct answers at the most uncertain tokens, and leaves wrong ones alone",
    (0, 1): "it gives entropy to wrong answers at the most uncertain tokens, and leaves correct ones alone",
    (0, 0): "with these settings it changes no token",
    (-1, -1): "with its signs swapped, it gives entropy to correct answers and takes it from wrong ones, at the most "
    "uncertain tokens",
    (-1, 0): "with its sign swapped, it gives entropy to correct answers at the most uncertain tokens, and leaves "
    "wrong ones alone",
    (0, -1): "with its sign swapped, it takes entropy from wrong answers at the most uncertain tokens, and leaves "
    "correct ones alone",
    (-1, 1): "with one sign swapped, it gives entropy to all answers at the most uncertain tokens",
    (1, -1): "with one sign swapped, it takes entropy from all answers at the most uncertain tokens",
}


def method(shaping: str, settings: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    """
    What follows "trained with".

    Args:
        shaping (`str`): That of [`CESConfig`].
        settings (`Mapping`): Of the run; a missing one has its default.
        recipe (`Mapping`): The content of its recipe.yaml.
    """
    beside = _beside(recipe)
    base = _objective(settings) + (f" with {_listed(beside)}" if beside else "")
    if shaping == "none":
        return f"{base}, without shaping"
    if shaping in BESIDE_DAPO:
        return f"{base} and {BESIDE_DAPO[shaping]}"
    ablations = {
        "ces_dynamic_multiplier": "without the dynamic multiplier b",
        "ces_entropy_gradient": "without the gradient through the entropy",
    }
    without = " and ".join(words for name, words in ablations.items() if settings.get(name) is False)
    return f"Conditional Entropy Shaping (CES){f', {without},' if without else ''} on {base}"


def effect(shaping: str, settings: Mapping[str, Any]) -> str:
    """What CES does to the advantage under these settings, as a sentence; empty for other shapings."""
    if shaping != "ces":
        return ""
    tau, *betas = (
        settings.get(name, recipe_fields()[name].default)
        for name in ("ces_tau", "ces_beta_correct", "ces_beta_incorrect")
    )
    selects = tau > 0
    sides = tuple(selects * ((beta > 0) - (beta < 0)) for beta in betas)
    return f"CES shapes the advantage of {_objective(settings)}: {EFFECTS[sides]} {CES_PAPER}."


def _beside(recipe: Mapping[str, Any]) -> list[str]:
    """What a recipe adds to the objective beside the shaping: sampling, rewards, entropy."""
    added = ["dynamic sampling"] if recipe.get("dynamic_sampling") else []
    if recipe.get("gfpo_keep") is not None:
        added.append(f"GFPO (an advantage for {recipe['gfpo_keep']} of a group)")
    names = [name.rpartition(".")[2] for name in recipe.get("reward_funcs") or []]
    added += [f"the reward `{name.removeprefix('get_')}`" for name in names if name.startswith("get_")]
    if recipe.get("scale_rewards") == "batch":
        added.append("rewards scaled by the batch")
    share = recipe.get("top_entropy_quantile")
    if share is not None and share < 1:
        added.append(f"a loss on the {100 * share:g} % of the tokens with the highest entropy")
    if recipe.get("use_adaptive_entropy"):
        added.append("an adaptive entropy bonus")
    elif recipe.get("entropy_coef"):
        added.append("an entropy bonus")
    return added


def _listed(words: list[str]) -> str:
    """["a", "b", "c"] -> "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _objective(settings: Mapping[str, Any]) -> str:
    loss = settings.get("loss_type", "dapo")
    return "DAPO" if loss == "dapo" else f"GRPO (`loss_type` {loss})"
