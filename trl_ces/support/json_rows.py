"""Parse JSON rows. Standard library only."""

import json
import re
from pathlib import Path
from typing import Any

from .errors import UserError, kind

FORMAT = "rows are an array of objects, or one object per line"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def parse_rows(content: bytes, file: Path) -> list[dict[str, Any]]:
    """
    Parse the rows of `file`: an array of objects or one object per line, in UTF-8.

    Raises:
        `UserError`: The content is anything else; names the line (from 1) or the row (from 0).
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        mark = " and begins with the byte order mark (BOM) of UTF-16" if content[:2] in UTF16_MARKS else ""
        raise UserError(f"{file} is not UTF-8 text (byte {error.start}){mark}: save it as UTF-8.") from None
    is_array = text.lstrip().startswith("[")
    # Not `splitlines`, which also splits at U+2028 and other characters that texts may contain.
    pieces = [text] if is_array else re.split(r"\r\n?|\n", text)
    rows: list[Any] = []
    for number, piece in enumerate(pieces, 1):
        try:
            piece = piece.lstrip("\ufeff")  # of concatenated files
            rows += [] if not piece.strip() else json.loads(piece) if is_array else [json.loads(piece)]
        except (ValueError, RecursionError) as error:
            line = number + getattr(error, "lineno", 1) - 1
            problem = "nested too deeply" if isinstance(error, RecursionError) else getattr(error, "msg", error)
            raise UserError(f"{file}, line {line}: not valid JSON ({problem}): {FORMAT}.") from None
    if file.suffix == ".json" and not is_array and len(rows) == 1:
        raise UserError(f"{file} is one JSON object: {FORMAT}.")
    has_surrogates = re.search(r"\\u[dD][89a-fA-F]", text)
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise UserError(f"{file}, row {number} is a {kind(row)}: {FORMAT}.")
        try:
            if has_surrogates:
                json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])
            raise UserError(f"{file}, row {number}: {half} is half of a surrogate pair, not a character.") from None
    return rows
