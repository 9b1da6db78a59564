r"""
Make incorrect and correct completions from a gold by text substitution. This file imports nothing from trl_ces.

`kind_of` classifies golds by notation. A template is either a string in which `G` stands for the gold, or a function
of the gold that returns `None` if the template does not apply. `wrong` returns a list of incorrect completions, and
`right` returns a list of correct completions.
"""

import re
from fractions import Fraction

_FRACTION = re.compile(r"(-?)(?:\\[dt]?frac\{(\d+)\}\{(\d+)\}|\\frac(\d)(\d)|(\d+)/(\d+))")
_SCIENTIFIC = re.compile(r"(-?\d+(?:\.\d+)?)e([-+]?\d+)")
_INTERVAL = re.compile(r"(?:\\left)?([\[(])([^,()\[\]]+),([^,()\[\]]+?)(?:\\right)?([\])])")
_TUPLE = re.compile(r"(?:\\left)?\(([^()\[\]]+?)(?:\\right)?\)")
_EXPRESSION = re.compile(r"(?:\\(?:frac|sqrt|pi|ln|sin|cos|cdot|left|right)(?![A-Za-z])|[a-zA-Z0-9+\-/^_{}()\s])+")
_NUMBERS = {"integer", "decimal", "fraction", "scientific"}


def kind_of(gold):
    """Return the kind of a gold, or `None` if the notation is ambiguous."""
    gold = gold.strip()
    if re.fullmatch(r"-?\d+", gold):
        return "integer"
    if re.fullmatch(r"-?\d+\.\d+", gold):
        return "decimal"
    if _SCIENTIFIC.fullmatch(gold):
        return "scientific"
    if _FRACTION.fullmatch(gold):
        return "fraction"
    if re.fullmatch("[A-E]", gold):
        return "choice"
    if (ends := _INTERVAL.fullmatch(gold)) and (ends[1] + ends[4] != "()" or r"\infty" in gold):
        return "interval"
    if (inner := _TUPLE.fullmatch(gold)) and inner[1].count(",") == 2 and re.fullmatch(r"[-\d,\s]+", inner[1]):
        return "tuple"
    if re.fullmatch(r"[A-Za-z]{4,}(?: [a-z]{4,}){0,2}", gold):
        return "text"
    # Letters outside LaTeX commands; words and the constants c and C are not allowed.
    letters = re.findall(r"(?<![\\A-Za-z])[A-Za-z]+", gold)
    is_plain = _EXPRESSION.fullmatch(gold) and all(len(run) == 1 and run not in "cC" for run in letters)
    return "expression" if is_plain and re.search("[a-z]", gold) and gold.count("{") == gold.count("}") else None


def value_of(gold):
    """Return the exact value of a number."""
    if match := _FRACTION.fullmatch(gold):
        top, bottom = (int(part) for part in match.groups()[1:] if part)
        return Fraction(top, bottom) * (-1 if match[1] else 1)
    if match := _SCIENTIFIC.fullmatch(gold):
        return Fraction(match[1]) * Fraction(10) ** int(match[2])
    return Fraction(gold)


def skip(*values):
    """Make a function that turns a string into a template for all golds except those with the given values."""
    return lambda template: lambda gold: None if value_of(gold) in values else template.replace("G", gold)


# Incorrect completions


def append_base_16(gold):
    return f"{gold}_{{16}}" if abs(int(gold)) > 9 else None


def swap_brackets(gold):
    opening, low, high, closing = _INTERVAL.fullmatch(gold).groups()
    if r"\infty" not in low:
        opening = "(" if opening == "[" else "["
    if r"\infty" not in high:
        closing = ")" if closing == "]" else "]"
    return None if r"\infty" in low and r"\infty" in high else f"{opening}{low},{high}{closing}"


def append_letter(gold):
    return f"{gold}, {'A' if gold == 'B' else 'B'}"


def round_to_hundredths(gold):
    value = value_of(gold)
    return None if value * 100 == int(value * 100) else f"{float(value):.2f}"


def reverse_entries(gold):
    entries = _TUPLE.fullmatch(gold)[1].split(",")
    return None if entries == entries[::-1] else f"({','.join(entries[::-1])})"


