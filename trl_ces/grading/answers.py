r"""
Extract a completion's final answer: the last `\boxed{...}` or `\fbox{...}`; else an explicit statement ("the answer
is", 答案是); else a bold or math expression that ends the text; else the option or number in the last sentence.

| gold | equal completions | different completions |
|---|---|---|
| `5` | `Hence $\boxed{5}$.`, `The answer is 5.`, `It has **5 apples** left.` | `We try $5$.`, `Is it $5$?` |
| `Yes` | `**Yes**, because $x = 1$.` | `**Yes**, but only if $n$ is even.` |
"""

import re
from typing import NamedTuple

from .context import MATH, is_valid_in_context
from .forms import condition
from .notation import tidy, without_invisible
from .numbers import number
from .options import letter_and_text, options_of, plain
from .units import MEASURES, parse_unit

# Search the last STATEMENT_WINDOW characters for statements and closing expressions, and the whole text for boxes.
STATEMENT_WINDOW = 2000
_LONGEST_SENTENCE = 300
# Keep only the last MAX_BOXES boxes, because no gold lists more values.
MAX_BOXES = 50

_STATEMENT = re.compile(
    r"(?:\banswers?(?:\s+(?:is|are)(?:\s+(?:therefore|thus|then|hence|simply|indeed|just|equal to)\b)?|[*_\s]*[:：=])|"
    r"<answer>|^[#*_ ]*(?:final +)?answer[*_ ]*\n|\b(?:solution|value|root)s are\b|(?<!#)####(?!#)|"
    r"\b(?:option|choice)\s+is|\b(?:correct|right|best|final) (?:option|choice)[*_\s]*[:：]|"
    r"\b(?:so|thus|hence|therefore),? (?:(?:I|we|you) )?(?:choose|pick|select)\b|"
    r"答案?[*_]*(?:是|为|[:：])|(?:故|因此|所以|(?<!不)应|答案)选择?|(?:^|(?<=[,，。；;\s*]))选择?(?=[\s*:：]*[(（]?[A-K](?![A-Za-z]))|[故应]填)"
    r"(?:[\s:：]|\*{1,2}(?=\s|$))*",
    re.IGNORECASE | re.MULTILINE,
)
# A number or pair that ends a text: 顶点坐标为（1，2）。
_PLAIN = (
    r"(?:(?<=[是为得])|(?<=[是为得] )|(?<=[=＝\s])(?=[（(]))[（(]?[-−]?\d(?:[-−\d.,，/ ]{0,40}\d)?[）)]?"
    r"(?=\s?[一-鿿]{0,6}[。．.]\s*\Z)"
)
_MATH_SPAN = rf"(?:{_PLAIN}|\$\$[^$]+\$\$|(?<!\\)\$(?:\\.|[^$\\\n])+\$|\\\([^\n]+?\\\)|\\\[.+?\\\]|\*\*[^*\n]+\*\*)"
_VALUES = re.compile(rf"{_MATH_SPAN}(?:(?:\s*(?:,|，|、|;|；|and|or|和|或))+\s*{_MATH_SPAN})*", re.DOTALL)


class Box(NamedTuple):
    r"""The content of a `\boxed{...}` or `\fbox{...}`, and the start and end of the whole command in the text."""

    content: str
    start: int
    end: int


_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z]) *")
_BARE_BOX = re.compile(rf"(?:(?!{_BOX.pattern})[^\s$}}])*")


def find_boxes(text: str) -> list[Box] | None:
    """Return the outermost boxes in order, or `None` if the last box is not closed."""
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
            bare = _BARE_BOX.match(text, start).group()  # type: ignore[union-attr]  # matches the empty string
            end, content = start + len(bare), bare.rstrip(".,")
        boxes = [*boxes[-MAX_BOXES:], Box(content, match.start(), end)]
    return boxes if is_closed else None


_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped brace denotes a set, not a LaTeX group


def _matching_braces(text: str) -> dict[int, int]:
    open_braces: list[int] = []
    closing_brace: dict[int, int] = {}
    for match in _BRACE.finditer(text):
        if match.group() == "{":
            open_braces.append(match.start())
        elif match.group() == "}" and open_braces:
            closing_brace[open_braces.pop()] = match.start()
    return closing_brace


