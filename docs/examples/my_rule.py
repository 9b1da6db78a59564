"""
A token rule of your own, to start from: a price on the entropy of all tokens of correct completions.

    trl-ces train --config my.yaml --shaping my_rule:rule --shaping_kwargs '{gamma: 0.2}'

The file may lie in the working directory or in an installed package. A package may also register the rule's name, and
`shaping: correct_entropy` then finds it:

    [project.entry-points."trl_ces.methods"]
    correct_entropy = "my_package.my_rule:rule"

In its tests, `check_rule(rule, {"gamma": 0.2})` of `trl_ces.lab.testing` finds what the trainer could not train.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from trl_ces.methods.rule import Need, Rule, ShapedAdvantages, entropy_in_bits, setting


def correct_entropy(
    batch: dict[str, Tensor], entropies_nats: Tensor, mask: Tensor, *, gamma: float
) -> ShapedAdvantages:
    """A' = A - gamma H at every token of a correct completion, H in bits and in the graph."""
    entropies = entropy_in_bits(entropies_nats)
    selected = mask.bool() & (batch["correct"] & batch["scored"]).unsqueeze(1)
    shaped = batch["advantages"].unsqueeze(1) - torch.where(selected, gamma * entropies, 0.0)
    return ShapedAdvantages(shaped, selected)


@dataclass(frozen=True)
class Settings:
    """Settings that `shaping_kwargs` sets."""

    gamma: float = setting(
        0.1,
        "Advantage per bit.",
        lambda value: 0 <= value < math.inf,
        "it must be a finite number >= 0; 0.1 is small.",
    )


rule = Rule(
    name="correct_entropy",
    title="a price on the entropy of correct completions",
    function=correct_entropy,
    settings=Settings,
    needs=frozenset({Need.CORRECTNESS, Need.RATIOS}),
    differentiates="entropies",
)
