"""Parse JSON rows. Standard library only."""

import json
import re
from pathlib import Path
from typing import Any

from .errors import UserError, kind

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def parse_rows(content: bytes, file: Path) -> list[dict[str, Any]]:
    """Parse an array of objects or one object per line; raise `UserError`, with the line or row, for anything else."""
    place, rows = str(file), list[Any]()
    try:
        text = content.decode("utf-8-sig")
        is_array = text.lstrip().startswith("[")
        # `splitlines` would also split at U+2028, which texts may contain.
        for number, piece in enumerate([text] if is_array else re.split(r"\r\n?|\n", text), 1):
            place = f"{file}, line {number}"
            piece = piece.lstrip("\ufeff")  # of concatenated files
            rows += [] if not piece.strip() else json.loads(piece) if is_array else [json.loads(piece)]
        has_surrogates = re.search(r"\\u[dD][89a-fA-F]", text) is not None
        for number, row in enumerate(rows):
            place = f"{file}, row {number}"
            if not isinstance(row, dict) or (len(rows) == 1 and file.suffix == ".json" and not is_array):
                raise ValueError(f"found one {'object' if isinstance(row, dict) else kind(row)}")
            if has_surrogates:  # half of a surrogate pair is no character
                json.dumps(row, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError):
            place = f"{file}, line {number + error.lineno - 1}"
        problem = "byte order mark (BOM) of UTF-16" if content[:2] in UTF16_MARKS else getattr(error, "msg", error)
        expected = "an array of objects, or one object per line, in UTF-8"
        raise UserError(f"{place}: {problem}: expected {expected}.") from None
    return rows
