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
_MATH = re.compile(r"\$\$.+?\$\$|\$[^$\n]+\$|\\\(.+?\\\)|\\\[.+?\\\]", re.DOTALL)
_FONT = r"\\(?:text|math|boldsymbol|bm|mbox|underline|emph|displaystyle|[lL]arge|LARGE|[hH]uge)[a-z]*"
_SPACE = r"\\[,;:!> ]|\\q?quad(?![A-Za-z])|~"
# What may stand between an answer and the text before it.
_OPENERS = re.compile(rf"(?:[\s({{$*&_|]|\\\(|\\\[|{_SPACE}|\\left(?![A-Za-z])|{_FONT})*\Z")
_HIDDEN = re.compile(
    r"(?:~~|<!--[^>]*|\\(?:sout|st|[hv]?phantom|[bx]?cancel)\s*\{[^{}]*|\\(?:text)?color\s*\{[^{}]*(?:white|transparent|fff)[^{}]*\}"
    r"[\s{]*(?:[^{}]*)|^\s*%[^\n]*|\\(?:(?:re)?newcommand|def)\b[^\n]*)\Z",
    re.IGNORECASE | re.MULTILINE,
)
_BEFORE_IN_MATH = re.compile(
    r"(?:^|[=≈≡:;,\n]|[-=]>|\\(?:approx|implies|(?:long)?rightarrow|to|therefore|iff|colon)|\\\\|(?<![\\A-Za-z])[A-Za-z]{2,}[.!]?|"
    r"\\text\w*\s*\{[^{}]*\}|\\begin\s*\{[^{}]*\}(?:\{[^{}]*\})?)\Z",
    re.IGNORECASE,
)
_BEFORE_IN_TEXT = re.compile(
    r"(?:\d|\d\.|[+/^×÷±≠≤≥]|(?<![A-Za-z])\\(?!implies|[lL]?o?n?g?[rR]ightarrow|to\b|therefore|text|begin|item)[A-Za-z]+|"
    r"\\[dt]?frac\s*\{[^{}]*\}\s*\{[^{}]*\}|[-−])\Z"
)
_CHANGING = re.compile(
    r"\b(?:minus|negative|plus|times|twice|thrice|double|triple|than|from|below|above|under|over|beyond|outside|"
    r"exceeds|at (?:least|most)|but|divisible by|just (?:after|before)|"
    r"(?:half|third|quarter|multiple|factor|divisor|square|cube|root|reciprocal|inverse|opposite|complement|negation|"
    r"negative|conjugate|modulus|magnitude|absolute value|derivative|integral|reflection|image|factorial|logarithm|"
    r"sine|cosine|tangent) of)\s*\Z",
    re.IGNORECASE,
)
_CONTRAST = re.compile(r"\bnot\b.*\bbut\Z|\bnothing but\Z", re.IGNORECASE)
_NOT = re.compile(
    r"(?:\bnot|\bcannot|n't|\bnever|\bneither|\bnor|\bexcept|\binstead of|不是|不可能是|并非|不等于)"
    r"(?:\s+(?:be|equal|to|just|simply))*\s*\Z",
    re.IGNORECASE,
)
_DOUBTS = re.compile(
    r"\b(?:suppose|assume|assuming|if|were|maybe|perhaps|possibly|might|could be|either(?! way)|wrong|incorrect|false|"
    r"(?:do not|don't|cannot|can't) (?:think|believe|say)|guess|not the case)\b|不认为|如果|假设|错误?答案|大?约\Z|"
    r"比\Z|\bmistake to\b|"
    r"\bbetween\b(?!.*(?:\b(?:is|are|equals?|be)\b|=))",
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
    r"[\d^]|_(?=[\w{\\])|[.,]\d|[)}]+\s*[\^_]|[ ]*\\(?:cdot|times|div|pm|pi|sqrt|cup|cap|[bp]mod)(?![A-Za-z])|"
    r"[ ]*[+/][ ]*[\d\\(A-Za-z]|"
    r"[ ]*-[ ]?\d"
)
_TOUCHING = re.compile(rf"(?:[$({{*_|]|\\\(|\\\[|\\left|{_SPACE}|{_FONT})*\Z")
_RAISED = re.compile(r"[\s)}$]*\^(?!\s*\{?\s*\\circ)|[)}$]+_[\d{]")
_CLOSERS = re.compile(rf"(?:[\s)}}]|{_SPACE}|\\right(?![A-Za-z]))*")
_WORDS_BEHIND = re.compile(
    r"(?:thousand|million|billion|hundred|dozen|squared|cubed|factorial|halved|doubled|times|plus|minus|"
    r"(?:percent|\\?%\$?)\s+of|(?:more|less|fewer|greater) than|to \$?\d|"
    r"or (?:possibly|maybe|perhaps)|and maybe|modulo|mod|"
    r"with the opposite sign|only if)\b|,\s*(?:doubled|halved|squared)\b|"
    # "for even n and 72 for odd n", "when n is even; otherwise 72", "and $(4,3)$", "and D"
    r"(?:for|when|if|in)\b[^.\n]{0,200}(?:\botherwise\b|\bin general\b|"
    r"\b(?:and|but|while)\s+\$?[-\d(\\][^.\n]{0,99}\b(?:for|if|when|in)\b)|"
    r"(?:and|or)\s+(?:\$?[-+]?[\d(][^=$\n]*\$?|\(?(?-i:[A-K])\)?)(?:[.,;\s]|\Z)|"
    r"万|亿|千|百|倍|的一半|的两倍|或",
    re.IGNORECASE,
)
_LITERAL = r"[\s$*\\(]*([-+]?(?:\d[\d,./]*|\\[dt]?frac\s*\{[^{}]*\}\s*\{[^{}]*\}))"
# Another value in a place where only the answer can stand.
_CLAIM = re.compile(
    rf"(?:\banswers?\s*(?:is|are|was|would be|[:：=])|\bshould\s+(?:be|have been)|"
    rf"\b(?:true|correct|right|actual|real) (?:one|value|result) (?:is|was)|正确答案(?:为|是)|应该?是|可能是|"
    rf"\bno,? wait,?|\bedit\s*:|"
    rf"\bor(?:\s+(?:possibly|maybe|perhaps))?(?:\s+it\s+is)?|"
    rf"(?:\b(?:no|wait|actually|hmm+|sorry|correction|oops|edit|on second thought)\b|不对)[^\n]{{0,99}}?"
    rf"(?:\b(?:is|must be|equals)|'s|=)){_LITERAL}",
    re.IGNORECASE,
)
_EQUALS_BEHIND = re.compile(rf"[\s$)]*(?:=|\\approx|≈){_LITERAL}")
_EQUALS_BEFORE = re.compile(r"(?:^|(?<!\\)\$|\\\(|\\\[)\s*([-+]?\d[\d,.]*)\s*=[\s$]*\Z", re.MULTILINE)
_RIGHT = re.compile(r"(?<![\d,./])([-+]?\d[\d,./]*)\$?\s+is\s+(?:right|correct)\b", re.IGNORECASE)
_TAKEN_BACK = re.compile(
    r"\b(?:I|we) (?:made an? (?:mistake|error)|dropped|forgot|missed|"
    r"misread|miscalculated|miscounted)\b|scratch that|\bone of (?:these|them) is (?:right|correct)|"
    r"\A[\s$)*}]*(?:can|must|should) be (?:eliminated|ruled out|excluded|rejected|discarded)|"
    r"(?:^|[.!;:(]\s*)(?:(?:but|no|wait|actually)[,\s]+)*(?:that|this|it)(?:'s| is| was) "
    r"(?:wrong|incorrect|false|not (?:right|correct))|"
    r",\s*but (?:that|this|it)(?:'s| is) (?:wrong|incorrect|false)|"
    r"\A[\s$.,)*}]*which is (?:wrong|incorrect|false)|"
    r"\A[\s$)*}]*(?:is|was|are|would be) (?:not|wrong|incorrect|false|extraneous|"
    r"an? (?:upper|lower) bound)\b|是错误?的|。不对",
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
    changed |= bool(_RAISED.match(behind) or _WORDS_BEHIND.match(_after_closers(behind).lstrip("$* ")))
    return not (changed or _taken_back(value, before, behind))


def _denied(before: str) -> bool:
    bare = _OPENERS.sub("", before)
    clause = _CLAUSE.split(bare)[-1]
    changing = _CHANGING.search(_CONTRAST.sub("", clause))
    return bool(_NOT.search(bare) or changing or _DOUBTS.search(clause))


def _after_closers(behind: str) -> str:
    return behind[_CLOSERS.match(behind).end() :]  # type: ignore[union-attr]  # matches the empty text


def _taken_back(value: str, before: str, behind: str) -> bool:
    if _TAKEN_BACK.search(behind):
        return True
    given = _number(value)
    if given is None:
        return False
    claims = [match.group(1) for pattern in (_CLAIM, _RIGHT) for match in pattern.finditer(behind)]
    claims += [match.group(1) for match in (_EQUALS_BEHIND.match(behind), _EQUALS_BEFORE.search(before)) if match]
    others = [_number(claim.rstrip(".,/")) for claim in claims]
    # 0.33 behind a third takes nothing back.
    return any(other is not None and abs(other - given) > abs(given) / 100 for other in others)


def _number(text: str) -> Fraction | None:
    return None if too_big(text) else number(tidy(text))
