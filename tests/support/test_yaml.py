"""Check the types of parsed YAML values, and that written values are read back unchanged."""

import pytest

from trl_ces.support.errors import UserError
from trl_ces.support.yaml import dump_yaml, parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2e-7", 2e-7),  # a string in YAML 1.1
        ("2.0e-7", 2e-7),
        (".5", 0.5),
        ("-1", -1),
        ("no", "no"),  # False in YAML 1.1
        ("true", True),
        ("null", None),
        ("~", None),
        ("", None),
        ("{min_lr: 2e-8}", {"min_lr": 2e-8}),
    ],
)
def test_numbers_and_words_are_parsed_with_the_expected_type(text, value):
    parsed = parse_yaml(f"key: {text}")["key"]
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize("value", ["1e5", "2e-7", "0o10", "1_000", "no", "1:30", "=", "", " x", "#", 2e-7, True, None])
def test_written_values_are_read_back_unchanged(value):
    assert parse_yaml(dump_yaml({"key": value, "list": [value]})) == {"key": value, "list": [value]}


def test_a_list_as_a_key_is_rejected():
    with pytest.raises(UserError, match="line 1: not valid YAML"):
        parse_yaml("b: {[a]: 1}")


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3\n", "x:\n  a: 1\n  a: 2\n"])
def test_a_duplicate_key_is_rejected(text):
    with pytest.raises(UserError, match=r"line [23]+: not valid YAML \(duplicate key 'a'\)"):
        parse_yaml(text)
