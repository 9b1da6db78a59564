r"""Extracting the answer: the last box, else an explicit statement, else an expression that ends the text."""

import pytest

from trl_ces.grading.answers import MAX_BOXES, STATEMENT_WINDOW, extract_answer, find_boxes


@pytest.mark.parametrize(
    ("text", "boxes"),
    [
        ("", []),
        ("no box, } but a brace", []),
        (r"\boxed{1}", ["1"]),
        (r"\boxed{ 1 }, \fbox{2}", ["1", "2"]),
        (r"\boxed{1}\boxed{2}\boxed{3}", ["1", "2", "3"]),
        (r"\boxed{}", [""]),
        (r"\boxed", [""]),
        (r"\boxedness{1}", []),  # another command
        (r"} \boxed{1}", ["1"]),
        (r"\boxed{\frac{1}{2}} {3}", [r"\frac{1}{2}"]),
        (r"\boxed{\{1, 2\}}", [r"\{1, 2\}"]),
        (r"\boxed{\boxed{6}} \boxed{7}", [r"\boxed{6}", "7"]),
        (r"\boxed{x \boxed{6}\boxed{7}} \boxed{8}", [r"x \boxed{6}\boxed{7}", "8"]),
        (r"\boxed {4}, \boxed  {5}", ["4", "5"]),
        (r"\boxed 5.", ["5"]),
        (r"$\boxed-5$", ["-5"]),
        (r"{\boxed 5}", ["5"]),
        (r"\boxed 0.5, then 6", ["0.5"]),
        (r"\boxed 5\boxed{6}", ["5", "6"]),
        (r"\boxed 5\fbox 6", ["5", "6"]),
        (r"\boxed{ first, then \boxed{7}", ["7"]),  # the first is never closed
        (r"\boxed{6}, \boxed{ oh, and \boxed{7}", ["6", "7"]),
        (r"\boxed{6} \boxed{7", None),
        (r"\boxed{", None),
        (r"\boxed{ \boxed{", None),
        (r"\boxed{6\}", None),
    ],
)
def test_the_outermost_boxes_are_found_in_order_and_none_where_the_last_is_cut_off(text, boxes):
    found = find_boxes(text)
    assert (None if found is None else [box.content for box in found]) == boxes


