r"""Synonyms become one notation; braces and brackets match; lists split outside brackets. No computer algebra."""

import time

import pytest

from trl_ces.grading.notation import balanced, enclosed, split_top, tidy, unwrap


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("  7 ", "7"),
        ("x  +\n y", "x + y"),
        # characters
        ("−1–2", "-1-2"),
        ("2×3·4÷5", r"2\times 3\cdot 4/5"),
        ("2π+∞", r"2\pi +\infty"),
        ("1≤x≥2≠3", r"1\leq x\geq 2\neq 3"),
        ("A∪B∈C", r"A\cup B\in C"),
        ("（1，2；3：4、5）", "(1,2;3:4,5)"),
        ("90°", "90"),
        ("x²+y³", "x^{2}+y^{3}"),
        ("½+¼+¾", r"\frac{1}{2}+\frac{1}{4}+\frac{3}{4}"),
        ("√10x", r"\sqrt{10}x"),  # \sqrt10 would be zero times the root of one
        ("√2.5", r"\sqrt{2.5}"),
        ("√(x+1)+√x", r"\sqrt{x+1}+\sqrt x"),
        ("±3", r"\pm 3"),
        ("x≈3", r"x\approx 3"),
        ("1\u00a0234\u202f567", "1 234 567"),
        ("①②", r"\textcircled{1}\textcircled{2}"),
        ("⑳", r"\textcircled{20}"),
        ("⑴", "⑴"),  # the next character is not a circled number
        # currency, math mode, percent, degrees
        (r"\$3.50", "3.50"),
        ("£3+€4+¥5", "3+4+5"),
        ("$x$", "x"),
        (r"\(x\)", "x"),
        (r"\[x\]", "x"),
        (r"50\%", "50"),
        ("50％", "50"),
        (r"90^\circ", "90"),
        (r"90^{\circ}", "90"),
        (r"90 ^ { \circ }", "90"),
        (r"90\degree", "90"),
        (r"\frac{180^\circ}{7}", r"\frac{180}{7}"),  # the brace belongs to the fraction
        (r"\sin{30^{\circ}}", r"\sin{30}"),
        # sizes and styles
        (r"\left(1, 2\right]", "(1, 2]"),
        (r"\bigl(\Big[1\Bigr]\bigr)", "([1])"),
        (r"\left.x\right.", "x"),
        (r"\leftarrow x", r"\leftarrow x"),
        (r"\displaystyle\int\limits_0^1 x", r"\int_0^1 x"),
        (r"1\!2", "12"),
        (r"\dfrac{1}{2}+\tfrac12+\cfrac{1}{3}", r"\frac{1}{2}+\frac12+\frac{1}{3}"),
        # relations
        (r"x\ge 1", r"x\geq 1"),
        (r"x\geqslant1", r"x\geq 1"),
        (r"x\le1", r"x\leq 1"),
        (r"x\leqslant 1", r"x\leq 1"),
        (r"x\ne 1", r"x\neq 1"),
        (r"\nearrow", r"\nearrow"),
        ("x<=1", r"x\leq 1"),
        ("x=<1", r"x\leq 1"),
        ("x>=1", r"x\geq 1"),
        ("x=>1", r"x\geq 1"),
        ("x!=1", r"x\neq 1"),
        ("x:=1", "x=1"),
        ("x==1", "x=1"),
        # sets, lists and numbers
        (r"\lbrace 1, 2\rbrace", r"\{ 1, 2\}"),
        (r"\varnothing", r"\emptyset"),
        (r"x=1\quad y=2", "x=1, y=2"),
        ("x=1,\\quad y=2; \\quad z_{1} = 3", "x=1, y=2; z_{1} = 3"),
        ("y_{1}=1-x\ny_{2}=x", "y_{1}=1-x, y_{2}=x"),
        (r"x=1\\y=2", "x=1, y=2"),
        (r"x=1\vee x=2", "x=1, x=2"),
        (r"x \quad y", "x y"),
        ("1{,}234", "1234"),
        (".5+1.5", "0.5+1.5"),
        (r"1\text{ and }2", "1,2"),
        (r"1\mathrm{or}2", "1,2"),
        (r"1,2,\text{, and } 3", "1,2,, 3"),  # split_top drops the empty piece
        ("1 and 2 or 3", "1 , 2 , 3"),
        ("band", "band"),
        ("1和2", "1,2"),
        ("和平", "和平"),
        # LaTeX spaces
        (r"1\,234", "1234"),
        (r"1\quad 2\qquad 3~4\ 5", "1 2 3 4 5"),
        (r"1\\,2", r"1\\,2"),  # a line break, then a comma
        # matrices
        (r"\begin{bmatrix}1\\2\end{bmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"\left[\begin{array}{cc}1&2\end{array}\right]", r"\begin{pmatrix}1&2\end{pmatrix}"),
        (r"\begin{matrix}1\\[2pt]2\end{matrix}", r"\begin{pmatrix}1\\ 2\end{pmatrix}"),
        (r"(\begin{pmatrix}1\\2\end{pmatrix}, 3)", r"(\begin{pmatrix}1\\2\end{pmatrix}, 3)"),  # brackets of a pair
        (
            r"2(\begin{pmatrix}1\\2\end{pmatrix}+\begin{pmatrix}3\\4\end{pmatrix})",  # brackets of a sum
            r"2(\begin{pmatrix}1\\2\end{pmatrix}+\begin{pmatrix}3\\4\end{pmatrix})",
        ),
    ],
)
def test_synonyms_are_rewritten_to_one_form(text, expected):
    assert tidy(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{7}", "7"),
        (r"\fbox{ 7 }", "7"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"$\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        (r"\boxed{1}+\boxed{2}", r"\boxed{1}+\boxed{2}"),  # neither box encloses the whole text
        (r"\boxed{7}x", r"\boxed{7}x"),
        ("{7}", "7"),
        ("{ 7 }", "7"),
        ("{{7}}", "7"),
        (r"{\frac{1}{2}}", r"\frac{1}{2}"),
        ("{1}{2}", "{1}{2}"),
        ("{1}2", "{1}2"),
        ("2{1}", "2{1}"),
        ("{12", "{12"),
        ("12}", "12}"),
        (r"\{7\}", r"\{7\}"),  # a set
        ("7.", "7"),
        ("7。", "7"),
        ("**7**", "7"),
        (": 7", "7"),
        ("The answer is 7.", "7"),
        ("the final answer is: $7$", "7"),
        ("Solution is x", "x"),
        ("答案是7。", "7"),
        (r"\approx 7", "7"),
        (r"\text{The answer is } 7", "7"),
        (r"\text{The answer is:} 7", "7"),
        (r"\text{The answer is } \frac{1}{2}", r"\frac{1}{2}"),
        (r"\text{The answer is $\sqrt{8}$}", r"\text{\sqrt{8}}"),  # the content of \text is left to unwrap
        (r"5\text{ cm}", r"5\text{ cm}"),
        (r"\boxed{The answer is \boxed{**7**}.}", "7"),
    ],
)
def test_what_only_surrounds_an_answer_is_taken_off(text, expected):
    assert tidy(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (" x ", "x"),
        (r"\text{Evelyn}", "Evelyn"),
        (r"\text{ cm}", "cm"),
        (r"7\mathrm{~m} ", r"7~m"),
        (r"\mathbf{u}+\operatorname{Im} \emph{z}", "u+Im z"),
        (r"\operatorname*{max} x", "max x"),
        (r"\textbf{\text{\textit{x}}}", "x"),
        (r"\text{a {b} c}", "a {b} c"),
        (r"\text{a {b} c \mathrm{\mathit{d}}}", "a {b} c d"),
        (r"\texttt{x}", "x"),
        (r"\textsc{x}", r"\textsc{x}"),
        (r"\frac{1}{2}", r"\frac{1}{2}"),
        (r"\text{x", r"\text{x"),
    ],
)
def test_words_and_symbols_are_taken_out_of_their_wrappers(text, expected):
    assert unwrap(text) == expected


