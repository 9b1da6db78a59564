r"""
Apply a question's requirements for the answer, such as a unit, base, percentage, form or name.

| question | gold | equal | different |
|---|---|---|---|
| `How many minutes is it?` | `90` | `90 \text{ min}` | `90 \text{ s}` |
| `Write 5 in base 2.` | `101` | `101_2` | `101_3` |
| `What percentage is it?` | `20` | `20\%` | `0.2\%` |
| `Solve $x + 1 = 4$.` | `x = 3` | `3` | `x + 2 = 5` |
"""

import re

from ..support.limits import too_big
from .copies import is_copy, repeats
from .equality import EXTREMUM
from .forms import choice, condition, same_text, split_base
from .notation import BLANKS_AND_SIZES, LETTER, split_top, tidy, unwrap
from .numbers import MAX_DIGITS, number
from .options import with_options
from .order import as_ordered_lists, as_times
from .phrases import SCALE, is_requested, restates_gold, without_counted_noun, without_numbered_names, without_words
from .statements import has_unknowns, interval_of, is_name, is_unsolved, sides
from .units import CHINESE, KINDS, MEASURES, implied_unit, measures_in, nouns, parse_unit, quantity, split_unit

_NAME = re.compile("[A-Za-z]")
_BASE = re.compile(r"\bbase[\s$-]*\{?(\d+|[a-z]+)|\b(binary|octal|hexadecimal)\b|([二八]|十六)进制", re.IGNORECASE)
_BASES = {"binary": "2", "octal": "8", "hexadecimal": "16", "二": "2", "八": "8", "十六": "16"}
_DEGREES = re.compile(r"(\d+(?:\.\d+)?)\s*(?:\^\s*\{?\s*\\(?:circ|degree)\s*\}?|°)")
_IN_TEXT = re.compile(r"^\s*\\text\s*\{([^{}]*)\}\s*$")  # Ann: 3, Bob: 5


def apply_question(answer: str, gold: str, question: str) -> tuple[str, str]:
    """Return the gold and answer to compare; the answer is empty if the question requests something else."""
    if not question or len(answer) > MAX_DIGITS or too_big(question) or same_text(gold, answer):
        return gold, answer
    if (option_pair := with_options(answer, gold, question)) is not None:
        return option_pair
    if (times := as_times(answer, gold, question)) is not None:
        return times
    gold, answer = _in_common_terms(gold, answer, question)
    if (one := quantity(gold)) and (other := quantity(answer)) and one[1] == other[1] and one[2] != other[2]:
        unit = parse_unit(split_unit(tidy(answer))[1] or implied_unit(answer)) or {}
        return one[0], "" if (units := _requested_units(question, unit)) and unit not in units else other[0]
    checks = (_names_different_value, _bounds_expression, _leaves_unsolved, _has_different_unit, _has_different_form)
    if any(has_fault(answer, gold, question) for has_fault in checks):
        return gold, ""
    named_unit = r"radian|\\pi|degree|" + ("弧度|多少度" if implied_unit(gold) else r"\\circ|°")
    if (r"\pi" in gold) != (r"\pi" in answer) and not re.search(named_unit, question):
        gold, answer = (_DEGREES.sub(r"\\frac{\1\\pi}{180}", text) for text in (gold, answer))
    if re.search(r"\bexact\b", question) and "." in answer and number(tidy(answer)) is not None:
        return gold, answer if number(tidy(gold)) is not None else ""
    words, expected = unwrap(tidy(answer)), unwrap(tidy(gold))
    if restates_gold(expected, words, question):
        return gold, expected
    if expected[-1:] > "一" and re.fullmatch("[^不非没或,]*", rest := words.removesuffix(expected)) and rest != words:
        return gold, expected if {*rest} <= {*question} and f"不{rest}" not in question else answer  # 直线与圆相离
    bare = without_words(answer, number(expected) is not None, question)
    if bare != answer:
        return (gold, "") if is_copy(bare, gold, question) else apply_question(bare, gold, question)
    parts, gold_sides = split_top(tidy(answer), "="), split_top(tidy(gold), "=")
    is_two_forms = all(re.search(r"\+\s*C$", side) for side in gold_sides)
    if len(gold_sides) == 2 and len(parts) == 1 and (is_two_forms or repeats(gold_sides[0], question)):
        gold = gold_sides[1]
    if len(parts) == 2 and "=" not in gold and not choice(tidy(gold)) and is_requested(parts[0], question):
        answer = parts[1]  # the question gives the left side of 6x^2 - 7x - 3 = (3x + 1)(2x - 3)
        if is_copy(answer, gold, question):
            return gold, ""
    digits, base = split_base(tidy(answer))
    bases = {_BASES.get(named.lower()) or str(number(named)) for named in map("".join, _BASE.findall(question))}
    if base in bases and split_base(tidy(gold))[1] is None:
        return gold, digits
    scale, value = SCALE.search(question), number(tidy(answer))
    if scale and scale[1] and number(tidy(gold)) is not None and scale[1] not in gold:  # 多少万元
        digits, separator, _ = tidy(unwrap(answer)).partition(scale[1])
        return gold, digits if separator or not split_unit(tidy(answer))[1] else ""
    if scale and scale[2] and scale[2] not in gold and (value is None or value != number(tidy(gold))):
        answer = re.sub(rf"(?<=[\d}}])\s*(\\text\s*\{{)?\s*{scale[2]}\b", r"\1", answer)
    answer = without_counted_noun(answer, question)
    if (fraction := _as_fraction(answer, gold, question)) is not None:
        return gold, fraction
    if EXTREMUM.match(tidy(gold)):
        return gold, answer
    if (in_order := as_ordered_lists(_IN_TEXT.sub(r"\1", answer), gold, question)) is not None:
        return in_order
    if (lists := without_numbered_names(answer, gold, question)) is not None:
        return lists
    return _without_nouns(gold, answer, question)


