"""Write files atomically, and parse rows of JSON files."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import UserError, kind

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@contextmanager
def atomic_file(file: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `file` at the end, so that an interrupted write leaves `file` intact."""
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
    """Atomically write text to a file."""
    with atomic_file(file) as partial:
        partial.write_text(text, encoding="utf-8", newline="")


def write_json(file: Path, content: Any) -> None:
    """Atomically write `content` to a JSON file."""
    write_text(file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def parse_rows(content: bytes, file: Path) -> list[dict[str, Any]]:
    """Parse an array of objects or one object per line; raise `UserError` for the first invalid line or row."""
    location, rows = str(file), list[Any]()
    try:
        text = content.decode("utf-8-sig")
        is_array = text.lstrip().startswith("[")
        # `splitlines` would also split at U+2028, which texts may contain.
        for number, piece in enumerate([text] if is_array else re.split(r"\r\n?|\n", text), 1):
            location = f"{file}, line {number}"
            piece = piece.lstrip("\ufeff")  # each of several concatenated files may start with a BOM
            rows += [] if not piece.strip() else json.loads(piece) if is_array else [json.loads(piece)]
        has_surrogates = re.search(r"\\u[dD][89a-fA-F]", text) is not None
        for number, row in enumerate(rows):
            location = f"{file}, row {number}"
            if not isinstance(row, dict) or (len(rows) == 1 and file.suffix == ".json" and not is_array):
                raise ValueError(f"one {'object' if isinstance(row, dict) else kind(row)}")
            if has_surrogates:  # reject unpaired surrogates, which UTF-8 cannot encode
                json.dumps(row, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError):
            location = f"{file}, line {number + error.lineno - 1}"
        problem = "UTF-16 byte order mark (BOM)" if content[:2] in UTF16_MARKS else getattr(error, "msg", error)
        expected = "an array of objects, or one object per line, in UTF-8"
        raise UserError(f"{location} cannot be read ({problem}): expected {expected}.") from None
    return rows
