r"""Synonyms become one notation; braces and brackets match; lists split outside brackets. No computer algebra."""

import time

import pytest
from rows import rows

from trl_ces.grading.notation import balanced, enclosed, split_top, tidy, unwrap


@rows("notation/synonyms")
def test_synonyms_are_rewritten_to_one_form(text, expected):
    assert tidy(text) == expected


@rows("notation/surroundings")
def test_surroundings_of_an_answer_are_removed(text, expected):
    assert tidy(text) == expected


@rows("notation/unwrapped")
def test_words_and_symbols_are_taken_out_of_their_wrappers(text, expected):
    assert unwrap(text) == expected


@pytest.mark.parametrize("text", ["", "x", "{x}", "{x}{y}", "{{x}}", r"\{", r"\}\{", r"\\{x}", "(", "]"])
def test_every_brace_is_closed(text):
    assert balanced(text)


@pytest.mark.parametrize("text", ["{", "}", "{x", "x}", "{{x}", "{x}}", "}{", "}x{", r"\\{x", r"{\}"])
def test_a_brace_is_not_closed_or_not_opened(text):
    assert not balanced(text)


@rows("notation/split")
def test_a_text_is_split_outside_its_brackets(text, separators, pieces):
    assert split_top(text, separators) == pieces


@rows("notation/enclosed")
def test_one_pair_of_brackets_holds_the_whole_text(text, expected):
    assert enclosed(text) == (expected and tuple(expected))


@pytest.mark.parametrize(
    "text",
    ["x\n" * 4000, "\n" * 9000 + "1", "," + "\n" * 9000 + "1", "x=1" + " \n " * 3000, "\\\\ \n" * 2000,
     r"\quad" * 1500, "x=1," + r"\quad " * 1400, " " * 9000 + "x", r"\text{" * 1500, r"\text{a" * 1500 + "}" * 1500],
    ids=str.__len__,
)  # fmt: skip
def test_long_texts_take_no_longer_than_their_length(text):
    start = time.process_time()
    unwrap(tidy(text))
    assert time.process_time() - start < 1.0  # 0.02 when written; a quadratic pattern took 3
