"""Test normalization for `correct_qwen` (see docs/evaluation.md) on texts written for these tests."""

from rows import rows

from trl_ces.grading.qwen.normalize import normalize, number_words


@rows("qwen_normalize/rewritten")
def test_answers_are_rewritten_as_in_the_script(text, expected):
    assert normalize(text) == expected


@rows("qwen_normalize/dropped")
def test_units_and_single_letters_are_removed(text, expected):
    assert normalize(text) == expected


def test_units_are_kept_only_on_request():
    assert normalize("4 km", keep_units=True) == "4km"
    assert normalize("4 km", keep_units=False) == "4"
    assert normalize("4 km") == "4"


def test_only_whitespace_is_removed_from_texts_above_2000_characters():
    number = "1" * 1997
    assert normalize(f"{number} cm") == number
    assert normalize(f"1{number} \n") == f"1{number}"
    assert normalize(f"1{number} cm") == f"1{number}cm"


@rows("qwen_normalize/number_words")
def test_number_words_are_converted_to_numbers(text, expected):
    assert number_words(text) == expected
