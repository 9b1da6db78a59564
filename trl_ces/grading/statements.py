r"""
Parse statements: the name in `x = 2`, the result of `\log_2 32 = 5`, the interval of `x < 1`.
All texts must be normalized by `tidy` first. This module does not use computer algebra.

| gold | equal | different |
|---|---|---|
| `5` | `x = 5`, `2+3 = 5` | `2+2 = 5`, `5 = 5 = 6` |
| `(-\infty,1)` | `x < 1`, `1 > x` | `x \leq 1`, `x > 1` |
"""

import re

from .notation import split_top, unwrap

_LETTER = r"\\?[A-Za-z]+"
_VARIABLE = rf"{_LETTER}'*(?:_(?:\w|\{{[^{{}}]*\}}))?"
# Constants, functions, signs and LaTeX commands, which are not unknowns.
_KNOWN = re.compile(
    r"\\(?:frac|sqrt|log|ln|lg|exp|a?rc(?:sin|cos|tan)|sin|cos|tan|cot|sec|csc|pi|infty|cdot|times|div|bullet|binom|quad|pm)"
    r"(?![A-Za-z])|\\(?:begin|end)\{pmatrix\}|(?<![A-Za-z\\])[ei](?![A-Za-z])"
)
_RELATION = re.compile(r"[<>]|\\(?:leq|geq|neq|lt|gt)(?![A-Za-z])")


def sides(text: str) -> list[str]:
    r"""Split a text at `=` and `\approx`; return a text without them as one side."""
    return split_top(re.sub(r"\\approx(?![A-Za-z])", "≈", text), "=≈")


_NAMES = [
    rf"{_VARIABLE}(?:\^\{{-1\}})?\s*(?:\([^()]{{0,30}}\))?",
    rf"\(\s*{_VARIABLE}(?:\s*,\s*{_VARIABLE})+\s*\)",
    r"\\lim\s*_.+",
    r".{1,40}_\{?\\(?:text\{)?(?:max|min)\}*",
    r"\\(?:angle|triangle|overline|vec|bar|hat|tilde)\s*\{?\\?\w+\}?(?:\([^()]{0,30}\))?",
    r"\\frac\{d[^{}]*\}\{d[^{}]*\}",
    r"\\Delta\s*[A-Za-z]|\\sigma\s*\^\{?2\}?|d\s?[A-Za-z]|[A-Za-z]\s*/\s*[A-Za-z]",
    r"\\(?:sin|cos|tan)\s*\d?\s*\\?[A-Za-z]+",
    r"[A-Z]\^\{?[a-z]\}?\s*\([a-z]\)",
    r"[A-Za-z]\w*\s*\^\s*\{?\\prime\}?\s*(?:\([^()]{0,30}\))?",
    r"\\?\|[^|\\]{1,30}\\?\||\[\s*\w\s*\]_\{?\w\}?",
]
_NAME = re.compile("|".join(f"(?:{name})" for name in _NAMES))


def is_name(text: str) -> bool:
    r"""Whether a text names a value: `x`, `f(x)`, `y_{1}`, `(x, y)`, `P(X=2)`, `\bar{x}`, `\|u\|`."""
    return bool(_NAME.fullmatch(unwrap(text).strip())) and text.strip() != r"\infty"


_COEFFICIENT = re.compile(r"[\d^'′’]|^\s*-|\\(?:ln|log|lg|exp|sqrt|a?r?c?(?:sin|cos|tan))(?![A-Za-z])")
_DOUBTFUL = re.compile(r"\b(?:not|wrong|false|incorrect|half|twice|double|guess|no)\b", re.IGNORECASE)


