"""What the question says about its answer: nouns, base, percentage, unit, order, options."""

import pytest

from trl_ces.grading import grade
from trl_ces.grading.asked import as_asked
from trl_ces.grading.numbers import MAX_DIGITS
from trl_ces.support.limits import MAX_LENGTH


@pytest.mark.parametrize(
    ("answer", "question", "expected"),
    [
        ("5 gizmos", "", "5 gizmos"),
        ("5 red gizmos", "How many red gizmos does Ann have?", "5"),
        (r"5\text{ gizmos}", "Ann has a gizmo.", "5"),
        ("5 gizmos", "How many apples?", "5 gizmos"),
        ("5 red gizmos", "How many gizmos?", "5 red gizmos"),
        ("5 apples", "How many apples?", "5 apples"),  # known anyway
        (r"5\text{ at most}", "Ann has at most 9.", r"5\text{ at most}"),
        ("5 less", "How many less than Ann?", "5 less"),
        ("5 thousand", "Ann has a thousand.", "5 thousand"),
        ("5", "How many?", "5"),
        (r"\$5", "How many?", r"\$5"),
        (r"x=5\text{ gizmos}", "How many gizmos?", "x=5"),
        ("1011_2", "Write 11 in base 2.", "1011"),
        ("1011_{2}", "Write 11 in binary.", "1011"),
        ("1011_{2}", "Write 11 in ternary.", "1011_{2}"),
        ("a_2", "base", "a_2"),
    ],
)
def test_what_the_question_names_is_dropped_behind_a_number(answer, question, expected):
    assert as_asked(answer, "5", question)[1] == expected


def test_a_base_stays_where_the_gold_has_one():
    assert as_asked("1011_3", "1011_2", "Write 11 in base 2.")[1] == "1011_3"


def test_a_very_long_answer_or_question_is_left_alone():
    longest = "5" + " " * (MAX_DIGITS - 8) + "gizmos"
    assert as_asked(longest + " ", "5", "How many gizmos?")[1] == "5"
    assert as_asked(longest + "  ", "5", "How many gizmos?")[1] == longest + "  "
    assert as_asked("μ" * 9_900 + "x", "5", "How many gizmos?")[1] == "μ" * 9_900 + "x"
    assert as_asked("5 gizmos" + " " * MAX_LENGTH, "5", "How many gizmos?")[1].startswith("5 gizmos")
    assert as_asked("5 gizmos", "5", "How many gizmos?" * MAX_LENGTH)[1] == "5 gizmos"


ROOT_TWO = r"Evaluate. (A) $\sqrt{2}$ (B) $12$ (C) $\frac{1}{3}$ (D) $-5$"
TEXT_OPTIONS = r"Which is it? $\textbf{(A)}\ 10 \qquad\textbf{(B)}\ 12 \qquad\textbf{(C)}\ 15$"


