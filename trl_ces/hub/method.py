"""What a model was trained with, in a card's words: true for every shaping and every ablation of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CHENG = "the entropy advantage of Cheng et al. ([arXiv 2506.14758](https://arxiv.org/abs/2506.14758))"
CES_PAPER = "([arXiv 2605.19358](https://arxiv.org/abs/2605.19358))"
# Where tokens are chosen: which answers lose entropy there, and which gain it.
EFFECTS = {
    (True, True): "it takes entropy from correct answers and gives it to wrong ones, at the most uncertain tokens",
    (True, False): "it takes entropy from correct answers at the most uncertain tokens, and leaves wrong ones alone",
    (False, True): "it gives entropy to wrong answers at the most uncertain tokens, and leaves correct ones alone",
    (False, False): "with these settings it changes no token",
}


def objective(settings: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    """`"DAPO"`, or what the loss is called where it is another; with dynamic sampling, where there was some."""
    loss = settings.get("loss_type", "dapo")
    name = "DAPO" if loss == "dapo" else f"GRPO (`loss_type` {loss})"
    return f"{name} with dynamic sampling" if recipe.get("dynamic_sampling") else name


def method(shaping: str, settings: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    """
    What follows "trained with".

    Args:
        shaping (`str`): `"ces"`, `"none"` or `"entropy_advantage"`.
        settings (`Mapping`): Of the run, as far as they are known; what is not there has its default.
        recipe (`Mapping`): The content of its recipe.yaml.
    """
    base = objective(settings, recipe)
    if shaping == "none":
        return f"{base}, without shaping"
    if shaping == "entropy_advantage":
        return f"{base} and {CHENG}"
    without = []
    if settings.get("ces_dynamic_multiplier") is False:
        without.append("without the dynamic multiplier b")
    if settings.get("ces_entropy_gradient") is False:
        without.append("without the gradient through the entropy")
    ablation = f", {' and '.join(without)}," if without else ""
    return f"Conditional Entropy Shaping (CES){ablation} on {base}"


def effect(shaping: str, settings: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    """What CES does to the advantage under these settings, as a sentence; empty for other shapings."""
    if shaping != "ces":
        return ""
    shapes = settings.get("ces_tau", 0.01) > 0
    sides = tuple(shapes and settings.get(f"ces_beta_{side}", 0.4) > 0 for side in ("correct", "incorrect"))
    name = objective(settings, recipe).removesuffix(" with dynamic sampling")
    return f"CES shapes the advantage of {name}: {EFFECTS[sides]} {CES_PAPER}."
