"""Check that a group reward receives the gathered rollout and works in `reward_funcs` like other rewards."""

import functools
import math

import pytest
import torch
from tiny import random_script, scripted_accuracy_reward, scripted_bonus_reward
from trainers import assert_bitwise_equal, record_results, scripted_trainer, weights
from trl import GRPOTrainer

from trl_ces import CESTrainer
from trl_ces.layers import GroupRewards, RewardCalls
from trl_ces.layers.reward_calls import LARGEST, RewardError
from trl_ces.rewards import get_alp_length_reward, group_reward

PROMPTS = ["ab", "cd", "ef", "gh"]
OUTCOMES = [[1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, None, 0.0], [None, None, None, None]]
SCORED = 11
TRUNCATED = {1, 6}
LIMIT = 40


class GRPOTrainerWithGroupRewards(GroupRewards, RewardCalls, GRPOTrainer):
    pass


def make_script(masked=False):
    generator = torch.Generator().manual_seed(0)
    return random_script(PROMPTS, OUTCOMES, generator, masked=masked, truncated=TRUNCATED)


def make_trainer(folder, rewards, trainer_class=CESTrainer, script=None, **changes):
    arguments = {
        "max_steps": 1,
        "per_device_train_batch_size": 16,
        "max_completion_length": LIMIT,
        "shuffle_dataset": False,
        **changes,
    }
    script = script or make_script()
    return scripted_trainer(folder, script, rewards, trainer_class=trainer_class, **arguments)


def make_recording_reward(rule):
    """Return a group reward, and a list that records the `Groups` of each call."""
    calls = []

    def recording_reward(groups):
        calls.append(groups)
        return rule(groups)

    return group_reward(recording_reward), calls


@pytest.mark.parametrize("masked", [False, True], ids=["", "tools"])
def test_a_group_reward_receives_data_for_whole_groups(tmp_path, masked):
    script = make_script(masked)
    reward, calls = make_recording_reward(lambda groups: groups.lengths.float())
    make_trainer(tmp_path, [scripted_accuracy_reward, reward], script=script).train()
    (groups,) = calls
    lengths = [
        [sum(row["mask"]) if masked else len(row["completion_ids"]) for row in script[prompt]] for prompt in PROMPTS
    ]
    assert groups.lengths.tolist() == lengths
    assert groups.correct.tolist() == [[value == 1.0 for value in group] for group in OUTCOMES]
    assert groups.scored.tolist() == [[value is not None for value in group] for group in OUTCOMES]
    assert groups.truncated.flatten().nonzero().flatten().tolist() == sorted(TRUNCATED)
    accuracies = [[math.nan if value is None else value for value in group] for group in OUTCOMES]
    assert torch.equal(groups.rewards.nan_to_num(9), torch.tensor(accuracies).nan_to_num(9))
    assert groups.max_length == LIMIT
    torch.testing.assert_close(groups.group_accuracy, torch.tensor([0.5, 1.0, 0.0, 0.0]))


def test_weighted_group_rewards_are_logged_and_skip_unscored_completions(tmp_path):
    reward = get_alp_length_reward(beta=0.5)
    trainer = make_trainer(tmp_path, [scripted_accuracy_reward, reward], reward_weights=[1.0, 3.0])
    recorded_rewards = record_results(trainer, "_calculate_rewards")
    trainer.train()
    script = make_script()
    rates = [0.5, 1.0, 0.25, 0.25]  # 1 / G if no completion is correct
    expected = [
        [
            math.nan if row["accuracy"] is None else -0.5 * rate * len(row["completion_ids"]) / LIMIT
            for row in script[prompt]
        ]
        for prompt, rate in zip(PROMPTS, rates, strict=True)
    ]
    expected = torch.tensor(expected).flatten()
    torch.testing.assert_close(recorded_rewards[0][:, 1], expected, equal_nan=True)
    entry = trainer.state.log_history[0]
    assert entry["rewards/alp_length_reward/mean"] == pytest.approx(expected.nanmean().item(), rel=1e-5)
    total = (recorded_rewards[0][:, 0] + 3 * expected).nanmean().item()
    assert entry["reward"] == pytest.approx(total, rel=1e-5)


def test_a_partial_group_reward_is_named_after_its_function():
    def shortest(groups, weight):
        return -weight * groups.lengths.float()

    reward = group_reward(functools.partial(shortest, weight=0.5))
    assert reward.__name__ == "shortest"
    with pytest.raises(RuntimeError, match="shortest is a group reward"):
        reward(["ab"])


def test_the_threshold_determines_correctness(tmp_path):
    reward, calls = make_recording_reward(lambda groups: torch.zeros_like(groups.rewards))
    script = make_script()
    for row in script["ab"]:
        row["accuracy"] = 0.6
    make_trainer(tmp_path, [scripted_accuracy_reward, reward], script=script, ces_correct_threshold=0.6).train()
    assert calls[0].correct.tolist()[:2] == [[True] * 4, [True] * 4]


def test_evaluation_uses_num_generations_eval(tmp_path):
    reward, calls = make_recording_reward(lambda groups: torch.zeros_like(groups.rewards))
    trainer = make_trainer(
        tmp_path, [scripted_accuracy_reward, reward], num_generations_eval=2, per_device_eval_batch_size=8
    )
    trainer.evaluate()
    assert [groups.lengths.shape for groups in calls] == [(4, 2)]


