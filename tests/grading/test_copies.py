import logging

import pytest

from trl_ces import rewards
from trl_ces.grading import grade, grade_many
from trl_ces.rewards import accuracy_reward

# question, gold, copies that have the gold's value
COPIED = [
    (r"Compute $\dfrac{1}{2} + \dfrac13$.", r"\frac{5}{6}", [r"\frac12+\frac13", r"\frac{1}{2} + \frac{1}{3} + 0"]),
    (r"Simplify $(x+1)(x-1)$.", "x^2-1", ["(x+1)(x-1)", "((x+1)(x-1))", r"(x+1)\cdot(x-1)", r"1\cdot(x+1)(x-1)"]),
    (r"Find $\sqrt{16} \cdot 3$.", "12", [r"\sqrt{16}\times 3", r"\sqrt{16} \cdot 3 + 0", r"\sqrt{16}\cdot 3/1"]),
    (r"Solve $2x + 3 = y$ for $x$.", r"x=\frac{y-3}{2}", ["2x+3=y", "y = 2x + 3"]),
    (r"Find $\gcd(252, 198)$.", "18", [r"\gcd(198,54)"]),
    (r"Evaluate $\sum_{k=1}^{4} k$.", "10", [r"\sum_{k=1}^4 k", r"\sum\limits_{j=1}^{4} j", r"\sum_{k=1}^{4} (5-k)"]),
    (r"Simplify $\sqrt{50}+\sqrt{18}$.", r"8\sqrt{2}", [r"\left(\sqrt{18}\right)+\left(\sqrt{50}\right)"]),
    (r"Factor $6x^2-7x-3$.", "(3x+1)(2x-3)", ["-3-7x+6x^2", "6x^2 - 7x - 3"]),
    (r"Rationalize $\frac{1}{2+\sqrt3}$.", r"2-\sqrt{3}", [r"\dfrac{1}{\sqrt{3}+2}"]),
    (r"Write $0.\overline{73}$ as a fraction.", r"\frac{73}{99}", [r"0.\overline{73}"]),
    (r"Solve $|2x-3|<7$.", "(-2,5)", [r"|2x-3|<7", r"\{x : |2x-3| < 7\}"]),
    (r"Write \[\frac{4}{8}\] in lowest terms.", r"\frac{1}{2}", [r"\frac48", "4/8"]),
    (
        "Which matrix is it?",
        r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
        [r"\begin{pmatrix}1&2\\3&4\end{pmatrix}\begin{pmatrix}1&0\\0&1\end{pmatrix}"],
    ),
    (r"What is $|3 - 8|$ plus $2^3$?", "13", ["|3-8|+2^3", "5+8", r"\sqrt{169}"]),
    ("Solve $x - 5 = 3$.", "x = 8", ["x = 5 + 3", "3 + 5"]),
    ("How long are 3 ropes of 5 cm?", r"15\text{ cm}", [r"3 \cdot 5\text{ cm}"]),
]
# question, gold, answers that are right
RIGHT = [
    (r"Compute $\dfrac{1}{2} + \dfrac13$.", r"\frac{5}{6}", [r"\frac56", "5/6", r"0.8\overline{3}"]),
    (r"Is $4/7$ the larger one of $4/7$ and $1/2$? Give the larger one.", r"\frac{4}{7}", ["4/7", r"\dfrac{4}{7}"]),
    (r"Which of $2\sqrt{3}$ and $\sqrt{10}$ is larger?", r"2\sqrt{3}", [r"2\sqrt{3}", r"2 \sqrt 3"]),
    (r"Simplify $(x+1)(x-1)$.", "x^2-1", ["x^2-1", "-1+x^2", "x^{2} - 1"]),
    ("A jar holds 3 marbles and 4 more.", "7", ["7", "7.0", r"x = 7", r"7 \text{ marbles}"]),
    (r"Solve $x + 3 = 5$.", "2", ["2", "x=2", "x = 5 - 3 = 2"]),
    (r"Let $f(x) = x^2$ and $x = -3$. Find $f(x)$.", "9", ["9", "f(x) = 9"]),
    ("Which constant is $C$ in the integral of $2x$?", "x^2+C", ["x^2 + C", "C + x^2"]),
    (r"Find $\sqrt{16} \cdot 3$.", "12", ["12", r"\sqrt{16} \cdot 3 = 12"]),
    ("Which line is it?", "2x+y=4", ["y=-2x+4"]),
    (r"For which $x$ is $x^2 \le 4$?", "[-2,2]", ["[-2, 2]", r"-2 \le x \le 2"]),
]


def boxed(answers):
    return [rf"\boxed{{{answer}}}" for answer in answers]


@pytest.mark.parametrize(("question", "gold", "copies"), COPIED)
def test_a_copy_is_right_by_value_and_wrong_where_the_question_is_known(question, gold, copies):
    assert accuracy_reward(boxed(copies), [gold] * len(copies)) == [1.0] * len(copies)
    assert accuracy_reward(boxed(copies), [gold] * len(copies), prompts=[question] * len(copies)) == [0.0] * len(
        copies
    )


@pytest.mark.parametrize(("question", "gold", "answers"), RIGHT)
def test_an_answer_stays_right_though_the_question_is_known(question, gold, answers):
    assert accuracy_reward(boxed(answers), [gold] * len(answers), prompts=[question] * len(answers)) == [1.0] * len(
        answers
    )


def test_the_verdict_of_the_evaluation_script_does_not_depend_on_the_question():
    question, gold, [copied, *_] = COPIED[1]
    for asked in (None, question):
        assert grade(rf"\boxed{{{copied}}}", gold, question=asked).correct_qwen


def test_a_copy_of_a_neighbours_question_is_no_copy():
    golds, questions = ["12", "12"], [r"Find $\frac{24}{2}$.", "How many months has a year?"]
    answers = boxed([r"\frac{24}{2}", r"\frac{24}{2}"])
    assert [graded.correct for graded in grade_many(answers, golds, questions=questions)] == [False, True]


def test_that_copies_count_without_prompts_is_said_once(caplog):
    rewards._warn_once.cache_clear()
    with caplog.at_level(logging.WARNING, logger="trl_ces.rewards"):
        accuracy_reward([r"\boxed{1}"], ["1"], prompts=["One?"])
        assert not caplog.records
        accuracy_reward([r"\boxed{1}"], ["1"])
        accuracy_reward([r"\boxed{2}"], ["2"])
    assert len(caplog.records) == 1


@pytest.mark.parametrize("answer", ["", "=", "==", "{}", "()", "+", "|", r"\{:\}", ","])
def test_an_answer_that_says_nothing_is_wrong_and_breaks_nothing(answer):
    assert accuracy_reward([rf"\boxed{{{answer}}}"], ["5"], prompts=["What is $2 + 3$?"]) == [0.0]