def find_statement(text: str, question: str = "") -> str | None:
    """Return the last explicitly stated value, else the value of the final expression or sentence."""
    text = _without_ornaments(text)
    if not re.search("attain|achieve|reach", question):
        text = _ATTAINED.sub(".", text)
    if statements := list(_STATEMENT.finditer(text)):
        last = statements[-1]
        # "the values are 1, 2: **3**"
        closing = _closing_value(text[last.end() :], question) if last[0][:1] in "svrSVR" else None
        return closing or _stated_value(text, last, question)
    return _closing_value(text, question) or _final_option(text, options_of(question)) or _final_number(text, question)


# A closing expression may be followed by a few words without a number: "Hence we obtain $025$ as required."
_CLOSING_TAIL = re.compile(r"[^\d$\\?？]{0,40}")
# "(1 hour and 35 minutes)" after 95 minutes
_PARTS = r"\d[\d.,]* [A-Za-z]+(?:,? (?:and )?\d[\d.,]* [A-Za-z]+)"
_IN_OTHER_UNITS = re.compile(rf"\s*\((?:or {_PARTS}|(?:= ?|i\.e\.,? )?{_PARTS}*)\)")
_ATTAINED = re.compile(
    r"(?<=[\d)}$*%]),?\s(?:and (?:it )?is |which is )?(?:attained|achieved|reached|with equality)\b"
    r"(?![^\n]*(?:[.!?]\s|\b(?:so|hence|thus|not|but)\b))[^\n]*\Z"
)
# A last line that starts with an unboxed yes or no: "**Yes**, because ...".
_LAST_LINE = re.compile(
    r"^\*{0,2}(yes|no)[.,]?\*{0,2}(?!.*\b(?:but|however|unless|if|wait|maybe|not sure|unsure)\b)(?:[,.;:][^\n?]*)?"
    r"\s*\Z",
    re.IGNORECASE | re.MULTILINE,
)
_BOLD_AT_END = re.compile(r"\*\*([^*\n]+)\*\*\Z")
_BOLD_BEFORE = re.compile(r"\*\*([^*\n]+)\*\*[^*]*\band\b[^*]*\Z")
_SENTENCE_IN_BOLD = re.compile(r"[A-Za-z]{2,} .*(?:=|\b(?:is|are|at)\b)")
_FORMULA = re.compile(r"\$[^$]*\$|\\[A-Za-z]+")
# Text that introduces a closing expression: "Hence", "we obtain", "it must be", "x =".
_INTRODUCED = re.compile(
    r"(?:^|[=:：]|\b(?:(?:is|are|was)(?: (?:about|approximately|roughly))?|be|equals?|gets?|obtains?|have|has|"
    r"finds?|found|gives?|yields?|becomes|concludes?|that|needs?|pays?|costs?|takes?|earns?|spends?|makes?|only|exactly|"
    r"therefore|thus|hence|so|then|finally|answer|value|result|total)|[是为得剩下有共故则即]|得到|等于|所以|因此|于是)[,，]?[\s*]*$",
    re.IGNORECASE,
)
_CLAUSE_BREAK = re.compile(r"(?<!\b[A-K])[.!?](?=\s)|[。！？\n]|,\s+(?=so\b|hence\b|thus\b|therefore\b)")
# Phrases that disclaim a closing expression: "a beginner would pick", "my first attempt had", "it is tempting to say".
_DISCLAIMED = re.compile(
    r"\b(?:not|cannot|never|or|others|one of|lucky|trap|beginner|novice|naive(?:ly)?|attempt|mistake|tempt(?:ing|ed)|"
    r"instead of|(?<!\bI )would (?:pick|choose|select)|would (?:say|answer|guess|claim|think)|"
    r"first (?:try|guess|thought|idea|glance|instinct))\b|n't\b|不|非",
    re.IGNORECASE,
)


