"""Resumed from any checkpoint, training ends with the weights and log of an uninterrupted run."""

import json
import logging
import shutil

import pandas
import pytest
import torch
from processes import run_processes
from resume_runs import log_of, make_trainer
from trainers import PROMPTS, assert_same_bits, weights

from trl_ces.layers.files import load_micro_batches, save_micro_batches
from trl_ces.layers.first_rollout import automatic_tau
from trl_ces.rewards import (
    get_acoer_length_reward,
    get_laser_d_length_reward,
    get_mai_length_reward,
    get_toggle_length_reward,
)

CASES = {
    "four steps a rollout": {},
    "two iterations": {"num_iterations": 2, "steps_per_generation": 2},
    "accumulated": {"gradient_accumulation_steps": 2, "steps_per_generation": 8, "max_completion_length": 8},
    "masked truncation": {"mask_truncated_completions": True},
    "in pieces": {"per_device_train_batch_size": 8, "max_tokens_per_micro_batch": 60},
    "logged every third step": {"logging_steps": 3},
    "tau from the first rollout": {"ces_tau": "auto"},
    "tokens drawn at random": {"shaping": "clip_cov", "clip_cov_low": -9.0, "clip_cov_high": 9.0},
    "controllers inside a rollout": {
        "shaping": "repo_r",
        "repo_r_zeta": 0.3,
        "epsilon_high_target_entropy": 3.0,
        "epsilon_high_delta": 0.1,
    },
    "dynamic sampling": {
        "dynamic_sampling": True,
        "ces_allow_dynamic_sampling": True,
        "per_device_train_batch_size": 4,
        "steps_per_generation": 2,
    },
}


@pytest.mark.parametrize("case", CASES)
def test_from_any_checkpoint_the_end_is_the_same_bit_for_bit(tmp_path, case):
    whole = make_trainer(tmp_path / "whole", **CASES[case])
    whole.train()
    for step in (1, 2, 3, 5, 6):
        resumed = make_trainer(tmp_path / f"from-{step}", **CASES[case])
        torch.manual_seed(step)  # whatever ran before
        resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{step}"))
        assert_same_bits(weights(resumed), weights(whole))
        if case == "logged every third step":  # transformers loses the losses not yet logged
            continue
        assert log_of(resumed) == log_of(whole)


def test_metrics_that_were_not_yet_logged_are_kept(tmp_path):
    changes = CASES["logged every third step"]
    whole = make_trainer(tmp_path / "whole", **changes)
    whole.train()
    resumed = make_trainer(tmp_path / "resumed", **changes)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-5"))
    one, other = (next(entry for entry in run.state.log_history if entry["step"] == 6) for run in (whole, resumed))
    for name in (
        "reward",
        "entropy",
        "ces/selected_tokens",
        "ces/selected_entropy_incorrect",
        "completions/mean_length",
    ):
        assert one[name] == other[name], name
    assert one["loss"] != other["loss"]  # the Trainer's own sum, which it does not save


def test_a_later_pass_over_the_data_goes_on_in_its_own_order(tmp_path):
    """Eight prompts are one epoch of eight steps: TRL draws an order per epoch."""
    whole = make_trainer(tmp_path / "whole", prompts=PROMPTS[:8], max_steps=20)
    whole.train()
    for step in (7, 8, 9, 12, 17):
        resumed = make_trainer(tmp_path / f"from-{step}", prompts=PROMPTS[:8], max_steps=20)
        resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{step}"))
        assert_same_bits(weights(resumed), weights(whole))


@pytest.mark.parametrize(
    ("factory", "settings"),
    [
        (get_acoer_length_reward, {"budget": 20, "warmup": 1, "window": 1}),
        (get_toggle_length_reward, {"solved": 0.2, "every": 1}),
        (get_laser_d_length_reward, {"step": 2, "every": 1}),
    ],
)
def test_a_reward_with_a_state_goes_on_from_it(tmp_path, factory, settings):
    """Each moves after each rollout; an evaluation in between leaves it alone."""
    changes = {"steps_per_generation": 2, "eval_strategy": "steps", "eval_steps": 3}
    changes["ces_accuracy_reward"] = "vowel_accuracy_reward"

    def make(folder):
        rewards = [factory(**settings), factory(**{name: 3 * value for name, value in settings.items()})]
        return [one.of_groups.state for one in rewards], make_trainer(folder, more_rewards=rewards, **changes)

    states, whole = make(tmp_path / "whole")
    whole.train()
    assert [state["rollouts"] for state in states] == [4, 4]
    for step in (1, 2, 5):
        states_again, resumed = make(tmp_path / f"from-{step}")
        resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{step}"))
        assert states_again == states
        assert_same_bits(weights(resumed), weights(whole))


