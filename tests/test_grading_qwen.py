"""The second verdict, rule by rule, on answers written for this test. Agreement in numbers: test_grading_oracle.py."""

import time

import pytest

from trl_ces.grading import Grade, WorkerPool, grade, grade_many, grader
from trl_ces.grading.qwen_equality import equal_as_script
from trl_ces.grading.qwen_extract import extract, predict, prepare_gold
from trl_ces.grading.qwen_normalise import normalise, number_words


@pytest.fixture(scope="module")
def pool():
    pool = WorkerPool(1)
    yield pool
    pool.close()


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("The final answer is $4$. I hope it is correct. \\boxed{5}", "4"),
        (r"\boxed{1} and \boxed{2}", "2"),
        (r"<think> \boxed{3}", "3"),
        (r"\boxed{\frac{1}{2}", r"\frac{1}{2}"),
        (r"\boxed{7", "7"),
        (r"\boxed 8$ and more", "8"),
        (r"$\boxed{9}$. The boxed value", "value"),
        ("The answer is 1. No, the answer is 12.", "12"),
        ("My final answer is 13/", "13"),
        ("答案是 14\n\n答案是 15", "14"),
        ("First 16, then -1,234.5 follows", "-1234.5"),
        ("(0,1)", "1"),
        ("no number", ""),
    ],
)
def test_the_first_rule_that_matches_finds_the_answer(response, expected):
    assert extract(response) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\dfrac12", r"\frac{1}{2}"),
        (r"\left(1,\,2\right)", r"(1,\,2)"),
        (r"x \leq 5 km", r"x\le5"),
        (r"\begin{bmatrix} 1 & 2 \end{bmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}"),
        (r"\begin{array}{cc} 1 \\ 2 \end{array}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"12\text{ cm}^2 and \text{ dollars}", "12"),
        (r"\text{yes}", "yes"),
        ("12 minutes", "12"),
        ("7 m/s", "7/"),
        ("b > a > c", ""),
        (r"e^{-a x}", "e^{-}"),
        (r"2 \times 3 \cup 4", r"2\times3\cup4"),
        (r"90^\circ", "90"),
        (r"90^{\circ}", "90"),
        (r"\$5\%", "5"),
        ("twenty-five", "25"),
        ("025", "25"),
        ("y = 2x", "2x"),
        ("3x-y=0", "3x-0"),
        (r"x\in[1,2)", "[1,2)"),
        ("k=5", "5"),
        ("abc=5", "abc=5"),
        (r"(-\infty, \infty)", r"\mathbb{R}"),
        (r"\emptyset", "{}"),
        ("4.00", "4"),
        (".5", "0.5"),
        ("inf", r"\infty"),
        (r"\mathbf{3} and 4", "{3}4"),
        ("3+2j", "3+2i"),
        (r"\sqrt3", r"\sqrt{3}"),
        ("-3 / 4", r"\frac{-3}{4}"),
        ("x/4", "x/4"),
        ("1" * 3000 + " cm", "1" * 3000 + "cm"),
    ],
)
def test_answers_are_rewritten_as_the_script_does(text, expected):
    assert normalise(text) == expected


def test_units_stay_where_they_are_kept():
    assert normalise("4 km", keep_units=True) == "4km"
    assert extract(r"\boxed{4 km}", "minerva_math") == "4km"
    assert extract(r"\boxed{4 km}", "gsm8k") == "4"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("two hundred five", 205), ("the answer is seven", 7), ("three thousand", 3000), ("12", 12), ("stone", None)],
)
def test_number_words_are_read_wherever_they_stand(text, expected):
    assert number_words(text) == expected


@pytest.mark.parametrize(
    ("gold", "benchmark", "expected"),
    [
        ("2 + 3 = 5\n#### 5", "gsm8k", "5"),
        (r"so \boxed{4 \mathrm{~km}}.", "minerva_math", r"4\mathrm{~km}"),
        ("10 km", "minerva_math", "10km"),
        ("10 km", "cmath", "10"),
        ("$x=3$", "gaokao2023en", "3"),
        ("1,471", "tabmwp", "1471"),
        ("1/4", "tabmwp", "0.25"),
        ("50%", "tabmwp", "0.5"),
        ("1/0", "tabmwp", r"\frac{1}{0}"),
        ("2:35 P.M.", "tabmwp", "2:35P.M"),
        ("1/4", None, r"\frac{1}{4}"),
        (r"\text{five}", None, "5"),
    ],
)
def test_golds_are_prepared_by_benchmark(gold, benchmark, expected):
    assert prepare_gold(gold, benchmark) == expected


@pytest.mark.parametrize(
    ("response", "gold", "expected"),
    [
        (r"\boxed{C}", "C", "C"),
        (r"Option B is out. \boxed{12}", "C", "B"),
        ("It is a sum, so 12", "C", "A"),
        ("The answer is D, not E.", "D", "D"),
        (r"The answer is \boxed{12}.", "D", r"\boxed{12}"),
        (r"\boxed{B and D}", "BD", "BD"),
        ("", "C", None),
    ],
)
def test_golds_of_letters_are_answered_by_letters(response, gold, expected):
    assert predict(response, gold) == expected