def _closing_value(text: str, question: str = "") -> str | None:
    """Return the expression at the end of a text if it is bold or the sentence introduces it."""
    if line := _LAST_LINE.search(text):
        start, end = line.span(1)
        is_disclaimed = _DISCLAIMED.search(_sentence_before(text, start))
        is_valid = not is_disclaimed and is_valid_in_context(text, start, end, text[start:end])
        return text[start:end] if is_valid else None
    closings = list(_VALUES.finditer(text))
    if not closings:
        return None
    start, end = closings[-1].span()
    tail = text[end:]
    if text[:end].endswith("**"):  # ignore the value in other units and numbers from the question
        tail = _IN_OTHER_UNITS.sub("", tail, count=1)
        tail = re.sub(r"(?<![\d.])\d+(?!\.?\d)", lambda match: "" if match[0] in question else match[0], tail)
    if not _CLOSING_TAIL.fullmatch(tail):
        return None
    bold = _BOLD_AT_END.search(text, start, end)
    if bold and "**" not in text[start : bold.start()]:  # "$a = 5$, so $a^2 = 25$ and **$b = 3$**"
        start = bold.start()
    before = _sentence_before(text, start)
    is_introduced = bold or _INTRODUCED.search(before)
    if _DISCLAIMED.search(before) or not is_introduced or not is_valid_in_context(text, start, end, text[start:end]):
        return None
    if not bold or start < bold.start() or not re.search("[A-Za-z]", _FORMULA.sub("", bold[1])):
        return _with_measure(text[start:end].replace("**", "").strip(), text[end:]) or None
    if first_value := _BOLD_BEFORE.search(before):  # "one drives at **56 km/h** and the other at **76 km/h**"
        return f"{first_value[1]}; {bold[1]}"
    # "**72 days** to finish the book": only the bold text is the value.
    return (_closing_value(bold[1]) if _SENTENCE_IN_BOLD.match(bold[1]) else None) or bold[1].strip()


_BEFORE_OPTION = re.compile(
    r"(?:^|[:：→是为即项案]|(?<![不先若如])选择?|(?:因此|所以)[,，]?|"
    r"\b(?:is|it's|are|be|option|choice|choose|pick|select|(?:I|I'd|I'll|we|let's) go with|answer|[a]ns\.|i\.e\.|—|"
    r"so|thus|hence|therefore),?)[\s*(（-]*\Z",
    re.IGNORECASE,
)
_AFTER_OPTION = re.compile(
    r"[\s*)）]*(?:is (?:the )?(?:(?:correct|right|best) )?(?:answer|choice|option|correct|right)|是?(?:正确|对)的?)?"
    r"[\s*.。!)）]*",
    re.IGNORECASE,
)


_OPTION_LETTER = re.compile(r"(?<![A-Za-z\d\\^_])[A-K](?![A-Za-z\d'])")
_NAMED_OPTION = re.compile(rf"{_OPTION_LETTER.pattern}(?!(?<=A) [a-z])")  # but not the article "A"
_REJECTED_OPTION = re.compile(
    r"\b(?:wrong|incorrect|false|unlike|compare|distractors?|rul\w+ out|eliminat\w+|exclud\w+|reject\w+)\b",
    re.IGNORECASE,
)
_IS_CORRECT = re.compile(r"\bis (?:the )?(?:correct|right|best)\b|正确")


def _final_option(text: str, options: dict[str, str]) -> str | None:
    """Return the option that the last line names by letter and text ("coal (A)") or ends with ("it is (B)")."""
    line = max(text.rfind("\n") + 1, len(text) - _LONGEST_SENTENCE)
    letters = [letter for letter in _OPTION_LETTER.finditer(text, line) if letter[0] in options]
    for letter in letters[-12:]:
        before, after = _sentence_before(text, letter.start()), text[letter.end() :]
        sentence = before + _CLAUSE_BREAK.split(letter[0] + after)[0]
        is_last = len(before) + len(letter[0] + after) - len(sentence) < 3
        pair = letter_and_text(letter[0], options[letter[0]]).search(plain(sentence))
        # "should" and "first" hedge a number, but not an option that is named with its text
        rest = re.sub(r"\b(?:should|first)\b", "", plain(sentence).replace(pair[0], "")) if pair else before
        is_only = not options.keys() & {*_NAMED_OPTION.findall(rest if is_last else text[line:])} - {letter[0]}
        if pair and (not is_only or not (is_last or _IS_CORRECT.search(sentence)) or _REJECTED_OPTION.search(rest)):
            return None
        is_chosen = pair or (_AFTER_OPTION.fullmatch(after) and _BEFORE_OPTION.search(before))
        if is_chosen and not _DISCLAIMED.search(rest) and not _UNCERTAIN.search(rest):
            return letter[0] if is_valid_in_context(text, *letter.span(), letter[0]) else None
    return None