def may_be_named(text: str) -> bool:
    r"""Whether a question can ask for `text`: true for `x` or `m+n`, false for a side of an equation, `x^2-4y`."""
    if names := re.fullmatch(rf"\(\s*({_VARIABLE}(?:\s*,\s*{_VARIABLE})+)\s*\)", text):
        parts = [part.strip().lstrip("\\") for part in names.group(1).split(",")]
        return parts == sorted(parts)
    if is_name(text):
        return text.strip() != r"\pi" and not _DOUBTFUL.search(text)
    bare = re.sub(r"_(?:\w|\{[^{}]*\})|\([\d,\s]*\)", "", text)
    return has_unknowns(text) and not _COEFFICIENT.search(bare) and not _DOUBTFUL.search(text)


def is_relation(text: str) -> bool:
    """Whether a text contains an inequality sign."""
    return bool(_RELATION.search(text))


def is_unsolved(relation: str) -> bool:
    """Whether a side of an inequality contains a letter but is not a name, as in `2x > 10`."""
    pieces = map(str.strip, _RELATION.split(relation) if is_relation(relation) else [])
    return any(has_unknowns(side) and not is_name(side) for side in pieces)


def has_unknowns(text: str) -> bool:
    """Whether a text contains letters other than constants and functions."""
    return bool(re.search("[A-Za-z一-鿿]", _KNOWN.sub(" ", unwrap(text))))


_WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}(?![A-Za-z])")


def has_words(text: str) -> bool:
    """Whether a text contains words, or products of letters, which look like words."""
    return bool(_WORD.search(_KNOWN.sub(" ", unwrap(text))))


def results(statement: str) -> list[str]:
    r"""Return the results of a statement."""
    parts = sides(statement)
    if len(parts) < 2:
        return []
    if not any(map(has_unknowns, parts)):
        return parts
    if not any(map(has_unknowns, parts[-2:])):  # (v \\cdot w) v = 2 (1, 0) = (2, 0)
        return parts[-2:]
    if is_name(parts[-1]) and not any(map(has_unknowns, parts[:-1])):  # 5 = x
        return parts[:-1]
    if is_name(parts[0]):
        # "\cos t = 0 when t = ...": a side with words is not a result.
        return [side for side in parts[1:-1] if not has_words(side)] + parts[-1:]
    return []


def gives_different_names(items: list[str]) -> bool:
    """Whether each item assigns a value to a different name."""
    names = ["".join(sides(item)[0].split()) for item in items if len(sides(item)) > 1]
    return len(names) == len(items) == len(set(names))


def without_restatement(text: str) -> str:
    r"""Reduce `-1 < x \leq 1 : (-1, 1]` to its interval; return other texts unchanged."""
    parts = split_top(text, ":")
    if len(parts) == 2 and is_relation(parts[0]) and re.match(r"[(\[].*[)\]]$", parts[1]):
        return parts[1]
    return text


_SINGLE_LETTER = re.compile(r"[A-Za-z](?:_\w)?")


def interval_of(relation: str) -> str | None:
    r"""Convert `x < 1` to `(-\infty,1)`, `1 \leq x < 2` to `[1,2)`; `None` unless it bounds a single letter."""
    pieces = [piece.strip() for piece in re.split(r"(<|>|\\(?:leq|geq|lt|gt)(?![A-Za-z]))", relation)]
    signs, values = pieces[1::2], pieces[::2]
    if len(signs) not in (1, 2) or not all(values) or len({">" in sign or "g" in sign for sign in signs}) > 1:
        return None
    if ">" in signs[0] or "g" in signs[0]:
        signs, values = signs[::-1], values[::-1]
    low, high = ("[" if "eq" in signs[0] else "("), ("]" if "eq" in signs[-1] else ")")
    if len(signs) == 2:
        return f"{low}{values[0]},{values[2]}{high}" if _SINGLE_LETTER.fullmatch(values[1]) else None
    if _SINGLE_LETTER.fullmatch(values[0]):
        return rf"(-\infty,{values[1]}{high}"
    return rf"{low}{values[0]},\infty)" if _SINGLE_LETTER.fullmatch(values[1]) else None