def test_a_box_ends_with_its_value():
    text = r"So \boxed{12}, $\boxed 345$ or \fbox6."
    assert [text[box.start : box.end] for box in find_boxes(text)] == [r"\boxed{12}", r"\boxed 345", r"\fbox6."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}. The boxed value is final.", r"\frac{1}{2}"),
        (r"\fbox{3}", "3"),
        (r"\boxed {4}", "4"),
        (r"\boxed 5.", "5"),
        (r"\boxed{1}, \boxed{2}, \boxed{3}", "1; 2; 3"),
        (r"\boxed{3} \boxed{3}", "3"),
        (r"\boxed{1}, the answer is 2", "2"),
        (r"\boxed{1}, the answer is 3, no, \boxed{2}", "2"),
        (r"\boxed{1}. The answer is $x+1$.", "$x+1$"),
        (r"\boxed{1}. The answer is clear.", "1"),
        (r"\boxed{1}. But then the root is negative. Final answer: no solution.", "no solution"),
        (r"\boxed{1}. We also find $2$.", "1"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\boxed{6}}", r"\boxed{6}"),
        (r"write \boxed{ first, then \boxed{7}", "7"),
        (r"The answer is $\boxed{8", None),
        (r"\boxed{9} or rather \boxed{1", None),
        (r"\boxed{9} or rather \boxed{}", None),
        ("The answer is 10.", "10"),
        ("The answer is 3.50.", "3.50"),
        ("The answer is 5. Therefore we are done.", "5"),
        ("The answer is 5\nas was to be shown", "5"),
        ("The answer is **5** as we know.", "5"),
        ("The answer is $3$, $4$ and $5$ in this order.", "$3$, $4$ and $5$"),
        ("The answer is $3$, $4$, and $5$.", "$3$, $4$, and $5$"),
        (r"The answer is \(3\) or \(4\), I think.", r"\(3\) or \(4\)"),
        ("The answer is 1. The answer is 2. The answer is 3.", "3"),
        ("Answer: yes", "yes"),
        ("The correct option is B.", "B"),
        ("The answer is five Because we count them", "five"),
        ("The answer is $5$\nWe are done", "$5$"),
        ("The answer is 5?", None),
        ("The sum of the answers is 5.", None),
        ("Twice the answer is $10$.", None),
        ("The answer is", None),
        ("The answer is: **", None),
        ("The final answer is $11$. I hope it is correct.", "$11$"),
        ("The answer is 1. No, the answer is 12.", "12"),
        ("**Answer:** $13$", "$13$"),
        ("**Final Answer**: **14**", "14"),
        ("所以答案是15。", "15"),
        ("故选：C", "C"),
        ("Hence we obtain $16$ as required.", "$16$"),
        ("So it must be **17**.", "17"),
        ("So it must be **17**." + "\n" * 50, "17"),
        ("We find $1$, $2$ and $3$.", "$1$, $2$ and $3$"),
        ("It is $19$ and not 20.", None),
        ("This is ** **", None),
        (r"Therefore \[ x = 18 \]", r"\[ x = 18 \]"),
        ("First $19$, then we think about it for a long while and write no number at all.", None),
        ("It is 20, I think", None),
        # the words behind a value belong to it
        ("The answer is $5$ thousand.", None),
        ("The answer is $5$ minus $6$.", None),
        ("The answer is $5$ to $6$.", None),
        ("The answer is $5$ dollars, because we pay.", "$5$ dollars"),
        ("She has $47$ apples left.", "$47$ apples left"),
        ("So $5$ is the answer.", "$5$"),
        # what asks, doubts, denies or takes back is no answer
        ("The answer is $5$? No, it is $6$.", None),
        ("The answer is $5$. No, it is $6$.", None),
        ("The answer is $5$. Wait, we forgot a sign.", None),
        ("It cannot be $5$", None),
        ("It is not $5$.", None),
        ("It is not easy. Hence $5$.", "$5$"),
        ("One of the values is $5$.", None),
        ("We try $5$.", None),
        ("Suppose that it is $5$.", None),
        ("6 = $5$ then", None),
        ("It is half of $5$", None),
        ("Twice $5$.", None),
        ("Either $6$ or $5$", None),
        ("The values are $6$ or $5$", "$6$ or $5$"),
        ("Hence $x = 9$ or $x = -1$.", "$x = 9$ or $x = -1$"),
        ("The answers are $9$ and $-1$.", "$9$ and $-1$"),
        ("It is $6$ minus $5$", None),
        ("Therefore, $x = 47$.", "$x = 47$"),
        ("#### 47", "47"),
        ("They got 4 + 4 = 8 bars. #### 8", "8"),
        ("", None),
    ],
)
def test_the_final_answer_is_the_last_box_else_a_statement_else_what_closes_the_text(text, expected):
    assert extract_answer(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        r"$-\boxed{5}$", r"$1 - \boxed{5}$", r"$2 \cdot \boxed{5}$", r"$\sqrt{\boxed{5}}$", r"$\frac{1}{\boxed{5}}$",
        r"$x \neq \boxed{5}$", r"$x > \boxed{5}$", r"$\boxed{5}^2$", r"$\boxed{5} + 1$", r"$\boxed{5}000$",
        r"$\frac{\boxed{5}}{2}$", r"It is not \boxed{5}.", r"It can't be equal to $\boxed{5}$.",
        r"Anything but \boxed{5}",
        r"\boxed{5} is wrong.", r"\boxed{5}. No, it is 6.",
        r"\boxed{5}. I made a mistake.", r"It is not $\boxed{\boxed{5}}$",
    ],
)  # fmt: skip
def test_a_box_that_is_denied_changed_or_taken_back_is_no_answer(text):
    assert extract_answer(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "**Final Answer**\n\\boxed{5}", r"$x = \boxed{5}$", r"$$\boxed{5}$$", r"\[ \boxed{5} \]", "- \\boxed{5}",
        r"The answer - \boxed{5} - is prime.", r"**\boxed{5}**", r"$\boxed{5}$ cm", r"(\boxed{5})", r"\boxed{5}.",
        r"The sum does not vanish: \boxed{5}", r"$\therefore \boxed{5}$", r"\boxed{5}! Nothing is left.",
        r"\boxed{5}. No other value works.", r"\boxed{5}. A common mistake is to add 1.", r"\text{\boxed{5}}",
        r"\boxed{5}. Option (B) is wrong because it is even.", r"I made a mistake, so it is \boxed{5}",
        "Hence\n\n$$\n\\boxed{5}\n$$\n", r"$\boxed{5}$, and 7 is not needed.", r"{\boxed{5}}",
    ],
)  # fmt: skip
def test_a_box_may_stand_in_any_sentence(text):
    assert extract_answer(text) == "5"


