"""
Grade answers whose authors had not read the grading rules, and pass the questions as the trainer does.

Each pair of lists in `lists/` was graded before its failures were used to improve the rules. Lists 6, 26 and 30 were
not used for improvements. Lists 22 to 31 contain ordinary answers; when first graded, 7, 22, 7, 14, 1, 18, 10, 15, 6
and 1 of 400 correct answers were rejected, and 1, 0, 0, 1, 0, 1, 0, 0, 0 and 1 of 400 wrong answers were accepted. The
numbers of accepted hostile answers and of rejected correct answers must not increase.
"""

import json
from pathlib import Path

import pytest
from trl import rewards as trl_rewards

from trl_ces import rewards
from trl_ces.grading import usable_golds

LISTS = Path(__file__).parent / "lists"


def read_list(name):
    return [json.loads(line) for line in (LISTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


BLIND_LISTS = [
    ("blind3-hostile", 300, 0.0, 2),
    ("blind3-correct", 304, 1.0, 6),
    ("blind4-hostile", 500, 0.0, 0),
    ("blind4-correct", 309, 1.0, 17),
    ("blind5-hostile", 500, 0.0, 0),
    ("blind5-correct", 300, 1.0, 2),
    ("blind6-hostile", 500, 0.0, 5),
    ("blind6-correct", 300, 1.0, 25),
    ("blind7-hostile", 500, 0.0, 1),
    ("blind7-correct", 300, 1.0, 5),
    ("blind8-hostile", 500, 0.0, 1),
    ("blind8-correct", 300, 1.0, 11),
    ("blind9-hostile", 500, 0.0, 2),
    ("blind9-correct", 300, 1.0, 12),
    ("blind10-hostile", 500, 0.0, 7),
    ("blind10-correct", 300, 1.0, 12),
    ("blind11-hostile", 500, 0.0, 10),
    ("blind11-correct", 300, 1.0, 24),
    ("blind12-hostile", 500, 0.0, 4),
    ("blind12-correct", 300, 1.0, 48),
    ("blind13-hostile", 500, 0.0, 2),
    ("blind13-correct", 300, 1.0, 1),
    ("blind14-hostile", 500, 0.0, 1),
    ("blind14-correct", 300, 1.0, 5),
    ("blind15-hostile", 500, 0.0, 1),
    ("blind15-correct", 300, 1.0, 9),
    ("blind16-hostile", 500, 0.0, 1),
    ("blind16-correct", 300, 1.0, 12),
    ("blind17-hostile", 500, 0.0, 5),
    ("blind17-correct", 300, 1.0, 4),
    ("blind18-hostile", 500, 0.0, 7),
    ("blind18-correct", 300, 1.0, 2),
    ("blind19-hostile", 500, 0.0, 2),
    ("blind19-correct", 300, 1.0, 72),
    ("blind20-hostile", 400, 0.0, 0),  # initially 3 accepted, and 36 correct answers rejected
    ("blind20-correct", 400, 1.0, 12),
    ("blind21-hostile", 400, 0.0, 0),  # initially 1 accepted, and 29 correct answers rejected
    ("blind21-correct", 400, 1.0, 6),
    ("blind22-hostile", 400, 0.0, 0),  # initially 1 accepted, and 7 correct answers rejected
    ("blind22-correct", 400, 1.0, 1),
    ("blind23-hostile", 400, 0.0, 0),  # initially 0 accepted, and 22 correct answers rejected
    ("blind23-correct", 400, 1.0, 1),
    ("blind24-hostile", 400, 0.0, 0),  # initially 0 accepted, and 7 correct answers rejected
    ("blind24-correct", 400, 1.0, 0),
    ("blind25-hostile", 400, 0.0, 0),  # initially 1 accepted, and 14 correct answers rejected
    ("blind25-correct", 400, 1.0, 0),
    ("blind26-hostile", 400, 0.0, 0),
    ("blind26-correct", 400, 1.0, 1),
    ("blind27-hostile", 400, 0.0, 0),  # initially 1 accepted, and 18 correct answers rejected
    ("blind27-correct", 400, 1.0, 12),
    ("blind28-hostile", 400, 0.0, 0),  # initially 0 accepted, and 10 correct answers rejected
    ("blind28-correct", 400, 1.0, 3),
    ("blind29-hostile", 400, 0.0, 0),  # initially 0 accepted, and 15 correct answers rejected
    ("blind29-correct", 400, 1.0, 4),
    ("blind30-hostile", 400, 0.0, 0),
    ("blind30-correct", 400, 1.0, 6),
    ("blind31-hostile", 400, 0.0, 0),  # initially 1 accepted, and 1 correct answer rejected
    ("blind31-correct", 400, 1.0, 1),
]
NEWEST = 4  # `make test` grades this many lists; `make test-slow` grades all lists


@pytest.mark.parametrize(
    ("name", "rows", "expected", "limit"),
    [*(pytest.param(*row, marks=pytest.mark.slow) for row in BLIND_LISTS[:-NEWEST]), *BLIND_LISTS[-NEWEST:]],
)
def test_the_number_of_misgraded_answers_in_blind_lists_does_not_increase(name, rows, expected, limit, monkeypatch):
    answers = read_list(name)
    monkeypatch.setattr(rewards, "_FIRST_LIMIT_S", 3.0)  # enough for a slow machine
    monkeypatch.setattr(rewards, "_LIMIT_S", 6.0)
    questions = [[{"role": "user", "content": row["question"]}] for row in answers]
    reward_values = rewards.accuracy_reward(
        [row["completion"] for row in answers], [row["gold"] for row in answers], prompts=questions
    )
    misgraded = [row for row, reward in zip(answers, reward_values, strict=True) if reward not in (None, expected)]
    assert len(answers) == rows
    assert len(misgraded) <= limit, misgraded
    usable = [reward for row, reward in zip(answers, reward_values, strict=True) if usable_golds([row["gold"]])[0]]
    assert usable.count(None) <= 2  # workers may start slowly on a busy machine


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "accepted", "rejected"),
    [
        (7, 4, 13),
        (8, 4, 34),
        (9, 5, 24),
        (10, 14, 27),
        (11, 12, 34),
        (12, 6, 58),
        (13, 9, 14),
        (14, 6, 12),
        (15, 5, 18),
        (16, 3, 22),
        (17, 5, 6),
        (18, 9, 5),
        (19, 11, 78),
        (20, 3, 36),
        (21, 1, 29),
        (22, 1, 7),
        (23, 0, 22),
        (24, 0, 7),
        (25, 1, 14),
        (26, 0, 1),
        (27, 1, 18),
        (28, 0, 10),
        (29, 0, 15),
        (30, 0, 6),
        (31, 1, 1),
    ],
)
def test_trls_reward_misgrades_more_than_twice_as_many_answers(number, accepted, rejected):
    misgraded = []
    for name, expected in ((f"blind{number}-hostile", 0.0), (f"blind{number}-correct", 1.0)):
        answers = read_list(name)
        golds = [row["gold"] if "$" in row["gold"] else f"${row['gold']}$" for row in answers]  # TRL parses only LaTeX
        rewards_of_trl = trl_rewards.accuracy_reward([[{"content": row["completion"]}] for row in answers], golds)
        misgraded.append(sum(reward != expected for reward in rewards_of_trl))
    print(f"\nTRL's reward on list {number}: {misgraded[0]} hostile accepted, {misgraded[1]} correct rejected")
    assert sum(misgraded) > 2 * (accepted + rejected)
    assert misgraded[1] > 2 * rejected
    # The wrong answers in these five lists are not hostile, so TRL's reward accepts at most two of them per list.
    assert number in (22, 25, 26, 27, 31) or misgraded[0] > 2 * accepted
