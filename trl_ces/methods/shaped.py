"""The result of a shaping rule, and the unit of entropies."""

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class ShapedAdvantages:
    """
    The result of a shaping rule.

    Args:
        advantages (`Tensor`): Shape (B, T), A'. In the graph if the rule keeps the entropy gradient.
        selected (`Tensor`): Shape (B, T), bool, S_H: tokens whose advantage the rule changed.
    """

    advantages: Tensor
    selected: Tensor


def entropy_in_bits(entropies_nats: Tensor) -> Tensor:
    """Converts TRL's entropies, in nats, to the bits of Eq. 4. Any shape; gradients flow."""
    return entropies_nats / math.log(2)
