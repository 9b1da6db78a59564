"""
Template for a custom token rule. This rule penalizes the entropy of all tokens of correct completions.

    trl-ces train --config my.yaml --shaping my_rule:rule --shaping_kwargs '{gamma: 0.2}'

The file may be in the working directory or in an installed package. A package may also register the rule under a name
for use as `shaping: correct_entropy`:

    [project.entry-points."trl_ces.methods"]
    correct_entropy = "my_package.my_rule:rule"

To test the rule, call `check_rule(rule, {"gamma": 0.2})` from `trl_ces.lab.testing`, which fails if the trainer cannot
use the rule.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from trl_ces.methods.rule import Need, Rule, ShapedAdvantages, entropy_in_bits, setting


def correct_entropy(
    batch: dict[str, Tensor], entropies_nats: Tensor, mask: Tensor, *, gamma: float
) -> ShapedAdvantages:
    """Return A' = A - gamma H at every token of a correct completion; H is in bits and has a gradient."""
    entropies = entropy_in_bits(entropies_nats)
    selected = mask.bool() & (batch["correct"] & batch["scored"]).unsqueeze(1)
    shaped = batch["advantages"].unsqueeze(1) - torch.where(selected, gamma * entropies, 0.0)
    return ShapedAdvantages(shaped, selected)


@dataclass(frozen=True)
class Settings:
    """Settings of the rule; `shaping_kwargs` sets them."""

    gamma: float = setting(
        0.1,
        "Penalty on the advantage per bit of entropy.",
        lambda value: 0 <= value < math.inf,
        "it must be a finite number >= 0.",
    )


rule = Rule(
    name="correct_entropy",
    title="a penalty on the entropy of correct completions",
    function=correct_entropy,
    settings=Settings,
    needs=frozenset({Need.CORRECTNESS, Need.RATIOS}),
    differentiates="entropies",
)
