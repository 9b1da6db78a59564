"""Test normalization for `correct_qwen` (see docs/evaluation.md) on texts written for these tests."""

from rows import rows

from trl_ces.grading.qwen.normalise import normalise, number_words


@rows("qwen_normalise/rewritten")
def test_answers_are_rewritten_as_in_the_script(text, expected):
    assert normalise(text) == expected


@rows("qwen_normalise/dropped")
def test_units_and_single_letters_are_removed(text, expected):
    assert normalise(text) == expected


def test_units_are_kept_only_on_request():
    assert normalise("4 km", keep_units=True) == "4km"
    assert normalise("4 km", keep_units=False) == "4"
    assert normalise("4 km") == "4"


def test_only_whitespace_is_removed_from_texts_above_2000_characters():
    number = "1" * 1997
    assert normalise(f"{number} cm") == number
    assert normalise(f"1{number} \n") == f"1{number}"
    assert normalise(f"1{number} cm") == f"1{number}cm"


@rows("qwen_normalise/number_words")
def test_number_words_are_converted_to_numbers(text, expected):
    assert number_words(text) == expected
