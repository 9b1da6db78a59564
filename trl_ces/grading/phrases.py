r"""
Words around an answer's value that say no more than the question: "Carly made 3 cupcakes", "the sum is 384", 还剩7个,
and remarks in brackets: "2 (attained at x = 1)".
"""

import re

from .copies import repeats
from .forms import is_words
from .notation import split_top, tidy, unwrap
from .numbers import number
from .statements import sides
from .units import nouns, parse_unit, split_unit, stems

_SENTENCE = re.compile(r"([A-Za-z][A-Za-z ,':]*?) ((?:[-\d(\[{]|\\(?![lg]eq|in|neq|cup))[^,;]*|[a-z]\b[^,;]*)")
_WORDS_FIRST = re.compile(r"\\text\s*\{([A-Za-z ,':]*)\}\s*([^\s\\A-Za-z=:<>≈].*|\\(?:frac|sqrt|pi).*)", re.DOTALL)
_SPELLED = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)?(?= [A-Za-z])")
_CHINESE_BEFORE = re.compile(r"((?!.*(?:[不非没未或约倍半多少]|超过|[大小]于))[一-鿿]{1,9})\s*(?=[-\d\\])")
_PHRASE = re.compile(r"(-?[\d.,/]+) ((?!.*\b(?:or|not|than|least|most|less|fewer)\b)[A-Za-z][A-Za-z -]+)")
_REMARK = re.compile(r"(.*[\w})\]])[\s,]+\(([^()]*(?:(?<![\\A-Za-z])[A-Za-z]{3}|[一-鿿]{2})[^()]*)\)")
# Words in brackets that may change the value, and another value.
_NO_REMARK = re.compile(
    r"(?i)\b(?:not|wrong|false|incorrect|or|and|maybe|perhaps|possibly|if|for|unless|except|otherwise|but|actually|"
    r"instead|rather|should|could|may|might|guess|mod|base|times|each|per|hundred|thousand|million|dozen|answer|"
    r"rounded|about|almost|less|more|than|minus|plus|negative|opposite|reverse|inverse|without|squared|halved|doubled|"
    r"also|binary|octal|\w+ths?)\b|n't\b|[不或错非]|^(?!.*(?:\b(?:at|when)\b|当)).*\d"
)
_MORE = re.compile(r"\b(?:or|and|not)\b|[,;或不]")
_NUMBERED = re.compile(r"([a-z])_\{?\d\}?\s*=\s*([^=]+)")
_LETTER = re.compile("[A-Za-z]")
# What may stand beside a value, whatever the question says.
_COMMON = stems(
    "the a an there it this that he she they total number of value answer result sum product is are was were has have "
    "had will be equal to exactly contain give make made need take took cost weigh read spent earned sold paid "
    "got get with after at on all its each during attend"
)


def without_words(answer: str, is_number: bool, question: str) -> str:
    """An answer without the words of the question before its value: 还剩7个, two eggs, A decagon has 35 diagonals."""
    first = _WORDS_FIRST.match(tidy(answer)) if is_number else None
    if first and len(split_top(first[2], ",;")) == 1 and stems(first[1]) <= nouns(question) | _COMMON:
        return first[2]
    words = unwrap(tidy(answer))
    chinese = _CHINESE_BEFORE.match(words)
    if chinese and chinese[1] in question:
        answer = words = words[chinese.end() :]
    spelled = _SPELLED.match(words)
    if spelled and number(words) is None and (count := number(spelled[0])) is not None:
        answer = words = f"{count} {words[spelled.end() :].strip()}"
    said = re.sub(r"(?i)(?<!at )\b(?:least|most)\b ?", "", " ".join(words.split()))
    sentence = _SENTENCE.fullmatch(said) if is_number else None
    if sentence and re.search("[A-Za-z]{2}", sentence[1]) and stems(sentence[1]) <= nouns(question) | _COMMON:
        return sentence[2].rstrip(".")
    return answer


def without_what_is_counted(answer: str, question: str) -> str:
    """8 for "8 perfect squares" where the question asks how many perfect squares, whose words are no unit."""
    counted = _PHRASE.fullmatch(" ".join(unwrap(answer).split()))
    if counted is None or parse_unit(counted[2]) is not None:
        return answer
    asked = rf"\b(?:how many|number of) (?:\w+ )?{counted[2]}\b"
    return counted[1] if re.search(asked, question, re.IGNORECASE) else answer


