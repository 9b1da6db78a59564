r"""
Extracts the final answer of a response: the last `\boxed{...}` or `\fbox{...}`; else an explicit statement ("the
answer is", 答案是); else a bold or math expression that ends the text.
"""

import re

# Statements and closing expressions count only in the last characters, boxes anywhere.
STATEMENT_WINDOW = 2000
# Only the last boxes are kept: no gold lists more values.
MAX_BOXES = 50

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z]) *")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped brace belongs to a set, not to the syntax
_BARE_BOX = re.compile(rf"(?:(?!{_BOX.pattern})[^\s$}}])*")
_STATEMENT = re.compile(
    r"(?:\banswer(?:\s+is|\s*[:：=])|\b(?:option|choice)\s+is|答案(?:是|为|[:：])|故选|(?:因此|所以|应)选)[\s:：*]*",
    re.IGNORECASE,
)
_MATH_SPAN = r"(?:\$\$[^$]+\$\$|\$[^$\n]+\$|\\\([^\n]+?\\\)|\\\[.+?\\\])"
_LEADING_MATH = re.compile(rf"{_MATH_SPAN}(?:(?:\s*(?:,|，|、|;|and|or|和|或))+\s*{_MATH_SPAN})*", re.DOTALL)
_CLOSING = re.compile(rf"\*\*[^*\n]+\*\*|{_MATH_SPAN}", re.DOTALL)
_SENTENCE_END = re.compile(r"\.(?=\s+[A-Z]|\s*$)|[。\n]|\s*\*\*")
# A few words without another number may follow a closing expression: "Hence we obtain $025$ as required."
_CLOSING_TAIL = re.compile(r"[^\d$\\]{0,40}")
_SEVERAL_VALUES = re.compile(r"(?<!\\)[,;]|[，；、±和或]|\\pm(?![A-Za-z])|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])")
_TUPLE = re.compile(r"(?:\\left)?[(\[（][^()\[\]（）]*[)\]）]")


def find_boxes(text: str) -> list[str] | None:
    r"""
    Returns the contents of the outermost boxes, in order.

    Args:
        text (`str`):
            The response after its thinking.

    Returns:
        `list[str]` or `None`: The content of each `\boxed{...}` or `\fbox{...}`; `None` if the last box is never
        closed, because a truncated box is not an answer.
    """
    closing_brace = _matching_braces(text)
    boxes: list[str] = []
    end, is_closed = 0, True
    for match in _BOX.finditer(text):
        if match.start() < end:  # nested: part of the outer box
            continue
        start = match.end()
        is_closed = start in closing_brace or not text.startswith("{", start)
        if not is_closed:
            continue
        if start in closing_brace:
            end = closing_brace[start]
            content = text[start + 1 : end].strip()
        else:  # \boxed 5
            content = _BARE_BOX.match(text, start).group().rstrip(".,")  # type: ignore[union-attr]  # matches the empty text
        boxes = [*boxes[-MAX_BOXES:], content]
    return boxes if is_closed else None


def _matching_braces(text: str) -> dict[int, int]:
    opened: list[int] = []
    closing_brace: dict[int, int] = {}
    for match in _BRACE.finditer(text):
        if match.group() == "{":
            opened.append(match.start())
        elif match.group() == "}" and opened:
            closing_brace[opened.pop()] = match.start()
    return closing_brace


def find_statement(text: str) -> str | None:
    """Returns what the last explicit statement of an answer says, else the expression that ends the text."""
    text = text[-STATEMENT_WINDOW:].rstrip()
    if statements := list(_STATEMENT.finditer(text)):
        rest = text[statements[-1].end() :]
        math = _LEADING_MATH.match(rest)
        end = _SENTENCE_END.search(rest)
        stated = math.group() if math else rest[: end.start()] if end else rest
        return stated.strip(" *:：") or None
    closings = list(_CLOSING.finditer(text))
    if closings and _CLOSING_TAIL.fullmatch(text, closings[-1].end()):
        return closings[-1].group().strip("*").strip() or None
    return None


def extract_answer(text: str, parts: int = 1) -> str | None:
    r"""
    Extracts the final answer.

    Args:
        text (`str`):
            The response after its thinking.
        parts (`int`, *optional*, defaults to `1`):
            Number of values in the gold. A gold of several values may be answered by as many boxes with one value
            each ("$\boxed{3}$ and $\boxed{4}$"), which are joined by `;`. If the last box lists several values, it is
            the answer. A tuple is one value.

    Returns:
        `str` or `None`: The answer as written; `None` if there is none.
    """
    boxes = find_boxes(text)
    if boxes is None:
        return None
    if not boxes:
        return find_statement(text)
    if len(boxes) == parts and all(boxes) and _is_one_value(boxes[-1]):
        return "; ".join(boxes)
    return boxes[-1] or None


def _is_one_value(text: str) -> bool:
    return bool(_TUPLE.fullmatch(text)) or not _SEVERAL_VALUES.search(text)