def _without_nouns(gold: str, answer: str, question: str) -> tuple[str, str]:
    """Remove the question's nouns after numbers in the gold and the answer."""
    known = nouns(question)
    count, noun = split_unit(tidy(gold), known)
    if noun and parse_unit(noun) is None and number(tidy(answer)) is not None:
        return count, answer  # the answer 16 for the gold "16 daps"
    value, unit = split_unit(tidy(answer), known)
    return gold, value if unit and parse_unit(unit) is None else answer


_PERCENT = re.compile(r"\$?\s*(.*?\S)[\s\\]*%\s*\$?", re.DOTALL)
_OF_PERCENT = re.compile(r"%|percent|per cent|百分", re.IGNORECASE)
_ASKS_PERCENT = re.compile(
    r"percentage|(?<!not )\b(?:what|which|the|as an?|in|how many) (?:\w+ )?(?:per ?cent|\\?%)|"
    r"百分[之数比率]|[_)）]\s*\\?[%％]",
    re.IGNORECASE,
)
# If the question contains a percentage, a requested rate or grade may also be one, but a price or count may not.
_ASKS_RATE = re.compile(
    r"(?!.*(?:\bhow (?:many|much|long|far|old)|price|cost|\bpa(?:y|id)|\$\s?\d|元))"
    r".*(?:\brate\b|grade|concentration|率|浓度)",
    re.IGNORECASE | re.DOTALL,
)


def _as_fraction(answer: str, gold: str, question: str) -> str | None:
    """Return the answer to compare if one side is a percentage: `""` if it is not a number, `None` if unchanged."""
    percent = _PERCENT.fullmatch(answer.strip())
    rate = None if percent or _ASKS_PERCENT.search(question) else _PERCENT.fullmatch(gold.strip(" $"))
    if rate and (percentage := number(tidy(rate[1]))) is not None and number(tidy(answer)) == percentage / 100:
        return gold
    if percent and not _OF_PERCENT.search(gold):
        percentage = number(tidy(percent.group(1)))
        fraction = None if percentage is None else percentage / 100
        asks_percent, expected = _ASKS_PERCENT.search(question), number(tidy(gold))
        is_equal = fraction is not None and fraction == expected and (fraction <= 1 or not asks_percent)
        is_rate = _OF_PERCENT.search(question) and _ASKS_RATE.match(question)
        if is_equal or not (asks_percent or (is_rate and (expected is None or expected > 1))):
            return "" if fraction is None else str(fraction)
    return None


