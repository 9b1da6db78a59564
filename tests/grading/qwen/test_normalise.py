"""Normalisation in the second verdict: the rules of docs/evaluation.md on texts written for this test."""

from rows import rows

from trl_ces.grading.qwen.normalise import normalise, number_words


@rows("qwen_normalise/rewritten")
def test_answers_are_rewritten_as_the_script_does(text, expected):
    assert normalise(text) == expected


@rows("qwen_normalise/dropped")
def test_units_and_lone_letters_are_dropped(text, expected):
    assert normalise(text) == expected


def test_units_and_texts_stay_where_they_are_kept():
    assert normalise("4 km", keep_units=True) == "4km"
    assert normalise("4 km", keep_units=False) == "4"
    assert normalise("4 km") == "4"


def test_a_text_above_2000_characters_only_loses_its_white_space():
    number = "1" * 1997
    assert normalise(f"{number} cm") == number
    assert normalise(f"1{number} \n") == f"1{number}"
    assert normalise(f"1{number} cm") == f"1{number}cm"


@rows("qwen_normalise/number_words")
def test_number_words_are_read_wherever_they_stand(text, expected):
    assert number_words(text) == expected
