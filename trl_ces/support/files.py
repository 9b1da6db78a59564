"""Atomic writes."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """Yield a path to write to; rename it to `file` at the end, so that a kill or a full disk keeps the old file."""
    partial = file.with_name(file.name + ".partial")
    try:
        yield partial
        with partial.open("rb") as stream:
            os.fsync(stream.fileno())
        os.replace(partial, file)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_text(file: Path, text: str) -> None:
    """Write the file atomically."""
    with whole_file(file) as partial:
        partial.write_text(text, encoding="utf-8", newline="")


def write_json(file: Path, content: Any) -> None:
    """Write the file atomically."""
    write_text(file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