_WORDED = re.compile(r"\$([^$=]+?)(?:\s*\\approx[^$]*)?\$\s+([a-z][A-Za-z ]*)\.?")
_UNIT = r"((?:square |cubic )?[a-zμÅ]+(?:(?: per |/)[a-z]+)?(?:\^-?\d)?)"
_SENTENCE_WITH_ONE_NUMBER = re.compile(rf"[A-Z][A-Za-z ,']* (\d+(?:\.\d+)?) (?:{_UNIT})?[A-Za-z ,']*\.")
# Words in a question, and the unit symbols that they allow after a value.
_SYMBOLS_BY_WORD = [
    (re.compile(r"[Mm]olar|concentration|[Ss]olubility"), re.compile(r"(?:\\[, ]|\s)*\\(?:text|mathrm)\{\s*M\s*\}$")),
    (re.compile("arcsec"), re.compile(r"(?:''|″)$")),
    (re.compile(r"\b(?:Sun|solar)\b|\\odot"), re.compile(r"(?:\\,|\s)*[LMR]_\{?\\odot\}?$")),
]
_RATE = re.compile(r"\s*\b(?:per|an?|each|every) ([a-z]+)(?=\W*\Z)")
_ADVERBS = {"year": "annual|yearly|annually", "day": "daily"}
# The last request, without its conditions: "How much is the rent per month".
_REQUEST = re.compile(r"(?is).*\b(?:how|what|find|calculate|determine)\b(.*?)(?:\b(?:if|when|given|at|who)\b.*)?\Z")


def _in_common_terms(gold: str, answer: str, question: str) -> tuple[str, str]:
    """Remove a sentence, a rounded value, a unit symbol or a rate that only the gold or only the answer contains."""
    if (value_and_unit := _WORDED.fullmatch(gold.strip())) and parse_unit(value_and_unit[2]):
        gold = rf"{value_and_unit[1]}\text{{ {value_and_unit[2]}}}"
    if (sentence := _SENTENCE_WITH_ONE_NUMBER.fullmatch(gold.strip())) and re.search(r"\d", answer):
        gold, unit = sentence.groups()
        is_measure = MEASURES.intersection(parse_unit(unit or "") or ())
        gold += r"\%" if unit == "percent" else rf"\text{{ {unit}}}" if is_measure else ""
    for word, symbol in _SYMBOLS_BY_WORD:
        if word.search(question) and not symbol.search(gold):
            answer = symbol.sub("", answer)
    gold, answer = _without_rates(gold, answer, question)
    answer = _with_letter_for_expression(answer, gold, question)
    return _with_unit_in_text(gold, answer, question), _with_unit_in_text(answer, "", question)


def _without_rates(gold: str, answer: str, question: str) -> tuple[str, str]:
    """Remove "per month" after dollars from the gold, or from the answer if the question requests it."""
    from_gold, from_answer = (
        _RATE.search(text) if implied_unit(text) == "dollars" else None for text in (gold, answer)
    )
    if from_gold and not from_answer:
        return gold[: from_gold.start()] + gold[from_gold.end() :], answer
    if not from_answer or from_gold or not (request := _REQUEST.match(question)):
        return gold, answer
    noun = from_answer[1]
    words = rf"\b(?:(?:per|an?|each|every) {noun}|{noun}ly|rate|{_ADVERBS.get(noun, noun + 'ly')})\b"
    has_rate = re.search(words, request[1], re.IGNORECASE)
    return gold, answer[: from_answer.start()] + answer[from_answer.end() :] if has_rate else answer


_BOUNDED_EXPRESSION = re.compile(r"(.+?)(<|\\leq)(.+)(<|\\leq)(.+)|(.+?)(?:[<>=]|\\[lg]eq).+")


