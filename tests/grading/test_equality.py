"""The rules of equality one by one. The algebra is a plain function here."""

import pytest
from answers_to import answers_to

from trl_ces.grading.equality import count_values, equal, listed_values, tuple_values, union_parts
from trl_ces.support.limits import MAX_ITEMS, MAX_LENGTH, MAX_NESTING

REALS_BUT_ONE_TO_TWO = r"(-\infty,1)\cup(2,\infty)"


def no_algebra(gold, answer):
    pytest.fail(f"algebra for {gold!r} and {answer!r}")


def algebra(*known):
    """Stands in for the algebra: finds these pairs equal, and no others."""
    return lambda gold, answer: (gold, answer) in known


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("x^{12}", "x^{1}2"),
        ("x^{ab}", "x^{a}b"),
        (r"\sqrt{ab}", r"\sqrt{a}b"),
        (r"\frac{11}{x}", r"\frac{1}{1x}"),
        (r"\binom{11}{2}", r"\binom{1}{12}"),
        ("a_{12}", "a_{1}2"),
    ],
)
def test_braces_that_hold_more_than_a_sign_are_part_of_the_spelling(gold, answer):
    assert equal(gold, answer, algebra()) is False
    assert equal(gold, answer, algebra((gold, answer))) is True


@pytest.mark.parametrize(
    ("gold", "answer"),
    [("x^{2}", "x^2"), ("x_{1}+{y}", "x_1+y"), (r"\frac{a}{b}", r"\frac ab"), ("x^{2}{}", "x^2"), ("yes", "{yes}")],
)
def test_braces_that_hold_a_sign_or_nothing_are_not(gold, answer):
    assert equal(gold, answer, no_algebra) is True


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    answers_to(
        [
            # text
            ("x+1", [" x + 1"], []),
            ("5}", ["5 }"], []),
            ("12 345", ["12345"], []),
            ("3  4", ["3\n4"], []),
            ("5", [], ["5}"]),
            (r"\dfrac{1}{2}x", [r"$\frac{1}{2} x$"], []),
            ("0", [], ["{}"]),
            ("{}", [], ["0"]),
            (r"\text{}", [], ["{}"]),
            ("", [], [r"\text{}"]),  # nothing is not an answer, however it is written
            # words
            (r"\text{Evelyn}", ["evelyn"], []),
            ("Evelyn", [], ["Brendan", "7"]),
            ("7", [], ["7 million"]),
            ("yes", [r"\text{yes.}"], []),
            ("no", [], ["on"]),
            ("IV", [], ["VI"]),
            ("2:35 P.M.", ["2:35 p.m."], ["2:35 A.M."]),
            ("5am", [], ["5pm"]),
            # choices
            ("A", ["a", "(A)", "A. 12", "A. Angle B", "A. x>3, y<2", "x=a"], ["B", "AB", "not A", "a dog", "B. A"]),
            ("A", [], ["(A), (B)", "(A), (B), (C), (D)", "A) or B", "A. B. C", r"A. \text{ or } B", "1", "2+2=A"]),
            (r"\textbf{A}", ["a"], []),
            ("K", ["k"], []),
            ("C", [], ["C) 5, D) 6"]),
            ("B", ["B: y=5"], []),
            ("ABC", ["(C), (A), (B)"], ["A, C"]),
            # numbers
            (r"\frac12", ["0.5", r"\dfrac{2}{4}"], []),
            ("5", ["x=5", "m+n = 5"], ["6", "x=-5"]),
            ("50", [], ["0.5"]),
            ("0.5", [], [r"50\%"]),
            ("1,234", ["1234"], []),
            ("1234", ["1,234", "x = 1,234"], []),
            ("1/3", ["0.333333"], ["0.333334"]),
            ("0.333333", ["1/3"], []),
            ("246913/2000000", ["0.123457"], ["0.123458"]),
            ("1/3", [], ["0.33333"]),  # five digits
            ("0.3333333", [], ["0.333333"]),  # two decimals are exact
            ("246913/2000000", ["0.123456"], []),  # 0.1234565 lies halfway between the two
            # units
            ("7", [r"7\text{ cm}"], []),
            (r"7\text{ cm}", ["7"], [r"7\text{ m}"]),
            (r"2\pi\text{ cm}", [], [r"2\pi\text{ m}"]),
            (r"2\pi\text{ meters}", [r"2\pi"], []),
            (r"2\pi", [r"2\pi\text{ meters}"], []),
            (r"\text{about }2\text{ km}", [r"\text{about }2"], [r"\text{about }2\text{ m}"]),
            (r"60^\circ", [r"60\text{ degrees}"], [r"60\text{ cm}"]),
            (r"40\text{ seconds}", ["40s"], []),
            # bases
            ("1011_2", ["1011_{2}", r"(1011)_{\text{two}}", r"1011 \text{ (base 2)}", "1011"], ["1011_3"]),
            ("1011_2", [], ["1011_{10}", "1010_2"]),
            ("36", ["36_{10}"], ["-36_{10}", "36_{16}", "36_8"]),
            ("-36", [], ["-36_{16}"]),
            # lists and sets
            ("5;10", ["5, 10"], ["10;5", "5;11", "5"]),
            ("5", [], ["5;10"]),
            ("1,-1", ["-1, 1", r"\pm 1"], ["1", "1,1"]),
            (r"\pm 1", ["-1, 1"], []),
            ("1", [r"\{1\}"], ["1,-1"]),
            ("1,1", [], ["1,-1"]),
            ("16,3,1,1", ["1,3,16,1"], ["16,3,3,1"]),
            ("100,200", [], ["200,101"]),
            (r"\{1,2\}", ["2,1"], [r"\{\{1\},2\}"]),
            (r"\{5;10\}", ["10;5"], []),
            (r"\{1\}", ["1"], [r"\{2\}"]),
            (r"1,2,\ldots", [r"2,1,\ldots"], []),
            ("1,2", ["1 or 2"], ["1,2,..."]),
            ("1/3", [r"0.333\ldots"], []),
            ("100,200", ["200,100"], []),  # each could be one number with a thousands separator
            # tuples and intervals
            ("[0,2]", [r"\left[0, \frac{4}{2}\right]"], []),
            ("(0,1)", ["(0,2/2)", "P=(0,1.0)", "(0,1.0)=P"], ["(1,0)", "(0,2)", "[0,1)", "(0,1]", "(0,1,2)", "0,1"]),
            ("(0,1)", [], ["01", "2+2=(0,1)"]),
            ("01", [], ["(0,1)"]),
            ("(1,2),(3,4)", ["(3,4),(1,2)"], ["(3,2),(1,4)"]),
            ("P=(0,1)", ["(0,1.0)"], []),
            ("x=1", [], ["(0,1)"]),
            (r"x\in[1,2)", ["[1,4/2)"], []),
            ("(2,5)", [r"x>2 \land x<5"], ["x<5 or x>2"]),
            ("[2,5)", [r"x \geq 2 \text{ and } x<5"], []),
            ("(-3,5]", [r"x>-3 \text{ and } x \leq 5"], []),
            (r"-1<x \leqslant 1:(-1,1]", ["(-1, 1.0]"], []),
            (r"\{x \mid x>2\}", ["x > 2"], []),
            ("(a,b)", [], ["(a,b)="]),  # a truncated statement
            # unions
            (r"(-\infty,0)\cup(0,1]", [r"(0,1]\cup(-\infty,0)"], []),
            (r"(-\infty,1)\cup(2,\infty)", [], ["x<1 or x^2>9", "x<1 or y>2", r"x<1 \land x>2"]),
            (r"(-\infty,1)\cup\{2\}", [], ["x<1 or x>2"]),
            (r"(-\infty,2)\cup(2,\infty)", ["x<2 or x>2"], []),
            (r"(-\infty,1)\cup(2,3)\cup(4,\infty)", ["x<1 or 2<x<3 or x>4"], []),
            (r"(-\infty,\sqrt{2})\cup(5,\infty)", [r"x<\sqrt{2} or x>5"], []),
            (r"(-\infty,1)\cup(\sqrt{2},\infty)", [r"x<1 or x>\sqrt{2}"], []),
            # statements
            ("x=5", ["5", "x=5.0"], []),
            ("x=2+3=5", ["x=5.0"], []),
            ("x^2+50=0", [], ["0"]),
            ("P(X=4)=5/8", ["5/8"], []),
            (r"\frac{40}{3} \approx 13.33", ["13.33", "40/3"], ["13.3"]),
            (r"\sqrt{2}", [r"m+n = \sqrt{2}", r"\sqrt{2} = x"], []),
            ("y", ["x = y"], []),
            # values of different names are ordered
            ("x=1, y=2", ["1, 2"], ["2, 1", "x=1 or y=2"]),
            ("x=1, x=2", ["2, 1"], []),
            ("[x=1, y=2]", ["(x,y)=(1,2)", "(1,2)", "y=2, x=1"], ["(2,1)"]),
            ("(1,2)", ["y=2, x=1", r"a=1, \beta=2"], ["x=2, y=1", "x=1, x=2", "x=1=1.0, y=2"]),
        ]
    ),
)
def test_most_pairs_are_decided_without_algebra(gold, answer, expected):
    assert equal(gold, answer, no_algebra) is expected


