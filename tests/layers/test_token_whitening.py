"""DLER's advantages in the trainer; over processes they are in tests/methods/test_group_processes.py."""

import math

import pytest
from group_processes import DLER, PROMPTS, make_script, make_trainer, scored


def expected_advantages():
    """Of the script's rollout, with rewards of weights 1 and 2, token by token."""
    rows = [row for prompt in PROMPTS for row in make_script()[prompt]]
    rewards = [(row["accuracy"] or 0) + 2 * row["bonus"] for row in rows]
    means = [sum(rewards[4 * group : 4 * group + 4]) / 4 for group in range(3)]
    d = [reward - means[place // 4] for place, reward in enumerate(rewards)]
    every = [value for value, row in zip(d, rows, strict=True) for _ in range(sum(row["mask"]))]
    mean = sum(every) / len(every)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in every) / (len(every) - 1) + 1e-8)
    return [(value - mean) / deviation for value in d]


def test_advantages_are_whitened_over_the_tokens_of_the_rollout(tmp_path):
    assert scored(make_trainer(tmp_path, **DLER))["advantages"] == pytest.approx(expected_advantages(), rel=1e-5)


def test_an_evaluation_keeps_trls(tmp_path):
    advantages = []
    for whiten in (True, False):
        trainer = make_trainer(tmp_path, **{**DLER, "whiten_over_tokens": whiten}, per_device_eval_batch_size=12)
        trainer.model.eval()
        batch = trainer._generate_and_score_completions([{"prompt": prompt} for prompt in PROMPTS for _ in range(4)])
        advantages.append(batch["advantages"].tolist())
    assert advantages[0] == advantages[1]
