"""By how much a training selects its tokens: runs that round differently agree if that is far above rounding."""

from contextlib import contextmanager
from unittest import mock

from trl_ces.methods import ces


@contextmanager
def selection_margins():
    """Yields a list that gets, for each completion, its k-th highest entropy less the next one, in bits."""
    margins, select = [], ces.top_entropy_tokens

    def watch(entropies, mask, sizes, largest=None):
        for row, own, k in zip(entropies.detach().double(), mask.bool(), sizes.tolist(), strict=True):
            ordered = row[own].sort(descending=True).values
            if 0 < k < len(ordered):
                margins.append((ordered[k - 1] - ordered[k]).item())
        return select(entropies, mask, sizes, largest)

    with mock.patch.object(ces, "top_entropy_tokens", watch):
        yield margins