@pytest.mark.parametrize(
    ("gold", "answer", "question"),
    [
        (r"\sqrt{2}", r"$\dfrac{2}{\sqrt{2}}$", (r"\sqrt{2}", r"\frac{2}{\sqrt{2}}")),
        (r"\sqrt{4}", "2", (r"\sqrt{4}", "2")),
        ("2", r"\sqrt{4}", ("2", r"\sqrt{4}")),
        ("2x", "2X", ("2x", "2X")),
        ("L", "l", ("L", "l")),  # the last choice is K
        (r"\mathbf{u}+1", "1+u", ("u+1", "1+u")),
        (r"2\pi", r"\pi+\pi\text{ cm}", (r"2\pi", r"\pi+\pi")),
        (r"[2,\infty)", r"x \geq 2", (r"[2,\infty)", r"x \geq 2")),
        (r"x \geq 2", r"[2,\infty)", (r"x \geq 2", r"[2,\infty)")),
        ("x > 2", r"D = (2,\infty)", ("x > 2", r"(2,\infty)")),
        ("x > 2", "y = x > 2", ("x > 2", "y = x > 2")),  # a chain of relations counts as one
        ("(0,2)", r"(0,1]\cup(1,2)", ("(0,2)", r"(0,1]\cup(1,2)")),
        (r"(0,1]\cup(1,2)", "(0,2)", (r"(0,1]\cup(1,2)", "(0,2)")),
        ("x<1 or x>2", "(1,2)", (r"(-\infty,1)\cup (2,\infty)", "(1,2)")),
        ("5", "=", ("5", "=")),  # no sides at all
    ],
)
@pytest.mark.parametrize("verdict", [True, False])
def test_the_rest_is_one_question_to_the_engine_whose_verdict_it_is(gold, answer, question, verdict):
    asked = []
    assert equal(gold, answer, lambda *pair: asked.append(pair) or verdict) is verdict
    assert asked == [question]


