"""What a method returns, and the unit that entropies are in."""

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class ShapedAdvantages:
    """
    What a shaping rule returns.

    Args:
        advantages (`Tensor`):
            Shape (B, T), A'. In the graph where the rule lets the entropy gradient flow.
        selected (`Tensor`):
            Shape (B, T), bool, S_H: the tokens whose advantage the rule changed.
    """

    advantages: Tensor
    selected: Tensor


def entropy_in_bits(entropies_nats: Tensor) -> Tensor:
    """Entropies in bits, Eq. 4, from TRL's in nats. Shape kept; the graph too."""
    return entropies_nats / math.log(2)
