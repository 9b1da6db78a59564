"""An evaluation's directory: settings.json, and samples.jsonl, which gets every completion as it finishes."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...support.errors import UserError
from ...support.files import write_json, write_text
from ...support.locks import Busy, lock_file

SETTINGS, SAMPLES, LOCK = "settings.json", "samples.jsonl", ".lock"
Sample = dict[str, Any]
# Benchmark, row number of the problem, index of the sample.
Key = tuple[str, int, int]
ASKED = ("benchmark", "problem", "sample", "seed", "gold")
JUDGED = ("answer", "correct", "correct_qwen")
DRAWN = ("tokens", "finish_reason", "text")
FIELDS = (*ASKED, *JUDGED, *DRAWN)


def key_of(sample: Sample) -> Key:
    return sample["benchmark"], sample["problem"], sample["sample"]


def read_settings_file(folder: Path) -> dict[str, Any]:
    """The content of a directory's settings.json."""
    file = folder / SETTINGS
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{folder} holds no {SETTINGS}: name an output directory of `trl-ces eval`.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{file} cannot be read ({error}).") from None


def read_samples(file: Path) -> tuple[list[Sample], int]:
    """The samples in the complete lines of samples.jsonl, and these lines' bytes; a kill can tear the last line."""
    content = file.read_bytes() if file.is_file() else b""
    length = content.rfind(b"\n") + 1
    samples: dict[Key, Sample] = {}
    for number, line in enumerate(content[:length].split(b"\n")[:-1], start=1):
        try:
            sample = json.loads(line)
        except ValueError:
            sample = {}
        if not isinstance(sample, dict) or tuple(sample) != FIELDS or key_of(sample) in samples:
            raise UserError(
                f"{file}: line {number} was not written by this version, or repeats an answer: remove the line, or "
                "give another `--output_dir`."
            )
        samples[key_of(sample)] = sample
    return list(samples.values()), length


class SampleFile:
    """samples.jsonl of `folder`, open for appending."""

    def __init__(self, folder: Path):
        self.file = folder / SAMPLES
        self.samples, length = read_samples(self.file)
        self.stream = self.file.open("ab")
        self.stream.truncate(length)  # a kill tore the last line: its sample is drawn again

    def append(self, samples: Sequence[Sample]) -> None:
        """Appends samples in the order given, and flushes them to the operating system."""
        self.stream.write(_lines(samples).encode())
        self.stream.flush()
        self.samples.extend(samples)

    def replace(self, samples: Sequence[Sample]) -> None:
        """Rewrites the file atomically."""
        self.stream.close()
        write_text(self.file, _lines(samples))
        self.stream, self.samples = self.file.open("ab"), list(samples)


@contextmanager
def open_samples(folder: Path, settings: dict[str, Any], wait: bool = False) -> Iterator[SampleFile]:
    """The samples of a directory, for this process alone; refused if they were drawn with other settings."""
    try:
        lock = lock_file(folder / LOCK, wait)
    except OSError as error:
        raise UserError(f"`--output_dir` {str(folder)!r} cannot be written ({error.strerror}).") from None
    except Busy:
        raise UserError(
            f"Another evaluation is at work in {folder}: wait for it, or give another `--output_dir`."
        ) from None
    with lock:
        _check_settings(folder, json.loads(json.dumps(settings)))
        file = SampleFile(folder)
        try:
            yield file
        finally:
            file.stream.close()


def _check_settings(folder: Path, here: dict[str, Any]) -> None:
    """Writes settings.json, or refuses to mix samples drawn with different settings."""
    if not (folder / SETTINGS).is_file():
        if (folder / SAMPLES).is_file():
            raise UserError(f"{folder / SAMPLES} has no {SETTINGS} beside it: give another `--output_dir`.")
        write_json(folder / SETTINGS, here)
    differing = differences(read_settings_file(folder), here)
    if here.get("fingerprint") is not None:  # the model's files are compared, so they may have been moved
        differing.pop("model", None)
    if differing:
        changes = "; ".join(f"`{name}` is {old!r} there and {new!r} here" for name, (old, new) in differing.items())
        raise UserError(
            f"{folder} holds samples drawn with other settings: {changes}. Name another `--output_dir`, or give the "
            "settings from there."
        )


def _lines(samples: Sequence[Sample]) -> str:
    return "".join(json.dumps(sample, ensure_ascii=False) + "\n" for sample in samples)


def differences(first: dict[str, Any], second: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Name -> both values, where they differ; nested names are written as `data.gsm8k`."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in [*first, *(name for name in second if name not in first)]:
        old, new = first.get(name), second.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            found |= {f"{name}.{inner}": pair for inner, pair in differences(old, new).items()}
        elif old != new:
            found[name] = (old, new)
    return found
