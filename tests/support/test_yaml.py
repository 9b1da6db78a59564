"""Check the types of parsed YAML values, and that written values are read back unchanged."""

import re

import pytest

from trl_ces.support.errors import UserError
from trl_ces.support.yaml import dump_yaml, parse_yaml, read_yaml


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


NESTED_ALIASES = "a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
MERGE_KEYS = "a0: &a0 {k: 1, l: 2}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 30))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: " + "[" * 5000 + "]" * 5000, "maximum recursion depth exceeded"),
        ("a: " + "[" * 60 + "]" * 60, "line 1: .*more than 50 nested levels"),
        ("\n".join("  " * level + "a:" for level in range(60)), "line 50: .*nested levels"),
        ("a: " + "- " * 3000, "not valid YAML"),
        ("seed: " + "9" * 5000, "line 1: .*an integer with 5000 digits"),
        ("seed: 0x" + "f" * 5000, "an integer with 5002 digits"),
        ("learning_rate: " + "1" * 400, "an integer with 400 digits"),
        ("seed: !!int ''", "not valid YAML"),
        ("seed: !!float ''", "not valid YAML"),
        ("seed: !!bool maybe", "not valid YAML"),
        ("date: !!timestamp soon", "not valid YAML"),
        ("date: 2024-13-45", "not valid YAML"),
        ("run_name: !me x", "line 1: .*could not determine a constructor for the tag '!me'"),
        ("x: !!python/name:os.system ''", "could not determine a constructor"),
        (NESTED_ALIASES, r"line \d+: .*more than 100000 values"),
        (MERGE_KEYS, "more than 100000 values"),
        ("a: &a [*a]", "line 1: .*an alias inside its own anchor"),
        ("a: &a {b: *a}", "an alias inside its own anchor"),
        ("a: *nowhere", "undefined alias"),
        ("<<: 5", "expected a mapping"),
        ('a: "x\x01"', "special characters are not allowed"),
        (r'a: "x\0y"', r"line 1: .*'x\\x00y' contains a character that cannot be saved"),
        (r'a: "x\ud800"', r"line 1: .*'x\\ud800' contains"),
        (r'"x\0": 1', "cannot be saved"),
        ("a: 1\n---\nb: 2", "found another document"),
    ],
)
def test_documents_that_would_crash_or_stall_the_parser_are_rejected(text, problem):
    with pytest.raises(UserError, match="not valid YAML") as caught:
        parse_yaml(text)
    assert re.search(problem, str(caught.value))
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_anchors_merge_keys_and_long_lists_are_read():
    text = "x: {y: {z: &b {<<: &a {k: 1, l: 2}, k: 3}}}\nc: {<<: *b, m: 4}\nd: [*a, *a]\n"
    merged, base = {"k": 3, "l": 2}, {"k": 1, "l": 2}
    expected = {"x": {"y": {"z": merged}}, "c": merged | {"m": 4}, "d": [base, base]}
    assert parse_yaml(text) == expected
    assert len(parse_yaml(f"a: {list(range(20_000))}")["a"]) == 20_000
    assert parse_yaml(f"a: {2**64}") == {"a": 2**64}


def test_a_file_that_is_too_large_is_rejected_without_being_read(tmp_path):
    file = tmp_path / "data.yaml"
    with file.open("wb") as sparse:
        sparse.truncate(2**40)
    with pytest.raises(UserError, match=r"data\.yaml: the file has 1099511627776 bytes, but the limit"):
        read_yaml(file)
