r"""
Read the rows of the grading tests from `tests/grading/rows/*.txt`.

`# NAME: COLUMN, COLUMN` starts a section; each following line is a row with columns separated by ` :: `. The suffix of
a column's name is its type: `?` for yes or no, `#` for integers, `[]` for lists separated by ` | `. In a row, `<none>`
stands for None, `<empty>` for the empty string, `⏎` for a line break, and `<U+0020>` for the character with that code
point. Lines that start with `// ` are comments.
"""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "grading" / "rows"


def read_rows(section):
    """Return the column names and the rows of a section, given as `FILE/NAME`."""
    file, name = section.split("/")
    rows_of_section, columns = [], None
    for line in (FOLDER / f"{file}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            title, _, header = line[2:].partition(": ")
            columns = header.split(", ") if title == name else None
        elif columns and line and not line.startswith("// "):
            texts = line.split(" :: ")
            rows_of_section.append(tuple(_value(text, column) for text, column in zip(texts, columns, strict=True)))
    assert rows_of_section, f"{section} has no rows"
    titles = re.findall(rf"^# {re.escape(name)}: (.*)$", (FOLDER / f"{file}.txt").read_text(encoding="utf-8"), re.M)
    return [column.rstrip("[]?#") for column in titles[0].split(", ")], rows_of_section


def rows(section, *more):
    """Parametrize a test with the rows of `section` and the additional rows `more`."""
    columns, section_rows = read_rows(section)
    values = section_rows if len(columns) > 1 else [value for [value] in section_rows]
    return pytest.mark.parametrize(columns if len(columns) > 1 else columns[0], [*values, *more])


def answers_to(section):
    """Parametrize a test with (gold, answer, expected) from a section that lists equal and different answers."""
    _, section_rows = read_rows(section)
    pairs = [(gold, answer, answer in equal) for gold, equal, other in section_rows for answer in (*equal, *other)]
    return pytest.mark.parametrize(("gold", "answer", "expected"), pairs)


def _value(text, column):
    if column.endswith("[]") and text != "<none>":
        return [_value(part, column[:-2]) for part in text.split(" | ")] if text != "<empty list>" else []
    if text == "<none>":
        return None
    if column.endswith("?"):
        return {"yes": True, "no": False}[text]
    if column.endswith("#"):
        return int(text)
    text = text.replace("<empty>", "").replace("⏎", "\n")
    return re.sub(r"<U\+(\w+)>", lambda code: chr(int(code[1], 16)), text)
