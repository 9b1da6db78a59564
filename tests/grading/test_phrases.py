"""Words and names around a value that say nothing more, an option's letter with a text, and text beside the box."""

import pytest

from trl_ces.grading import grade

ROOTS = r"Which is irrational? A. $\sqrt{2}$ B. $2$ C. $0$"
CHOICE = "What is he waiting for? A. job B. boredom C. anxiety D. wisdom"
ALIKE = "哪句对？ A. 甲是偶数 B. 乙是偶数 C. 丙是偶数"


@pytest.mark.parametrize(
    ("question", "gold", "answer", "right"),
    [
        ("Find the quotient and the remainder.", "7, 3", r"\text{remainder }7, \text{ quotient }3", False),
        ("How many are there?", "3", r"\text{at most }3", False),
        ("What is the side, of diagonal 2?", r"\sqrt{2}", r"\text{the diagonal is }\sqrt{2}", False),
        ("Find the number whose cube it is.", "n+1", r"\text{the cube of }n+1", False),
        ("How much is each?", "10, 5", r"10\text{ kg, }5\text{ kg}", True),
        ("Find the lengths.", r"\pi, 2\pi", r"\pi\text{ cm and }2\pi\text{ cm}", True),
        ("Solve it.", "x=4 or x=-2", "x_1=-2, x_2=4", True),
        ("Solve it.", "-2, 4", "x_1=-2; x_2=4", True),
        ("Solve it.", "x=4 or x=-2", "x_1=-2, x_2=3", False),
        ("Solve it.", "x=4, y=-2", "x_1=-2, x_2=4", False),
        ("Solve it.", "5", ",", False),
        ("Find $a_1$ and $a_2$.", "a=3, a=5", "a_1=5, a_2=3", False),
        ("Solve it.", "y=2, x=3", "x_1=2, y_1=3", False),
        ("Solve for $y$, where $x_1=1$.", "y=2, y=3", "x_1=2, x_2=3", False),
        ("Find the primes.", "3, 5", r"\text{the product of }3\text{ and }5", False),
        ("How many triangles?", "5", r"5\ (\text{no such triangle exists})", False),
        (CHOICE, "D", r"\text{D. job}", False),
        (CHOICE, "D", r"\text{D. wisdom}", True),
        (CHOICE, "D", r"\text{Option D, that is wisdom}", True),
        (CHOICE, "wisdom", r"\text{Option D, that is wisdom}", True),
        (CHOICE, "wisdom", r"\text{Option D, that is not wisdom}", False),
        (ROOTS, "A", r"\text{A. }2", False),
        (ROOTS, "A", r"\text{A. }\sqrt2", True),
        (ALIKE, "C", "C. 丙是偶数", True),
        (ALIKE, "C", "C. 乙是偶数", False),
        ("Expand $(x+2)(3x-6)$.", "3x^2-12", "3(x^2-4)=3x^2-12", True),
        ("Expand $(x+2)(3x-6)$.", "3x^2-12", "3(x^2-5)=3x^2-12", False),
    ],
)
def test_words_around_a_value_say_nothing_more_or_change_it(question, gold, answer, right):
    assert grade(rf"\boxed{{{answer}}}", gold, question=question, with_qwen=False).correct is right


@pytest.mark.parametrize(
    ("completion", "gold", "right"),
    [
        (r"160 bags × $12 = \boxed{1{,}920}", "1920", True),
        (r"$12 = \boxed{1920}$", "1920", False),
        ("Costs:\n- $12 = \\boxed{17}$", "17", False),
        (r"\boxed{80} However, this is false.", "80", False),
        ("\\boxed{5}\n\nIt is false that a sixth exists.", "5", True),
    ],
)
def test_text_beside_the_box(completion, gold, right):
    assert grade(completion, gold, with_qwen=False).correct is right
