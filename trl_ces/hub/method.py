"""How a model was trained, in the card's words: true for every shaping and every ablation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CHENG = "the entropy advantage of Cheng et al. ([arXiv 2506.14758](https://arxiv.org/abs/2506.14758))"
CES_PAPER = "([arXiv 2605.19358](https://arxiv.org/abs/2605.19358))"
# Whether correct and incorrect answers are shaped -> what happens at their most uncertain tokens.
EFFECTS = {
    (True, True): "it takes entropy from correct answers and gives it to wrong ones, at the most uncertain tokens",
    (True, False): "it takes entropy from correct answers at the most uncertain tokens, and leaves wrong ones alone",
    (False, True): "it gives entropy to wrong answers at the most uncertain tokens, and leaves correct ones alone",
    (False, False): "with these settings it changes no token",
}


def method(shaping: str, settings: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    """
    What follows "trained with".

    Args:
        shaping (`str`): `"ces"`, `"none"` or `"entropy_advantage"`.
        settings (`Mapping`): Of the run; a missing one has its default.
        recipe (`Mapping`): The content of its recipe.yaml.
    """
    base = _objective(settings) + (" with dynamic sampling" if recipe.get("dynamic_sampling") else "")
    if shaping == "none":
        return f"{base}, without shaping"
    if shaping == "entropy_advantage":
        return f"{base} and {CHENG}"
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
    selects = settings.get("ces_tau", 0.01) > 0
    sides = tuple(selects and settings.get(f"ces_beta_{side}", 0.4) > 0 for side in ("correct", "incorrect"))
    return f"CES shapes the advantage of {_objective(settings)}: {EFFECTS[sides]} {CES_PAPER}."


def _objective(settings: Mapping[str, Any]) -> str:
    loss = settings.get("loss_type", "dapo")
    return "DAPO" if loss == "dapo" else f"GRPO (`loss_type` {loss})"
