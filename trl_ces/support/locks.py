"""File locks between processes. The kernel releases a lock when its holder exits."""

import errno
import fcntl
from pathlib import Path
from typing import IO

from .errors import UserError

TRAINING_LOCK = ".training.lock"  # in `output_dir`; a study uses a different lock file in the same folder


class Busy(UserError):
    """Error raised when another process holds the lock."""


def lock_file(file: Path, wait: bool = False) -> IO[str]:
    """Open and lock a file; the lock lasts until this process and all children that inherit the file close it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = file.open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        lock.seek(0)
        process = lock.read().strip()
        lock.close()
        raise Busy(
            f"Process {process} is running in {file.parent} (a killed study can leave a run behind): wait for it, or "
            f"end it with `kill {process}`."
        ) from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):  # the file system has no locks
            raise
    return lock


def write_pid(lock: IO[str], process: int) -> None:
    """Write a process id into a lock file."""
    lock.truncate(0)
    lock.write(str(process))
    lock.flush()
