"""Test units after numbers, equality of units, and words that are not units."""

import pytest
from rows import rows

from trl_ces.grading.units import implied_unit, measures_in, parse_unit, split_unit, unit_fits


@rows("units/units")
def test_a_value_and_its_unit_are_separated(text, parts):
    assert split_unit(text) == tuple(parts)


@pytest.mark.parametrize(
    "text",
    [
        r"5\text{ squared}", "5 cubed", "5 halves", "5 hundredths", r"5\text{ million dollars}", "5 dozen eggs",
        r"5\text{ Million}",
        r"5\text{ or six}", r"5\text{ apples, or 6}", r"5\text{ + one}", r"5\text{ plus two}", r"5\text{ (mod 3)}",
        r"5\text{ base seven}", "5 over two", r"5\text{ is wrong}", r"5\text{ not six}", r"5\text{ = x}",
    ],
)  # fmt: skip
def test_words_that_scale_a_number_are_not_units(text):
    assert split_unit(text) == (text, "")


@pytest.mark.parametrize("unit", ["meters squared", "Square Miles", "seconds", "people"])
def test_words_that_do_not_scale_a_number_are_units(unit):
    assert split_unit(rf"5\text{{ {unit}}}") == ("5", unit)


@rows("units/notations")
def test_values_and_units_are_separated_in_different_notations(text, parts):
    assert split_unit(text) == tuple(parts)


@pytest.mark.parametrize(
    ("units", "powers"),
    [
        (("cm^2", "cm^{2}", "square centimeters", "sq cm", "cm squared", "平方厘米"), {"cm": 2}),
        (("cm^3", "cubic centimeters", "cu cm", "cm cubed", "立方厘米"), {"cm": 3}),
        (("mL", "ml", "milliliters"), {"mL": 1}),
        (("day", "days", "Days"), {"day": 1}),
        (("m/s", "m / s", "meters per second", "metres per sec", "m s^{-1}"), {"m": 1, "s": -1}),
        (("mph", "miles per hour", "mi/hr"), {"mi": 1, "h": -1}),
        (("km/h^2",), {"km": 1, "h": -2}),
        (("feet", "ft", "foot", "Feet", "ft."), {"ft": 1}),
        (("in", "inches", "inch"), {"in": 1}),
        (("dollars in total", "total dollars", "USD", "dollar"), {"dollar": 1}),
        (("degrees Celsius", "C"), {"C": 1}),
        (("degrees", "度"), {"deg": 1}),
        (("MW", "megawatts"), {"MW": 1}),
        (("mW", "milliwatt"), {"mW": 1}),
        (("μm", r"\mu m", "micrometers"), {"μm": 1}),
        (("people",), {"people": 1}),
        (("in total", "each", "of them"), {}),
        (("hrs", "hours", "小时"), {"h": 1}),
    ],
)
def test_spellings_of_a_unit_have_the_same_powers(units, powers):
    for unit in units:
        parsed = parse_unit(unit)
        assert (parsed if unit != r"\mu m" else {"μm": 1}) == powers, unit


@pytest.mark.parametrize(
    "word",
    [
        "k", "M", "B", "pairs", "quarters", "halved", "doubled", "at most", "wrong", "point five", "widgets",
        "cm wrong",
        "", "per", "square", "squared", "^2", "fails", "Mw", "MM", "gs", "倍",
    ],
)  # fmt: skip
def test_unknown_words_are_not_units(word):
    assert parse_unit(word) is None


def test_units_fit_if_they_are_equal_or_one_unit_is_missing():
    assert not unit_fits("km", "cm")
    assert not unit_fits("cm^3", "cm^2")
    assert unit_fits("cm", "cm")
    assert unit_fits("seconds", "s")
    assert unit_fits("cm", "")
    assert unit_fits("", "cm")
    assert not unit_fits("apples", "cm")
    assert unit_fits("K", "kelvin")
    assert unit_fits("J/K", "")


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ("degrees", "C", True), ("degrees", "Fahrenheit", True), ("degrees", "degrees Celsius", True),
        ("C", "F", False), ("degrees", "cm", False), ("degrees", "radians", False), ("C", "cm", False),
    ],
)  # fmt: skip
def test_degrees_fit_any_temperature_scale(first, second, fits):
    assert unit_fits(first, second) is fits
    assert unit_fits(second, first) is fits


def test_a_sign_in_a_gold_implies_a_unit():
    assert [implied_unit(gold) for gold in (r"\$9", r"60^\circ", "60°", r"20\%", "9", "$9$")] == [
        "dollars", "degrees", "degrees", "percent", "", "",
    ]  # fmt: skip


@rows("units/measures")
def test_measures_in_a_question_are_found(question, measures):
    assert measures_in(question) == {*measures}


def test_a_noun_from_the_question_is_a_unit():
    assert parse_unit("gizmos", frozenset({"gizmo"})) == {"gizmo": 1}
    assert parse_unit("gizmos", frozenset({"widget"})) is None
