"""Output directory of an evaluation: settings.json and samples.jsonl, which contains one line per completion."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...support.errors import UserError
from ...support.files import write_json
from ...support.locks import Busy, lock_file

SETTINGS, SAMPLES, LOCK = "settings.json", "samples.jsonl", ".lock"
Sample = dict[str, Any]
# Benchmark, row number of the problem, index of the sample.
Key = tuple[str, int, int]
REQUESTED = ("benchmark", "problem", "sample", "seed", "gold")
GRADED = ("final_answer", "correct", "correct_qwen")
GENERATED = ("tokens", "finish_reason", "text")
FIELDS = (*REQUESTED, *GRADED, *GENERATED)


def key_of(sample: Sample) -> Key:
    return sample["benchmark"], sample["problem"], sample["sample"]


def read_settings_file(folder: Path) -> dict[str, Any]:
    """Read a directory's settings.json."""
    file = folder / SETTINGS
    if not file.is_file():
        raise UserError(f"{folder} has no {SETTINGS}: pass an output directory of `trl-ces eval`.")
    return json.loads(file.read_text(encoding="utf-8"))


def read_samples(file: Path) -> tuple[list[Sample], int]:
    """Return the samples in samples.jsonl and their size in bytes; ignore an incomplete last line of a killed run."""
    content = file.read_bytes() if file.is_file() else b""
    length = content.rfind(b"\n") + 1
    return [json.loads(line) for line in content[:length].split(b"\n")[:-1]], length


class SampleFile:
    """The samples.jsonl file of a directory, opened for appending."""

    def __init__(self, folder: Path):
        self.samples, length = read_samples(folder / SAMPLES)
        self.stream = (folder / SAMPLES).open("ab")
        self.stream.truncate(length)  # drop an incomplete last line; its sample is drawn again

    def append(self, samples: Sequence[Sample]) -> None:
        """Append samples in the given order and flush them to the operating system."""
        self.stream.write("".join(json.dumps(sample, ensure_ascii=False) + "\n" for sample in samples).encode())
        self.stream.flush()
        self.samples.extend(samples)


@contextmanager
def open_samples(folder: Path, settings: dict[str, Any], wait: bool = False) -> Iterator[SampleFile]:
    """Lock and open a directory's samples; raise `UserError` if the samples were drawn with different settings."""
    try:
        lock = lock_file(folder / LOCK, wait)
    except OSError as error:
        raise UserError(f"`--output_dir` {str(folder)!r} cannot be written to ({error.strerror}).") from None
    except Busy:
        raise UserError(
            f"Another evaluation is running in {folder}: wait for it, or choose another `--output_dir`."
        ) from None
    with lock:
        _check_settings(folder, json.loads(json.dumps(settings)))
        file = SampleFile(folder)
        with file.stream:
            yield file


def _check_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Write settings.json if the file is missing; raise `UserError` if its content differs from `settings`."""
    if not (folder / SETTINGS).is_file():
        if (folder / SAMPLES).is_file():
            raise UserError(f"{folder / SAMPLES} exists without {SETTINGS}: choose another `--output_dir`.")
        write_json(folder / SETTINGS, settings)
    differing = differences(read_settings_file(folder), settings)
    if settings.get("fingerprint") is not None:  # the fingerprint identifies the model, even if its files were moved
        differing.pop("model", None)
    if differing:
        changes = "; ".join(f"`{name}` was {old!r} and is now {new!r}" for name, (old, new) in differing.items())
        raise UserError(
            f"{folder} contains samples drawn with different settings: {changes}. Choose another `--output_dir`, or "
            "use the same settings."
        )


def differences(first: dict[str, Any], second: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return both values of each entry that differs; names of nested entries have the form `data.gsm8k`."""
    pairs: dict[str, tuple[Any, Any]] = {}
    for name in [*first, *(name for name in second if name not in first)]:
        old, new = first.get(name), second.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            pairs |= {f"{name}.{inner}": pair for inner, pair in differences(old, new).items()}
        elif old != new:
            pairs[name] = (old, new)
    return pairs
