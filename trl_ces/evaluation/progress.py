"""The line that says how far a run is."""

from collections.abc import Sequence

from tqdm import tqdm

from .samples import Sample


class Progress:
    """A line with answers done, tokens a second and the time left."""

    def __init__(self, total: int, done: int, shown: bool):
        self._bar = tqdm(total=total, initial=done, unit="answer", disable=not shown, mininterval=1.0, smoothing=0.05)
        self._tokens = 0

    def add(self, samples: Sequence[Sample]) -> None:
        """Counts samples that are finished."""
        self._tokens += sum(sample["tokens"] for sample in samples)
        elapsed = self._bar.format_dict["elapsed"]
        if elapsed:
            self._bar.set_postfix_str(f"{self._tokens / elapsed:.0f} tokens/s", refresh=False)
        self._bar.update(len(samples))

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()