@pytest.mark.parametrize(
    ("question", "gold", "answer", "correct"),
    [
        ("Write 3, 1, 2 in increasing order.", "1, 2, 3", "3, 1, 2", False),
        ("Write 3, 1, 2 in increasing order.", "1, 2, 3", "1,2,3", True),
        ("Find all roots.", "1, 2, 3", "3, 1, 2", True),
        ("Find f(2) for f(x) = x + 3.", "5", "f(3) = 5", False),
        ("Find f(2) for f(x) = x + 3.", "5", "f(2) = 5", True),
        ("Find the value.", "5", "f(2) = 5", True),
        ("How many minutes does it take?", "5", r"5\text{ hours}", False),
        ("How many minutes does it take?", "5", r"5\text{ minutes}", True),
        ("How many miles per hour is that?", "5", r"5\text{ mph}", True),
        ("How many people came?", "5", r"5\text{ students}", True),
        ("How long is it? Express your answer in centimeters.", "5", r"5\text{ m}", False),
        ("How long is it? Express your answer in centimeters.", "5", r"5\text{ cm}", True),
        ("Write 11 in base 2.", "1011", "1011_2", True),
        ("Write 11 in base 2.", "1011", "1011_3", False),
        (ROOT_TWO, "B", "12", True),
        (ROOT_TWO, "B", r"\sqrt{2}", False),
        (ROOT_TWO, "C", r"\dfrac13", True),
        (ROOT_TWO, "12", "(B)", True),
        (ROOT_TWO, "12", "A", False),
        (ROOT_TWO, "12", r"\text{(B) }12", True),
        (ROOT_TWO, "B", r"\text{(B) }12", True),
        (TEXT_OPTIONS, "B", "12", True),
        (TEXT_OPTIONS, r"\text{(B)}", "12", True),
        (TEXT_OPTIONS, r"\text{(B)}", "B", True),
        (TEXT_OPTIONS, r"\text{(B)}", r"\mathrm{C.}", False),
        (TEXT_OPTIONS, r"\text{(B)}\ 12", "12", True),
        (TEXT_OPTIONS, r"\text{(B)}\ 12", "10", False),
        ("Factor $6x^2-7x-3$.", "(3x+1)(2x-3)", "6x^2-7x-3 = (3x+1)(2x-3)", True),
        ("Factor $6x^2-7x-3$.", "(3x+1)(2x-3)", "6x^2-7x-3 = 6x^2-7x-3", False),
        ("Evaluate.", "0.5", "0{,}5", True),
        ("Evaluate.", "1500", "1{,}500", True),
        ("Write 3, 1, 2 in increasing order.", "1, 2, 3", r"\{3, 1, 2\}", False),
        (TEXT_OPTIONS, "15", r"\textbf{(C)}", True),
        ("Points A. and B. lie on a line.", "B", "12", False),
        ("What is the volume, in cubic centimeters?", "5", r"5\text{ cm}^2", False),
        ("What is the volume, in cubic centimeters?", "5", r"5\text{ cm}^3", True),
        ("They are in increasing order. What are both?", "1, 2", "2, 1", True),
        ("What is the discount?", "0.2", r"20\%", True),
        ("What is the discount?", "20", r"20\%", False),
        ("What percent is the discount?", "20", r"20\%", True),
        ("Solve it.", r"x \equiv 3 \pmod{7}", r"10 \bmod 7", True),
        ("Solve it.", r"x \equiv 3 \pmod{7}", r"x \equiv 3 \pmod{8}", False),
        ("Which group is it?", r"\mathbb{Z}/6\mathbb{Z}", r"\mathbb{Z}_6", True),
        ("Which group is it?", r"\mathbb{Z}/6\mathbb{Z}", r"\mathbb{Z}/5\mathbb{Z}", False),
    ],
)
def test_the_question_decides_what_its_answer_is(question, gold, answer, correct):
    assert grade(rf"\boxed{{{answer}}}", gold, question=question, with_qwen=False).correct is correct


def test_only_boxes_count_where_that_is_asked_for():
    text = "The answer is 5."
    assert grade(text, "5", with_qwen=False).correct
    assert grade(text, "5", with_qwen=False, boxes_only=True).answer is None


@pytest.mark.parametrize(
    ("gold", "answer", "correct"),
    [
        ("2:4:6", "1:2:3", True),
        ("2:4:6", "1:2:4", False),
        ("2:4:6", "1:2", False),
        ("0.5", "0,5", True),
        ("0, 5", "0.5", False),
        ("(1,2)", "]1,2[", True),
        ("[1,2)", "[1;2[", True),
        ("(1,2]", "[1,2[", False),
        ("3", r"3=\infty", False),
        ("2", "x = 1 so x = 2", False),
    ],
)
def test_ratios_commas_intervals_and_sides(gold, answer, correct):
    assert grade(rf"\boxed{{{answer}}}", gold, with_qwen=False).correct is correct