VERDICTS = [
    # gold, boxed answer, expected
    ("5", "5", True),
    ("Yes", "yes", True),
    ("5", "500", True),
    ("5", "0.05", True),
    ("5", "50", False),
    ("10000", "10000.9", True),
    ("10000", "10002", False),
    ("1,234", "1234", True),
    ("1234", "1{,}234", False),
    ("5", "", False),
    ("", "", True),
    ("", "5", False),
    (r"\emptyset", "", False),
    ("5;10", "5;10", True),
    ("5;10", "10;5", False),
    ("(0,2)", "[0,2]", True),
    ("(0,2)", "(2,0)", False),
    ("(0,2)", "(0,2,3)", False),
    (r"(\frac{1}{2},1)", "(0.5,1)", True),
    ("1,2;3", "(1,2;3)", True),
    ("1, x", "x, 1", False),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{bmatrix}1.0\\2\end{bmatrix}", True),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}2\\1\end{pmatrix}", False),
    ("x^2+50=0", "-x^2-50=0", True),
    ("x^2+50=0", "x^2-50=0", False),
    ("x^2+50=0", "0=x^2+50", False),  # the short left side has been dropped
    ("x^2+50=0", "-50=x^2", True),
    ("q=n+1", "n+1", True),
    ("n+1", "q=1+n", True),
    ("5", "f(2)=5", False),
    (r"\sqrt{2}", r"\frac{2}{\sqrt{2}}", True),
    (r"\sqrt{2}", "1.4142", True),
    (r"\sqrt{2}", "1.42", False),
    (r"\frac{5}{4}", r"1\frac{1}{4}", False),
    ("(x-1)(x+1)", "x^2-1", True),
    ("(x-1)(x+1)", "x^2+1", False),
    ("(x+y)^7(x-y)^3", "(x^2-y^2)^3(x+y)^4", True),
    (r"\frac{\sin(6x)}{2}", r"\sin(3x)\cos(3x)", True),
    ("n+1,n", "n+1,n+2", True),  # sympy's parser stops at the comma
    (r"(-\infty,0)\cup(1,2)", r"(1,2)\cup(-\infty,0)", False),
]


@pytest.mark.parametrize(("gold", "answer", "expected"), VERDICTS)
def test_the_second_verdict_is_the_scripts_also_where_the_script_errs(gold, answer, expected, pool):
    assert grade(rf"\boxed{{{answer}}}", gold, pool=pool).correct_qwen is expected


def test_the_two_verdicts_differ_where_the_script_errs(pool):
    responses = [r"\boxed{500}", r"\boxed{[0,2]}", "<think> \\boxed{5}", r"\boxed{f(2)=5}", r"\boxed{}"]
    grades = grade_many(responses, ["5", "(0,2)", "5", "5", ""], pool=pool)
    assert [(g.correct, g.correct_qwen) for g in grades] == [
        (False, True),
        (False, True),
        (False, True),
        (True, False),
        (None, True),
    ]


def test_an_empty_response_is_wrong_even_for_an_empty_gold(pool):
    assert [g.correct_qwen for g in grade_many(["", ""], ["5", ""], pool=pool)] == [False, False]


def test_benchmarks_change_the_second_verdict_alone(pool):
    grades = grade_many([r"\boxed{10 km}"] * 2, ["10", "10"], ["minerva_math", "cmath"], pool=pool)
    assert [(g.correct, g.correct_qwen) for g in grades] == [(True, False), (True, True)]


def test_who_does_not_ask_for_the_second_verdict_does_not_pay_for_it(pool, monkeypatch):
    monkeypatch.setattr(grader, "predict", lambda *_: pytest.fail("extracted for the script"))
    assert grade(r"\boxed{\sqrt{8}}", r"2\sqrt{2}", with_qwen=False, pool=pool) == Grade(
        correct=True, answer=r"\sqrt{8}", correct_qwen=None
    )


def test_an_antlr_that_cannot_read_the_parser_is_named_before_grading(monkeypatch):
    monkeypatch.setattr(grader, "parser_problem", lambda: "correct_qwen needs antlr4-python3-runtime 4.11 to 4.13")
    with pytest.raises(RuntimeError, match="needs antlr4-python3-runtime"):
        grade("5", "5")
    assert grade(r"\boxed{5}", "5", with_qwen=False).correct is True


MONSTERS = ["9^{9^{9^{9^9}}}", "1" * 100_000, "(" * 3000, "{" * 59 + "x" + "}" * 59, "1e999999999", "(x+y)^{99999}"]


@pytest.mark.parametrize("monster", MONSTERS)
def test_a_monster_costs_two_limits_at_most_and_is_wrong(monster, pool):
    grade(r"\boxed{\sqrt{8}}", r"2\sqrt{2}", pool=pool)  # the worker is started, which takes seconds of its own
    start = time.monotonic()
    graded = grade(rf"\boxed{{{monster}}}", r"42\pi+\sqrt{x}", limit_s=1.0, pool=pool)
    assert time.monotonic() - start < 2 * 1.0 + 1.5
    assert (graded.correct, graded.correct_qwen) == (False, False)
    assert grade(r"\boxed{\sqrt{8}}", r"2\sqrt{2}", pool=pool).correct_qwen is True


def test_code_in_an_answer_is_never_run(pool, tmp_path):
    target = tmp_path / "made"
    grade(rf"\boxed{{__import__('pathlib').Path('{target}').touch()}}", "x+1", pool=pool)
    assert not target.exists()


def test_structure_is_compared_without_algebra_where_numbers_decide():
    def no_engine(gold, answer):
        pytest.fail(f"algebra for {gold!r} and {answer!r}")

    assert equal_as_script("(1,2)", "[1.0,2]", no_engine) is True
    assert equal_as_script("5", "6", no_engine) is False
    assert equal_as_script("q=5", "5", no_engine) is True
    assert equal_as_script("5", None, no_engine) is False


def test_a_sympy_without_that_parser_is_told():
    reply = {"status": "error", "error": "ImportError: No module named 'sympy.parsing.latex._antlr'"}
    with pytest.raises(RuntimeError, match=r"cannot be given with the installed sympy .* `with_qwen=False`"):
        grader._verdict(("equal_as_script", "1", "2"), reply)
