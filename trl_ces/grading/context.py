r"""
Decide whether an answer is valid in context: the text around it must not deny, change, hide or retract it.

| gold | equal completions | different completions |
|---|---|---|
| `5` | `Clearly $x = \boxed{5}$ cm.` | `It is not \boxed{5}.`, `$-\boxed{5}$`, `\boxed{5} thousand` |
| `5` | `\boxed{5}. A common mistake is to add 1.` | `\boxed{5}. Wait, it is 6.`, `Maybe it is \boxed{5}.` |
"""

import re
from fractions import Fraction

from ..support.limits import too_big
from .notation import tidy
from .numbers import number

# Number of characters examined before an answer.
_CONTEXT_LENGTH = 300
MATH = re.compile(r"\$\$.+?\$\$|(?<!\\)\$(?:\\.|[^$\\\n])+\$|\\\(.+?\\\)|\\\[.+?\\\]", re.DOTALL)
_FONT = r"\\(?:text|math|boldsymbol|bm|mbox|underline|emph|displaystyle|[lL]arge|LARGE|[hH]uge)[a-z]*"
_SPACE = r"\\[,;:!> ]|\\q?quad(?![A-Za-z])|~"
# Markup allowed between an answer and the text before it.
_OPENERS = re.compile(rf"(?:[\s({{$*&_|]|\\\(|\\\[|{_SPACE}|\\left(?![A-Za-z])|\\color\s*\{{[^{{}}]*\}}|{_FONT})*\Z")
_HIDDEN = re.compile(
    r"(?im)(?:~~|<!--[^>]*|\\(?:sout|st|[hv]?phantom|[bx]?cancel)\s*\{[^{}]*|"
    r"\\(?:text)?color\s*\{[^{}]*(?:white|transparent|fff)[^{}]*\}[\s{]*(?:[^{}]*)|"
    r"^\s*%[^\n]*|\\(?:(?:re)?newcommand|def)\b[^\n]*)\Z"
)
_BEFORE_IN_MATH = re.compile(
    r"(?i)(?:^|[=≈≡:;,\n]|[-=]>|\\(?:approx|implies|(?:long)?rightarrow|to|therefore|iff|colon)|\\\\|"
    r"(?<![\\A-Za-z])[A-Za-z]{2,}[.!]?|\\text\w*\s*\{[^{}]*\}|\\begin\s*\{[^{}]*\}(?:\{[^{}]*\})?)\Z"
)
_BEFORE_IN_TEXT = re.compile(
    r"(?:\d|\d\.|[-−+/^×÷±≠≤≥]|(?<![A-Za-z])\\(?!implies|[lL]?o?n?g?[rR]ightarrow|to\b|therefore|text|begin|item)"
    r"[A-Za-z]+|\\[dt]?frac\s*\{[^{}]*\}\s*\{[^{}]*\})\Z"
)
_CHANGING = re.compile(
    r"(?i)\b(?:minus|negative|plus|times|twice|thrice|double|triple|than|from|below|above|under|over|beyond|outside|"
    r"exceeds|at (?:least|most)|but|divisible by|just (?:after|before)|(?:half|third|quarter|multiple|factor|divisor|"
    r"square|cube|root|reciprocal|inverse|opposite|complement|negation|negative|conjugate|modulus|magnitude|"
    r"absolute value|derivative|integral|reflection|image|factorial|logarithm|sine|cosine|tangent) of)\s*\Z"
)
_CONTRAST = re.compile(r"(?i)\bnot\b.*\bbut\Z|\bnothing but\Z")
_NOT = re.compile(
    r"(?i)(?:\bnot|\bcannot|n't|\bnever|\bneither|\bnor|\bexcept|\binstead of|不是|不可能是|并非|不等于)"
    r"(?:\s+(?:be|equal|to|just|simply))*\s*\Z"
)
_DOUBTS = re.compile(
    r"(?i)\b(?:suppose|assume|assuming|if|(?<!\bwe )(?<!\bthere )were|maybe|perhaps|possibly|might|could be|"
    r"either(?! way)|wrong|incorrect|false|(?:do not|don't|cannot|can't) (?:think|believe|say)|(?<!average )guess|"
    r"not the case|mistake to)\b|不认为|如果|假设|可能[是为]|也许|或许|错误?答案|(?<!节)大?约\Z|比\Z|"
    r"\bbetween\b(?!.*(?:\b(?:is|are|equals?|be)\b|=))"
)
_AFTER_IN_MATH = re.compile(
    r"\Z|[$\n&|=≈]|\\\)|\\\]|\\\\|[.,;:?](?!\d)|\^\s*\{?\s*\\circ|\\?%|\\(?:degree|end|text|mathrm|mbox|blacksquare|"
    r"square|qed|checkmark|tag|q?quad|implies|Rightarrow|because|therefore|to|iff|approx)|[A-Za-z一-鿿]{2,}"
)
_AFTER_IN_TEXT = re.compile(
    r"[\d^]|_(?=[^\W_]|[{\\])|[.,]\d|[)}]+\s*[\^_]|[ ]*\\(?:cdot|times|div|pm|pi|sqrt|cup|cap|[bp]mod)(?![A-Za-z])|"
    r"[ ]*[+/][ ]*[\d\\(A-Za-z]|[ ]*-[ ]?\d"
)
_TOUCHING = re.compile(rf"(?:[$({{*_|]|\\\(|\\\[|\\left|{_SPACE}|{_FONT})*\Z")
_RAISED = re.compile(r"[\s)}$]*\^(?!\s*\{?\s*\\circ)|[)}$]+_[\d{]")
_CLOSERS = re.compile(rf"(?:[\s)}}]|{_SPACE}|\\right(?![A-Za-z]))*")
_WORDS_AFTER = re.compile(
    r"(?i)(?:thousand|million|billion|hundred|dozen|squared|cubed|factorial|halved|doubled|plus|minus|"
    r"times\s+\$?(?:[-\d(\\]|(?:that|this|it|two|three|four|five|ten)\b)|"
    r"(?:percent|\\?%\$?)\s+of|(?:more|less|fewer|greater) than|to \$?\d|or (?:possibly|maybe|perhaps)|and maybe|"
    r"modulo|mod|with the opposite sign|only if)\b|,\s*(?:doubled|halved|squared)\b|"
    # "for even n and 72 for odd n", "when n is even; otherwise 72", "and $(4,3)$", "and D"
    r"(?:for|when|if|in)\b[^.\n]{0,200}(?:\botherwise\b|\bin general\b|"
    r"\b(?:and|but|while)\s+\$?[-\d(\\][^.\n]{0,99}\b(?:for|if|when|in)\b)|"
    r"(?:and|or)\s+(?:\$?[-+]?[\d(][^=$\n]*\$?|\(?(?-i:[A-K])\)?)(?:[.,;\s]|\Z)|万|亿|千(?![克米])|百|倍|的一半|的两倍|或"
)


