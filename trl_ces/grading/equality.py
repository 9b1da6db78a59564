r"""
Compare an answer with the gold by these rules, in order: identical text; choice letters; exact numbers (never scaled
by 100); lists (`a; b` in order, `a, b` and `\{a, b\}` in any order with multiplicity); tuples and intervals by bracket
type and order; unions; statements; words by spelling; computer algebra.

| gold | equal | different |
|---|---|---|
| `1, 2` | `2, 1`, `\{1, 2\}` | `1`, `1, 2, 2`, `1 \text{ or } 2 \text{ or } 3` |
| `(0,1]` | `0 < x \leq 1` | `(1,0]`, `[0,1]` |
| `x=1, y=2` | `y=2, x=1` | `2, 1` |
"""

import re
from itertools import combinations

from ..support.comparison import Algebra
from ..support.limits import MAX_ITEMS, too_big
from . import forms, statements
from .forms import choice, congruence, is_words, same_text
from .notation import enclosed, is_balanced, split_top, tidy, unwrap
from .numbers import decimal_places, number
from .order import same_parts
from .statements import gives_different_names, has_unknowns, is_name, is_relation, may_be_named, results, sides
from .units import implied_unit, split_unit, unit_fits

_CHOICES, _CHOICE_SEPARATORS = re.compile(r"[A-K]{2,}"), re.compile(r"[\s,;()]")
_BOUNDED = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?:_\w)?(?![A-Za-z])")
EXTREMUM = re.compile("m(?:ax|in) at ")  # min at x=-1
_UNIT_VECTOR = re.compile(r"\\(?:mathbf|boldsymbol|bm|vec|hat)\{?(?:\\mathbf)?\{?\\?([ijk])(?:math)?\}*")
_WORDS = re.compile(r"\\(?:text|mbox|textrm|textbf)\s*\{[^{}]*[A-Za-z]")
_SIZE = re.compile(r"(\d+)\s*\\times\s*(\d+)")
_AND = re.compile(r"(?<![A-Za-z])and(?![A-Za-z])|且")
_ELLIPSIS = re.compile(r"\\[cl]?dots(?![A-Za-z])|\.\.\.|…")
_OR = re.compile(r"(?<![A-Za-z])or(?![A-Za-z])|\\(?:lor|vee)(?![A-Za-z])|或")


def equal(gold: str, answer: str, algebra: Algebra) -> bool:
    """Whether an answer is mathematically equal to the gold."""
    if same_text(gold, answer):
        return True
    if too_big(gold) or too_big(answer) or not is_balanced(answer):
        return False
    units = [unit for text in (gold, answer) for unit in (implied_unit(text), split_unit(tidy(text))[1]) if unit]
    if any(not unit_fits(one, other) for one, other in combinations(units, 2)):
        return False
    if _ELLIPSIS.search(answer) and not _ELLIPSIS.search(gold) and number(tidy(answer)) is None:
        return False
    has_or = _OR.search(answer) and not _OR.search(gold)
    if re.search(r"\\(?:land|wedge)(?![A-Za-z])", answer) and len(union_parts(gold)) > 1:
        return False
    has_and = _AND.search(answer) and not _AND.search(gold) and r"\ne" not in answer and "≠" not in answer
    gold, answer = tidy(gold), tidy(answer)
    if has_and and len(union_parts(_stated_union(listed_values(answer), "(0,1)") or "")) > 1:
        return False  # x < -2 and x > 2
    if r"\begin{cases}" in gold + answer:
        return algebra(*(re.sub(r"^[^=]*=\s*(?=\\begin\{cases\})", "", _value(text)) for text in (gold, answer)))
    if (expected := congruence(gold)) and (given := congruence(answer)):
        return expected == given
    if (size := _SIZE.fullmatch(gold)) and (given_size := _SIZE.fullmatch(answer)):
        return size.groups() == given_size.groups()  # 2 x 4 is not 4 x 2
    values = listed_values(gold)
    is_single = len(union_parts(gold)) == len(values) == 1
    bounds = {tuple(_BOUNDED.findall(value)) for value in values if is_relation(value)}
    if has_or and (is_single or gives_different_names(values) or len(bounds) > 1):
        alternatives = listed_values(answer)  # 3/4 or 0.75
        if not is_single or len(alternatives) != 2 or is_relation(answer):
            return False
        return all(_equal(gold, value, algebra) for value in alternatives)
    if (gold_family := forms.family(gold)) and (answer_family := forms.family(answer)):
        one, other = (
            "; ".join(sides(item)[-1] for item in listed_values(text)) for _, text in (gold_family, answer_family)
        )
        return algebra(rf"{gold_family[0]}\in\mathbb{{Z}}: {one}", rf"{answer_family[0]}\in\mathbb{{Z}}: {other}")
    answers = forms.with_constants_of(gold, answer)
    return any(_equal(forms.without_integer(gold), renamed, algebra) for renamed in answers)