ROOT_OF_8 = (r"\sqrt{8}", r"2\sqrt{2}")


@pytest.mark.parametrize(
    ("gold", "answer", "known", "expected"),
    [
        (r"\sqrt{8}, 1", r"1, 2\sqrt{2}", [ROOT_OF_8], True),
        (r"(\sqrt{8},1)", r"(2\sqrt{2},1)", [ROOT_OF_8], True),
        (r"(0,1)\cup(1,\sqrt{8})", r"(1,2\sqrt{2})\cup(0,1)", [ROOT_OF_8], True),
        (REALS_BUT_ONE_TO_TWO, "x<1 or x>2", [], True),
        (REALS_BUT_ONE_TO_TWO, "x>2 or 1>x", [], True),
        ("x<1 or x>2", r"(2,\infty)\cup(-\infty,1)", [], True),
        (REALS_BUT_ONE_TO_TWO, r"x \leq 1 or x>2", [], False),
        # a chain gives its last side if those in between are equal to it
        ("1234", "x = 1230+4 = 1,234", [("1234", "1230+4")], True),
        ("x=5", "x=2+3=5.0", [("5", "2+3")], True),
        (r"\sqrt{2}", r"x = \frac{2}{\sqrt{2}} = \sqrt{2}", [(r"\sqrt{2}", r"\frac{2}{\sqrt{2}}")], True),
        ("2^5", "x = 1+1 = 2^5", [], False),
        ("2^5", "1+1 = 2^5", [], False),
        ("5", "2+2=5", [], False),
        ("5", "2+3=5", [("2+3", "5"), ("5", "2+3")], True),
        ("6", "2+3=5", [("2+3", "5")], False),
        ("5", r"\frac{14}{2}=5", [], False),
        ("5", r"\frac{14}{2} \approx 5.0", [], False),
        ("4.67", r"\frac{14}{3} \approx 4.67", [], True),
        ("4.67", r"\frac{14}{3} \approx 4.7", [], False),
        (r"\frac{14}{3}", r"\frac{14}{3} \approx 4.68", [], False),
        (r"\frac{149}{30}", r"\frac{149}{30} \approx 5", [], False),
        (r"\frac{1}{8}", r"\frac{1}{8} \approx 0.13", [], True),
        ("5", r"\frac{149}{30} \approx 5.0", [], False),
        (r"\frac{14}{3}", r"\frac{14}{3} \approx 4.67", [], True),
        (r"\pi", r"A = \pi r^2 = \pi", [], True),
        ("x=5", "x=6=5", [], False),
        ("x=5", "x=5=6", [], False),
        ("y=2x", "y=2x=3x", [], False),
        ("y=2x", "y=3x=2x", [], False),
        ("5", r"x=\frac{14}{2}=5", [], False),
        ("x=2+3=5", "x=4+1=5.0", [("5", "4+1")], True),
        ("5", "x=6=5", [], False),
        ("(1,2)", "P=(3,4)=(1,2)", [], False),
        ("(1,2)", "P=(1,2)", [], True),
        # one value if one is asked for
        ("5", "x=-1 or x=5", [], False),
        ("5", "x=1, y=5", [], False),
        ("5", "x=6;y=5", [], False),
        ("5", r"x=6 \quad y=5", [], False),
        ("5", r"x=6 \vee x=5", [], False),
        ("5", r"x=6\\y=5", [], False),
        ("5", "x<6=5", [], False),
        ("5", "a<b=5", [], False),
        ("5", "2x=5", [], False),
        ("5", "2+3=5=6", [("2+3", "5"), ("5", "2+3")], False),
        ("x=1 or y=2", "y=2 or x=1", [], True),
        ("x^2-7=0", "x=x", [("x^2-7=0", "x=x")], False),
        ("x=5", "x=y", [], False),
        ("x=5", "x=5=y", [], False),
        ("x=5", "5.0=x", [], True),
        ("x=5", "5=2+2=x", [], False),
        ("40", "40s", [], False),
        (r"40\text{ seconds}", "40m", [], False),
        ("(2,5)", "x<5, 2<x<3", [], False),
        ("(2,5)", "1<x<5, x>2", [], False),
        ("18/25", "18:25", [("18/25", "18:25")], True),
        ("18/25", "18:25:1", [("18/25", "18:25:1")], False),
        ("5", r"x \neq 5", [], False),
        ("5", "x,y=5", [], False),
        (r"\frac{1}{2}", r"x=3, x=\frac12", [], False),
        ("(5,\\infty)", r"x>6=(5,\infty)", [], False),
        (r"y=x\quad y=-x", r"y=7x\quad y=-x", [], False),
        (
            r"(-\infty,1)\cup(2,3)",
            r"(2,3)\cup[-\infty,1)",
            [(r"(-\infty,1)\cup(2,3)", r"(2,3)\cup[-\infty,1)")],
            False,
        ),
        (r"(1,2)\cup(3,\infty)", r"(1,2)\cup(3,\infty]", [(r"(1,2)\cup(3,\infty)", r"(1,2)\cup(3,\infty]")], False),
        (r"(1,3)\cup(2,4)", "(1,4)", [(r"(1,3)\cup(2,4)", "(1,4)")], True),  # what the algebra says of other unions
        (r"y=x\quad y=-x", "y=-x, y=x", [], True),
        (r"\frac{1}{3}", r"\frac13 \approx 0.333", [], True),
        ("0.333", r"\frac13 \approx 0.333", [], True),
        (r"\frac{1}{3}", r"\frac14 \approx 0.333", [], False),
        (r"\frac{1}{3}", r"\frac13 = 2", [], False),
        (r"\sqrt{2}", r"\sqrt2 \approx 1.4", [("14", r"\lfloor 10 \cdot (\sqrt2) + \frac{1}{2} \rfloor")], True),
        (r"\sqrt{2}", r"\sqrt2 \approx 1.5", [("14", r"\lfloor 10 \cdot (\sqrt2) + \frac{1}{2} \rfloor")], False),
        (r"\sqrt{2}", r"\sqrt2 = 2", [], False),
        (r"\sqrt{2}", r"\sqrt2 = 1.4x", [], False),
        ("2a", "2a=1.5", [], False),
        (r"\mathbb{R}", r"(-\infty, \infty)", [], True),
        (r"(-\infty, \infty)", r"\text{all real numbers}", [], True),
        ("34", "3 4", [], False),
        ("3 4", "34", [], False),
        ("1.5 2", "1.52", [], False),
        (r"\sqrt{8}", r"x=2\sqrt{2}", [ROOT_OF_8], True),
        (r"\sqrt{8}", r"x=\sqrt{2}", [], False),
        ("x=5", "5=x", [("x=5", "5=x")], True),
        ("x=5", "x=6", [], False),
        ("x=5", "y=5", [], False),
        ("x^2-7=0", "2x^2=14", [("x^2-7=0", "2x^2=14")], True),
        ("x^2-7=0", "2x^2=15", [], False),
        (r"\log_2 32=5", r"\log_2{32}=5.0", [(r"\log_2 32", r"\log_2{32}")], True),
        (r"\log_2 32=5", "x=5", [], True),
        (r"\log_2 32=5", "5=x", [], True),
        (r"\log_2 32=5", "x=6", [], False),
        (r"\log_2 32=5", "x^2=5", [], False),
        (r"\log_2 32=5", "1=1", [], False),
        (r"\log_2 32=5", "5=32", [], False),
        (r"\frac{40}{3} \approx 13.33", "x=13.33", [], True),
        ("x=1, y=2", "y=2, x=1", [], True),
        ("x=1, y=2", "x=2, y=1", [], False),
        ("x=1, y=2", "y=2, 1", [], True),  # one name determines the order
        ("x=1, y=2", "2, x=1", [], True),
        ("x=1, y=2", "x=2, 1", [], False),
        ("x<1, y>2", "y>2, x<1", [], True),
        ("x<1, y>2", "y<1, x>2", [], False),
    ],
)
def test_parts_are_compared_by_algebra_where_they_need_it(gold, answer, known, expected):
    assert equal(gold, answer, algebra(*known)) is expected


