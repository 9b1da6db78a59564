"""Test answer extraction for `correct_qwen` (see docs/evaluation.md) on texts written for these tests."""

import pytest
from rows import rows

from trl_ces.grading.qwen.extract import extract, predict, prepare_gold


@rows("qwen_extract/golds")
def test_golds_are_prepared_by_the_rules_of_their_benchmark(gold, benchmark, expected):
    assert prepare_gold(gold, benchmark) == expected


@rows("qwen_extract/completions")
def test_the_first_matching_rule_extracts_the_answer(completion, expected):
    assert extract(completion) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("1 +\n  2", "1+2"),
        (":5", "5"),
        ("5.", "5"),
        ("5/", "5"),
        ("5/.", "5"),
        ("x=k=5", "5"),  # normalized twice
    ],
)
def test_text_around_an_extracted_answer_is_removed(answer, expected):
    assert extract(rf"\boxed{{{answer}}}") == expected


def test_answers_keep_their_units_only_for_minerva():
    assert extract(r"\boxed{4 km}", "minerva_math") == "4km"
    assert extract(r"\boxed{4 km}", "gsm8k") == "4"
    assert extract(r"\boxed{4 km}") == "4"
    assert predict(r"\boxed{4 km}", "4km", "minerva_math") == "4km"


@rows("qwen_extract/letters")
def test_letters_are_extracted_if_the_gold_consists_of_letters(completion, gold, expected):
    assert predict(completion, gold) == expected