def count_values(gold: str) -> int:
    """Return the number of values in a gold: 2 for `5;10` and `1, -1`; 1 for `(0,1)` and `1,234`."""
    if too_big(gold):
        return 1
    gold = tidy(gold)
    return 1 if number(gold) is not None else max(1, len(listed_values(gold)))


_SET_IN_SET = re.compile(r"\\\{[^}]*\\(?:\{|emptyset)")


def _equal(gold: str, answer: str, algebra: Algebra) -> bool:
    gold, answer = forms.condition(gold), forms.condition(answer)
    if not gold or not answer or bool(_SET_IN_SET.search(gold)) != bool(_SET_IN_SET.search(answer)):
        return False
    if (extremum := EXTREMUM.match(gold)) and len(split_top(gold, ",;")) == 1:
        kind, place = answer[: extremum.end()], answer[extremum.end() :]
        point = tuple_values(place)  # the gold gives only the point's first coordinate
        is_comparable = kind == extremum[0] and len(point) in (0, 2)
        return is_comparable and _equal(gold[extremum.end() :], point[0] if point else place, algebra)
    if expected := congruence(gold):
        return congruence(answer) == expected
    if (residue := congruence(answer)) and number(gold) is not None:  # 3 \pmod 7 for 3, but not 10 \pmod 7
        reduced = re.search(r"(-?\d+)\s*\(?\s*\\[pb]?mod", answer)
        return residue[0] == number(gold) and reduced is not None and int(reduced[1]) == residue[0]
    answer = re.sub(r"\\text\s*\{\s*to\s*\}|(?<=\d )to(?= \d)", ":", answer) if ":" in gold else answer
    if (is_equal := same_parts(gold, answer)) is not None:
        return is_equal
    (gold, base), (answer, given) = forms.split_base(gold), forms.split_base(answer)
    if given and given != (base or "10"):
        return False
    if forms.spelling(gold) == forms.spelling(answer):
        return True
    # The letters of several choices may be in any order, but a gold with unsorted letters is a sequence.
    one, other = (_CHOICE_SEPARATORS.sub("", unwrap(text)) for text in (gold, answer))
    if _CHOICES.fullmatch(one) and list(one) == sorted(one) == sorted(other):
        return True
    if letter := choice(gold):
        return forms.chooses(unwrap(answer), letter)
    is_equal = _compare_numbers(gold, answer)
    if is_equal is not None and (is_equal or "," not in gold):
        return is_equal
    if number(gold) is not None and ",0" in answer:
        return False  # 1,000,00 is not a list
    is_equal = _compare_structure(gold, answer, algebra)
    if is_equal is not None:
        return is_equal
    return _compare_leaves(gold, answer, algebra)


_TRAILING_LETTER = re.compile(r"(.*\d)\s*([A-Za-z])")


def _compare_numbers(gold: str, answer: str) -> bool | None:
    """Compare number literals with or without units; `None` for other texts."""
    gold_text, gold_unit = split_unit(gold)
    answer_text, answer_unit = split_unit(_value(answer))
    if gold_unit and (match := _TRAILING_LETTER.fullmatch(answer_text)) and unit_fits(match.group(2), gold_unit):
        answer_text = match.group(1)  # 40s for 40 seconds
    if "." in gold_text and (decimal_comma := re.fullmatch(r"(-?\d+),(\d{1,2}|\d{4,})", answer_text)):
        answer_text = ".".join(decimal_comma.groups())
    expected, given = number(gold_text), number(answer_text)
    if expected is None or given is None:
        return None
    if not unit_fits(answer_unit, gold_unit):
        return False
    if expected == given:
        return True
    # Accept 0.333333 for 1/3 only if one side is not a decimal and the other has six correct significant digits.
    places = [decimal_places(gold_text), decimal_places(answer_text)]
    if ("." in unwrap(gold_text)) == ("." in unwrap(answer_text)):
        return False
    digits = next((place for place in places if place is not None), None)
    return digits is not None and abs(expected - given) * 10**digits <= 0.5


