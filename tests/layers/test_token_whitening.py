"""DLER's advantages in the trainer; over processes they are in tests/methods/test_group_processes.py."""

import math

import pytest
from group_processes import DLER, PROMPTS, make_script, make_trainer, scored
from reference import rewards_of_gfpo


def expected_advantages(keep):
    """Of the script's rollout, with rewards of weights 1 and 2, token by token; 0 where GFPO rejects."""
    rows = [row for prompt in PROMPTS for row in make_script()[prompt]]
    rows = [{**row, "rewards": (row["accuracy"] or 0) + 2 * row["bonus"]} for row in rows]
    rewards = rewards_of_gfpo(rows, 4, keep, "length")
    groups = [[reward for reward in rewards[place : place + 4] if reward is not None] for place in (0, 4, 8)]
    means = [sum(group) / len(group) for group in groups]
    d = [None if reward is None else reward - means[place // 4] for place, reward in enumerate(rewards)]
    every = [value for value, row in zip(d, rows, strict=True) if value is not None for _ in range(sum(row["mask"]))]
    mean = sum(every) / len(every)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in every) / (len(every) - 1) + 1e-8)
    return [0 if value is None else (value - mean) / deviation for value in d]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("keep", [None, 2])
def test_advantages_are_whitened_over_the_tokens_of_the_completions_with_a_reward(tmp_path, keep, dynamic):
    changes = {"gfpo_keep": keep, "dynamic_sampling": dynamic, "dynamic_sampling_max_rounds": 1}
    trainer = make_trainer(tmp_path, **{**DLER, **changes})
    found = scored(trainer)["advantages"]
    assert found == pytest.approx(expected_advantages(keep or 4), rel=1e-5)
    assert list(trainer._logs["advantages"]) == pytest.approx(found)


@pytest.mark.parametrize(
    ("changes", "trls"), [(DLER, {"whiten_over_tokens": False}), ({"gfpo_keep": 2}, {"gfpo_keep": None})]
)
def test_an_evaluation_keeps_trls(tmp_path, changes, trls):
    advantages = []
    for settings in (changes, {**changes, **trls}):
        trainer = make_trainer(tmp_path, **settings, per_device_eval_batch_size=12)
        trainer.model.eval()
        batch = trainer._generate_and_score_completions([{"prompt": prompt} for prompt in PROMPTS for _ in range(4)])
        advantages.append(batch["advantages"].tolist())
    assert advantages[0] == advantages[1]