def is_valid_in_context(text: str, start: int, end: int, value: str) -> bool:
    """Whether an answer is valid in its context."""
    before, after = text[max(0, start - _CONTEXT_LENGTH) : start], text[end:]
    # Ignore math delimiters inside the answer.
    spans = MATH.finditer(before + "5" + text[end : end + _CONTEXT_LENGTH])
    math_start = next((span.start() for span in spans if span.start() < len(before) < span.end()), None)
    lead, rest = _OPENERS.sub("", before), after[_CLOSERS.match(after).end() :]  # type: ignore[union-attr]
    clause = re.split(r"[.!?](?=\s|\Z)|[;,，。；！？\n]", lead)[-1]
    is_denied = _NOT.search(lead) or _CHANGING.search(_CONTRAST.sub("", clause)) or _DOUBTS.search(clause)
    if math_start is None:
        is_changed = bool(_BEFORE_IN_TEXT.search(_TOUCHING.sub("", before)) or _AFTER_IN_TEXT.match(after))
    else:
        in_math = _BEFORE_IN_MATH.search(_OPENERS.sub("", before[math_start:])) or before.rstrip().endswith(r"\in")
        is_changed = not in_math or not _AFTER_IN_MATH.match(rest)
    is_scaled = _RAISED.match(after) or _WORDS_AFTER.match(rest.lstrip("$* "))
    return not (_HIDDEN.search(before) or is_denied or is_changed or is_scaled or _is_retracted(value, before, after))