def test_what_the_engine_raises_passes_through():
    def raises(gold, answer):
        raise LookupError(gold)

    with pytest.raises(LookupError, match="x"):
        equal("x", "y+1", raises)


def test_what_is_too_long_or_too_deep_is_equal_as_text_alone():
    long, deep = "x+" * MAX_LENGTH + "x", "(" * MAX_NESTING + "(x+1)" + ")" * MAX_NESTING
    for text in (long, deep):
        assert equal(text, f" {text}", no_algebra) is True
        assert equal(text, "x", no_algebra) is False
        assert equal("x", text, no_algebra) is False


def test_statements_have_a_greatest_number_of_sides():
    assert equal("5", "x" + "=5" * (MAX_ITEMS - 1), no_algebra) is True
    assert equal("5", "x" + "=5" * MAX_ITEMS, no_algebra) is False


def test_lists_and_unions_have_a_greatest_length():
    values = [str(value) for value in range(1, MAX_ITEMS + 2)]
    assert equal(", ".join(values[1:]), ", ".join(values[:0:-1]), no_algebra) is True
    assert equal(", ".join(values), ", ".join(values[::-1]), no_algebra) is False
    intervals = [f"({value},0)" for value in values]
    assert equal(r"\cup".join(intervals[1:]), r"\cup".join(intervals[:0:-1]), no_algebra) is True
    # A longer union goes straight to the algebra.
    assert equal(r"\cup".join(intervals), r"\cup".join(intervals[::-1]), algebra()) is False