def _value(text: str) -> str:
    r"""Return the right side of a text that assigns one value to a name or expression; else the text."""
    equal_sides = split_top(text, "=")
    if len(equal_sides) != 2 or is_relation(text):
        return text
    name, value = equal_sides
    is_single = len(split_top(name, ",;")) == len(split_top(value, ",;")) == 1
    return value if is_single and may_be_named(name) else text


_NAMED_TUPLE = re.compile(r"\(([A-Za-z][^()]*)\)\s*=\s*\((.*)\)", re.DOTALL)
_PLUS_MINUS = re.compile(r"\\(p|m)(?:m|p)(?![A-Za-z])\s*")  # not \pmod


def listed_values(text: str) -> list[str]:
    """Split a tidied list or set into values, remove its braces and expand plus-minus signs."""
    brackets = enclosed(text)
    if brackets and brackets[0] == r"\{" and brackets[2] == r"\}" and not re.search(r"\\mid|\||:", brackets[1]):
        text = brackets[1]
    if quoted := re.fullmatch(r"\\text\s*\{([^{}]*,[^{}]*)\}", text):
        text = quoted.group(1)
    if (assignment := _NAMED_TUPLE.fullmatch(text)) and not _PLUS_MINUS.search(text):  # (x, y) = (1, 2)
        names, values = (split_top(part, ",") for part in assignment.groups())
        if len(names) == len(values) > 1 and all(map(is_name, names)):
            return [f"{name}={value}" for name, value in zip(names, values, strict=True)]
    items = split_top(text, ";")
    items = items if len(items) > 1 else split_top(text, ",")
    return [value_of_item for item in items for value_of_item in _expand_plus_minus(item)]


def _expand_plus_minus(item: str) -> list[str]:
    r"""Return `+3` and `-3` for `\pm 3`, `(+3,-3)` and `(-3,+3)` for `(\pm 3,\mp 3)`."""
    signs = _PLUS_MINUS.findall(item)
    if len(signs) != 1 and len({*signs}) < 2:
        return [item]
    upper = _PLUS_MINUS.sub(lambda sign: "+-"[sign[1] == "m"], item)
    return [upper, _PLUS_MINUS.sub(lambda sign: "-+"[sign[1] == "m"], item)]


def _compare_structure(gold: str, answer: str, algebra: Algebra) -> bool | None:
    """Compare lists, tuples, intervals and unions; `None` for other texts."""
    gold_items, answer_items = listed_values(gold), listed_values(answer)
    if len(gold_items) > 1 or _tuple(gold):
        answer_items = [one for item in answer_items for one in _split_chain(item) or [item]]
    elif len(answer_items) > 1 or _tuple(answer):
        gold_items = [one for item in gold_items for one in _split_chain(item) or [item]]
    interval = statements.interval_of(gold) or gold  # to match x > 1, x < 3
    if stated := _stated_union(answer_items, interval):
        return _compare_structure(interval, stated, algebra)
    if stated := _stated_union(gold_items, answer):
        return _compare_structure(stated, answer, algebra)
    if (stated := _stated_tuple(answer_items)) and _tuple(_value(gold)):
        return _compare_tuples(_value(gold), stated, algebra)
    if (stated := _stated_tuple(gold_items)) and _tuple(_value(answer)):
        return _compare_tuples(stated, answer, algebra)
    if gold_items != [gold] or answer_items != [answer]:
        if len(gold_items) != len(answer_items) or len(gold_items) > MAX_ITEMS:
            return False
        # For x = 1, y = 2, accept y = 2, x = 1 and reject 2, 1.
        lacks_names = gives_different_names(gold_items) and all(len(sides(item)) == 1 for item in answer_items)
        if len(split_top(gold, ";")) > 1 or lacks_names:
            return _same_in_order(gold_items, answer_items, algebra)
        return _same_in_any_order(gold_items, answer_items, algebra)
    gold_parts, answer_parts = union_parts(gold), union_parts(answer)
    if len(gold_parts) > 1 or len(answer_parts) > 1:
        if len(gold_parts) == len(answer_parts) <= MAX_ITEMS and _same_in_any_order(gold_parts, answer_parts, algebra):
            return True
        # The algebra would accept [-\infty, 1) as an interval.
        return not re.search(r"\[\s*-\s*\\infty|\\infty\s*\]", answer) and algebra(gold, answer)
    return _compare_tuples(gold, answer, algebra)


