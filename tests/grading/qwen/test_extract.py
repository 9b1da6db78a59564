"""Extraction in the second verdict: the rules of docs/evaluation.md on texts written for this test."""

import pytest

from trl_ces.grading.qwen.extract import extract, predict, prepare_gold


@pytest.mark.parametrize(
    ("gold", "benchmark", "expected"),
    [
        ("2 + 3 = 5\n#### 5", "gsm8k", "5"),
        ("#### 4\n#### 5", "gsm8k", "5"),
        ("2 + 3 = 5\n#### 5", None, "2+3=5####5"),  # only for benchmarks that write golds that way
        (r"so \boxed{4 \mathrm{~km}}.", "minerva_math", r"4\mathrm{~km}"),
        ("10 km", "minerva_math", "10km"),
        ("The answer is 10 km", "minerva_math", "Theansweris10km"),  # no box: the gold unchanged
        ("10 km", "cmath", "10"),
        ("10 km", None, "10"),
        ("x=k=3", None, "3"),  # normalised twice: x=, then k=
        ("$ab$", "college_math", "ab"),
        (r"$5 \text{ dollars}$", "college_math", "5"),
        (r"$5 \text{ dollars}$", None, "5dollars"),  # with the $ that text is not at the end
        ("$x=3$", "gaokao2023en", "3"),
        ("$$3$$", "gaokao_math_cloze", "3"),
        (" $3$ ", "olympiadbench", "3"),
        ("1,471", "tabmwp", "1471"),
        ("-1.50", "tabmwp", "-1.5"),
        ("3.0", "tabmwp", "3"),
        ("1/4", "tabmwp", "0.25"),
        ("1,000/8", "tabmwp", "125"),
        ("50%", "tabmwp", "0.5"),
        ("1/0", "tabmwp", r"\frac{1}{0}"),
        ("1/4", None, r"\frac{1}{4}"),
        ("2:35 P.M.", "tabmwp", "2:35P.M"),
        (r"\text{five}", None, "5"),
        ("$", None, ""),
    ],
)
def test_golds_are_prepared_by_benchmark(gold, benchmark, expected):
    assert prepare_gold(gold, benchmark) == expected


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        # between "final answer is $" and "$. I hope"
        ("The final answer is $4$. I hope it is correct. \\boxed{5}", "4"),
        (r"$. I hope 3. The final answer is $4+\boxed{5}$. I hope 6$. I hope 7", r"4+\boxed{5}"),
        (r"The final answer is $4$ and \boxed{5}", "5"),
        (r"The answer: $4$. I hope it is \boxed{5}", "5"),
        # the last box
        (r"\boxed{1} and \boxed{2}", "2"),
        (r"<think> \boxed{3}", "3"),
        (r"The answer is 4, as \boxed{3}", "3"),
        (r"\boxed{\frac{1}{2}} for {x}", r"\frac{1}{2}"),
        (r"\boxed{{7}+{8}} 9}", "{7}+{8}"),
        (r"\boxed{\frac{1}{2}", r"\frac{1}{2}"),
        (r"\boxed{7", "7"),
        (r"\boxed{70 and 8", "708"),
        (r"\boxed{} or 9", ""),
        (r"\boxed 8$ and more", "8"),
        (r"\boxed 8", "8"),
        (r"$\boxed{9}$. The boxed value", "value"),
        ("9 is boxed", ""),
        # the last statement
        ("The answer is 1. No, the answer is 12.", "12"),
        ("My final answer is 13/", "13"),
        ("The answer is 5, my final answer is 13", "5,myfinalansweris13"),
        # the first Chinese statement, to a blank line
        ("答案是 14\n\n答案是 15", "14"),
        ("答案是 14\n答案是 15", "14答案是15"),
        ("共 3 个, 答案是\n\n14", "14"),
        # the last number
        ("First 16, then 17 and -1,234.5 follows", "-1234.5"),
        ("(0,1)", "1"),
        ("no number", ""),
        ("", ""),
    ],
)
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


@pytest.mark.parametrize(
    ("response", "gold", "expected"),
    [
        (r"\boxed{12}", "5", "12"),
        (r"\boxed{12 and A}", "F", "12A"),  # not a choice letter
        ("", "5", None),
        ("", "C", None),
        (r"\boxed{C}", "C", "C"),
        (r"\boxed{D}", "C", "D"),
        # The last standalone letter of the response, or the first after the last "answer is" or "choice is".
        (r"Options A, E and B are out, not D. \boxed{12}", "C", "D"),
        (r"Options A, E and b are out. \boxed{12}", "C", "B"),
        ("It is a sum, so 12", "C", "A"),
        ("A. The answer is D, not E or C.", "D", "D"),
        ("A answer is B, the choice is C, the Answer is: D or E or A", "D", "D"),
        # No letter: the rest after the statement.
        (r"The answer is \boxed{12}.", "D", r"\boxed{12}"),
        ("The answer is 12/.", "D", "12"),
        ("12.", "D", "12"),
        # Golds of several letters keep only letters of the answer.
        (r"\boxed{B and D}", "BD", "BD"),
        (r"\boxed{A, B, F, 7}", "ABC", "AB"),
        (r"\boxed{12}", "BD", ""),
    ],
)
def test_golds_of_letters_are_answered_by_letters(response, gold, expected):
    assert predict(response, gold) == expected
