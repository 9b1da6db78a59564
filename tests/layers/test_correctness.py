"""Check that Eq. 3 excludes unscored completions, and that graded rewards below the threshold stop training."""

import logging
import math
import re

import pytest
import torch
from tiny import scripted_accuracy_reward, scripted_bonus_reward
from trainers import PROMPTS, prepare_trainer, scripted_trainer, tiny_trainer

from trl_ces.layers import GroupRewards, RewardCalls
from trl_ces.layers.reward_calls import RewardError
from trl_ces.methods.rule import Need, Rule, ShapedAdvantages
from trl_ces.rewards import get_kimi_length_reward, group_reward

REWARDS = [scripted_accuracy_reward, scripted_bonus_reward]
SFT = {"shaping": "on_policy_sft", "epsilon": 1.0, "epsilon_high": 1e6}
DYNAMIC_SAMPLING = {"shaping": "none", "dynamic_sampling": True}


def make_script(accuracies=(1.0, 1.0, None, 0.0), bonus=1.0):
    """Return a script with one group of completions of 20 tokens, all with the same bonus."""
    rows = [{"completion_ids": [5] * 19 + [1], "accuracy": value, "bonus": bonus} for value in accuracies]
    return {PROMPTS[0]: rows}


def make_trainer(folder, rewards=REWARDS, script=None, **changes):
    sizes = {"per_device_train_batch_size": 4, "max_completion_length": 40, "ces_tau": 0.5}
    return prepare_trainer(scripted_trainer(folder, script or make_script(), rewards, **{**sizes, **changes}))


def rollout(trainer, size=4):
    return trainer._generate_and_score_completions([{"prompt": PROMPTS[0]} for _ in range(size)])


zeros = group_reward(lambda groups: torch.zeros_like(groups.rewards))
# Without the third completion, the rewards are 2, 2, 1 (mean 5 / 3, deviation 0.577). In TRL, they are 2, 2, 1, 1
# (mean 3 / 2, deviation 0.577).
EXCLUDED, AS_IN_TRL = [0.577, 0.577, 0.0, -1.155], [0.866, 0.866, -0.866, -0.866]
CASES = {
    "ces": ({}, REWARDS, EXCLUDED),
    "on-policy SFT": (SFT, REWARDS, EXCLUDED),
    "dynamic sampling": (DYNAMIC_SAMPLING, REWARDS, EXCLUDED),
    "group reward": ({"shaping": "none"}, [*REWARDS, zeros], EXCLUDED),
    "length reward": ({"shaping": "none"}, [*REWARDS, get_kimi_length_reward()], EXCLUDED),
    "entropy advantage and a group reward": ({"shaping": "entropy_advantage"}, [*REWARDS, zeros], EXCLUDED),
    "accuracy alone": ({"shaping": "none"}, REWARDS[:1], EXCLUDED),
    "none": ({"shaping": "none"}, REWARDS, AS_IN_TRL),
    "entropy advantage": ({"shaping": "entropy_advantage"}, REWARDS, AS_IN_TRL),
}


@pytest.mark.parametrize("case", CASES)
def test_eq_3_excludes_unscored_completions_if_correctness_is_read(tmp_path, case):
    changes, rewards, expected = CASES[case]
    trainer = make_trainer(tmp_path, rewards, **changes)
    assert rollout(trainer)["advantages"].tolist() == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("scale", ["batch", "none"])
def test_every_scaling_excludes_unscored_completions(tmp_path, scale):
    trainer = make_trainer(tmp_path, scale_rewards=scale)
    advantages = rollout(trainer)["advantages"].tolist()
    expected = {"batch": EXCLUDED, "none": [1 / 3, 1 / 3, 0.0, -2 / 3]}[scale]
    assert advantages == pytest.approx(expected, abs=1e-3)


def test_separately_normalized_rewards_exclude_unscored_completions(tmp_path):
    script = make_script()
    script[PROMPTS[0]][2]["bonus"] = 9.0  # would change the mean and the deviation of the bonus
    trainer = make_trainer(tmp_path, script=script, multi_objective_aggregation="normalize_then_sum")
    assert rollout(trainer)["advantages"].tolist() == pytest.approx(EXCLUDED, abs=1e-3)


def test_the_layer_alone_excludes_unscored_completions(tmp_path):
    class TrainerWithoutCorrectness(GroupRewards, RewardCalls):
        pass

    trainer = make_trainer(tmp_path, [*REWARDS, zeros], trainer_class=TrainerWithoutCorrectness, shaping="none")
    assert rollout(trainer)["advantages"].tolist() == pytest.approx(EXCLUDED, abs=1e-3)


def test_a_row_with_an_invalid_accuracy_reward_is_excluded(tmp_path):
    script = make_script((1.0, 1.0, math.nan, 0.0))
    trainer = make_trainer(tmp_path, script=script, on_reward_error="skip")
    assert rollout(trainer)["advantages"].tolist() == pytest.approx(EXCLUDED, abs=1e-3)


@pytest.mark.parametrize("changes", [{}, DYNAMIC_SAMPLING], ids=["ces", "dynamic sampling"])
def test_evaluation_metrics_exclude_unscored_completions(tmp_path, changes):
    script = make_script(bonus=0.0)
    script[PROMPTS[0]][2]["bonus"] = 1.0
    trainer = make_trainer(tmp_path, script=script, per_device_eval_batch_size=4, **changes)
    metrics = trainer.evaluate()
    assert metrics["eval_rewards/scripted_accuracy_reward/mean"] == pytest.approx(2 / 3)
    assert metrics["eval_rewards/scripted_bonus_reward/mean"] == 0
    assert metrics["eval_reward"] == pytest.approx(2 / 3)


