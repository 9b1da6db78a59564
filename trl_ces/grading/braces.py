r"""
Puts braces around TeX arguments written without them, as in `\frac\pi2`, `\sqrt[3]2`, `x^-1` and `2^\frac12`: the
parser of symbolic.py reads few of these.
"""

import re

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|.", re.DOTALL)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BLANKS = re.compile(r"\s*")
_NOTHING = re.compile(r"(?!)")
_OPTION = re.compile(r"\s*(\[[^\[\]]*\])")
_DIGITS = re.compile(r"\d+(?:\.\d+)?")
_SIGNED_OR_COMMAND = re.compile(r"\s*(?:([-+])\s*|(?=\\(?:frac|binom|sqrt)(?![A-Za-z])))")


def with_braces(text: str) -> str:
    r"""Adds the missing braces around the arguments of `\frac`, `\binom`, `\sqrt`, `^` and `_`."""
    pieces, position = [], 0
    while position < len(text):
        piece, position = _piece(text, position)
        pieces.append(piece)
    return "".join(pieces)


def _piece(text: str, position: int) -> tuple[str, int]:
    """Rewrites the token at a position with its arguments; also returns where the next one starts."""
    if text[position] == "{":
        end = _closing_brace(text, position)
        return "{" + with_braces(text[position + 1 : end]) + "}", end + 1
    token = _TOKEN.match(text, position).group()  # type: ignore[union-attr]  # matches any character
    position += len(token)
    if token == r"\sqrt":
        return _root(text, position)
    if token in {"^", "_"}:
        return _script(token, text, position)
    arguments = ""
    if token in {r"\frac", r"\binom"}:
        for _ in range(2):
            argument, position = _argument(text, position)
            arguments += argument
    return token + arguments, position


def _root(text: str, position: int) -> tuple[str, int]:
    option = _OPTION.match(text, position)
    degree, position = (with_braces(option.group(1)), option.end()) if option else ("", position)
    argument, end = _argument(text, position, _DIGITS)
    return rf"\sqrt{degree}{argument}", end


def _script(token: str, text: str, position: int) -> tuple[str, int]:
    """A superscript or subscript. `x^10` stays: the parser takes both digits, as its author meant."""
    match = _SIGNED_OR_COMMAND.match(text, position)
    if not match:
        return token, position
    argument, end = _argument(text, match.end(), _DIGITS)
    return (f"{token}{{{match.group(1) or ''}{argument[1:]}", end) if argument else (token, position)


def _argument(text: str, position: int, whole: re.Pattern[str] = _NOTHING) -> tuple[str, int]:
    """The argument at a position, in braces: what `whole` matches, else one piece. Empty at the end of the text."""
    position = _BLANKS.match(text, position).end()  # type: ignore[union-attr]  # matches the empty text
    if position == len(text):
        return "", position
    if match := whole.match(text, position):
        return f"{{{match.group()}}}", match.end()
    piece, end = _piece(text, position)
    return piece if piece.startswith("{") else f"{{{piece}}}", end


def _closing_brace(text: str, position: int) -> int:
    depth = 0
    for brace in _BRACE.finditer(text, position):
        if brace.group() == "{":
            depth += 1
        elif brace.group() == "}":
            depth -= 1
            if depth == 0:
                return brace.start()
    return len(text)
