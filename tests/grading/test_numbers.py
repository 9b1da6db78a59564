"""Test the parsing of number literals."""

from fractions import Fraction

from rows import rows

from trl_ces.grading.numbers import MAX_DIGITS, decimal_places, number


@rows(
    "numbers/literals",
    (f"10^{{{MAX_DIGITS}}}", 10**MAX_DIGITS),
    (f"1e{MAX_DIGITS}", 10**MAX_DIGITS),
    ("2 billion", 2 * 10**9),
    ("1.5 trillion", 15 * 10**11),
    ("5亿", 5 * 10**8),
    ("1" * MAX_DIGITS, int("1" * MAX_DIGITS)),
)
def test_a_number_literal_is_parsed_exactly(text, value):
    assert number(text) == Fraction(value)


@rows(
    "numbers/no_literals",
    f"10^{{{MAX_DIGITS + 1}}}",
    f"10^{{-{MAX_DIGITS + 1}}}",
    f"1e{MAX_DIGITS + 1}",
    f"1e-{MAX_DIGITS + 1}",
    "1" * (MAX_DIGITS + 1),
)
def test_texts_that_are_not_numbers_return_none(text):
    assert number(text) is None


@rows("numbers/decimal_places")
def test_decimal_places_are_counted_for_numbers_with_at_least_six_digits(text, places):
    assert decimal_places(text) == places