def test_unscored_completions_are_ignored_when_rewards_are_compared(tmp_path):
    script = make_script((1.0, 1.0, None, 1.0), bonus=0.0)
    script[PROMPTS[0]][2]["bonus"] = 1.0
    assert rollout(make_trainer(tmp_path, script=script))["equal_rewards"].all()


def test_unscored_completions_get_no_advantage_from_any_rule(tmp_path, monkeypatch):
    def reward_incorrect(batch, entropies_nats, mask):
        shaped = batch["advantages"].unsqueeze(1) + (~batch["correct"]).unsqueeze(1) * mask
        return ShapedAdvantages(shaped.float(), mask.bool())

    rule = Rule("reward_incorrect", "", reward_incorrect, needs=frozenset({Need.CORRECTNESS}))
    monkeypatch.setattr("trl_ces.config.find_rule", lambda name: rule)
    trainer = make_trainer(tmp_path, shaping="reward_incorrect")
    batch = rollout(trainer)
    shape = batch["completion_ids"].shape
    shaped = trainer._shaped_advantages(batch, torch.zeros(shape), torch.zeros(shape))
    expected = torch.tensor([0.577, 0.577, 0.0, -0.155]).unsqueeze(1).expand(shape)
    torch.testing.assert_close(shaped, expected, atol=1e-3, rtol=0)


# Graded accuracy rewards.


def graded_trainer(folder, values, **changes):
    """Create a trainer whose rewards in rollout `i` are `values[i]`; later rollouts use the last list."""
    lists = list(values)

    def score(completions, **kwargs):
        current = lists.pop(0) if len(lists) > 1 else lists[0]
        return [current[row % len(current)] for row in range(len(completions))]

    return tiny_trainer(folder, score, max_steps=2, ces_tau=0.5, **changes)


BELOW_THRESHOLD = {
    "partial credit": [0.2, 0.7],
    "equal for all": [0.35],
    "some incorrect": [0.0, 0.9],
    "some unscored": [None, 0.5],
    "almost 1": [0.99],
    "negative error": [-3.0, -0.5],
    "maximum is 0": [-1.0, 0.0],
}


@pytest.mark.parametrize(
    ("values", "changes"),
    [*((values, {}) for values in BELOW_THRESHOLD.values()), ([0.5], {"ces_accuracy_reward": "score"}), ([0.5], SFT)],
    ids=[*BELOW_THRESHOLD, "named", "on-policy SFT"],
)
def test_a_graded_reward_below_the_default_threshold_stops_training(tmp_path, values, changes):
    with pytest.raises(RewardError) as error:
        graded_trainer(tmp_path, [values], **changes).train()
    message = str(error.value)
    assert re.search(r"The accuracy reward score returned \S+, but no value of at least `ces_correct_thres", message)
    assert "set the threshold to" in message


def test_a_graded_reward_stops_training_after_a_rollout_of_zeros(tmp_path):
    trainer = graded_trainer(tmp_path, [[0.0], [0.0, 0.4]])
    with pytest.raises(RewardError, match=r"returned 0\.4"):
        trainer.train()
    assert trainer.state.global_step == 1


def test_a_graded_reward_stops_training_with_a_group_reward(tmp_path):
    script = make_script((0.2, 0.4, 0.2, 0.4))
    with pytest.raises(RewardError, match=r"returned 0\.2"):
        make_trainer(tmp_path, [*REWARDS, zeros], script, shaping="none", max_steps=1).train()


@pytest.mark.parametrize(
    ("values", "changes"),
    [
        ([[0.0]], {}),  # nothing is correct yet
        ([[-1.0]], {}),  # nothing is correct yet, with rewards of -1
        ([[None]], {}),
        ([[0.5, 1.0]], {}),
        ([[-1.0, 1.0], [-1.0, -0.5]], {}),  # the threshold was reached in the first rollout
        ([[0.2, 0.7]], {"ces_correct_threshold": 0.5}),
        ([[0.2, 0.7]], {"ces_correct_threshold": 0.999}),
        ([[0.2, 0.7]], {"shaping": "none"}),
        ([[0.2, 0.7]], DYNAMIC_SAMPLING),  # dynamic sampling compares the rewards themselves
    ],
    ids=str,
)
def test_other_accuracy_rewards_do_not_stop_training(tmp_path, values, changes):
    trainer = graded_trainer(tmp_path, values, **changes)
    trainer.train()
    assert trainer.state.global_step == 2


def test_a_first_rollout_of_zeros_causes_a_warning(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        graded_trainer(tmp_path, [[0.0]]).train()
    assert "of the first rollout is correct" in caplog.text


def test_checkpoints_record_that_the_threshold_was_reached(tmp_path):
    changes = {"save_strategy": "steps", "save_steps": 1}
    graded_trainer(tmp_path, [[0.5, 1.0]], **changes).train()
    resumed = graded_trainer(tmp_path, [[0.5]], **changes)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert resumed.state.global_step == 2


def test_evaluation_does_not_stop_on_a_graded_reward(tmp_path):
    trainer = graded_trainer(tmp_path, [[0.5]], per_device_eval_batch_size=4)
    assert trainer.evaluate()["eval_ces/group_accuracy"] == 0
