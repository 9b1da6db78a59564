r"""Test the extraction of the final answer from a box, an explicit statement or an expression at the end."""

from rows import rows

from trl_ces.grading.answers import MAX_BOXES, STATEMENT_WINDOW, extract_answer, find_boxes
from trl_ces.grading.notation import tidy


@rows("answers/boxes")
def test_outermost_boxes_are_returned_unless_the_last_box_is_truncated(text, boxes):
    actual = find_boxes(text)
    assert (None if actual is None else [box.content for box in actual]) == boxes


def test_the_span_of_a_box_ends_after_its_content():
    text = r"So \boxed{12}, $\boxed 345$ or \fbox6."
    assert [text[box.start : box.end] for box in find_boxes(text)] == [r"\boxed{12}", r"\boxed 345", r"\fbox6."]


@rows(
    "answers/extracted",
    ("So it must be **17**." + "\n" * 50, "17"),
)
def test_the_final_answer_is_extracted(text, expected):
    assert extract_answer(text) == expected


@rows("answers/decorated")
def test_decorations_and_invisible_characters_are_removed_from_a_value(text, value):
    assert tidy(extract_answer(text)) == value


@rows("answers/no_answer")
def test_negated_modified_and_retracted_boxes_are_not_extracted(text):
    assert extract_answer(text) is None


@rows("answers/answer_5")
def test_a_box_is_extracted_from_any_sentence(text):
    assert extract_answer(text) == "5"


def test_statements_are_found_only_near_the_end_and_boxes_everywhere():
    padding = " word" * STATEMENT_WINDOW
    assert extract_answer("The answer is 5." + padding) is None
    assert extract_answer(padding + "The answer is 5.") == "5"
    assert extract_answer(r"\boxed{5}" + padding) == "5"


@rows("answers/several_boxes")
def test_boxes_are_joined_if_there_is_one_per_gold_value(text, parts, expected):
    assert extract_answer(text, parts) == expected


def test_the_number_of_extracted_boxes_is_limited():
    values = [str(value) for value in range(MAX_BOXES)]
    text = " ".join(rf"\boxed{{{value}}}" for value in values)
    assert extract_answer(text, MAX_BOXES) == "; ".join(values)
    # This text has one more box than the limit.
    assert extract_answer(rf"\boxed{{x}} {text}", MAX_BOXES) == "; ".join(["x", *values])
    assert len(find_boxes(text * 3)) <= MAX_BOXES + 1