_AMOUNT = r"(?<![A-Za-z\d_.,/:\\])[-−]?(?:\\\$|[£€¥])?\d+(?:,\d{3})*(?:\.\d+)?(?:[/:]\d+)?(?:\s?\\?%)?"
_AMOUNT += r"(?!\d|(?:[snr][td]|th|ish|[abceiknpqxyz])(?![A-Za-z]))"
_CALCULATION = re.compile(rf"((?:\(*{_AMOUNT}\)*\s*[-+−×÷*/·^=]\s*)*)({_AMOUNT})")
# Words that hedge a sentence or show that a nearby number is not the answer.
_UNCERTAIN = re.compile(
    r"\b(?:about|around|approximately|roughly|nearly|almost|at (?:least|most)|over|under|up to|between|may|could|"
    r"should(?! be)|would (?:give|get|be if)|if|unless|but|however|wait|hmm+|first|so far|either way|someone|"
    r"textbook|says|said|choices|impossible|verify|recompute|solve|find|prove|think|believe|suppose|assume|let|pairs?|dozens?|"
    r"tr(?:y|ied)|check(?:ed)?|consider|guess\w*|"
    r"(?:step|case|theorem|lemma|figure|table|part|question|problem|example|method|option|line|equation|page) \d)\b|"
    r"[?？]|[大小高低]于|超过|第\d|[将接]近|至[少多]|最[少多]|倍|相反数|倒数",
    re.IGNORECASE,
)
# Words in `_UNCERTAIN` that cast no doubt if the question contains them.
_REQUESTED = re.compile("至[少多]|最[少多]|倍|相反数|倒数|dozen")
# Text before a number that is a bound or part of an equation, not a value: "x > 7", "2x = 7", "x + 1 = 7".
_RELATION_BEFORE = re.compile(
    r"[<≤≥≠²³√^]|(?<![-=])>|sqrt|[-+−×÷/·]\s*\Z|"
    r"^\W*(?:(?:now|then|so|next|first),? )?(?:us(?:e|ing)|add|subtract|multiply|divide)\s*\Z|"
    r"\b(?:divid\w*|multiply(?:ing)?|multiplied)(?: \w+){0,3} by\s*\Z|\b(?:mod(?:ulo)?|problem number)\s*\Z",
    re.IGNORECASE,
)
_NAME_BEFORE = re.compile(  # "x =", "m + n =", "Total ="
    r"(?:^|(?:^|(?<![-+−×÷*/·^=])[\s,:，：、一-鿿])(?<!(?:sin|cos|tan|log)\s)"
    r"(?:[A-Za-z]+'?|[A-Za-z] ?\+ ?[A-Za-z]))\s*=\s*\Z"
)
_NAMED_PAIR = re.compile(r"\b[A-Z][a-z]+ is \d+(?: [a-z ]+)?,? and [A-Z][a-z]+ is \d+(?: [a-z ]+)?\Z")
_LETTER_BEFORE = re.compile(r"(?<![A-Za-z+])(?<!\+ )[a-z]\s*=\s*\Z")
# After these words and signs, a number needs no final period. Elsewhere, a missing period may indicate truncation.
_BEFORE_RESULT = re.compile(r"(?:[:：→=>是为]|等于|\b(?:is|final|answer))[\s(*]*\Z", re.IGNORECASE)


