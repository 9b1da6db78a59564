"""Extraction in the second verdict: the rules of docs/evaluation.md on texts written for this test."""

import pytest
from rows import rows

from trl_ces.grading.qwen.extract import extract, predict, prepare_gold


@rows("qwen_extract/golds")
def test_golds_are_prepared_by_benchmark(gold, benchmark, expected):
    assert prepare_gold(gold, benchmark) == expected


@rows("qwen_extract/responses")
def test_the_first_rule_that_matches_finds_the_answer(response, expected):
    assert extract(response) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("1 +\n  2", "1+2"),
        (":5", "5"),
        ("5.", "5"),
        ("5/", "5"),
        ("5/.", "5"),
        ("x=k=5", "5"),  # normalised twice
    ],
)
def test_what_surrounds_an_extracted_answer_is_dropped(answer, expected):
    assert extract(rf"\boxed{{{answer}}}") == expected


def test_minervas_answers_keep_their_units():
    assert extract(r"\boxed{4 km}", "minerva_math") == "4km"
    assert extract(r"\boxed{4 km}", "gsm8k") == "4"
    assert extract(r"\boxed{4 km}") == "4"
    assert predict(r"\boxed{4 km}", "4km", "minerva_math") == "4km"


@rows("qwen_extract/letters")
def test_golds_of_letters_are_answered_by_letters(response, gold, expected):
    assert predict(response, gold) == expected