def test_a_resumed_run_may_have_other_rewards(tmp_path):
    reward = get_acoer_length_reward(budget=20, warmup=1, window=1)
    make_trainer(tmp_path / "whole", more_rewards=[reward], max_steps=4).train()
    before = {**reward.of_groups.state}
    again = get_acoer_length_reward(budget=20, warmup=1, window=1)
    rewards = [get_mai_length_reward(), again]
    resumed = make_trainer(tmp_path / "resumed", more_rewards=rewards, max_steps=5)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-4"))
    assert before["rollouts"] == 1
    assert again.of_groups.state["rollouts"] == 2


@pytest.mark.parametrize("others", [{"per_device_train_batch_size": 8}, {"shaping": "none"}], ids=str)
def test_with_other_settings_controllers_and_rewards_go_on_from_their_state(tmp_path, others):
    def make(folder, **changes):
        reward = get_acoer_length_reward(budget=20, warmup=1, window=1)
        settings = {"shaping": "repo_r", "epsilon_high_target_entropy": 9.0, **changes}
        return reward.of_groups.state, make_trainer(folder, more_rewards=[reward], **settings)

    _, whole = make(tmp_path / "whole", max_steps=4)
    whole.train()
    state, resumed = make(tmp_path / "resumed", max_steps=5, **others)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-4"))
    assert resumed.epsilon_high == pytest.approx(0.28 + 5 * 0.01)
    assert state["rollouts"] == 2
    assert whole._rule_state
    assert resumed._rule_state == ({} if "shaping" in others else whole._rule_state)


def test_inside_a_rollout_the_tables_of_completions_stay_as_they_were(tmp_path):
    make_trainer(tmp_path, max_steps=4, log_completions=True).train()
    tables = sorted((tmp_path / "completions").iterdir())
    before = [table.read_bytes() for table in tables]
    make_trainer(tmp_path, max_steps=5, log_completions=True).train(
        resume_from_checkpoint=str(tmp_path / "checkpoint-2")
    )
    assert [table.read_bytes() for table in tables] == before
    assert len(before) == 4
    assert len(pandas.read_parquet(tmp_path / "completions" / "completions_00005.parquet")) == 16


@pytest.mark.parametrize("shaping", ["none", "ces"])
def test_tau_is_that_of_a_new_rollout_where_none_decided_it(tmp_path, shaping):
    make_trainer(tmp_path / "whole", max_steps=1, shaping=shaping, ces_tau=0.01).train()
    resumed = make_trainer(tmp_path / "resumed", max_steps=2, ces_tau="auto")
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-1"))
    assert resumed.args.ces_tau == automatic_tau(resumed.state.log_history[1]["completions/mean_length"])