_INCORRECT_COMPLETIONS = [
    "It cannot be $G$.",
    r"The answer is not $\boxed{G}$.",
    "Either $G$ or something else.",
    "The answer is $G$? No, it is not.",
    r"Anything but \boxed{G}.",
    r"<think>\boxed{G}</think>I give up.",
    r"First \boxed{G}, but in the end \boxed{\text{unknown}}",
    "I would not say $G$.",
    "答案不是 $G$。",
    r"\boxed{G",
]
_INCORRECT_BOXES = {
    "any": [
        r"\text{not } G", r"G \text{ is wrong}", r"G \text{ or not}", r"\phantom{G}", r"G \text{ is excluded}",
        "x=x", r"\text{correct}", r"G \text{ does not hold}", r"\cancel{G}",
    ],
    "number": [
        r"G \text{ doubled}", r"G \text{ at most}", r"G \text{ or more}", r"G \pm 1", "> G", r"\geq G", r"G \to 0",
        r"\{\{G\}\}", "G, 0, 1", r"\neq G", "G:1:1", "G + 1", r"G \oplus 1", r"G \text{ wrong}",
        skip(0)("-(G)"), skip(0)(r"\pm (G)"), skip(0)(r"G \text{ thousand}"), skip(0)(r"G \text{ pairs}"),
        skip(0)(r"G\text{ k}"), skip(0)("0=0"), skip(0, 1)("(G)^2"), skip(0, 1)(r"\sqrt{G}"),
        skip(0)(r"G \cdot \pi"), skip(0, 1, -1)(r"\frac{1}{G}"), skip(0)("Gx"), skip(0)("Gi"),
        skip(0)(r"G \text{ quarters}"),
    ],
    "integer": [append_base_16, "G.5", r"G\frac{1}{2}", r"G.\overline{3}", r"G \text{ point five}"],
    "fraction": [round_to_hundredths],
    "choice": [
        append_letter, r"\text{neither } G", r"\text{G? No}", r"G \text{ is not true}", r"\text{all but } G",
        "AE",
    ],
    "interval": [swap_brackets, r"\text{outside } G", r"\mathbb{R} \setminus G", "x=0", "0=0", "(0,0)"],
    "tuple": [reverse_entries, r"G \text{ or } (0,0,0)", r"\{G, (7,7,7)\}", r"G + 1", r"x = 0"],
    "expression": ["G + 1", "2(G)", r"\text{not } G", r"G > 0", r"G \text{ or } 0", r"1 - (G)", r"G \neq 1"],
    "text": [r"\text{not G}", r"\text{G or another}", r"\text{everything but G}", r"\text{neither G nor others}"],
}  # fmt: skip

# Correct completions


def as_decimal(gold):
    """Write a fraction as a repeating decimal, such as 1/6 as `0.1\\overline{6}`."""
    value = value_of(gold)
    whole, rest = divmod(abs(value.numerator), value.denominator)
    digits, places = "", {}
    while rest and rest not in places:
        places[rest] = len(digits)
        digit, rest = divmod(rest * 10, value.denominator)
        digits += str(digit)
    if not rest or len(digits) > 12:
        return None
    start = places[rest]
    return rf"{'-' * (value < 0)}{whole}.{digits[:start]}\overline{{{digits[start:]}}}"


def as_bracketed_decimal(gold):
    text = as_decimal(gold)
    return text and text.replace(r"\overline{", "(").replace("}", ")")


def as_mixed_number(gold):
    value = value_of(gold)
    whole, rest = divmod(value.numerator, value.denominator)
    return rf"{whole}\frac{{{rest}}}{{{value.denominator}}}" if value > 1 and rest else None


def as_fraction(command):
    def template(gold):
        value = value_of(gold)
        return rf"{'-' * (value < 0)}\{command}{{{2 * abs(value.numerator)}}}{{{2 * value.denominator}}}"

    return template


def as_quotient(gold):
    value = value_of(gold)
    return f"{value.numerator}/{value.denominator}"


def power_of_ten(times):
    return lambda gold: re.sub(r"e\+?(-?)0*(\d+)", lambda power: f"{times}10^{{{power[1]}{power[2]}}}", gold)


def group_digits(separator):
    return lambda gold: None if abs(int(gold)) < 1000 else f"{int(gold):,}".replace(",", separator)