def test_grpo_trainer_supports_group_rewards_only_with_the_layer(tmp_path):
    rewards = [scripted_accuracy_reward, get_alp_length_reward(0.5)]
    make_trainer(tmp_path / "layer", rewards, GRPOTrainerWithGroupRewards, shaping="none").train()
    with pytest.raises(RuntimeError, match=r"alp_length_reward is a group reward.*GRPOTrainer"):
        make_trainer(tmp_path / "trl", rewards, GRPOTrainer).train()


def test_dynamic_sampling_keeps_the_rewards_of_each_round(tmp_path):
    reward, calls = make_recording_reward(lambda groups: groups.lengths.float())
    changes = {"per_device_train_batch_size": 8, "dynamic_sampling": True, "dynamic_sampling_max_rounds": 2}
    trainer = make_trainer(
        tmp_path, [scripted_accuracy_reward, reward], shaping="none", scale_rewards="batch", **changes
    )
    recorded_rewards = record_results(trainer, "_calculate_rewards")
    trainer.train()
    assert len(calls) == 2
    final_rewards = recorded_rewards[-1]
    generated = torch.cat(recorded_rewards[:-1])
    for group in final_rewards.view(-1, 4, 2):
        assert any(torch.equal(group.nan_to_num(9), other.nan_to_num(9)) for other in generated.view(-1, 4, 2))


def test_a_group_reward_of_zeros_does_not_change_training(tmp_path):
    zeros = group_reward(lambda groups: torch.zeros_like(groups.rewards))
    runs = []
    for name, more in (("with", [zeros]), ("without", [])):
        trainer = make_trainer(tmp_path / name, [scripted_accuracy_reward, scripted_bonus_reward, *more])
        trainer.train()
        runs.append(weights(trainer))
    assert_bitwise_equal(*runs)


def infinite_in_scored_rows(groups):
    result = torch.ones(groups.rewards.shape)
    result[1, 2] = result[2, 0] = math.inf
    return result


def raise_key_error(groups):
    raise KeyError("answer")


BROKEN = {
    "infinite": (infinite_in_scored_rows, "returned inf for completion 2 of group 1", 2),
    "flat": (lambda groups: torch.zeros(16), r"returned \(16,\), not a tensor of shape \(4, 4\)", SCORED),
    "not a tensor": (lambda groups: 0.5, "returned float, not a tensor", SCORED),
    "raises": (raise_key_error, "raised KeyError: 'answer'", SCORED),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_invalid_group_reward_stops_training_or_is_skipped(tmp_path, case, caplog):
    rule, problem, num_skipped = BROKEN[case]
    reward, _ = make_recording_reward(rule)
    with pytest.raises(RewardError, match=f"'recording_reward' {problem}.*finite number"):
        make_trainer(tmp_path / "stop", [scripted_accuracy_reward, reward]).train()
    trainer = make_trainer(tmp_path / "skip", [scripted_accuracy_reward, reward], on_reward_error="skip")
    recorded_rewards = record_results(trainer, "_calculate_rewards")
    trainer.train()
    assert f"{num_skipped} of 16 completions get no reward" in caplog.text
    assert recorded_rewards[0][:, 1].isnan().sum() == 16 - SCORED + num_skipped


def test_group_rewards_may_change_groups_in_place_and_return_bools(tmp_path):
    def destructive(groups):
        groups.correct.zero_()
        groups.scored.zero_()
        total = groups.rewards
        total -= groups.lengths
        return total.nan_to_num()

    correct, calls = make_recording_reward(lambda groups: groups.correct)
    trainer = make_trainer(tmp_path, [scripted_accuracy_reward, group_reward(destructive), correct])
    recorded_rewards = record_results(trainer, "_calculate_rewards")
    trainer.train()
    accuracies = torch.tensor([math.nan if value is None else value for group in OUTCOMES for value in group])
    torch.testing.assert_close(recorded_rewards[0][:, 0], accuracies, equal_nan=True)
    torch.testing.assert_close(recorded_rewards[0][:, 2], accuracies, equal_nan=True)  # 1.0 if correct
    assert calls[0].scored.sum() == SCORED
    assert trainer.state.log_history[0]["ces/group_accuracy"] == pytest.approx(accuracies.nanmean().item())


def test_the_largest_float32_is_a_valid_reward(tmp_path):
    reward = group_reward(lambda groups: torch.full(groups.rewards.shape, LARGEST))
    trainer = make_trainer(tmp_path, [scripted_accuracy_reward, reward], reward_weights=[1.0, 0.0])
    recorded_rewards = record_results(trainer, "_calculate_rewards")
    trainer.train()
    assert (recorded_rewards[0][:, 1] == LARGEST).sum() == SCORED


def test_a_group_reward_needs_an_accuracy_reward(tmp_path):
    alp = get_alp_length_reward(0.5)
    for trainer_class in (CESTrainer, GRPOTrainerWithGroupRewards):
        with pytest.raises(
            ValueError, match=r"alp_length_reward is a group reward.*add an accuracy reward to `reward_funcs`"
        ):
            make_trainer(tmp_path, [alp], trainer_class, shaping="none")
        with pytest.raises(ValueError, match="set `ces_accuracy_reward` to the name"):
            make_trainer(tmp_path, [scripted_bonus_reward, alp], trainer_class, shaping="none")
