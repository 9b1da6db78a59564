"""Words around a value: those of the question, remarks in brackets, one value of a list at a time."""

import pytest

from trl_ces.grading import grade

BALL = "It is thrown up. Find its maximum altitude and the time at which it hits the ground."
CANDY = "It has chocolates and other candy. How much of each are in 15 kilograms?"
GEOMETRIC = r"What is the value of $a_{7}$? What is the sum of all the numbers?"
SLOPE = "Find the slope of the line."
CHOICE = "What is he waiting for? A. job B. boredom C. anxiety D. wisdom"


@pytest.mark.parametrize(
    ("question", "gold", "answer", "right"),
    [
        (BALL, r"$45/98$ meters", r"\text{maximum altitude }\frac{45}{98}\text{ m}", True),
        (BALL, r"$45/98$ meters", r"\text{half the altitude }\frac{45}{98}\text{ m}", False),
        (BALL, "4, 9", r"\text{maximum altitude }4\text{ meters and time }9\text{ seconds}", True),
        (BALL, "4, 9", r"\text{maximum altitude }9\text{ m, }\text{time }4\text{ s}", False),
        (CANDY, "10,5", r"10\text{ kg of chocolates and }5\text{ kg of other candy}", True),
        (CANDY, "10,5", r"10\text{ kg of chocolates or }5\text{ kg of other candy}", False),
        (CANDY, "10,5", r"10\text{ kg, }5\text{ kg}", True),
        (CANDY, "10,5", r"5\text{ kg of chocolates and }10\text{ kg of other candy}", False),
        (GEOMETRIC, "48, 384", r"a_7=48\text{ and the sum is }384", True),
        (GEOMETRIC, "48, 384", r"a_7=48\text{ and the sum is at least }384", False),
        ("Find all integers $k$.", r"k \geq 2", r"\text{all integers } k \ge 2", True),
        ("Find all integers $k$.", r"k \geq 2", r"\text{no integers } k \ge 2", False),
        ("How many are there?", "3", r"\text{at most }3", False),
        ("Find it.", r"(-\infty,2]", r"a \le 2", True),
        ("Find $a$ and $b$.", "-2,-2", "a=b=-2", True),
        ("Find $a$ and $b$.", "-2,-2", "a=b=-3", False),
        ("Where do they meet?", "x=y=0", "x=y = 0", True),
        ("Find $x+y$ and the radius.", "x+y=3, 1", r"x+y=3,\ \text{radius }1", True),
        ("Which divides 12? (A) 5 (B) 7 (C) 4", "C", r"\mathbf{C}\!:\ 4", True),
        ("Solve it.", "x=4 or x=-2", "x_1=-2, x_2=4", True),
        ("Solve it.", "x=4 or x=-2", "x_1=-2, x_2=3", False),
        ("Solve it.", "x=4, y=-2", "x_1=-2, x_2=4", False),
        ("What is $10^6$?", "1,000,000", "1,000,00", False),
        ("Solve it.", r"\{x<-2\} or \{x>2\}", r"x<-2\text{ and }x>2", False),
        ("Find the radius and interval.", "R=1, I=(-1,1)", r"\text{Radius: }1,\text{ interval: }(-1,1)", True),
        ("Find the radius and interval.", "R=2, I=(-1,1)", r"\text{Radius: }1,\text{ interval: }(-1,1)", False),
        ("Find them.", "A=18, B=4", r"A\text{ is }18,\ B\text{ is }4", True),
        ("Find them.", "A=18, B=4", r"A\text{ is }4,\ B\text{ is }18", False),
        (SLOPE, "Undefined", r"\text{The slope is undefined (vertical line)}", True),
        (SLOPE, "Undefined", r"\text{The slope is undefined (or zero)}", False),
        ("Find the minimum.", "2", r"2\ (\text{attained at } x=1)", True),
        ("Find the minimum.", "2", r"2\ (\text{the minimum is } 3)", False),
        ("Find the minimum.", "2", r"2\ (\text{not the minimum})", False),
        ("How many coins?", "100", r"100\ (\text{that is eighty coins})", False),
        ("How large is it, in square centimeters?", "54", r"54\ (\text{square centimeters})", True),
        ("How large is it, in square centimeters?", "54", r"54\ (\text{square meters})", False),
        (CHOICE, "D", r"\text{D. job}", False),
        (CHOICE, "D", r"\text{D. wisdom}", True),
        (CHOICE, "D", r"\text{Option D, that is wisdom}", True),
        (CHOICE, "wisdom", r"\text{Option D, that is wisdom}", True),
        (CHOICE, "wisdom", r"\text{Option D, that is not wisdom}", False),
        ("Expand $(x+2)(3x-6)$.", "3x^2-12", "3(x^2-4)=3x^2-12", True),
        ("Expand $(x+2)(3x-6)$.", "3x^2-12", "3(x^2-5)=3x^2-12", False),
        ("Find the vector.", r"\begin{pmatrix}3\\1\end{pmatrix}", "[3,1]^T", True),
        ("Find the vector.", r"\begin{pmatrix}3\\1\end{pmatrix}", "[1,3]^T", False),
    ],
)
def test_words_around_a_value_say_nothing_more_or_change_it(question, gold, answer, right):
    assert grade(rf"\boxed{{{answer}}}", gold, question=question, with_qwen=False).correct is right


@pytest.mark.parametrize(
    ("completion", "gold", "right"),
    [
        (r"160 bags × $12 = \boxed{1{,}920}", "1920", True),
        (r"$12 = \boxed{1920}$", "1920", False),
        (r"So \boxed{20} percent of students are absent.", r"20\%", True),
        (r"So \boxed{20} percent of 50 is it.", "20", False),
        (r"\boxed{80} However, this is false.", "80", False),
    ],
)
def test_text_beside_the_box(completion, gold, right):
    assert grade(completion, gold, with_qwen=False).correct is right