def _split_chain(text: str) -> list[str]:
    """Return `a=2` and `b=2` for `a=b=2`; else an empty list."""
    *names, value = sides(text)
    return [f"{name}={value}" for name in names] if len(names) > 1 and all(map(is_name, names)) else []


_POINT = re.compile(r"^[A-Za-z]\s*=\s*(-?[\d./]+)$")
_UNEQUAL = re.compile(r"^[A-Za-z]\s*\\neq(?![A-Za-z])")


def _stated_union(items: list[str], other: str) -> str | None:
    r"""Return `(-\infty,1)\cup (2,\infty)` for `x<1` and `x>2` if the other side consists of intervals."""
    gaps = [_UNEQUAL.sub("", item).strip() for item in items if _UNEQUAL.search(item)]
    letters = {letter for item in items for letter in _BOUNDED.findall(item)}
    if not gaps and any(map(is_relation, items)):
        items = [_POINT.sub(r"\\{\1\\}", item) for item in items]  # x < 0 or x = 1
    is_point = [item.startswith(r"\{") for item in items]
    intervals = [
        item if is_point[place] else statements.interval_of(item)
        for place, item in enumerate(items)
        if not _UNEQUAL.search(item)
    ]
    is_union = all(_tuple(part) or (any(is_point) and part.startswith(r"\{")) for part in union_parts(other))
    if len(items) < 2 or not all(intervals) or len(letters) > 1 or not is_union or all(is_point):
        return None
    from_below = sorted(map(str, intervals), key=lambda interval: not interval.startswith(r"(-\infty"))
    union = _overlap(*from_below) or r"\cup ".join(map(str, intervals)) or r"(-\infty,\infty)"
    for gap in gaps:  # x < 3, x \neq 2: gaps are ascending, so split the last interval
        union = f"{union[: union.rindex(',')]},{gap})\\cup ({gap},{union[union.rindex(',') + 1 :]}"
    return union


def _overlap(*intervals: str) -> str | None:
    r"""Return `[2,5)` for `(-\infty,5)` and `[2,\infty)`, because `x<5, x\geq 2` means the overlap."""
    if len(intervals) != 2:
        return None
    one, other = map(tuple_values, intervals)
    if not one or not other or one[0] != r"-\infty" or other[1] != r"\infty":
        return None
    low, high = number(other[0]), number(one[1])
    if low is None or high is None or low >= high:
        return None
    return f"{intervals[1][0]}{other[0]},{one[1]}{intervals[0][-1]}"


def _stated_tuple(items: list[str]) -> str | None:
    """Return `(1,2)` for `x=1` and `y=2`, in the alphabetical order of the names; else `None`."""
    if len(items) < 2 or not gives_different_names(items) or any(len(sides(item)) != 2 for item in items):
        return None
    if not all(is_name(name) for name, _ in map(sides, items)):  # 2x=1, 2y=2
        return None
    assignments = sorted((name.lstrip("\\"), value) for name, value in map(sides, items))
    return "(" + ",".join(value for _, value in assignments) + ")"


def _compare_tuples(gold: str, answer: str, algebra: Algebra) -> bool | None:
    value = _value(answer)
    gold_tuple, answer_tuple = _tuple(gold), _tuple(value)
    if gold_tuple and answer_tuple is None:
        answer_tuple = _tuple(re.sub(r"^[A-Z]'*\s*=?\s*(?=\()", "", value))  # P(0,2)
    if gold_tuple and answer_tuple:
        (gold_ends, gold_values), (answer_ends, answer_values) = gold_tuple, answer_tuple
        if _UNIT_VECTOR.search(answer) and len(answer_values) < len(gold_values):
            answer_values.append("0")
        return gold_ends == answer_ends and _same_in_order(gold_values, answer_values, algebra)
    if gold_tuple or answer_tuple:
        other = answer if gold_tuple else gold
        if is_relation(other):  # x \geq 2 for [2, \infty)
            return algebra(gold, value if answer_tuple else answer)
        return None if len(split_top(other, "=")) > 1 else False
    return None


