"""Atomic writes, and full disks."""

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TRIAL_BYTES = 1 << 20
# A full disk, a full quota, and a file beyond the process's limit.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """A path to write to, renamed to `file` at the end: a kill or a full disk leaves the old file or the new one."""
    partial = file.with_name(file.name + ".partial")
    try:
        yield partial
        with partial.open("rb") as stream:
            os.fsync(stream.fileno())
        os.replace(partial, file)
    except BaseException:
        partial.unlink(missing_ok=True)  # it takes room
        raise


def write_text(file: Path, text: str) -> None:
    """Writes the file atomically, see [`whole_file`]."""
    with whole_file(file) as partial:
        partial.write_text(text, encoding="utf-8", newline="")


def write_json(file: Path, content: Any) -> None:
    """Writes the file atomically, see [`whole_file`]."""
    write_text(file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def try_writing(folder: Path) -> Path:
    """Writes and removes `TRIAL_BYTES` in `folder`, or in the nearest parent that exists; returns that one."""
    here = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    with tempfile.TemporaryFile(dir=here) as file:
        file.write(bytes(TRIAL_BYTES))
        file.flush()
        os.fsync(file.fileno())
    return here


def is_disk_full(error: BaseException, folder: Path) -> bool:
    """Whether `error` means a full disk or quota. Some libraries drop errno, so `folder` is tried."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in FULL
    try:
        try_writing(folder)
    except OSError as second:
        return second.errno in FULL
    return False
