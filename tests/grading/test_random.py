"""Check that random expressions are equal if and only if their values agree to 40 digits."""

import itertools
import random

import mpmath
import pytest
from mpmath import mpf

from trl_ces.grading.equality import equal
from trl_ces.grading.symbolic import same

mpmath.mp.dps = 50
# Values of the letters, chosen so that different expressions do not agree by chance.
LETTERS = {"x": mpf("0.73105857863000487925"), "y": mpf("1.26894142136999512074"), r"\pi": mpmath.pi}
SUM, PRODUCT, FACTOR = range(3)  # how tightly an expression binds


class Writer:
    """Generator of random expressions: (text, value, binding). Few distinct digits make parsing errors detectable."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def digits(self, max_length=2):
        return self.random.choice("123") + "".join(
            self.random.choice("0123") for _ in range(self.random.randrange(max_length))
        )

    def leaf(self):
        if self.random.random() < 0.4:
            letter = self.random.choice(list(LETTERS))
            return letter, LETTERS[letter], FACTOR
        text = self.random.choice([self.digits(), f"{self.digits(1)}.{self.digits(1)}"])
        return text, mpf(text), FACTOR

    def inner(self, depth, binding):
        text, value, inner_binding = self.expression(depth - 1)
        return (text if inner_binding >= binding else f"({text})"), value

    def expression(self, depth):
        if depth == 0:
            return self.leaf()
        text, value = self.inner(depth, SUM)
        match self.random.randrange(14):
            case 0 | 1:
                other, other_value = self.inner(depth, PRODUCT)
                return f"{text}+{other}", value + other_value, SUM
            case 2:
                other, other_value = self.inner(depth, PRODUCT)
                return f"{text}-{other}", value - other_value, SUM
            case 3 | 4 if value != 0:
                other, other_value = self.inner(depth, SUM)
                return rf"\frac{{{other}}}{{{text}}}", other_value / value, FACTOR
            case 5 if value > 0:
                return rf"\sqrt{{{text}}}", mpmath.sqrt(value), FACTOR
            case 6 if value > 0:
                return rf"\ln({text})", mpmath.log(value), FACTOR
            case 7:
                return rf"\sin\left({text}\right)", mpmath.sin(value), FACTOR
            case 8:
                other, other_value = self.inner(depth, SUM)
                return f"({text})({other})", value * other_value, PRODUCT
            case 9:
                factor = self.digits()
                return f"{factor}({text})", mpf(factor) * value, PRODUCT
            case 10:
                other, other_value = self.inner(depth, FACTOR)
                return rf"\left({text}\right) \cdot \left({other}\right)", value * other_value, PRODUCT
            case 11 if value != 0:
                power = self.random.choice(["2", "{2}", "3", "{-1}", "-2"])
                return f"({text})^{power}", value ** int(power.strip("{}")), PRODUCT
            case 12:
                whole, top, bottom = self.digits(1), self.digits(1), self.digits(1)
                return rf"{whole}\frac{{{top}}}{{{bottom}}}", int(whole) + mpf(top) / int(bottom), PRODUCT
            case 13:
                letter, factor = self.random.choice(list(LETTERS)), self.digits()
                return f"{factor}{letter}", int(factor) * LETTERS[letter], PRODUCT
        return self.leaf()

    def draw(self, count):
        values = {}
        while len(values) < count:
            text, value, _ = self.expression(self.random.choice([0, 1, 1, 2, 2, 3]))
            if abs(value) < 10**6 and len(text) < 80:
                values[text] = value
        return list(values.items())

    def rewrite(self, text):
        return self.random.choice(
            [
                text.replace(r"\left", "").replace(r"\right", ""),
                text.replace(r"\frac", r"\dfrac"),
                f"${text}$",
                text.replace(r" \cdot ", r"\times "),
                text.replace("+", " + ").replace("-", " - "),
                f"({text})+1-1",
                rf"\frac{{2({text})}}{{2}}",
                f"1({text})",
                f"-(-({text}))",
            ]
        )


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_equal_if_and_only_if_their_values_are_equal(seed):
    writer = Writer(seed)
    expressions = writer.draw(120)
    pairs = list(itertools.combinations(expressions, 2))
    equal_pairs = [(first[0], second[0]) for first, second in pairs if abs(first[1] - second[1]) < mpf("1e-40")]
    equal_pairs += [(text, writer.rewrite(text)) for text, _ in expressions]
    different = [(first[0], second[0]) for first, second in pairs if abs(first[1] - second[1]) > mpf("1e-12")]
    different.sort(key=lambda pair: sorted(filter(str.isdigit, pair[0])) != sorted(filter(str.isdigit, pair[1])))
    assert [pair for pair in equal_pairs if equal(*pair, same) is not True] == []
    assert [pair for pair in different[:300] if equal(*pair, same) is not False] == []


def expressions_with_digits(digits):
    """Map expressions that contain these digits in this order to their values."""
    values = {digits: mpf(digits)}
    for end in range(1, len(digits)):
        left, right = digits[:end], digits[end:]
        a, b = mpf(left), mpf(right)
        values |= {
            rf"\frac{{{left}}}{{{right}}}": a / b,
            f"{left}.{right}": mpf(f"{left}.{right}"),
            rf"\sqrt{{{left}}} \cdot {right}": mpmath.sqrt(a) * b,
            rf"{left}\sqrt{{{right}}}": a * mpmath.sqrt(b),
            rf"\sqrt[{left}]{{{right}}}": b ** (1 / a),
            rf"\log_{{{left}}}{{{right}}}": mpmath.log(b) / mpmath.log(a) if a > 1 else mpmath.nan,
            f"{left}^{{{right}}}": a**b,
            rf"\binom{{{right}}}{{{left}}}": mpmath.binomial(b, a),
            f"{left}({right})": a * b,
            rf"{left} \cdot {right}": a * b,
            f"{left}+{right}": a + b,
            f"{left}-{right}": a - b,
            f"{left}x^{{{right}}}": a * LETTERS["x"] ** b,
        }
        for middle in range(1, len(right)):
            top, bottom = right[:middle], right[middle:]
            values[rf"{left}\frac{{{top}}}{{{bottom}}}"] = a + mpf(top) / mpf(bottom)
            values[rf"\frac{{{left}}}{{{top}x^{{{bottom}}}}}"] = a / (mpf(top) * LETTERS["x"] ** mpf(bottom))
    return {text: value for text, value in values.items() if not mpmath.isnan(value)}


@pytest.mark.parametrize("digits", ["121", "2112"])
def test_expressions_with_the_same_digits_are_equal_only_if_values_agree(digits):
    pairs = list(itertools.combinations(expressions_with_digits(digits).items(), 2))
    misgraded = [
        (first, second)
        for (first, value), (second, other_value) in pairs
        if equal(first, second, same) is not bool(abs(value - other_value) <= mpf("1e-40") * abs(value))
    ]
    assert misgraded == []
    assert len(pairs) > 300