def without_remark(answer: str) -> str:
    """An answer without a remark in brackets behind it: undefined (vertical line), 2 (attained at x = 1)."""
    remark = _REMARK.fullmatch(unwrap(tidy(answer)))
    if remark is None or _NO_REMARK.search(remark[2]) or any(number(word) is not None for word in remark[2].split()):
        return answer
    return remark[1] if parse_unit(remark[2].strip()) is None else rf"{remark[1]}\text{{ {remark[2]}}}"


def item_by_item(answer: str, gold: str, question: str) -> tuple[str, str] | None:
    """Gold and answer as lists in order, without the words of the question; `None` for anything else."""
    items, golds = (split_top(text, ";" if ";" in text else ",") for text in map(tidy, (answer, gold)))
    names = split_top(tidy(answer), "=")
    if number(tidy(gold)) is not None or re.search(r"\bor\b|或", answer):
        return None
    if len(names) > 2 and len(golds) == len(names) - 1 and all(map(_LETTER.fullmatch, names[:-1])):
        return gold, ", ".join(f"{name}={names[-1]}" for name in names[:-1])  # a = b = -2
    numbered, named = [_NUMBERED.fullmatch(item) for item in items], {one.split("=")[0] for one in golds if "=" in one}
    if len({found and found[1] for found in numbered}) == 1 and numbered[0] and len(named) < 2:  # x_1 = 2, x_2 = 3
        return ", ".join(sides(one)[-1] for one in golds), ", ".join(found[2] for found in numbered if found)
    if len(items) < 2 or len(items) != len(golds) or any(is_words(split_unit(one)[0]) for one in golds):
        return None
    bare = [_bare_item(item, one, question) for item, one in zip(items, golds, strict=True)]
    return ("; ".join(golds), "; ".join(bare)) if bare != items else None


def _bare_item(item: str, gold: str, question: str) -> str:
    item = without_words(item, True, question)
    parts = split_top(tidy(item), "=")
    if len(parts) == 2 and "=" not in gold and asks_for(parts[0], question):
        item = parts[1]
    value, unit = split_unit(tidy(item), nouns(question))
    return value if unit and parse_unit(unit) is None else item


def asks_for(name: str, question: str) -> bool:
    """Whether the left side of an answer is a formula of the question, `P(X>2) =`, or in its words, the 7th term."""
    said = unwrap(name)
    in_words = re.fullmatch("[A-Za-z0-9 ]+", said) and is_words(said) and stems(said) <= nouns(question) | _COMMON
    is_quoted = is_words(said) and said in question  # 27亿
    return (
        bool(in_words)
        or is_quoted
        or repeats(name, question)
        or re.sub(r"\s", "", f"{name}=") in re.sub(r"\s", "", question)
    )


def says_only(expected: str, words: str, question: str) -> bool:
    """Whether an answer says the gold and else what the question says: Ann finishes first, 不是质数, point A."""
    said, blank = words.rstrip(".").casefold(), "" if expected[-1:] > "一" else " "
    behind = rf"{blank}(?:(?:is|are|on|in|at) )?{re.escape(expected.casefold())}$"
    rests = {said.removeprefix(expected.casefold() + blank), re.sub(behind, "", said)} - {said}
    if re.match(rf"{re.escape(expected.casefold())}\s?[:：]", said) and said in question.casefold():  # Answer2: five
        return True
    known = [rest for rest in rests if rest in question.casefold() and f"不{rest}" not in question]
    if is_words(expected) and any(not _offers(question, rest, said) for rest in known):
        return True
    neither = re.fullmatch(r"neither (\w+) nor (\w+)", said)
    if neither and expected.casefold() == "neither":
        return all(one in question for one in neither.groups())
    noun, _, rest = words.partition(" ")
    is_noun = not _offers(question, noun.casefold(), said) and bool(stems(noun) & nouns(question))
    return rest == expected and number(rest) is None and is_noun


def _offers(question: str, rest: str, said: str) -> bool:
    """Whether a part of what is said is another answer that the question offers: Yes or No, ['red', 'blue']."""
    part, listed = re.escape(rest), ", ".join(said.split())
    offer = rf"\bor (?:an? |the )?{part}\b|\b{part},? or\b|(['\"]){part}\1"
    is_listed = listed != said and listed in question.casefold()  # even odd, of "even, odd, or neither"
    return bool(is_listed or _MORE.search(rest) or re.search(offer, question, re.IGNORECASE))