def _with_letter_for_expression(answer: str, gold: str, question: str) -> str:
    r"""Return `20 < x < 30` for `20 < x^2+5x < 30` if the question contains x^2+5x and the gold is an interval."""
    text = tidy(answer)
    bounds = _BOUNDED_EXPRESSION.fullmatch(text) if re.fullmatch(r"[(\[].*[)\]]|.*\\cup.*", tidy(gold)) else None
    name = (bounds[3] or bounds[6]).strip() if bounds else ""
    is_named = len(name) > 1 and "," not in name and re.sub(r"\s", "", name) in BLANKS_AND_SIZES.sub("", question)
    return text.replace(name, "x") if is_named else answer


_NAMED_VALUE = re.compile(r"([A-Za-z])(\(-?[\d./]+\))=")
_REQUESTED_NAME = re.compile(
    r"\b(?:find|what is|solve for|determine|compute|value of)\s+\$?\s*([A-Za-z])\s*\$?(?=\s*(?:[.?,]|if\b|$))",
    re.IGNORECASE,
)


def _names_different_value(answer: str, gold: str, question: str) -> bool:
    """Whether the answer gives f(3) for a question about f(2), or y for a question about x."""
    match = _NAMED_VALUE.match(BLANKS_AND_SIZES.sub("", answer))
    context = BLANKS_AND_SIZES.sub("", f"{question} {gold}")
    if match and match.group(1) + "(" in context:
        return match.group(1) + match.group(2) not in context
    name, requested = answer.partition("=")[0].strip(), _REQUESTED_NAME.findall(question)
    if not requested or not _NAME.fullmatch(name) or name in [*requested, *gold] or f"({name})" in context:
        return False
    return bool(re.search(LETTER.format(name), question))


def _bounds_expression(answer: str, gold: str, question: str) -> bool:
    """Whether the answer bounds an expression (2x > 10) where the gold bounds a letter (x > 5 or an interval)."""
    bounds = [interval_of(part) or part for part in split_top(condition(gold), ",;")]
    is_bounded = not any(has_unknowns(re.sub(r"\\(?:cup|infty)(?![A-Za-z])", "", bound)) for bound in bounds)
    return is_bounded and any(is_unsolved(part) for part in split_top(condition(answer), ",;") if "=" not in part)


_SOLVE = re.compile(r"\bsolve|\bsolution", re.IGNORECASE)


def _leaves_unsolved(answer: str, gold: str, question: str) -> bool:
    """Whether the question says "solve", the gold is x = 5 or x = 2y, and the answer does not solve for x."""
    expected, given = sides(tidy(gold)), sides(tidy(answer))
    if len(expected) != 2 or len(given) != 2 or not is_name(expected[0]) or not _SOLVE.search(question):
        return False
    if has_unknowns(expected[1]):
        return expected[0] not in given and any(_NAME.fullmatch(side) and side in expected[1] for side in given)
    return any(map(has_unknowns, given)) and not any(map(is_name, given))


_FORM = re.compile(
    r"\bin the form\b|\bas an? (?:single|product|sum)\b|\bpartial fraction|\bfactor(?:i[sz]e)? |\bexpand|"
    r"\bscientific notation|\b(?:lowest|simplest|reduced) (?:terms|form)|\bcommon fraction",
    re.IGNORECASE,
)


def _has_different_form(answer: str, gold: str, question: str) -> bool:
    """Whether the question requests a form and the answer has different factors, terms or digits than the gold."""
    if not _FORM.search(question) or any(re.search("[=,<>]|\\\\(?:[lg]eq|pm)", text) for text in (answer, gold)):
        return False
    given, expected = unwrap(tidy(answer)), unwrap(tidy(gold))
    if re.search("factor", question, re.IGNORECASE) and _factors(given) < _factors(expected):
        return True
    if number(given) is None or number(expected) is None:
        return len(split_top(given.replace("-", "+-"), "+")) != len(split_top(expected.replace("-", "+-"), "+"))
    digits = [re.findall(r"[\d.]+", text) for text in (given, expected)]
    return len(digits[0]) == len(digits[1]) > 1 and digits[0] != digits[1]


