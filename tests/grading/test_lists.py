"""
Answers written by someone who had not read the rules, graded as the trainer grades them: with the question.

Each pair of `lists/` was graded before the rules learned from it, the sixth and eighth only then. What is accepted
of the hostile ones and refused of the correct ones may only become less.
"""

import json
from pathlib import Path

import pytest

from trl_ces.rewards import accuracy_reward

LISTS = Path(__file__).parent / "lists"


@pytest.mark.parametrize(
    ("name", "rows", "right", "wrong"),
    [
        ("blind3-hostile", 300, 0.0, 2),
        ("blind3-correct", 304, 1.0, 6),
        ("blind4-hostile", 500, 0.0, 0),
        ("blind4-correct", 309, 1.0, 19),
        ("blind5-hostile", 500, 0.0, 0),
        ("blind5-correct", 300, 1.0, 2),
        ("blind6-hostile", 500, 0.0, 7),
        ("blind6-correct", 300, 1.0, 29),
        ("blind7-hostile", 500, 0.0, 3),
        ("blind7-correct", 300, 1.0, 7),
    ],
)
def test_no_more_of_a_blind_list_is_misjudged_than_was_reached(name, rows, right, wrong):
    listed = [json.loads(line) for line in (LISTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    questions = [[{"role": "user", "content": row["question"]}] for row in listed]
    rewards = accuracy_reward(
        [row["completion"] for row in listed], [row["gold"] for row in listed], prompts=questions
    )
    misjudged = [row for row, reward in zip(listed, rewards, strict=True) if reward not in (None, right)]
    assert len(listed) == rows
    assert len(misjudged) <= wrong, misjudged
