"""Record the margins of token selection; two runs select the same tokens if the margins far exceed rounding errors."""

from contextlib import contextmanager
from unittest import mock

from trl_ces.methods import ces


@contextmanager
def selection_margins():
    """Yield a list that collects each completion's k-th highest minus (k+1)-th highest entropy, in bits."""
    margins, select = [], ces.top_entropy_tokens

    def record(entropies, mask, sizes, largest=None):
        for row, included, k in zip(entropies.detach().double(), mask.bool(), sizes.tolist(), strict=True):
            ordered = row[included].sort(descending=True).values
            if 0 < k < len(ordered):
                margins.append((ordered[k - 1] - ordered[k]).item())
        return select(entropies, mask, sizes, largest)

    with mock.patch.object(ces, "top_entropy_tokens", record):
        yield margins