_LITERAL = r"[\s$*\\(]*([-+]?(?:\d[\d,./]*|\\[dt]?frac(?:\d\d|\s*\{[^{}]*\}\s*\{[^{}]*\})))"
# A different value given in place of the answer.
_CLAIM = re.compile(
    r"(?i)(?:\banswers?\s*(?:is|are|was|would be|[:：=])|\bfinal(?:ly)?\s*:|\bshould\s+(?:be|have been)|"
    r"\b(?:true|correct|right|actual|real) \w+ (?:is|was)|正确答案(?:为|是)|应该?是|可能是|"
    r"\bno,? wait,?|\bedit\s*:|\b(?:or|alternatively|else)(?:\s+(?:possibly|maybe|perhaps))?(?:\s+it\s+is)?|"
    r"(?:\b(?:no|wait|actually|hmm+|sorry|correction|oops|edit|on second thought)\b|不对)[^\n]{0,99}?"
    rf"(?:\b(?:is|must be|equals)|'s|=)){_LITERAL}"
)
_EQUALS_AFTER = re.compile(rf"[\s$)]*(?:=|\\approx|≈){_LITERAL}")
_EQUALS_BEFORE = re.compile(r"(?m)(?:^|(?<!\\)(?<!\w [-+*/×÷·] )\$|\\\(|\\\[)\s*([-+]?\d[\d,.]*)\s*=[\s$]*\Z")
_SAID_CORRECT = re.compile(r"(?i)(?<![\d,./])([-+]?\d[\d,./]*)\$?\s+is\s+(?:right|correct)\b")
_RETRACTION = re.compile(
    r"(?i)\b(?:I|we) (?:made an? (?:mistake|error)|dropped|forgot|missed|misread|miscalculated|miscounted)\b|"
    r"\b(?:scratch|strike) that\b|\bcorrection\b|\b(?:give no|no final) answer\b|"
    r"\A[\s$)*}]*并?不是|更正|作废|[收撤]回|[算做写]错|"
    r"\b(?:do|does|did|can|would|could)(?: not|n't) (?:stand by|trust)|\bwould rather say\b|\bI (?:meant|doubt)\b|"
    r"\b(?:retract|withdraw|disregard|ignore (?:this|that|it|the box)\b|take (?:it|that|this) back|"
    r"chang(?:e|ed|ing) my (?:mind|(?:final )?answer))\b|"
    r"\bone of (?:these|them) is (?:right|correct)|"
    r"\A[\s$)*}]*(?:can|must|should) be (?:eliminated|ruled out|excluded|rejected|discarded)|"
    r"(?:^\s*|[.!;:(]\s*)(?:(?:but|no|wait|actually|however)[,\s]+)*(?:that|this|it)(?:'s| is| was) "
    r"(?:\w+ly )?(?:wrong|incorrect|false|not (?:right|correct))(?!\s+(?:that|to|for)\b)|"
    r"(?:,\s*but (?:that|this|it)(?:'s| is)|\A[\s$.,)*}]*which is) (?:wrong|incorrect|false)|"
    r"\A[\s$)*}]*(?:is|was|are|would be) (?:not|(?:an? )?(?:wrong|incorrect|false)|extraneous|"
    r"an? (?:upper|lower) bound)\b|"
    r"是错误?的|。不对"
)


def _is_retracted(value: str, before: str, after: str) -> bool:
    if _RETRACTION.search(after):
        return True
    if (number_given := _number(value.rpartition("=")[2])) is None:
        return False
    claims = [match.group(1) for pattern in (_CLAIM, _SAID_CORRECT) for match in pattern.finditer(after)]
    claims += [match.group(1) for match in (_EQUALS_AFTER.match(after), _EQUALS_BEFORE.search(before)) if match]
    values = [_number(claim.rstrip(".,/")) for claim in claims]
    # 0.33 after 1/3 is not a retraction.
    return any(claimed is not None and abs(claimed - number_given) > abs(number_given) / 100 for claimed in values)


def _number(text: str) -> Fraction | None:
    return None if too_big(text) else number(tidy(text))