@pytest.mark.parametrize("text", ["", "x", "{x}", "{x}{y}", "{{x}}", r"\{", r"\}\{", r"\\{x}", "(", "]"])
def test_every_brace_is_closed(text):
    assert balanced(text)


@pytest.mark.parametrize("text", ["{", "}", "{x", "x}", "{{x}", "{x}}", "}{", "}x{", r"\\{x", r"{\}"])
def test_a_brace_is_not_closed_or_not_opened(text):
    assert not balanced(text)


@pytest.mark.parametrize(
    ("text", "separators", "pieces"),
    [
        ("", ",", []),
        ("1", ",", ["1"]),
        ("1, 2 ,3", ",", ["1", "2", "3"]),
        ("1;2,3", ";", ["1", "2,3"]),
        ("x=1≈2", "=≈", ["x", "1", "2"]),
        ("1,,2,", ",", ["1", "2"]),  # empty pieces are dropped
        ("(1,2),[3,4)", ",", ["(1,2)", "[3,4)"]),
        (r"\{1,2\},3", ",", [r"\{1,2\}", "3"]),
        (r"\frac{1,1}{2},x", ",", [r"\frac{1,1}{2}", "x"]),
        ("((1,2),3),4", ",", ["((1,2),3)", "4"]),
        (r"1\,2,3", ",", [r"1\,2", "3"]),  # a LaTeX space
        ("(1,2", ",", ["(1,2"]),
        ("1,2)", ",", ["1,2)"]),
        ("1),(2,3", ",", ["1),(2,3"]),
        ("1,(2", ",", ["1,(2"]),
    ],
)
def test_a_text_is_split_outside_its_brackets(text, separators, pieces):
    assert split_top(text, separators) == pieces


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(1,2)", ("(", "1,2", ")")),
        ("[1,2)", ("[", "1,2", ")")),
        (r"\{1,2\}", (r"\{", "1,2", r"\}")),
        ("()", ("(", "", ")")),
        ("((1,2),[3])", ("(", "(1,2),[3]", ")")),
        (r"(1,\{2\})", ("(", r"1,\{2\}", ")")),
        (r"(x\\{y},2)", ("(", r"x\\{y},2", ")")),  # a line break, then a syntactic brace
        ("(1)(2)", None),
        ("(1),(2)", None),
        ("(1", None),
        ("1)", None),
        ("((1)", None),
        ("(1))", None),
        ("{1}", None),
        ("1", None),
        ("(", None),
        ("", None),
    ],
)
def test_one_pair_of_brackets_holds_the_whole_text(text, expected):
    assert enclosed(text) == expected


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