def test_a_statement_counts_within_the_last_characters_only_and_a_box_everywhere():
    much = " word" * STATEMENT_WINDOW
    assert extract_answer("The answer is 5." + much) is None
    assert extract_answer(much + "The answer is 5.") == "5"
    assert extract_answer(r"\boxed{5}" + much) == "5"


@pytest.mark.parametrize(
    ("text", "parts", "expected"),
    [
        (r"\boxed{3} and \boxed{4}", 2, "3; 4"),
        (r"\boxed{3}, \boxed{4} and \boxed{5}", 3, "3; 4; 5"),
        (r"\boxed{3} and \boxed{4}", 1, "3; 4"),
        (r"\boxed{3} and \boxed{4}", 3, "3; 4"),
        (r"\boxed{2}, \boxed{3} and \boxed{4}", 2, "2; 3; 4"),
        (r"It is not \boxed{3} and it is \boxed{4}", 2, None),
        (r"\boxed{3; 4}", 2, "3; 4"),
        (r"\boxed{} and \boxed{4}", 2, "4"),
        (r"\boxed{3} and \boxed{}", 2, None),
        # the last box has all the values
        (r"\boxed{x} so \boxed{3, 4}", 2, "3, 4"),
        (r"\boxed{x} so \boxed{3；4}", 2, "3；4"),
        (r"\boxed{x} so \boxed{\{3, 4\}}", 2, r"\{3, 4\}"),
        (r"\boxed{x} so \boxed{\pm 3}", 2, r"\pm 3"),
        (r"\boxed{x} so \boxed{3 \text{ or } 4}", 2, r"3 \text{ or } 4"),
        (r"\boxed{x} so \boxed{(-\infty,1) \cup (2,\infty)}", 2, r"(-\infty,1) \cup (2,\infty)"),
        (r"\boxed{x} so \boxed{y} so \boxed{1, 2, 3}", 3, "1, 2, 3"),
        # a tuple is one value, and a value of a gold such as `1, 2; 3, 4; 5` may be a list
        (r"\boxed{1, 2} \boxed{3, 4} \boxed{5}", 3, "1, 2; 3, 4; 5"),
        (r"\boxed{(1, 2)} and \boxed{(3, 4)}", 2, "(1, 2); (3, 4)"),
        (r"\boxed{[0, 1]} and \boxed{\left[2, 3\right)}", 2, r"[0, 1]; \left[2, 3\right)"),
        (r"\boxed{\text{south}} and \boxed{\text{north}}", 2, r"\text{south}; \text{north}"),
        (r"\boxed{2\,\mathrm{m}} and \boxed{3\;\mathrm{m}}", 2, r"2\,\mathrm{m}; 3\;\mathrm{m}"),  # LaTeX spaces
    ],
)
def test_as_many_boxes_as_the_gold_has_values_are_one_answer(text, parts, expected):
    assert extract_answer(text, parts) == expected


def test_of_very_many_boxes_only_the_last_are_kept():
    values = [str(value) for value in range(MAX_BOXES)]
    text = " ".join(rf"\boxed{{{value}}}" for value in values)
    assert extract_answer(text, MAX_BOXES) == "; ".join(values)
    assert extract_answer(rf"\boxed{{x}} {text}", MAX_BOXES) == "; ".join(["x", *values])  # one box too many
    assert len(find_boxes(text * 3)) <= MAX_BOXES + 1