_COLUMN = re.compile(r"\\begin\{pmatrix\}((?:(?!\\end)[^&])*)\\end\{pmatrix\}", re.DOTALL)
_PART = r"\{(?:[^(){}]|\{[^(){}]*\})*\}"
_SCALED = re.compile(rf"([-+]?(?:\d+|[a-z]|\\frac{_PART}{_PART}))\s*(\([^()]*\)|{_COLUMN.pattern})", re.DOTALL)


def _tuple(text: str) -> tuple[tuple[str, str], list[str]] | None:
    if column := _COLUMN.fullmatch(text):
        return ("(", ")"), [value.strip() for value in column[1].split(r"\\") if value.strip()]
    pieces = _UNIT_VECTOR.split(text.replace(" ", ""))
    if len(pieces) > 2 and not pieces[-1]:  # 2\mathbf{i}-\mathbf{k}
        factors = [f"{piece}1" if piece in ("", "+", "-") else piece for piece in pieces[::2]]
        parts = dict(zip(pieces[1::2], factors, strict=False))
        return ("(", ")"), [parts.get(name, "0") for name in ("ijk" if "k" in parts else "ij")]
    brackets = enclosed(re.sub(r"(?<=\))\s*\^\s*\{?\s*(?:T|\\top)\s*\}?$", "", text))
    if brackets is None and (product := _SCALED.fullmatch(text)) and (vector := _tuple(product[2])):
        return vector[0], [rf"({product[1]}) \cdot ({value})" for value in vector[1]]
    terms = split_top(text, "+") if brackets is None else []
    vectors = [vector for term in terms if term != text and (vector := _tuple(term))]
    if terms and len(terms) == len(vectors):
        sums = zip(*(values for _, values in vectors), strict=False)  # (1,2)+t(3,4)
        return ("(", ")"), ["+".join(f"({value})" for value in values) for values in sums]
    if brackets is None or brackets[0] == r"\{":
        return None
    values = split_top(brackets[1], ";" if ";" in brackets[1] else ",")  # (1,5; 2)
    return ((brackets[0], brackets[2]), values) if len(values) > 1 else None


def union_parts(text: str) -> list[str]:
    r"""Split a text at `\cup`; return a text without `\cup` as one part."""
    return [part.strip() for part in re.split(r"\\(?:big)?cup(?![A-Za-z])", text)]


def tuple_values(text: str) -> list[str]:
    """Return the entries of a tuple or the endpoints of an interval; else an empty list."""
    parsed = _tuple(text)
    return parsed[1] if parsed else []


def _same_in_order(golds: list[str], answers: list[str], algebra: Algebra) -> bool:
    return len(golds) == len(answers) and all(
        _equal(gold, answer, algebra) for gold, answer in zip(golds, answers, strict=True)
    )


def _same_in_any_order(golds: list[str], answers: list[str], algebra: Algebra) -> bool:
    remaining = list(answers)
    for gold in golds:
        match = next((position for position, answer in enumerate(remaining) if _equal(gold, answer, algebra)), None)
        if match is None:
            return False
        del remaining[match]
    return not remaining