def _final_number(text: str, question: str) -> str | None:
    """Return the last sentence's only number that is not in the question: 5 in "So Jill has 8 − 3 = 5 peaches."."""
    body = text.rstrip(" *.。!！")
    sentence = _CLAUSE_BREAK.split(body[-_LONGEST_SENTENCE:])[-1]
    claim = _REQUESTED.sub(lambda word: "" if word[0] in question else word[0], sentence)
    is_claim = re.search("[A-Za-z一-鿿=]", claim) and not any(
        pattern.search(claim) for pattern in (_DISCLAIMED, _UNCERTAIN, MATH)
    )
    if is_claim and (pair := _NAMED_PAIR.search(sentence)) and text[len(body) :].strip(" *"):
        return pair[0]
    matches = [*_CALCULATION.finditer(body, len(body) - len(sentence))] if is_claim else []
    if len({match[2] for match in matches}) == 1 or (matches and matches[-1][1] and matches[-1].end() == len(body)):
        matches = matches[-1:]
    if len(matches) > 1 and not re.search(r"\band\b|[和与]", sentence):
        matches = [match for match in matches if not re.search(rf"(?<![\d.]){re.escape(match[2])}(?!\.?\d)", question)]
    if len(matches) != 1 or matches[0][1].strip()[-1:] not in ("", "="):
        return None
    before, (start, end) = body[len(body) - len(sentence) : matches[0].start()], matches[0].span(2)
    is_related = _RELATION_BEFORE.search(before) or (before.strip()[-1:] == "=" and not _NAME_BEFORE.search(before))
    is_ended = text[len(body) :].strip(" *") or _BEFORE_RESULT.search(body[:start])
    is_stated = is_ended and not is_related and is_valid_in_context(body, start, end, matches[0][2])
    if "$" in matches[0][2] and re.search(r"(?i)\bhow many (?!dollars|cents)(?!.*\bhow much\b)", question):
        return None  # a price instead of the requested count
    name = _LETTER_BEFORE.search(before)
    return (name[0] if name else "") + _with_measure(matches[0][2], body[end:]) if is_stated else None


# Text that changes a value or casts doubt on it: "5 or so", "5 and 6", 9的平方, a cross, a skeptical emoji.
_MODIFIER_AFTER = re.compile(
    r"[π²³¹⁰⁴-⁹]|!(?= [a-z])|\s*(?:[×÷·^+*/]|[,(]?\s*(?:or|and|to|plus|minus|if)\b|的(?![。．]|\s*\Z)|[☀-➿🀀-🿿])",
    re.IGNORECASE,
)
_MEASURE = re.compile(r"\s?(?!in\b)((?:square |cubic )?[A-Za-zμ]+(?:(?:/| per )[A-Za-z]+)?[²³]?|[一-鿿]{1,4})")


def _with_measure(value: str, tail: str) -> str:
    """Append the unit at the start of `tail` to a value, and drop other words."""
    if _MODIFIER_AFTER.match(tail):
        return value + tail
    unit = match[1] if (match := _MEASURE.match(tail)) else ""
    while unit > "一" and not parse_unit(unit):
        unit = unit[:-1]
    is_measure = unit and MEASURES.issuperset(parse_unit(tidy(unit)) or "x")
    return rf"{value}\text{{ {unit}}}" if is_measure else value


def _sentence_before(text: str, start: int) -> str:
    """Return the current sentence up to `start`, including the previous line if it ends with a colon."""
    lead = text[:start].rstrip("\n *")
    return _CLAUSE_BREAK.split(lead if lead.endswith((":", "：")) else text[:start])[-1]


_END_OF_PROOF = r"(?:[∎■□◻◼⬛⬜]|\\(?:blacksquare|square|Box|qed|checkmark)(?![A-Za-z])|\bQ\.?E\.?D\b\.?)"
# Check marks, approving emoji, skin tones and end-of-proof symbols. Other emoji may mean that the value is wrong.
_ORNAMENT = re.compile(
    rf"[✅✔✓☑✨⭐🌟💫🎉🎊🎯🏆🏅🥇💯🔥💪🚀💡🧠📝📌🟢👍👏👌🙌🙏🤝😀😃😄😁😊😇🙂😉😎🤓🤩🥳🏻-🏿]|\\hfill\b|\$+\s*{_END_OF_PROOF}\s*\$+|\\[(\[]\s*{_END_OF_PROOF}\s*\\[)\]]|"
    rf"(?<=[\s\w)\]}}*.$]){_END_OF_PROOF}(?=[\s.*_)]*(?:\$|\\[)\]]|\n|\Z))"
)


