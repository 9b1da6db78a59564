r"""
One notation for what is written in many: `\dfrac{1}{2}`, `$\frac{1}{2}$.` and `½` of an answer must not differ.
Text in, text out. Inputs are short (see `equality.MAX_LENGTH`).
"""

import re
from functools import lru_cache

_UNICODE = str.maketrans(
    {
        "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "÷": "/", "π": r"\pi ", "∞": r"\infty ", "≤": r"\leq ",
        "≥": r"\geq ", "≠": r"\neq ", "±": r"\pm ", "∪": r"\cup ", "∈": r"\in ", "（": "(", "）": ")", "，": ",",
        "；": ";", "：": ":", "、": ",", "％": "%", "°": "", "²": "^{2}", "³": "^{3}", "½": r"\frac{1}{2}",
        "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "√": r"\sqrt", "≈": r"\approx ", "\u00a0": " ", "\u202f": " ",
        **{chr(0x2460 + n): rf"\textcircled{{{n + 1}}}" for n in range(20)},  # the circled 1 to 20
    }
)  # fmt: skip
_REWRITES: list[tuple[re.Pattern[str], str]] = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"\\\$|[£€¥￥]", ""),  # currency
        (r"\$|(?<!\\)\\[()\[\]]", ""),  # mathematics mode
        (r"\\!|\\(?:left|right)\.", ""),
        (r"\\(?:left|right|[Bb]igg?[lr]?)(?![A-Za-z])", ""),
        (r"\\(?:displaystyle|textstyle|limits|nolimits)(?![A-Za-z])", ""),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\geq?(?:slant)*(?![A-Za-z])", r"\\geq "),
        (r"\\leq?(?:slant)*(?![A-Za-z])", r"\\leq "),
        (r"\\ne(?![A-Za-z])", r"\\neq "),
        (r"\\lbrace(?![A-Za-z])", r"\\{"),
        (r"\\rbrace(?![A-Za-z])", r"\\}"),
        (r"<=|=<", r"\\leq "),
        (r">=|=>", r"\\geq "),
        (r"!=", r"\\neq "),
        (r":=|==", "="),
        (r"\{,\}", ","),
        (r"\^\{?\s*\\(?:circ|degree)\s*\}?|\\degree(?![A-Za-z])", ""),
        (r"\\?%", ""),  # a percent sign is dropped and never scales
        (r"\\begin\{(?:array)\}\s*\{[^{}]*\}", r"\\begin{pmatrix}"),
        (r"\\begin\{[bp]?matrix\}", r"\\begin{pmatrix}"),
        (r"\\end\{(?:array|[bp]?matrix)\}", r"\\end{pmatrix}"),
        (r"[\[(]\s*\\begin\{pmatrix\}", r"\\begin{pmatrix}"),
        (r"\\end\{pmatrix\}\s*[\])]", r"\\end{pmatrix}"),
        (r"\\(?:text|mathrm|mbox|textrm)\s*\{\s*,?\s*(?:and|or|且|和|或)\s*\}", ","),
        (r"(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|(?<=[\d}\])\s])[和或](?=[\s\d\\({\[-])", ","),
        (r"(?<!\\)\\(?:[,:;>]|\s|quad(?![A-Za-z])|qquad(?![A-Za-z]))|~", " "),
        (r"(?<![\d.])\.(?=\d)", "0."),  # .5
        (r"\s+", " "),
    ]
]
_WRAPPER = re.compile(
    r"\\(?:text(?:bf|it|rm|normal|sf)?|math(?:rm|bf|it|sf|cal)|boldsymbol|bm|mbox|operatorname|emph|boxed|fbox)"
    r"\s*\*?\s*\{((?:[^{}]|\{[^{}]*\})*)\}"
)
_PREFACE = re.compile(
    r"^(?:\\text\s*\{\s*)?(?:the\s+)?(?:(?:final\s+)?answer|solution|result|value)\s+is(?:\s*[:：}])*\s*|^答案是\s*|^\\approx",
    re.IGNORECASE,
)
_OUTER_BOX = re.compile(r"^\\(?:boxed|fbox)\s*\{(.*)\}$", re.DOTALL)


@lru_cache(maxsize=8192)
def tidy(text: str) -> str:
    r"""Rewrites synonyms of LaTeX to one form. `\text{...}` stays, so that lists and units can still be told apart."""
    text = text.translate(_UNICODE).strip()
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = text.strip()
    for _ in range(10):
        before = text
        box = _OUTER_BOX.match(text)
        if box and balanced(box.group(1)):
            text = box.group(1)
        text = _PREFACE.sub("", text).strip().rstrip(".。").strip(" :*").strip()
        if text.startswith("{") and text.endswith("}") and balanced(text[1:-1]):
            text = text[1:-1].strip()
        if text == before:
            break
    return text


@lru_cache(maxsize=8192)
def unwrap(text: str) -> str:
    r"""Takes words and symbols out of `\text{...}`, `\mathrm{...}` and their kin."""
    for _ in range(10):
        unwrapped = _WRAPPER.sub(r"\1", text)
        if unwrapped == text:
            break
        text = unwrapped
    return text.strip()


def balanced(text: str) -> bool:
    r"""Whether every brace is closed. `\{` and `\}` are not braces of the syntax."""
    depth = 0
    for match in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if depth < 0:
            return False
    return depth == 0


def nesting(text: str) -> int:
    """The greatest depth of brackets of any kind."""
    depth = deepest = 0
    for character in text:
        if character in "{[(":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "}])":
            depth -= 1
    return deepest


def split_top(text: str, separators: str) -> list[str]:
    """Splits at the separators outside all brackets; one piece where the brackets do not match."""
    pieces, depth, start = [], 0, 0
    for match in re.finditer(rf"\\[A-Za-z]+|\\.|[{{}}()\[\]{re.escape(separators)}]", text, re.DOTALL):
        token = match.group()
        if token in {"{", "(", "[", r"\{"}:
            depth += 1
        elif token in {"}", ")", "]", r"\}"}:
            depth -= 1
            if depth < 0:
                return [text]
        elif depth == 0 and token in separators:
            pieces.append(text[start : match.start()])
            start = match.end()
    pieces.append(text[start:])
    pieces = [piece.strip() for piece in pieces]
    return [piece for piece in pieces if piece] if depth == 0 else [text]


def enclosed(text: str) -> tuple[str, str, str] | None:
    r"""Opening bracket, content and closing bracket, where one pair `( [ \{` ... `\} ] )` holds the whole text."""
    match = re.match(r"\(|\[|\\\{", text)
    end = re.search(r"(?:\)|\]|\\\})$", text)
    if not match or not end or match.end() > end.start():
        return None
    depth = 0
    for bracket in re.finditer(r"\\[{}]|[()\[\]]", text):
        depth += 1 if bracket.group() in {"(", "[", r"\{"} else -1
        if depth == 0:
            inner = text[match.end() : end.start()]
            return (match.group(), inner, end.group()) if bracket.end() == len(text) else None
    return None
