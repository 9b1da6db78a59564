r"""
Does the text around an answer let it stand? Not where it denies it ("not $5$"), changes it (`-\boxed{5}`, `$5$
thousand`), hides it, or takes it back ("Wait, it is 6").
"""

import re
from fractions import Fraction

from ..support.limits import too_big
from .notation import tidy
from .numbers import number

# Characters of the text before an answer that are looked at.
_BEFORE = 300
_MATH = re.compile(r"(?<!\\)\$\$.+?\$\$|(?<!\\)\$(?:\\.|[^$\n\\])+\$|\\\(.+?\\\)|\\\[.+?\\\]", re.DOTALL)
_FONT = r"\\(?:text|math|boldsymbol|bm|mbox|underline|emph|displaystyle|[lL]arge|LARGE|[hH]uge)[a-z]*"
_SPACE = r"\\[,;:!> ]|\\q?quad(?![A-Za-z])|~"
# What may stand between an answer and the text before it.
_OPENERS = re.compile(rf"(?:[\s({{$*&_|]|\\\(|\\\[|{_SPACE}|\\left(?![A-Za-z])|{_FONT})*\Z")
_HIDDEN = re.compile(
    r"(?:~~|<!--[^>]*|\\(?:sout|phantom)\s*\{[^{}]*|\\(?:text)?color\s*\{white\}[\s{]*[^{}]*|^\s*%[^\n]*|"
    r"\\newcommand\b[^\n]*)\Z",
    re.IGNORECASE | re.MULTILINE,
)
_BEFORE_IN_MATH = re.compile(
    r"(?:^|[=≈≡:;,\n]|[-=]>|\\(?:approx|implies|(?:long)?rightarrow|to|therefore|iff|colon)|\\\\|(?<![\\A-Za-z])[A-Za-z]{2,}[.!]?|"
    r"\\text\w*\s*\{[^{}]*\}|\\begin\s*\{[^{}]*\}(?:\{[^{}]*\})?)\Z",
    re.IGNORECASE,
)
_BEFORE_IN_TEXT = re.compile(r"(?:[-−+/^]|\d\.?|\\(?:cdot|times|sqrt))\Z")
_CHANGING = re.compile(
    r"\b(?:minus|negative|twice|than|from|outside|at (?:least|most)|but|divisible by|just (?:after|before)|"
    r"(?:half|multiple|factor|square|cube|root|reciprocal|complement|conjugate|modulus|derivative|reflection|"
    r"factorial) of)\s*\Z",
    re.IGNORECASE,
)
_CONTRAST = re.compile(r"\bnot\b.*\bbut\Z|\bnothing but\Z", re.IGNORECASE)
_NOT = re.compile(r"(?:\bnot|\bcannot|n't|\bexcept|不是)(?:\s+(?:be|equal|to))*\s*\Z", re.IGNORECASE)
_DOUBTS = re.compile(
    r"\b(?:suppose|assume|if|maybe|wrong|false|(?:do not|don't) (?:think|believe)|guess|not the case|mistake to)\b|"
    r"不认为|如果|比\Z|\bbetween\b(?!.*(?:\b(?:is|are|equals?|be)\b|=))",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[.!?](?=\s|\Z)|[;,，。；！？\n]")
_BEHIND_IN_MATH = re.compile(
    r"\Z|[$\n&|=≈]|\\\)|\\\]|\\\\|[.,;:?](?!\d)|\^\s*\{?\s*\\circ|\\?%|"
    r"\\(?:degree|end|text|mathrm|mbox|blacksquare|square|qed|"
    r"checkmark|tag|q?quad|implies|Rightarrow|because|"
    r"therefore|to|iff|approx)|[A-Za-z一-鿿]{2,}"
)
_BEHIND_IN_TEXT = re.compile(
    r"[\d^]|[)}$]+\s*\^(?!\s*\{?\s*\\circ)|[)}]_|[.,]\d|[ ]*[+/-][ ]?\d|[ ]*\\(?:cdot|times|cup|pi)(?![A-Za-z])"
)
_TOUCHING = re.compile(rf"(?:[$({{*_|]|\\\(|\\\[|\\left|{_SPACE}|{_FONT})*\Z")
_CLOSERS = re.compile(rf"(?:[\s)}}]|{_SPACE}|\\right(?![A-Za-z]))*")
_WORDS_BEHIND = re.compile(
    r"(?:thousand|million|dozen|squared|modulo|minus|plus|to \$?\d|(?:percent|\\?%\$?)\s+of|(?:more|less) than|"
    r"with the opposite sign|only if)\b|,\s*doubled\b|"
    # "for even n and 72 for odd n", "when n is even; otherwise 72", "and $(4,3)$", "and D"
    r"(?:for|when|if|in)\b[^.\n]{0,200}(?:\botherwise\b|\bin general\b|"
    r"\b(?:and|but|while)\s+\$?[-\d(\\][^.\n]{0,99}\b(?:for|if|when|in)\b)|"
    r"(?:and|or)\s+(?:\$?[-+]?[\d(][^=$\n]*\$?|\(?(?-i:[A-K])\)?)(?:[.,;\s]|\Z)|万|的一半|的两倍",
    re.IGNORECASE,
)
_LITERAL = r"[\s$*\\(]*([-+]?(?:\d[\d,./]*|\\[dt]?frac\s*\{[^{}]*\}\s*\{[^{}]*\}))"
# Another value in a place where only the answer can stand.
_CLAIM = re.compile(
    rf"(?:\banswers?\s*(?:is|are|would be|[:：=])|\bshould be|\b(?:true|correct) (?:one|value) is|可能是|"
    rf"\A[\s$)]*(?:=|≈|\\approx)|\bno,? wait,?|\bedit\s*:|\bor(?:\s+(?:possibly|maybe))?(?:\s+it\s+is)?|"
    rf"\b(?:no|wait|actually|on second thought)\b[^\n]{{0,99}}?\bit\s+(?:is|must be)){_LITERAL}",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"\b(?:I|we) (?:made an? (?:mistake|error)|dropped|forgot)\b|\bone of (?:these|them) is right|"
    r"\A[\s$)*}]*can be eliminated|"
    r"(?:\A[\s$.,)*}]*which|[.!]\s+(?:that|this|it)|,\s*but it) is (?:wrong|incorrect|false)|"
    r"\A[\s$)*}]*(?:is|was|are|would be) (?:not|wrong|incorrect|false|extraneous|an? (?:upper|lower) bound)\b|。不对",
    re.IGNORECASE,
)


def stands(text: str, start: int, end: int, value: str) -> bool:
    """Whether the text around an answer lets it stand."""
    before, behind = text[max(0, start - _BEFORE) : start], text[end:]
    # What is in the answer opens and closes no mathematics around it.
    spans = _MATH.finditer(before + "5" + text[end : end + _BEFORE])
    opened = next((span.start() for span in spans if span.start() < len(before) < span.end()), None)
    if _HIDDEN.search(before) or _denied(before):
        return False
    if opened is None:
        changed = bool(_BEFORE_IN_TEXT.search(_TOUCHING.sub("", before)))
        changed |= bool(_BEHIND_IN_TEXT.match(behind))
    else:
        changed = not _BEFORE_IN_MATH.search(_OPENERS.sub("", before[opened:]))
        changed |= not _BEHIND_IN_MATH.match(_after_closers(behind))
    changed |= bool(_WORDS_BEHIND.match(_after_closers(behind).lstrip("$* ")))
    return not (changed or _taken_back(value, behind))


def _denied(before: str) -> bool:
    bare = _OPENERS.sub("", before)
    clause = _CLAUSE.split(bare)[-1]
    changing = _CHANGING.search(_CONTRAST.sub("", clause))
    return bool(_NOT.search(bare) or changing or _DOUBTS.search(clause))


def _after_closers(behind: str) -> str:
    return behind[_CLOSERS.match(behind).end() :]  # type: ignore[union-attr]  # matches the empty text


def _taken_back(value: str, behind: str) -> bool:
    if _TAKEN_BACK.search(behind):
        return True
    given = _number(value)
    if given is None:
        return False
    others = [_number(match.group(1).rstrip(".,/")) for match in _CLAIM.finditer(behind)]
    # 0.33 behind a third takes nothing back.
    return any(other is not None and abs(other - given) > abs(given) / 100 for other in others)


def _number(text: str) -> Fraction | None:
    return None if too_big(text) else number(tidy(text))
