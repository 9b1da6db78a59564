"""What length rewards share: how far each length is from a mean, in tokens and in standard deviations."""

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


def z_scores(lengths: Tensor, counted: Tensor) -> Tensor:
    """
    Each length minus the mean of the counted ones, over their standard deviation (dividing by n) plus 1e-7.

    Args:
        lengths (`Tensor`): Shape (P, G), int64.
        counted (`Tensor`): Shape (P, G), bool.

    Returns:
        `Tensor`: Shape (P, G), float32; 0 where nothing is counted.
    """
    deviation = from_mean(lengths, counted)
    n = counted.sum(dim=1, keepdim=True).clamp(min=1)
    return deviation / (((deviation**2 * counted).sum(dim=1, keepdim=True) / n).sqrt() + 1e-7)