def _factors(text: str) -> int:
    """Count the bracketed factors in a text."""
    return sum(int(power or 1) for power in re.findall(r"\([^()]*[A-Za-z][^()]*\)(?:\^\{?(\d)\}?)?", text))


_LETTERED = re.compile(r"(-?[\d.]+(?:\s*\\pi)?)\s*(([A-Za-z])(?:(?<= [A-Za-z])\^\{?[23]\}?)?)")


def _with_unit_in_text(text: str, other: str, question: str) -> str:
    r"""Return `5 m` as `5\text{ m}` if the question or `other` names the unit, or if a gold `5 m` is unambiguous."""
    match = _LETTERED.fullmatch(tidy(text))
    if not match or parse_unit(match[2]) is None:
        return text
    units = measures_in(question) | {*(parse_unit(split_unit(tidy(other))[1]) or ())}
    is_unambiguous = other and " " in tidy(text) and not re.search(LETTER.format(match[3]), question)
    return rf"{match[1]}\text{{ {match[2]}}}" if match[3] in units or is_unambiguous else text


def _has_different_unit(answer: str, gold: str, question: str) -> bool:
    """Whether only the answer has a unit and the question does not allow this unit."""
    if implied_unit(gold) or split_unit(tidy(gold))[1]:
        return False
    given = parse_unit(split_unit(tidy(answer))[1] or implied_unit(answer)) or {}
    if not given or not given.keys() <= MEASURES:
        return False
    if "deg" in given and r"\pi" in gold and r"\pi" in answer:
        return True
    if measures := _requested_units(question, given):
        # in "kilogram meters per second", only the kilogram is matched
        is_whole = any(unit.items() <= given.items() for unit in measures) and given.keys() <= measures_in(question)
        is_combination = len(given) > 1 and (is_whole or given.keys() <= set().union(*measures))
        return given not in measures and not is_combination
    question_units = measures_in(question)
    # "second" may not be a unit ("a second try"), so it allows seconds but does not exclude other units
    words = re.findall(r"\b(?:second|minute|foot)\b", question)
    allowed = question_units | {unit for word in words for unit in parse_unit(word) or ()}
    return any(question_units & kind and not allowed & kind & given.keys() for kind in KINDS if kind & given.keys())


_UNIT_IN_LATEX = re.compile(r"\$(\\mu\s*)?(?:\\mathrm\s*)?\{[~\s]*([A-Za-z]+)\s*\}(?:(\^)\{?(-?\d)\}?)?\$")
_REQUESTED_UNIT = re.compile(  # a lookahead, because "in how many hours" has two matches
    rf"(?=\b(?:how many|number of) {_UNIT}|(?<!measured )(?<!given )(?<!is )(?<!are )"
    rf"\b(?:in|to|units?:) {_UNIT}(?![\w-]))",
    re.IGNORECASE,
)
_REQUESTED_IN_CHINESE = re.compile(
    r"(?:多少|几|单位\s*[:：为是])\s*((?:平方|立方)?(?:{0})(?:[/每](?:{0}|时))?)".format("|".join(CHINESE))
)


def _requested_units(question: str, given: dict[str, int]) -> list[dict[str, int]]:
    """Return the units that a question requests ("how many minutes"); in Chinese, only units of the answer's kind."""
    question = _UNIT_IN_LATEX.sub(
        lambda unit: f"{'μ' if unit[1] else ''}{unit[2]}{unit[3] or ''}{unit[4] or ''}",
        question.replace(r"$\AA$", "Å"),
    )
    units = [*map(parse_unit, _REQUESTED_IN_CHINESE.findall(question))]
    units = [unit for unit in units if unit and any(kind & unit.keys() and kind & given.keys() for kind in KINDS)]
    units += [parse_unit(next(filter(None, match))) for match in _REQUESTED_UNIT.findall(question)]
    return [unit for unit in units if unit and unit.keys() <= MEASURES]