@pytest.mark.parametrize(
    ("question", "gold", "answer", "right"),
    [
        ("What is the probability?", r"\frac{5}{6}", r"\frac56\%", False),
        ("What is the probability?", "0.25", r"25\%", True),
        ("What is the attendance, which was 94% before?", "0.96", r"96\%", True),
        ("How far do the trains travel, after 80 miles?", "230", r"230\text{ kilometers}", False),
        ("How far do the trains travel, after 80 miles?", "230", r"230\text{ miles}", True),
        ("Find the number of minutes the walk takes, at 4 km per hour.", "204", r"204\text{ hours}", False),
        ("What did the book cost, sold for \\$19.50?", "26", r"26\text{ cents}", False),
        ("买3瓶饮料花了9元，5瓶需要多少元？", "15", r"15\text{角}", False),
        ("买3瓶饮料花了9元，5瓶需要多少元？", "15", r"15\text{元}", True),
        ("A square has sides of 3 cm. What is its area?", "9", r"9\text{ cm}^2", True),
        ("What are the values of $a, h$ and $k$?", "2,-1,-18", "a=-1, h=2, k=-18", False),
        ("What are the values of $a, h$ and $k$?", "2,-1,-18", "h=-1, k=-18, a=2", True),
        ("Find $y$ and $x$.", "2,1", "x=1, y=2", True),
        ("Find $y$ and $x$.", "2,1", "x=2, y=1", False),
        ("What did the book cost, sold for $19?", "26", r"26\text{ cents}", False),
        ("Where is it defined?", r"(-\infty,0)\cup(1,\infty)", r"(-\infty,0)\bigcup(1,\infty)", True),
        ("Solve $y''=y'$.", "y=c_{1}+c_{2} e^{x}", "y=Be^{x}+A", True),
        ("Solve $y''=y'$.", "y=c_{1}+c_{2} e^{x}", "y=Ae^{x}+A", False),
        ("Find all $f$ with $f(f(n))=n$.", "f(n)=2n+1", "f(x)=2x+1", True),
        ("Find all $f$ with $f(f(n))=n$.", "f(n)=2n+1", "f(x)=2n+1", False),
        ("Find the tangent of $y=3(x^2+x)e^x$.", "3x-y=0", "y=3x", True),
        ("Order 0.3, 0.25, 0.41 from least to greatest.", "0.25, 0.3, 0.41", "0.41, 0.3, 0.25", False),
        ("Write the second row from left to right.", "3, 4", "4, 3", False),
        ("What do a tack ($0.01) and a pin ($0.09) cost?", "0.10", r"0.10\text{ cents}", False),
        ("升高了多少摄氏度？", "15", r"15^{\circ}\text{F}", False),
        ("升高了多少摄氏度？", "15", r"15^{\circ}\text{C}", True),
        ("When does it end?", "5am", "5:00 a.m.", True),
        ("Does it converge?", "diverges", r"\text{The series diverges}", True),
        ("Does it converge absolutely?", "converges absolutely", r"\text{The series converges absolutely.}", True),
        ("If it converges, find the limit.", "2", r"\text{converges to }2", True),
        ("How many cupcakes did Carly make?", "3", r"\text{Carly made 3 cupcakes.}", True),
        ("How many cupcakes did Carly make?", "3", r"\text{Carly made at most 3 cupcakes.}", False),
        ("How many cupcakes did Carly make?", "3", r"\text{Carly made half of 3 cupcakes.}", False),
        ("How old is Adam in 8 years?", "38", r"\text{Adam will be 38 years old}", True),
        ("On which day did Ann read least?", "Friday", r"\text{Ann read least on Friday.}", True),
        ("On which day did Ann read least?", "Friday", r"\text{Ann read least on Monday or Friday.}", False),
        ("Is it linear or nonlinear?", "nonlinear", r"\text{linear, nonlinear}", False),
        ("What percent is blue?", "40", r"4000\%", False),
        ("What percent is blue?", "0.4", r"40\%", True),
        ("Solve $5n=32$.", r"n=\frac{32}{5}", "10n=64", False),
        ("Solve $5n=32$.", r"n=\frac{32}{5}", r"\frac{32}{5}=n", True),
        ("Is 9 prime or not?", "prime", r"\text{not prime}", False),
        ("Find the line.", "y=2", "y-2=0", True),
        ("Solve it.", r"2n\pi-\pi/2$, any integer $n$", r"x=-\frac{\pi}{2}+2\pi n, n\in\mathbb{Z}", True),
        ("How long are both?", "14,16", r"14\text{ ft and }16\text{ ft}", True),
        ("Does it converge?", "converges", r"\text{is convergent}", True),
        ("How many white cubes?", "50", r"50\text{ white cubes}", True),
        ("What is the area?", "58", r"58\text{ sq. units}", True),
        ("Which fraction?", r"\frac{7}{15}", r"\frac{7}{}{15}", False),
        ("How long is $z^2$?", "4", "|z^2|=4", True),
        ("What is $N$?", "801", r"\mathbf{N = 801}", True),
        ("Does it converge?", "converges", r"\text{is not convergent}", False),
        ("Is it arithmetic, geometric or neither?", "neither", r"\text{neither arithmetic nor geometric}", True),
        ("Is it arithmetic, geometric or neither?", "neither", r"\text{neither arithmetic nor others}", False),
        ("Write $x^2+6x+5$ in the form $(x+h)^2+k$.", "(x+3)^2-4", "(x+1)(x+5)", False),
        ("Write $0.272727$ in lowest terms.", r"\frac{3}{11}", r"\frac{27}{99}", False),
        ("Write $0.0032$ in scientific notation.", r"3.2\times10^{-3}", r"32\times10^{-4}", False),
        ("If $x+y=10$ and $x-y=4$, what is $x$?", "7", "y=7", False),
        ("If $x+y=10$ and $x-y=4$, what is $x$?", "7", "x=7", True),
        ("How large is the angle?", r"\frac{\pi}{2}", r"90^\circ", True),
        ("How large is the angle, in radians?", r"\frac{\pi}{2}", r"90^\circ", False),
        ("Find the angle in degrees.", "45", r"45\text{ rad}", False),
        ("Two angles have 50 degrees and 60 degrees. What is the third?", "70", r"70\text{ rad}", False),
        ("Find the energy in joules of the mass.", "9", r"9\text{ kJ}", False),
        ("How long is the rope in metres?", "2.5", r"2.5\,m", True),
        ("Find the exact value.", r"\frac{\pi^2}{6}", "1.644934", False),
        ("Who finishes first, Ann or Bob?", r"\text{Ann}", r"\text{Ann finishes first}", True),
        ("Find the domain of the logarithm of $4x-20$.", r"(5, \infty)", "4x-20 > 0", False),
        ("Find the domain of the logarithm of $4x-20$.", r"(5, \infty)", "x > 5", True),
        ("Solve $3x-5 < x+1$.", "x < 3", "3x-5-(x+1) < 0", False),
        ("Is it so? (Yes or No)", "No", r"\text{Yes No}", False),
        ("Is it so? (Yes or No)", "Yes", r"\text{Yes No}", False),
        ("Is it a square or a rectangle?", "square", r"\text{square rectangle}", False),
        ("For which $x_1$ is it so?", r"(5,\infty)", "x_1 > 5", True),
        ("Is it even, odd, or neither?", "odd", r"\text{even odd}", False),
        ("Which is it? Choices: ['linear', 'nonlinear']", "linear", r"\text{linear nonlinear}", False),
        ("Who finishes first, Ann or Bob?", r"\text{Ann}", r"\text{Ann or Bob}", False),
        ("In which quadrant is it?", r"\text{III}", r"\text{Quadrant III}", True),
        ("Find the quotient and the remainder.", "7, 3", r"\text{quotient }7, \text{ remainder }3", True),
        ("Find the quotient and the remainder.", "7, 3", r"\text{remainder }7, \text{ quotient }3", False),
        ("In which order do they arrive? List from first to last.", "DABC", r"\text{BCDA}", False),
        ("Divide 30 in the ratio $2:3$, in that order.", "12, 18", "18, 12", False),
        ("What is the size of $AB$?", r"2\times4", r"4\times2", False),
        ("What is the remainder?", "3", r"x\equiv 3 \pmod 7", True),
        ("What is the remainder?", "3", r"x\equiv 4 \pmod 7", False),
        ("What is the remainder?", "3", r"10 \pmod 7", False),
        ("Solve the system.", "(3,5)", "x=3, y=5", True),
        ("Solve the system.", "(3,5)", "2x=3, 2y=5", False),
        ("Which integers?", r"6k+1,k\in\mathbb Z", r"n\equiv1\pmod 6", True),
        ("Which integers?", r"6k+1,k\in\mathbb Z", r"n\equiv2\pmod 6", False),
        ("Find the asymptote.", "y=3", "x=3", False),
        ("What is it?", "1,000,000", "1,000,00", False),
        ("What is it?", r"\frac{3}{4}", r"\frac{3}{4}\text{ or }0.75", True),
        ("What is it?", r"\frac{3}{4}", r"\frac{3}{4}\text{ or }0.8", False),
        ("Which vector is it?", "(2,-2,6)", r"2\mathbf{i}-2\mathbf{j}+6\mathbf{k}", True),
        ("Which vector is it?", "(2,4)", r"\begin{pmatrix}2\\4\end{pmatrix}", True),
        ("Which vector is it?", "(2,4)", r"\begin{pmatrix}4\\2\end{pmatrix}", False),
        ("Which angle is it?", r"\angle PQR", r"\angle RQP", True),
        ("Which angle is it?", r"\angle PQR", r"\angle QRP", False),
        ("Solve it.", r"(-\infty,2)\cup(2,3]", r"x\le3\text{ and }x\ne2", True),
        ("Solve it.", r"(-\infty,2)\cup(2,3]", r"x\le3\text{ and }x\ne1", False),
        ("Solve it.", "x>0,y>0", r"x>0\text{ or }y>0", False),
        ("Solve it.", "-3<k<3", "|k|<3", True),
        ("Solve it.", "x=1,y=2,z=3", "(x,y,z)=(1,2,3)", True),
        ("Solve it.", "x=1,y=2,z=3", "(x,z,y)=(1,2,3)", False),
        (r"Find $\int$.", r"\frac{\sec^2 x}{2}+C", r"\frac{\tan^2 x}{2}+C", True),
        (r"Find $\int$.", r"\frac12\ln|x|+C", r"\frac12\ln|2x|+C", True),
        (r"Find $\int$.", "x^2+C", "x^2+x+C", False),
        (r"Compute.", "e^{-1000}", "e^{-1001}", False),
        ("When?", r"\text{March 5}", r"\text{5th of March}", True),
        ("When?", r"\text{March 5}", r"\text{5 May}", False),
        ("Is 97 prime?", r"\text{Yes}", r"\text{yes, it is prime}", True),
        (r"Is $\pi$ irrational?", r"\text{Yes}", r"\text{Yes, }\pi\text{ is irrational}", True),
        ("How likely is a 4?", r"\frac16", r"1\text{ in }6", True),
        ("How likely is a 4?", r"\frac16", r"1\text{ in }5", False),
        ("What is the pay?", r"\$90", r"\text{\textdollar}90", True),
        ("What is the pay?", r"90\text{ euros}", r"\text{\textdollar}90", False),
        ("Name the triangle.", r"\triangle XYZ", r"\triangle ZYX", True),
        ("Name the triangle.", r"\triangle XYZ", r"\angle XYZ", False),
        ("Which point is nearer, $A(0,0)$ or $B(5,5)$?", "A", r"\text{point }A", True),
        ("Which point is nearer, $A(0,0)$ or $B(5,5)$?", "A", r"\text{point }B", False),
        ("Is 97 prime?", r"\text{No}", r"\text{no, but it is odd}", False),
        ("Add them.", "101_2", r"101\text{ in base }2", True),
        ("Add them.", "101_2", r"101\text{ in base }3", False),
        ("How many hours does it take?", "2 hours", r"120\text{ minutes}", False),
        ("How long does it take?", "2.5 hours", r"2\text{ hours }30\text{ minutes}", True),
        ("How long does it take?", "2.5 hours", r"2\text{ hours }50\text{ minutes}", False),
        ("投资多少万元？", "350", r"350\text{亿元}", False),
        ("投资多少万元？", "350", r"350\text{万元}", True),
        ("What percent of them?", r"40\%", "0.4", False),
        ("Is it?", "Yes", r"\text{Yes, if you like, or no}", False),
        ("Is it prime? 是质数吗", "是", r"\text{不是质数}", False),
        ("Write $|x-1|$.", r"|x-1|", r"\begin{cases}x-1,&x<1\\1-x,&x\ge1\end{cases}", False),
        ("Write $|x-1|$.", r"|x-1|", r"\begin{cases}x-1,&x>1\\1-x,&x<1\end{cases}", False),
        ("Find the series.", r"\sum_{n=0}^\infty x^n", r"\sum_{n=1}^\infty x^n", False),
        (r"Solve $\sin x=\frac12$.", r"(-1)^k\frac{\pi}{6}+k\pi", r"\pm\frac{\pi}{6}+2k\pi", False),
        ("Find the ratio.", "1:20", "13:20", False),
        ("Find the domain.", r"x\neq 1, y\neq 4", r"x\neq 1, x\neq 4", False),
        ("Find $y$.", r"(\pm1,\pm2)", r"(\pm1,\mp2)", False),
        ("Find both.", "maximum 5, minimum 1", "1, 5", False),
        ("Divide 75 by 8.", "quotient $9$, remainder $3$", r"\text{remainder }3,\ \text{quotient }9", True),
        ("Divide 75 by 8.", "quotient $9$, remainder $3$", r"\text{remainder }9,\ \text{quotient }3", False),
        ("How many diagonals does a decagon have?", "35", r"\text{A decagon has }35\text{ diagonals}", True),
        ("How many diagonals does a decagon have?", "35", r"\text{A hexagon has }35\text{ diagonals}", False),
        ("Find the volume.", "2 liters", r"2000\text{ cm}^3", True),
        ("Find the volume.", "2 liters", r"200\text{ cm}^3", False),
        ("调进男装皮鞋多少双？", "90", r"90\text{双}", True),
        ("调进男装皮鞋多少双？", "90", r"90\text{倍}", False),
        ("Expand $(x+1)^2$.", "(x+1)^2=x^2+2x+1", "x^2+2x+1", True),
        ("Expand $(x+1)^2$.", "(x+1)^2=x^2+2x+1", "x^2+x+1", False),
        (
            "Project $w$ on $v$.",
            r"\frac{v\cdot w}{v\cdot v}v=2\begin{pmatrix}1\\0\end{pmatrix}=\begin{pmatrix}2\\0\end{pmatrix}",
            r"\begin{pmatrix}2\\0\end{pmatrix}",
            True,
        ),
        ("How large is it in square feet?", "$l^{2} / 8$ square feet", r"\frac{l^2}{8}", True),
        ("How large is it in square feet?", "$l^{2} / 8$ square feet", r"\frac{l^2}{8}\text{ square meters}", False),
        ("A sphere is 8 meters high. Its surface?", r"576\pi\;m^{2}", r"576\pi", True),
        ("A sphere is 8 meters high. Its surface?", r"576\pi\;m^{2}", "576", False),
        (r"It is 8 meters high, a circle has $128\pi\;m^{2}$. Its surface?", r"576\pi\;m^{2}", r"576\pi", True),
        (r"How fast, if $60\mathrm{mph}$ stop in 200 $\mathrm{ft}$?", "36", r"36\text{ mph}", True),
        ("Answer1: $3$ Answer2: what to call", "answer2", r"\text{Answer2: what to call}", True),
        ("Answer1: $3$ Answer2: what to call", "answer2", r"\text{Answer2: what not}", False),
        ("Answer1: a call Answer2: what to call", "answer2", r"\text{Answer2: a call}", False),
        ("Solve it.", "c x^{-2}-x", r"y=\frac{C}{x^2}-x", True),
        ("Solve it.", "y=k x^{2}", "y=A x^2", True),
        ("Solve it.", "y=k x^{2}", "y=x x^2", False),
        ("It costs $.5 each, then $.4 each. How much is saved?", "350", r"350\text{ cents}", False),
        ("Calculate the energy $E_{\nu}$.", r"\gamma mc^2", r"E_\nu=mc^2\gamma", True),
        ("求最大值", r"2\sqrt{7}", r"(AB+2BC)_{\max}=2\sqrt{7}", True),
        ("求最大值", r"2\sqrt{7}", r"(AB+2BC)_{\max}=\sqrt{7}", False),
        ("Find both.", r"$\frac{2}{3}$;$\frac{1}{2}$", r"k=\frac{2}{3},\quad e=\frac{1}{2}", True),
        ("Find both.", r"$\frac{2}{3}$;$\frac{1}{2}$", r"e=\frac{2}{3},\quad k=2", False),
        ("Factor it.", "(x-2)(x+2)(x^2+4)", "(x^2-4)(x^2+4)", False),
        ("Factor it.", "(2)(x+2)(x-2)", "2(x^2-4)", False),
        ("Factor it.", "(2)(x+2)(x+2)", "2(x+2)^2", True),
        ("Factor it.", "x(x+1)", "(x)(x+1)", True),
        ("Find the equation.", "x^2-7=0", "0", False),
        ("Find the eccentricity.", r"\frac{\sqrt5}{5}", r"e=\frac{1}{\sqrt5}", True),
        ("Find the eccentricity.", r"\frac{\sqrt5}{5}", r"e=\frac{2}{\sqrt5}", False),
        (r"3, 5 are the first two terms of a sequence. Find all areas.", "7, 6", "6, 7", True),
        (
            "Find $f$.",
            r"\begin{cases}1,&|x|>1\\0,&|x|\leq 1\end{cases}",
            r"\begin{cases}0,&-1\leq x\leq 1\\1,&x<-1,x>1\end{cases}",
            True,
        ),
    ],
)
def test_what_the_blind_lists_found(question, gold, answer, right):
    assert grade(rf"\boxed{{{answer}}}", gold, question=question, with_qwen=False).correct is right


def test_an_escaped_dollar_opens_no_formula():
    text = r"Net income: \$6,840 - \$620 = $\boxed{\$6220}$."
    assert grade(text, "6,220", with_qwen=False).correct is True
