"""What a model was trained with, in the words of its card: true for every shaping and every ablation."""

from collections.abc import Mapping
from typing import Any

PAPER = "[arXiv 2605.19358](https://arxiv.org/abs/2605.19358)"
ABLATIONS = {
    "ces_dynamic_multiplier": "without the dynamic multiplier b",
    "ces_entropy_gradient": "without the gradient through the entropy",
}


def trained_with(rule: str | None, settings: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    """The objective, the title of its token rule, and what the recipe adds: `DAPO, ... and dynamic sampling`."""
    loss = settings["loss_type"]
    words = ["DAPO" if loss == "dapo" else f"GRPO (`loss_type` {loss})"]
    if rule is not None:
        without = [text for name, text in ABLATIONS.items() if settings.get(name) is False]
        if settings.get("ces_cap_incorrect") is not None:
            without.append(f"capped at |A| / {settings['ces_cap_incorrect']:g} on incorrect completions")
        words.append(f"{rule} {' and '.join(without)}".strip())
    rewards = [name.rpartition(".")[2] for name in recipe.get("reward_funcs") or []]
    kept, share = recipe.get("gfpo_keep"), recipe.get("top_entropy_quantile", 1.0)
    added = {
        "dynamic sampling": recipe.get("dynamic_sampling"),
        f"GFPO (an advantage for {kept} of a group)": kept is not None,
        **{f"the reward `{name.removeprefix('get_')}`": name.startswith("get_") for name in rewards},
        "rewards scaled by the batch": recipe.get("scale_rewards") == "batch",
        f"a loss on the {100 * share:g} % of the tokens with the highest entropy": share < 1,
        "an adaptive entropy bonus": recipe.get("use_adaptive_entropy"),
        "an entropy bonus": recipe.get("entropy_coef") and not recipe.get("use_adaptive_entropy"),
    }
    words += [text for text, is_true in added.items() if is_true]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def effect(settings: Mapping[str, Any]) -> str:
    """What CES does at the most uncertain tokens, as a sentence; empty for other shapings."""
    if settings["shaping"] != "ces":
        return ""
    sides = (("correct", settings["ces_beta_correct"]), ("incorrect", -settings["ces_beta_incorrect"]))
    parts = [f"{'takes entropy from' if beta > 0 else 'gives entropy to'} {which} completions"
             for which, beta in sides if beta and settings["ces_tau"] > 0]  # fmt: skip
    if not parts:
        return "These settings change no token."
    return f"At the most uncertain tokens, CES ({PAPER}) {' and '.join(parts)}."