def _compare_leaves(gold: str, answer: str, algebra: Algebra) -> bool:
    gold_sides, answer_sides = sides(gold), sides(answer)
    if max(len(gold_sides), len(answer_sides)) > MAX_ITEMS or answer.count(":") > max(1, gold.count(":")):
        return False
    if len(answer_sides) > 1 and len({forms.without_blanks(side) for side in answer_sides}) == 1:
        return False  # x = x gives no value
    if len(gold_sides) > 1 and len(answer_sides) > 1:
        if len(gold_sides) == len(answer_sides) > 2 and all(map(has_unknowns, gold_sides)):
            return _same_in_order(gold_sides, answer_sides, algebra)
        if {gold_sides[0], answer_sides[0]} in ({"x", "y"}, {"y", "z"}, {"x", "z"}) and not has_unknowns(
            gold_sides[-1]
        ):
            return False  # a different coordinate
        first, last = gold_sides[0], gold_sides[-1]
        for one, other in ((answer_sides, answer_sides[-1]), (answer_sides[::-1], answer_sides[0])):
            named = first.partition("(")[0].strip() == one[0].strip()  # f(x), f
            if (named or _equal(first, one[0], algebra)) and _equal(last, other, algebra):
                return _is_consistent(last, one, algebra)
        if any(map(has_unknowns, gold_sides)):
            return algebra(gold, answer)
        # As relations, all true equations between numbers would be equal, but 1 = 1 must be rejected.
        given = results(answer)
        return bool(given) and all(any(_equal(result, side, algebra) for result in results(gold)) for side in given)
    if len(answer_sides) > 1 and not is_relation(gold):
        return not is_relation(answer) and _yields(gold, answer_sides, algebra)
    if len(gold_sides) > 1:
        return any(_equal(result, answer, algebra) for result in reversed(results(gold)))
    (gold_value, gold_unit), (answer_value, answer_unit) = split_unit(gold), split_unit(answer)
    if not unit_fits(answer_unit, gold_unit):
        return False
    if is_words(gold) or is_words(answer):
        return bool(gold_unit or answer_unit) and _equal(gold_value, answer_value, algebra)
    if _WORDS.search(gold_value) or _WORDS.search(answer_value):
        return False  # a word is not a factor: 0\text{ to }5 is not 0
    return algebra(unwrap(gold_value), unwrap(answer_value))


_THEREFORE = re.compile(r"(?<![A-Za-z\\])(?:so|thus|then|hence|therefore|but|or)(?![A-Za-z])")


def _yields(gold: str, answer_sides: list[str], algebra: Algebra) -> bool:
    r"""Whether a statement yields the gold: `x = 5`, `5 = x`, `x = 2+3 = 5`, `\frac{1}{3} \approx 0.33`."""
    value, name = answer_sides[-1], answer_sides[0]
    if any(_WORDS.search(side) or _THEREFORE.search(side) for side in answer_sides[1:-1]) or (
        re.match(r"\\(?:sin|cos|tan)(?![A-Za-z])", name) and has_unknowns(value)
    ):
        return False  # "x = 1 so x = 2", \sin x = \cos x
    if is_name(value) and not is_name(name):
        value, name = name, value
    is_rounded = len(answer_sides) > 2 and _approximates(answer_sides[-2], value, algebra)  # A = 25\pi \approx 78.54
    if is_rounded and _yields(gold, answer_sides[:-1], algebra):
        return True
    if has_unknowns(name) or name == "e":  # eccentricity
        is_named = may_be_named(name) or (r"\begin" in value and r"\begin" not in name)  # 3I_2, A^5
        if not _equal(gold, value, algebra):
            return False
        is_consistent = is_named and _is_consistent(value, answer_sides, algebra)
        return is_consistent or all(_equal(value, side, algebra) for side in answer_sides)  # 3(x^2-4) = 3x^2-12
    if not all(_equal(name, side, algebra) or _approximates(name, side, algebra) for side in answer_sides):
        return False
    return _equal(gold, name, algebra) or any("." in gold and _equal(gold, side, algebra) for side in answer_sides)


def _approximates(exact: str, decimal: str, algebra: Algebra) -> bool:
    """Whether a decimal is the rounded value of a text without unknowns."""
    given = number(decimal)
    if given is None or "." not in decimal:
        return False
    scale = 10 ** len(decimal.partition(".")[2])
    value = number(exact)
    if value is not None:
        return abs(value - given) * scale <= 0.5
    return algebra(str(int(given * scale)), rf"\lfloor {scale} \cdot ({exact}) + \frac{{1}}{{2}} \rfloor")


def _is_consistent(value: str, answer_sides: list[str], algebra: Algebra) -> bool:
    """Whether all decidable sides after the first equal the value; `x = 6 = 5` is inconsistent."""
    known = set(re.findall("[A-Za-z]", value))
    return all(
        (has_unknowns(side) and not set(re.findall("[A-Za-z]", side)) <= known) or _equal(value, side, algebra)
        for side in answer_sides[1:]
    )
