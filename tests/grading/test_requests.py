"""Test the requests to a grading worker in the test process."""

import pytest
from rows import rows

from trl_ces.grading.qwen import equality
from trl_ces.grading.worker import load_algebra


@pytest.fixture(scope="module")
def answer_request():
    return load_algebra()


@pytest.mark.parametrize(
    ("gold", "answer", "correct", "script"),
    [
        (r"\sqrt{8}", r"2\sqrt{2}", True, True),
        (r"\sqrt{8}", r"2\sqrt{3}", False, False),
        ("5", "500", False, True),  # the script also accepts 100 times the number
        ("5", "f(2)=5", True, False),
    ],
)
def test_answers_are_compared_by_our_rules_and_by_the_script(answer_request, gold, answer, correct, script):
    assert answer_request({"op": "equal", "gold": gold, "answer": answer}) is correct
    assert answer_request({"op": "equal_as_script", "gold": gold, "answer": answer}) is script


def test_only_comparisons_for_correct_qwen_raise_without_the_parser(monkeypatch):
    monkeypatch.setattr(equality, "parser_problem", lambda: "No module named 'sympy.parsing.latex._antlr'")
    answer_request = load_algebra()
    pair = {"gold": r"\sqrt{8}", "answer": r"2\sqrt{2}"}
    assert answer_request({"op": "equal", **pair}) is True
    with pytest.raises(ImportError, match="_antlr"):
        answer_request({"op": "equal_as_script", **pair})


@rows("requests/usable")
def test_a_gold_is_usable_if_all_its_values_can_be_parsed(answer_request, gold, usable):
    assert answer_request({"op": "usable", "gold": gold}) is usable
