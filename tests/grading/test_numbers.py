"""Number literals, and nothing else, are read exactly; units are split off."""

from fractions import Fraction

import pytest

from trl_ces.grading.numbers import MAX_DIGITS, decimal_places, number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("17", 17),
        ("-17", -17),
        ("+17", 17),
        ("- 17", -17),
        ("+ 17", 17),
        ("negative three", -3),
        ("one half", Fraction(1, 2)),
        ("two thirds", Fraction(2, 3)),
        ("three quarters", Fraction(3, 4)),
        ("one fourth", Fraction(1, 4)),
        ("two fifths", Fraction(2, 5)),
        ("five sixths", Fraction(5, 6)),
        ("three eighths", Fraction(3, 8)),
        ("one tenth", Fraction(1, 10)),
        ("1 in 6", Fraction(1, 6)),
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
        ("twenty one", 21),
        (r"0.\overline{3}", Fraction(1, 3)),
        (r"-0.1\overline{6}", Fraction(-1, 6)),
        (r".\bar{3}", Fraction(1, 3)),
        ("1.(09)", Fraction(12, 11)),
        (r"0.\dot{3}", Fraction(1, 3)),
        (r"0.\dot3", Fraction(1, 3)),
        (r"0.\dot{1}4285\dot{7}", Fraction(1, 7)),
        (r"0.\overline{3}\ldots", Fraction(1, 3)),
        (r"0.1666\ldots", Fraction(1, 6)),
        (r"2.121212\dots", Fraction(70, 33)),
        ("3.6 million", 3_600_000),
        (r"2 \text{ thousand}", 2000),
        ("2 billion", 2 * 10**9),
        ("1.5 trillion", 15 * 10**11),
        ("5百", 500),
        ("5千", 5000),
        ("5万", 50_000),
        ("5亿", 5 * 10**8),
        ("two hundred", 200),
        ("7 (seven)", 7),
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
        "-x",
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
        r"0.\dot{3}5",
        r"0.33\ldots",  # twice is no period
        r"0.1234\ldots",
        r"\overline{3}",
        "million",
        "7 (eight)",
        "x (y)",
        "x million",
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
