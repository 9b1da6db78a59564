r"""
Remove words and names around a value that only repeat the question.

| question | gold | equal | different |
|---|---|---|---|
| `How many eggs does Ann have?` | `2` | `\text{two eggs}`, `\text{Ann has } 2` | `\text{at most } 2` |
| `Who finishes first?` | `Ann` | `\text{Ann finishes first}` | `\text{Ann or Ben}` |
"""

import re

from .copies import repeats
from .forms import is_words
from .notation import split_top, tidy, unwrap
from .numbers import number
from .statements import sides
from .units import nouns, parse_unit, stems

# Words that may surround a value, regardless of the question.
_COMMON = stems(
    "the a an there it this that he she they total number of value answer result sum product is are was were has have "
    "had will be equal to exactly contain give make made need take took cost weigh read spent earned sold paid s"
)
_SENTENCE = re.compile(r"([A-Za-z][A-Za-z ,']*?):? ([-\d\\(][^,;]*)")
_CHINESE_BEFORE = re.compile(r"((?!.*(?:[不非没未或约倍半多少]|超过|[大小]于))[一-鿿]{1,9})\s*(?=[-\d\\])")
_SPELLED = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)?(?= [A-Za-z])")


def without_words(answer: str, is_number: bool, question: str) -> str:
    """Remove the question's words before an answer's value: 还剩7个, two eggs, A decagon has 35 diagonals."""
    words = unwrap(tidy(answer))
    chinese = _CHINESE_BEFORE.match(words)
    if chinese and chinese[1] in question and "," not in words:
        answer = words = words[chinese.end() :]
    number_word = _SPELLED.match(words)
    if number_word and number(words) is None and (count := number(number_word[0])) is not None:
        answer = words = f"{count} {words[number_word.end() :].strip()}"
    phrase = re.sub(r"(?i)\b(?:least|most)\b ?", "", " ".join(words.split()))
    sentence = _SENTENCE.fullmatch(phrase) if is_number else None
    if sentence and stems(sentence[1]) <= nouns(question) | _COMMON:
        return sentence[2].rstrip(".")
    return answer


_COUNTED_IN_CHINESE = re.compile(r"(-?[\d./]+)\s*([一-鿿]{1,3})")
_PHRASE = re.compile(r"(-?[\d.,/]+) ((?!.*\b(?:or|not|than|least|most|less|fewer)\b)[A-Za-z][A-Za-z -]+)")


def without_counted_noun(answer: str, question: str) -> str:
    """Remove the noun that the question counts: "perfect squares" in "8 perfect squares", 双 in 90双 for 多少双."""
    pairs = _COUNTED_IN_CHINESE.fullmatch(unwrap(tidy(answer)))
    if pairs and re.search(f"[少几]个?{pairs[2]}", question):
        return pairs[1]
    phrase = _PHRASE.fullmatch(" ".join(unwrap(answer).split()).rstrip("."))
    if phrase is None or parse_unit(phrase[2]) is not None:
        return answer
    request = rf"\b(?:how many|number of) (?:\w+ )?{phrase[2]}\b"
    return phrase[1] if re.search(request, question, re.IGNORECASE) else answer


_NUMBERED = re.compile(r"([a-z])_\{?\d\}?\s*=\s*([^=]+)")


def without_numbered_names(answer: str, gold: str, question: str) -> tuple[str, str] | None:
    """Return gold and answer as bare lists if only the answer numbers its names (`x_1 = 2, x_2 = 3`)."""
    items, golds = (split_top(text, ";" if ";" in text else ",") for text in map(tidy, (answer, gold)))
    matches = [_NUMBERED.fullmatch(item) for item in items]
    letters = {match and match[1] for match in matches}
    gold_names = {sides(item)[0] for item in golds if len(sides(item)) > 1}
    if len(letters) != 1 or None in letters or not gold_names <= letters or f"{letters.pop()}_" in question:
        return None
    return ", ".join(sides(item)[-1] for item in golds), ", ".join(match[2] for match in matches if match)


