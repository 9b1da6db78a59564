"""Test reading rows from JSON files, and errors that name the file and the line or row."""

import json
from pathlib import Path

import pytest

from trl_ces.support.errors import UserError
from trl_ces.support.files import parse_rows

ROWS = [{"question": "a\u2028b\x85c", "answer": 1}, {"question": "\U0001f600", "answer": 2}]
LINES = [json.dumps(row, ensure_ascii=False) for row in ROWS]
MARK = "\ufeff"


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(LINES),
        "\r\n".join(LINES) + "\r\n\r\n",
        "\r".join(LINES),
        MARK + "\n".join(LINES),
        f"{LINES[0]}\n{MARK}{LINES[1]}",  # concatenated files
        json.dumps(ROWS, indent=2),
        MARK + json.dumps(ROWS),
        "\n" + "\n".join(map(json.dumps, ROWS)),  # a surrogate pair is a character
    ],
    ids=["lf", "crlf", "cr", "mark", "marks", "array", "mark_array", "escapes"],
)
def test_rows_are_read(text):
    assert parse_rows(text.encode(), Path("data.json")) == ROWS


@pytest.mark.parametrize(
    ("content", "location", "problem"),
    [
        ("\n".join(LINES).encode("utf-16"), "", "UTF-16 byte order mark (BOM))"),
        (b'{"question": "caf\xe9"}', "", "'utf-8' codec can't decode byte 0xe9"),
        (f'{LINES[0]}\n\n{{"question": "a'.encode(), "line 3", "Unterminated string"),
        (b'[{"a": 1},\n\n{"a": 2}', "line 3", "Expecting ',' delimiter"),
        (b'{"a": 1}\n[1]', "row 1", "one list"),
        (b'{"a": 1}\nnull', "row 1", "one null"),
        (b'{"data": [{"a": 1}]}', "row 0", "one object"),
        (b'{\n"data": [{"a": 1}]}', "line 1", "Expecting property name"),
        (b'{"a": 1}\n{"a": ["\\ud800"]}', "row 1", "'utf-8' codec can't encode character '\\ud800'"),
        (b'[{"a": 1}, {"\\uDFFF": 1}]', "row 1", "'utf-8' codec can't encode character '\\udfff'"),
        (b'{"a": 1}\n{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "line 2", "maximum recursion depth"),
        (b'{"a": 1}\n{"a": ' + b"1" * 5000 + b"}", "line 2", "Exceeds the limit (4300"),
    ],
    ids=["utf16", "latin1", "cut", "cut_array", "list", "null", "dict", "lines", "surrogate", "key", "deep", "digits"],
)
def test_the_error_for_invalid_content_names_its_location(content, location, problem):
    with pytest.raises(UserError) as caught:
        parse_rows(content, Path("data.json"))
    assert str(caught.value).startswith(f"data.json{', ' if location else ''}{location} cannot be read ({problem}")
    assert str(caught.value).endswith("expected an array of objects, or one object per line, in UTF-8.")


def test_one_object_is_one_row_of_json_lines():
    assert parse_rows(b'{"a": 1}', Path("data.jsonl")) == [{"a": 1}]