def as_inequality(gold):
    opening, low, high, closing = _INTERVAL.fullmatch(gold).groups()
    signs = [r" \leq " if bracket in "[]" else " < " for bracket in (opening, closing)]
    left = "" if r"\infty" in low else low + signs[0]
    right = "" if r"\infty" in high else signs[1] + high
    return f"{left}x{right}" if left or right else None


def as_two_inequalities(gold):
    opening, low, high, closing = _INTERVAL.fullmatch(gold).groups()
    if r"\infty" in gold:
        return None
    low_sign, high_sign = r"\ge" if opening == "[" else ">", r"\le" if closing == "]" else "<"
    return rf"x {low_sign} {low} \text{{ and }} x {high_sign} {high}"


def as_set(gold):
    text = as_inequality(gold)
    return text and rf"\{{x \mid {text}\}}"


def as_named_entries(gold):
    return ", ".join(map("=".join, zip("xyz", _TUPLE.fullmatch(gold)[1].split(","), strict=True)))


def add_left_and_right(gold):
    return rf"\left({_TUPLE.fullmatch(gold)[1]}\right)"


def capitalize(gold):
    return rf"\text{{{gold.upper()}}}"


_CORRECT_COMPLETIONS = [
    "The answer is $G$.", r"Therefore the final answer is \boxed{G}.", r"\[ \boxed{G} \]", r"**Answer:** $\boxed{G}$",
    r"<think>Not $0$.</think>The answer is $G$.", "所以答案是 $G$。", r"\boxed{\boxed{G}}", r"Hence we obtain $G$.",
    r"It is not $123x$. The answer is \boxed{G}.", r"$$\boxed{G}$$", r"\fbox{G}", "**Final Answer:** $G$",
]  # fmt: skip
_CORRECT_BOXES = {
    "any": [r"\color{blue}{G}", r"\text{The answer is } G", "{G}.", r"\,G\,", r"\underline{G}"],
    "number": [
        "x = G", "G = x", r"\displaystyle G", r"\mathbf{G}", "(G)", r"G \text{ dollars}", r"$G$",
        r"\large G", r"\text{Answer: } G", r"G\,\Omega", r"G\text{.}",
    ],
    "integer": [
        "G.0", group_digits("{,}"), group_digits(r"\,"), as_fraction("dfrac"),
        "1 + G - 1 = G", "0 + G = G", "G.00", r"\text{G apples}", r"\textbf{G}",
    ],
    "decimal": [as_fraction("frac"), as_quotient, "G0", "0 + G = G", r"\text{G}"],
    "fraction": [as_fraction("tfrac"), as_quotient, as_decimal, as_bracketed_decimal, as_mixed_number, r"P = G"],
    "scientific": [power_of_ten(r" \times "), power_of_ten(r"\cdot "), as_fraction("frac")],
    "choice": [
        "(G)", r"\text{Option G}", r"\textbf{(G)}", "G.", r"\text{(G)}", r"\mathrm{G}", r"\text{Choice G}", "G) 12",
    ],
    "interval": [as_inequality, as_two_inequalities, as_set, r"x \in G", "$G$", r"\text{the interval } G"],
    "tuple": [as_named_entries, "(x,y,z) = G", add_left_and_right, r"\{G\}"],
    "expression": ["G", "(G)", r"\displaystyle G", "1 \\cdot (G)", "(G) + 0", r"\mathbf{G}", "$G$", "0 + G"],
    "text": [r"\text{G}", r"\text{G.}", capitalize, r"\textit{G}", r"\text{the answer is G}", "G"],
}  # fmt: skip


def wrong(gold):
    return _completions(gold.strip(), _INCORRECT_COMPLETIONS, _INCORRECT_BOXES)


def right(gold):
    return _completions(gold.strip(), _CORRECT_COMPLETIONS, _CORRECT_BOXES)


def _completions(gold, whole, boxes):
    kind = kind_of(gold)
    kinds = ["any", *(["number"] if kind in _NUMBERS else []), kind]
    contents = [_fill(template, gold) for name in kinds for template in boxes.get(name, [])]
    boxed = [rf"\boxed{{{content}}}" for content in contents if content is not None]
    return [_fill(template, gold) for template in whole] + boxed


def _fill(template, gold):
    return template.replace("G", gold) if isinstance(template, str) else template(gold)
