"""Atomic writes, and full disks."""

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """Yield a path to write to, renamed to `file` at the end: a kill or a full disk leaves the old file."""
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


def try_writing(folder: Path) -> Path:
    """Write and remove 1 MiB in `folder` or its nearest existing parent; return that folder."""
    here = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    with tempfile.TemporaryFile(dir=here) as file:
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    return here


def is_disk_full(error: BaseException, folder: Path) -> bool:
    """Return whether `error` means a full disk or quota. Some libraries drop errno, so `folder` is tried."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in full
    try:
        try_writing(folder)
    except OSError as second:
        return second.errno in full
    return False
