r"""
Extracts the final answer of a response: the last `\boxed{...}` or `\fbox{...}`; else an explicit statement ("the
answer is", 答案是); else a bold or math expression that ends the text.
"""

import re
from typing import NamedTuple

# Statements and closing expressions count only in the last characters, boxes anywhere.
STATEMENT_WINDOW = 2000
# Only the last boxes are kept: no gold lists more values.
MAX_BOXES = 50
# Characters before a box in which it may be denied.
_WORDS_BEFORE = 80

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z]) *")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped brace belongs to a set, not to the syntax
_BARE_BOX = re.compile(rf"(?:(?!{_BOX.pattern})[^\s$}}])*")
_STATEMENT = re.compile(
    r"(?:\banswers?(?:\s+(?:is|are)|\s*[:：=])|\b(?:solution|value|root)s are\b|^####|\b(?:option|choice)\s+is|"
    r"答案(?:是|为|[:：])|故选|(?:因此|所以|应)选)"
    r"[\s:：*]*",
    re.IGNORECASE | re.MULTILINE,
)
_MATH_SPAN = r"(?:\$\$[^$]+\$\$|\$[^$\n]+\$|\\\([^\n]+?\\\)|\\\[.+?\\\])"
_LEADING_MATH = re.compile(rf"{_MATH_SPAN}(?:(?:\s*(?:,|，|、|;|and|or|和|或))+\s*{_MATH_SPAN})*", re.DOTALL)
_CLOSING = re.compile(rf"\*\*[^*\n]+\*\*|{_LEADING_MATH.pattern}", re.DOTALL)
_SENTENCE_END = re.compile(r"[.!](?=\s+[A-Z]|\s*$)|[?？。！\n]|\s*\*\*")
# A few words without another number may follow a closing expression: "Hence we obtain $025$ as required."
_CLOSING_TAIL = re.compile(r"[^\d$\\?？]{0,40}")
# Where the words behind a value stop to belong to it: "$5$ as required", "$5$ is the answer", but not "$5$ thousand".
_NEXT_CLAUSE = re.compile(
    r"\s*(?:[,，;:.!。！()*]|\b(?:as|because|since|so|which|where|when|by|for|if|in this|works|"
    r"(?:is|are) (?:the|our|my))\b|$)",
    re.IGNORECASE,
)
# What a closing expression may follow: "Hence", "we obtain", "it must be", "x =".
_INTRODUCED = re.compile(
    r"(?:^|[=:：]|\b(?:is|are|was|be|equals?|gets?|obtains?|have|has|finds?|found|gives?|yields?|becomes|concludes?|that|"
    r"needs?|pays?|costs?|takes?|earns?|spends?|only|exactly|"
    r"therefore|thus|hence|so|then|finally|answer|value|result|total)|是|为|得|得到|等于|所以|因此|于是|有)[,，]?[\s*]*$",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[.!?](?=\s)|[。！？\n]|,\s+(?=so\b|hence\b|thus\b|therefore\b)")
_OFFERS_MORE = re.compile(r"\s*(?:or|and|to|plus|minus)\b", re.IGNORECASE)
_DOUBTED = re.compile(
    r"\b(?:not|cannot|never|either|neither|nor|one of|anything|except|unless|maybe|perhaps|possibly|might|wrong|"
    r"incorrect|false)\b|n't\b|不|非",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"(?:\bnot|\bcannot|n't|\bnever|\bneither|\bnor|\brather than|\binstead of|"
    r"\b(?:any|every|no)thing but|\ball but|\bexcept|不是|不可能是|并非|不等于)"
    r"(?:\s+(?:be|equal|to|just|simply))*[\s$(\[*]*$",
    re.IGNORECASE,
)
# Mathematics around a box makes it another value: -\boxed{5}, \sqrt{\boxed{5}}, \boxed{5}^2, but not a dash.
_CHANGED_BEFORE = re.compile(
    r"(?:[+/^_<>±×÷|]|(?<!\*)\*|(?<![A-Za-z] )(?<!^)(?<!\n)-|-(?=\\)|"
    r"\\(?:neq?|not|[lg]eq?|[lg]t|cdot|times|div|pm|mp)(?![A-Za-z])|"
    r"\\(?!text|math|bold|bm|mbox|underline|emph|color)[a-z]+\s*(?:\[[^\]]*\])?\{|"
    r"\\[dt]?frac\s*\{[^{}]*\}\s*\{)[ ({]*\Z"
)
_CHANGED_BEHIND = re.compile(r"[\^_\d]|\s*(?:[+*/-]\s*[\d\\(]|\\(?:cdot|times|div|pm)(?![A-Za-z]))")
_TAKEN_BACK = re.compile(
    r"(?:^|[.!?,;。\n])\s*(?:no(?=\s*[,.!]| wait)|wait|actually|hmm|sorry|correction|oops|scratch that|but really|"
    r"or rather)\b|(?:^[\s$.)*]*|\b(?:that|this|it|which|above)\s+)(?:is|was) (?:wrong|incorrect|false|not)\b|"
    r"\bmade an? (?:mistake|error)\b",
    re.IGNORECASE,
)
_SEVERAL_VALUES = re.compile(r"(?<!\\)[,;]|[，；、±和或]|\\pm(?![A-Za-z])|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])")
_TUPLE = re.compile(r"(?:\\left)?[(\[（][^()\[\]（）]*[)\]）]")


class Box(NamedTuple):
    r"""The content of a `\boxed{...}` or `\fbox{...}`, and where the whole command starts and ends in the text."""

    content: str
    start: int
    end: int


def find_boxes(text: str) -> list[Box] | None:
    r"""
    Returns the outermost boxes, in order.

    Args:
        text (`str`):
            The response after its thinking.

    Returns:
        `list[Box]` or `None`: Each `\boxed{...}` or `\fbox{...}`; `None` if the last box is never closed, because a
        truncated box is not an answer.
    """
    closing_brace = _matching_braces(text)
    boxes: list[Box] = []
    end, is_closed = 0, True
    for match in _BOX.finditer(text):
        if match.start() < end:  # nested: part of the outer box
            continue
        start = match.end()
        is_closed = start in closing_brace or not text.startswith("{", start)
        if not is_closed:
            continue
        if start in closing_brace:
            end = closing_brace[start] + 1
            content = text[start + 1 : end - 1].strip()
        else:  # \boxed 5
            bare = _BARE_BOX.match(text, start).group()  # type: ignore[union-attr]  # matches the empty text
            end, content = start + len(bare), bare.rstrip(".,")
        boxes = [*boxes[-MAX_BOXES:], Box(content, match.start(), end)]
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
    """
    Returns what the last explicit statement of an answer says, else the expression that ends the text.

    Words right behind the value are part of it (`$5$ thousand`). `None` if the text asks, doubts, denies or takes it
    back: several numbers that one sentence offers are no answer.
    """
    text = text[-STATEMENT_WINDOW:].rstrip()
    if statements := list(_STATEMENT.finditer(text)):
        rest = text[statements[-1].end() :]
        math = _LEADING_MATH.match(rest)
        end = _SENTENCE_END.search(rest, math.end() if math else 0)
        if end and (end.group() in "?？" or _TAKEN_BACK.search(rest[end.start() :])):
            return None
        sentence = rest[: end.start()] if end else rest
        return _with_tail(math.group(), sentence[math.end() :]) if math else sentence.strip(" *:：") or None
    closings = list(_CLOSING.finditer(text))
    if not closings or not _CLOSING_TAIL.fullmatch(text, closings[-1].end()):
        return None
    before = _CLAUSE.split(text[: closings[-1].start()])[-1]
    if _DOUBTED.search(before) or not _INTRODUCED.search(before.rstrip()):
        return None
    return _with_tail(closings[-1].group().strip("*").strip(), text[closings[-1].end() :])


def _with_tail(value: str, tail: str) -> str | None:
    """A value with the words behind it, as far as they belong to it."""
    clause = None if _OFFERS_MORE.match(tail) else _NEXT_CLAUSE.search(tail)
    words = tail[: clause.start()] if clause else tail
    return (f"{value} {words.strip()}" if words.strip() else value) or None


def _is_denied(text: str, box: Box) -> bool:
    r"""Whether a box is denied, changed by mathematics around it (`-\boxed{5}`), or taken back."""
    before, behind = text[max(0, box.start - _WORDS_BEFORE) : box.start], text[box.end : box.end + STATEMENT_WINDOW]
    return bool(
        _DENIED.search(before)
        or _CHANGED_BEFORE.search(before)
        or _CHANGED_BEHIND.match(behind)
        or _TAKEN_BACK.search(behind)
    )


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
    if _is_denied(text, boxes[-1]):
        return None
    contents = [box.content for box in boxes]
    if len(boxes) == parts and all(contents) and _is_one_value(contents[-1]):
        return "; ".join(contents)
    return contents[-1] or None


def _is_one_value(text: str) -> bool:
    return bool(_TUPLE.fullmatch(text)) or not _SEVERAL_VALUES.search(text)
