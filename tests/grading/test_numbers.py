"""Number literals, and nothing else, are read exactly; units are split off."""

from fractions import Fraction

import pytest

from trl_ces.grading.numbers import MAX_DIGITS, decimal_places, number, split_unit, units_differ


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("17", 17),
        ("-17", -17),
        ("+17", 17),
        ("- 17", -17),
        ("12.", 12),
        (".5", Fraction(1, 2)),
        ("-0.125", Fraction(-1, 8)),
        ("0.1", Fraction(1, 10)),  # not the nearest float
        ("1,234", 1234),
        ("-1,234,567.5", Fraction(-2469135, 2)),
        ("12 345", 12345),
        ("3/4", Fraction(3, 4)),
        ("-3/4", Fraction(-3, 4)),
        ("1.5/2", Fraction(3, 4)),
        (r"\frac{3}{4}", Fraction(3, 4)),
        (r"\frac34", Fraction(3, 4)),
        (r"\frac{3}4", Fraction(3, 4)),
        (r"\frac3{14}", Fraction(3, 14)),
        (r"-\frac{3}{4}", Fraction(-3, 4)),
        (r"\frac{-3}{4}", Fraction(-3, 4)),
        (r"-\frac{3}{-4}", Fraction(3, 4)),
        (r"\frac{1.5}{0.5}", 3),
        (r"2\frac{3}{4}", Fraction(11, 4)),
        (r"-2\frac{3}{4}", Fraction(-11, 4)),
        (r"2\frac34", Fraction(11, 4)),
        ("2 3/4", Fraction(11, 4)),
        ("-2 3/4", Fraction(-11, 4)),
        ("2.5e3", 2500),
        ("2.5E-3", Fraction(1, 400)),
        (r"2.5\times 10^{3}", 2500),
        (r"2.5 \times 10^3", 2500),
        (r"-2.5 \cdot 10^{-3}", Fraction(-1, 400)),
        ("2.5*10^3", 2500),
        ("2.5x10^3", 2500),
        ("10^{5}", 100_000),
        ("10^5", 100_000),
        ("-10^{3}", -1000),
        ("10^{-2}", Fraction(1, 100)),
        (f"10^{{{MAX_DIGITS}}}", 10**MAX_DIGITS),
        (f"1e{MAX_DIGITS}", 10**MAX_DIGITS),
        ("zero", 0),
        ("seven", 7),
        ("Nineteen", 19),
        ("twenty", 20),
        ("ninety", 90),
        ("hundred", 100),
        ("twenty-five", 25),
        ("Ninety-one", 91),
        ("forty-nine", 49),
        ("1" * MAX_DIGITS, int("1" * MAX_DIGITS)),
    ],
)
def test_a_literal_has_its_exact_value(text, value):
    assert number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1.2.3",
        "1,23",
        "12,3456",
        "3/0",
        r"\frac{3}{0}",
        r"2\frac{3}{0}",
        f"10^{{{MAX_DIGITS + 1}}}",
        f"10^{{-{MAX_DIGITS + 1}}}",
        f"1e{MAX_DIGITS + 1}",
        f"1e-{MAX_DIGITS + 1}",
        "1" * (MAX_DIGITS + 1),
        "ten-five",
        "hundred-five",
        "five-twenty",
        "nineteen-five",
        "x-five",
        "twenty-ten",
        "twenty-zero",
        "twenty-x",
        "2^5",
        "3+4",
    ],
)
def test_what_is_no_literal_has_no_value(text):
    assert number(text) is None


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("3.14159", 5),
        ("-3.14159", 5),
        ("1,234.567", 3),
        ("0.00123456", 8),  # leading zeros are not significant
        ("3.1415", None),  # five digits
        ("0.001234", None),
        ("-3.1415", None),
        ("314159", None),
        ("1.234567x", None),
        ("x", None),
    ],
)
def test_decimal_places_of_a_number_that_states_six_digits(text, places):
    assert decimal_places(text) == places


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (r"5\text{ cm}", ("5", "cm")),
        (r"5 \mathrm{m}^2", ("5", "m")),
        (r"5\mbox{ apples}", ("5", "apples")),
        (r"\frac{3}{4}\text{ hours}", (r"\frac{3}{4}", "hours")),
        (r"x\text{ if } y", (r"x\text{ if } y", "")),
        (r"x\text{for all x}", (r"x\text{for all x}", "")),
        (r"x\text{where x is odd}", (r"x\text{where x is odd}", "")),
        (r"5\text{ 7}", (r"5\text{ 7}", "")),
        (r"5\text{ million}", (r"5\text{ million}", "")),
        ("5 cm", ("5", "cm")),
        ("5cm", ("5", "cm")),
        ("5 km/h", ("5", "km/h")),
        ("12 apples", ("12", "apples")),
        ("12 square meters", ("12", "square meters")),
        ("3t", ("3t", "")),  # a variable
        ("3 m", ("3 m", "")),
        ("3abc", ("3abc", "")),  # a product
        ("5 cat", ("5", "cat")),
        ("5 ab", ("5 ab", "")),
        ("5cats", ("5", "cats")),
        ("5cat", ("5cat", "")),
        ("1.2.3 apples", ("1.2.3 apples", "")),
        ("5 pi", ("5 pi", "")),
        ("3 Million", ("3 Million", "")),
        ("3 million", ("3 million", "")),
        ("3 dozen eggs", ("3 dozen eggs", "")),
        ("5米", ("5", "米")),
        ("5一个", ("5", "一个")),
        ("5米a", ("5", "米a")),
        ("5万", ("5万", "")),
        ("x apples", ("x apples", "")),
        ("17", ("17", "")),
    ],
)
def test_a_unit_is_split_off_a_value(text, parts):
    assert split_unit(text) == parts


@pytest.mark.parametrize(
    "text",
    [
        r"5\text{ squared}", "5 cubed", "5 halves", "5 hundredths", r"5\text{ million dollars}", "5 dozen eggs",
        r"5\text{ Million}", "5 m per second",
        r"5\text{ or six}", r"5\text{ apples, or 6}", r"5\text{ + one}", r"5\text{ plus two}", r"5\text{ (mod 3)}",
        r"5\text{ base seven}", "5 over two", r"5\text{ is wrong}", r"5\text{ not six}", r"5\text{ = x}",
    ],
)  # fmt: skip
def test_what_multiplies_divides_or_doubts_a_number_is_no_unit(text):
    assert split_unit(text) == (text, "")


@pytest.mark.parametrize("unit", ["meters squared", "Square Miles", "seconds", "people"])
def test_other_words_are(unit):
    assert split_unit(rf"5\text{{ {unit}}}") == ("5", unit)


def test_units_differ_only_where_both_are_well_known():
    assert units_differ("cm", "km")
    assert not units_differ("cm", "cm")
    assert not units_differ("cm", "apples")
    assert not units_differ("apples", "cm")
    assert not units_differ("pears", "apples")
