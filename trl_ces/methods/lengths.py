"""What length rewards share: how far each length is from a mean."""

from torch import Tensor


def from_mean(lengths: Tensor, counted: Tensor) -> Tensor:
    """
    Each length minus the mean of the counted ones.

    Divides n * l - sum, which is exact: in float32, the mean of lengths near 12,000 is off by up to 0.0005 tokens,
    which a standard deviation of a token or less would magnify.

    Args:
        lengths (`Tensor`): Shape (P, G), int64.
        counted (`Tensor`): Shape (P, G), bool.

    Returns:
        `Tensor`: Shape (P, G), float32, tokens; 0 where nothing is counted.
    """
    n = counted.sum(dim=1, keepdim=True)
    total = (lengths * counted).sum(dim=1, keepdim=True)
    return (n * lengths - total) / n.clamp(min=1)
