"""Test synonyms, matching braces and brackets, and splitting at separators, without computer algebra."""

import time

import pytest
from rows import rows

from trl_ces.grading.notation import enclosed, is_balanced, split_top, tidy, unwrap


@rows("notation/synonyms")
def test_synonyms_are_rewritten_to_a_canonical_form(text, expected):
    assert tidy(text) == expected


@rows("notation/surroundings")
def test_text_around_an_answer_is_removed(text, expected):
    assert tidy(text) == expected


@rows("notation/unwrapped")
def test_wrappers_around_words_and_symbols_are_removed(text, expected):
    assert unwrap(text) == expected


@pytest.mark.parametrize("text", ["", "x", "{x}", "{x}{y}", "{{x}}", r"\{", r"\}\{", r"\\{x}", "(", "]"])
def test_balanced_braces_are_accepted(text):
    assert is_balanced(text)


@pytest.mark.parametrize("text", ["{", "}", "{x", "x}", "{{x}", "{x}}", "}{", "}x{", r"\\{x", r"{\}"])
def test_unbalanced_braces_are_detected(text):
    assert not is_balanced(text)


@rows("notation/split")
def test_texts_are_split_only_outside_brackets(text, separators, pieces):
    assert split_top(text, separators) == pieces


@rows("notation/enclosed")
def test_enclosing_brackets_are_found(text, expected):
    assert enclosed(text) == (expected and tuple(expected))


@pytest.mark.parametrize(
    "text",
    ["x\n" * 4000, "\n" * 9000 + "1", "," + "\n" * 9000 + "1", "x=1" + " \n " * 3000, "\\\\ \n" * 2000,
     r"\quad" * 1500, "x=1," + r"\quad " * 1400, " " * 9000 + "x", r"\text{" * 1500, r"\text{a" * 1500 + "}" * 1500],
    ids=str.__len__,
)  # fmt: skip
def test_long_texts_take_linear_time(text):
    start = time.process_time()
    unwrap(tidy(text))
    assert time.process_time() - start < 1.0  # about 0.02 s; a quadratic pattern would take 3 s