def test_a_rollout_that_cannot_be_saved_costs_nothing_else(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer._step, trainer._buffered_inputs = 1, [{"images": [object()]}]
    trainer._save_rollout(tmp_path)
    rollout, state = load_micro_batches(tmp_path / "rollout-0.safetensors")
    assert (rollout, state["step"]) == ([], 1)
    trainer._load_rollout(tmp_path)
    assert trainer._step == 0  # as a process does that finds no file: else it alone would generate


def test_two_processes_go_on_inside_a_rollout(tmp_path):
    run_processes("resume_processes.py", tmp_path / "whole", 2, 280, arguments=("", "{}"))
    checkpoint = tmp_path / "whole" / "checkpoint-3"
    assert {file.name for file in checkpoint.glob("rollout-*")} == {"rollout-0.safetensors", "rollout-1.safetensors"}
    run_processes("resume_processes.py", tmp_path / "resumed", 2, 280, arguments=(str(checkpoint), "{}"))
    whole, resumed = (torch.load(tmp_path / name / "weights.pt", weights_only=True) for name in ("whole", "resumed"))
    for name, value in whole.items():
        assert torch.equal(resumed[name], value), name


def test_the_place_in_the_prompts_comes_from_the_first_machine(tmp_path):
    """Without a shared disk the others have no dynamic_sampling.json."""
    more = {"per_device_train_batch_size": 2, "max_steps": 8, "max_completion_length": 4}
    changes = json.dumps(CASES["dynamic sampling"] | more)
    run_processes("resume_processes.py", tmp_path / "whole", 2, 280, arguments=("", changes))
    for rank in (0, 1):
        shutil.copytree(tmp_path / "whole" / "checkpoint-4", tmp_path / f"machine{rank}" / "checkpoint-4")
    place = tmp_path / "machine1" / "checkpoint-4" / "dynamic_sampling.json"
    assert json.loads(place.read_text())["position"] != 4, "the test needs a group that was dropped"
    place.unlink()
    checkpoint = str(tmp_path / "machine{rank}" / "checkpoint-4")
    run_processes("resume_processes.py", tmp_path / "resumed", 2, 280, arguments=(checkpoint, changes))
    whole, resumed = (torch.load(tmp_path / name / "weights.pt", weights_only=True) for name in ("whole", "resumed"))
    assert_same_bits(resumed, whole)


@pytest.mark.parametrize(
    "harm", ["gone", "cut off", "other batch size", "other shaping", "other divisor", "other correction"]
)
def test_a_rollout_that_cannot_be_taken_up_is_generated_anew_with_a_warning(tmp_path, caplog, harm):
    whole = make_trainer(tmp_path / "whole")
    whole.train()
    file = tmp_path / "whole" / "checkpoint-6" / "rollout-0.safetensors"
    changes = {}
    if harm == "gone":
        file.unlink()
    elif harm == "cut off":
        file.write_bytes(file.read_bytes()[:-100])
    elif harm == "other shaping":
        changes = {"shaping": "none"}
    elif harm == "other divisor":
        changes = {"normalize_each_step": True}
    elif harm == "other correction":
        changes = {"vllm_importance_sampling_correction": False}
    else:
        changes = {"per_device_train_batch_size": 8}
    resumed = make_trainer(tmp_path / "resumed", **changes)
    with caplog.at_level(logging.WARNING, logger="trl_ces"):
        resumed.train(resume_from_checkpoint=str(file.parent))
    assert "generated again" in caplog.text
    assert resumed.state.global_step == 8


def test_between_rollouts_no_rollout_is_saved(tmp_path):
    whole = make_trainer(tmp_path / "whole")
    whole.train()
    sizes = [
        len(load_micro_batches(tmp_path / f"whole/checkpoint-{step}/rollout-0.safetensors")[0]) for step in range(1, 9)
    ]
    assert sizes == [4, 4, 4, 0, 4, 4, 4, 0]


def test_micro_batches_come_back_from_disk_as_they_were(tmp_path):
    rows = torch.arange(12).view(4, 3)
    batches = [
        {"ids": rows[:2], "flags": torch.tensor([True, False]), "count": torch.tensor(7.5), "none": None},
        {"ids": rows[2:].t(), "flags": torch.tensor([False, True]), "count": torch.tensor(0.5), "pieces": [1, 1]},
    ]
    save_micro_batches(tmp_path / "deep" / "file.safetensors", batches, {"step": 3, "metrics": {"a": [float("nan")]}})
    back, more = load_micro_batches(tmp_path / "deep" / "file.safetensors")
    assert [batch.keys() for batch in back] == [set(batch) for batch in batches]
    for batch, expected in zip(back, batches, strict=True):
        for name, values in expected.items():
            if isinstance(values, torch.Tensor):
                assert torch.equal(batch[name], values)
                assert batch[name].dtype == values.dtype
            else:
                assert batch[name] == values
    assert more["step"] == 3
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["file.safetensors"]
    with pytest.raises(TypeError):
        save_micro_batches(tmp_path / "odd.safetensors", [{"picture": object()}], {})
    assert not (tmp_path / "odd.safetensors").exists()