@pytest.mark.parametrize(
    ("gold", "count"),
    [
        ("5", 1),
        ("1,234", 1),
        ("1,23", 2),
        ("(0,1)", 1),
        ("5;10", 2),
        ("1, -1", 2),
        (r"\{1, 2, 3\}", 3),
        (r"\pm 1", 2),
        (r"x \equiv 3 \pmod{7}", 1),
        (r"\pmb{x}", 1),
        (",", 1),
        ("1;2" + " " * MAX_LENGTH, 1),
    ],
)
def test_values_of_a_gold_are_counted(gold, count):
    assert count_values(gold) == count


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("5", ["5"]),
        ("1, 2", ["1", "2"]),
        ("1,2; 3,4", ["1,2", "3,4"]),
        (r"\{1, 2\}", ["1", "2"]),
        (r"\{\}", []),
        (r"\text{red, blue}", ["red", "blue"]),
        ("(1,2)", ["(1,2)"]),
        ("(1,2), 3", ["(1,2)", "3"]),
        (r"\{1,2), 3", [r"\{1,2)", "3"]),  # not a set: the brackets differ
        (r"\{1, 2)", [r"\{1, 2)"]),
        (r"(1, 2\}", [r"(1, 2\}"]),
        (r"\{x \mid x>2, x<5\}", [r"\{x \mid x>2, x<5\}"]),
        (r"2 \pm\sqrt{3}, 1", [r"2 +\sqrt{3}", r"2 -\sqrt{3}", "1"]),
    ],
)
def test_the_values_of_a_list(text, values):
    assert listed_values(text) == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("(1, 2, 3)", ["1", "2", "3"]),
        (r"[0,\infty)", ["0", r"\infty"]),
        ("(1)", []),
        ("1, 2", []),
        (r"\{1,2\}", []),
    ],
)
def test_the_entries_of_a_tuple(text, values):
    assert tuple_values(text) == values


def test_the_parts_of_a_union():
    assert union_parts(r"(0,1) \cup [2,3)\cup A") == ["(0,1)", "[2,3)", "A"]
    assert union_parts("(0,1)") == ["(0,1)"]
    assert union_parts(r"\cupdot") == [r"\cupdot"]


def test_the_order_of_constants_that_gives_the_golds_terms_is_compared_first():
    compared = []
    answer = "y=c_1e^{3x}+c_2e^x+c_3e^{2x}"
    assert equal("y=c_1e^x+c_2e^{2x}+c_3e^{3x}", answer, lambda _, one: compared.append(one) or True)
    assert set(compared) == {"c_3e^{3x}+c_1e^x+c_2e^{2x}"}