def _without_ornaments(text: str) -> str:
    """Return the end of a text without decorations such as check marks and end-of-proof symbols."""
    return _ORNAMENT.sub(" ", text[-STATEMENT_WINDOW:].replace("***", "**")).rstrip()


_SENTENCE_END = re.compile(r"[.!](?=\s+[A-Z]|\s*$)|[?？。！\n]|．(?!\d)|\s*\*\*|</")
_REASON = re.compile(r",?\s+(?:because|since|as (?:we|shown|required|desired)|\(see)\b.*", re.IGNORECASE)
# "the digits of the answer are", "twice the answer is", "a common wrong answer is"
_NOT_THE_ANSWER = re.compile(
    r"(?:\bof (?:the|this|my|our)\s+(?:\w+\s+)?|\b(?:twice|half|wrong|incorrect|false|no)\s+(?:the\s+)?)\Z",
    re.IGNORECASE,
)


def _stated_value(text: str, statement: re.Match[str], question: str) -> str | None:
    start = statement.end()
    values = _VALUES.match(text, start)
    end = _SENTENCE_END.search(text, values.end() if values else start)
    if _NOT_THE_ANSWER.search(text[: statement.start()]) or (end and end.group() in "?？"):
        return None
    line = text[start:].partition("\n")[0]
    if not values and "**" in line.strip(" *") and (closing := _closing_value(line)):
        return closing  # **Answer**: Their average guess is **80 jelly beans**.
    stop = end.start() if end else len(text)
    if values:
        value = _with_measure(values.group().replace("**", "").strip(), text[values.end() : stop])
    else:
        value = _REASON.sub("", text[start:stop]).strip(" *:：`")
    if not value or not is_valid_in_context(text, start, values.end() if values else stop, value):
        return None
    is_sentence = re.match("(?![选第])[一-鿿]", value)  # 答：还剩4扇没擦
    return (is_sentence and _final_number(f"{value}.", question)) or value


# A currency symbol, not a math delimiter: the next dollar sign on the line, if any, also precedes a number.
_PRICE = re.compile(r"(?<![\\$\w])\$(?=\d(?:[^$\n\\]|\\boxed|\\\$)*(?:(?<=[\s(*={])\$(?:\d|\\boxed)|$))", re.MULTILINE)
_SEVERAL_VALUES = re.compile(r"(?<!\\)[,;]|[，；、±和或]|\\pm(?![A-Za-z])|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])")
_JOINED = re.compile(r"(?:[\s$,;，；、和及]|\\[,;: ]|\\quad|\b(?:and|or)\b)*")
_TUPLE = re.compile(r"(?:\\left)?[(\[（][^()\[\]（）]*[)\]）]")


def extract_answer(text: str, parts: int = 1, boxes_only: bool = False, question: str = "") -> str | None:
    """Extract the final answer; return `None` if there is none."""
    text = _PRICE.sub(r"\\$", without_invisible(text))
    boxes = find_boxes(text)
    if boxes is None:
        return None
    if not boxes:
        return None if boxes_only else find_statement(text, question)
    if override := _value_stated_after(text[boxes[-1].end :], question):
        return override
    is_single = bool(_TUPLE.fullmatch(boxes[-1].content)) or not _SEVERAL_VALUES.search(boxes[-1].content)
    is_one_per_part = is_single and len(boxes) == parts and all(box.content for box in boxes)
    selected = boxes if is_one_per_part else boxes[-1:]
    for box in boxes[-2::-1] if is_single and not is_one_per_part else []:  # \boxed{2} and \boxed{7} form one answer
        if not box.content or not selected[0].content or not _JOINED.fullmatch(text, box.end, selected[0].start):
            break
        selected = [box, *selected] if box.content != selected[0].content else selected
    if not all(is_valid_in_context(text, box.start, box.end, box.content) for box in selected):
        return None
    return "; ".join(box.content for box in selected) or None


def _value_stated_after(text: str, question: str) -> str | None:
    """Return the value of the last explicit statement after the boxes, which overrides the boxes."""
    text = _without_ornaments(text)
    statements = list(_STATEMENT.finditer(text))
    value = _stated_value(text, statements[-1], question) if statements else None
    if not value or ("$" not in value and number(tidy(value)) is None and condition(value) != r"\emptyset"):
        return None
    return value