def is_requested(name: str, question: str) -> bool:
    """Whether an answer's left side is a formula from the question (`P(X>2) =`) or uses its words (the 7th term)."""
    phrase = unwrap(name)
    in_words = re.fullmatch("[A-Za-z0-9 ]+", phrase) and stems(phrase) <= nouns(question) | _COMMON
    if is_words(phrase) and (in_words or phrase in question):  # 27亿
        return True
    return (
        repeats(name, question)
        or bool(re.search(rf"(?:value of|[Ff]ind|is|[Cc]ompute) \$?{re.escape(name)}\$?\s*[?.,]", question))
        or re.sub(r"\s", "", f"{name}=") in re.sub(r"\s", "", question)
    )


def restates_gold(expected: str, words: str, question: str) -> bool:
    """Whether an answer is the gold plus words from the question: Ann finishes first, 不是质数, point A."""
    phrase, blank = words.rstrip(".").casefold(), "" if re.search("[一-鿿]", words) else " "
    gold_at_end = rf"{blank}(?:(?:is|are|on|in|at) )?{re.escape(expected.casefold())}$"
    rests = {phrase.removeprefix(expected.casefold() + blank), re.sub(gold_at_end, "", phrase)} - {phrase}
    if (
        re.match(rf"{re.escape(expected.casefold())}\s?[:：]", phrase) and phrase in question.casefold()
    ):  # Plan 2: pay 7
        return True
    known = [rest for rest in rests if rest in question.casefold() and f"不{rest}" not in question]
    known += [rest for rest in rests if re.fullmatch("[a-z' ]+", rest) and stems(rest) <= nouns(question) | _COMMON]
    is_spelled = is_words(expected) or (not blank and re.fullmatch("[A-Za-z]", expected))  # A城市
    if is_spelled and any(not _offers(question, rest, phrase) for rest in known):
        return True
    neither = re.fullmatch(r"neither (\w+) nor (\w+)", phrase)
    if neither and expected.casefold() == "neither":
        return all(word in question for word in neither.groups())
    noun, _, rest = words.partition(" ")
    is_noun = not _offers(question, noun.casefold(), phrase) and bool(stems(noun) & nouns(question))
    return rest == expected and number(rest) is None and is_noun


_MORE = re.compile(r"\b(?:or|and|not)\b|[,;或不]")


def _offers(question: str, rest: str, phrase: str) -> bool:
    """Whether part of an answer is itself a choice that the question offers: Yes or No, ['red', 'blue']."""
    part, comma_list = re.escape(rest), ", ".join(phrase.split())
    offer = rf"\bor (?:an? |the )?{part}\b|\b{part},? or\b|(['\"]){part}\1"
    is_listed = comma_list != phrase and comma_list in question.casefold()  # "even odd" for "even, odd, or neither"
    return bool(is_listed or _MORE.search(rest) or re.search(offer, question, re.IGNORECASE))


# Wordings before a box that mean "=" if the question requests a bound: "at least $\boxed{5}$" for the least number.
_NUMBER = r"(?<!at )\b{} (?:\w+ )?(?:number|amount|value|integer|possible)\b"
_BOUNDS = [
    (re.compile(request, re.IGNORECASE), re.compile(rf"(?:{wording})(?=\s*\$?\\boxed)"))
    for request, wording in (
        (rf"\b(?:minimum|smallest|fewest)\b|{_NUMBER.format('least')}", "at least"),
        (rf"\b(?:greatest|maximum|largest)\b|{_NUMBER.format('most')}", "at most"),
        (r"\bupper bound|\bsupremum\b", "at most|<"),
    )
]
SCALE = re.compile(r"(?:多少|几)([万亿])|\b(?:how many|in) (hundred|thousand|million|billion)s\b", re.IGNORECASE)


def without_question_words(text: str, question: str) -> str:
    r"""Remove the question's words around boxes: 万 in `\boxed{5}万吨` for 多少万吨, "at least" for a minimum."""
    for request, wording in _BOUNDS:
        if request.search(question):
            text = wording.sub("=", text)
    if re.search("(?:多少|几)倍", question) and not re.search(r"[多少加]\s*\$?\\boxed", text):
        text = re.sub(r"(?<=\})(\$?)\s*倍(?=\s*(?:[。．.,，；;]|\Z))", r"\1", text)
    scale = SCALE.search(question)
    return re.sub(rf"(?<=\}})(\$?)\s*{scale[1] or scale[2]}", r"\1 ", text) if scale else text
