"""Check that runs resumed from any checkpoint have the weights and the log of the uninterrupted run."""

import json
import logging
import shutil

import pandas
import pytest
import torch
from processes import run_processes
from resume_runs import log_of, make_trainer
from trainers import PROMPTS, assert_bitwise_equal, weights

from trl_ces.layers.files import load_micro_batches, save_micro_batches
from trl_ces.methods.ces import automatic_tau

CASES = {
    "four steps per rollout": {},
    "two iterations": {"num_iterations": 2, "steps_per_generation": 2},
    "accumulated": {"gradient_accumulation_steps": 2, "steps_per_generation": 8, "max_completion_length": 8},
    "masked truncation": {"mask_truncated_completions": True},
    "in pieces": {"per_device_train_batch_size": 8, "max_tokens_per_micro_batch": 60},
    "logged every third step": {"logging_steps": 3},
    "tau from the first rollout": {"ces_tau": "auto"},
    "dynamic sampling": {
        "dynamic_sampling": True,
        "ces_allow_dynamic_sampling": True,
        "per_device_train_batch_size": 4,
        "steps_per_generation": 2,
    },
}


@pytest.mark.parametrize("steps", [(2, 5), pytest.param((1, 3, 6), marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_is_bitwise_identical_to_the_uninterrupted_run(tmp_path, case, steps):
    full = make_trainer(tmp_path / "full", **CASES[case])
    full.train()
    for step in steps:
        resumed = make_trainer(tmp_path / f"from-{step}", **CASES[case])
        torch.manual_seed(step)  # the random state before resuming has no effect
        resumed.train(resume_from_checkpoint=str(tmp_path / "full" / f"checkpoint-{step}"))
        assert_bitwise_equal(weights(resumed), weights(full))
        if case != "logged every third step":  # transformers does not save losses that have not been logged
            assert log_of(resumed) == log_of(full)


def test_unlogged_metrics_are_kept(tmp_path):
    full = make_trainer(tmp_path / "full", logging_steps=3)
    full.train()
    resumed = make_trainer(tmp_path / "resumed", logging_steps=3)
    resumed.train(resume_from_checkpoint=str(tmp_path / "full" / "checkpoint-5"))
    expected, actual = (
        next(entry for entry in run.state.log_history if entry["step"] == 6) for run in (full, resumed)
    )
    names = ("reward", "entropy", "ces/selected_tokens", "ces/selected_entropy_incorrect", "completions/mean_length")
    assert {name: expected[name] for name in names} == {name: actual[name] for name in names}
    assert expected["loss"] != actual["loss"]  # the Trainer does not save its running sum of losses


@pytest.mark.parametrize("steps", [(8, 17), pytest.param((7, 9, 12), marks=pytest.mark.slow)])
def test_resumed_runs_use_the_prompt_order_of_the_current_epoch(tmp_path, steps):
    """Resume in several epochs, which have eight steps each; TRL draws a new prompt order per epoch."""
    full = make_trainer(tmp_path / "full", prompts=PROMPTS[:8], max_steps=20)
    full.train()
    for step in steps:
        resumed = make_trainer(tmp_path / f"from-{step}", prompts=PROMPTS[:8], max_steps=20)
        resumed.train(resume_from_checkpoint=str(tmp_path / "full" / f"checkpoint-{step}"))
        assert_bitwise_equal(weights(resumed), weights(full))


def test_existing_completion_tables_are_kept(tmp_path):
    make_trainer(tmp_path, max_steps=4, log_completions=True).train()
    tables = sorted((tmp_path / "completions").iterdir())
    before = [table.read_bytes() for table in tables]
    resumed = make_trainer(tmp_path, max_steps=5, log_completions=True)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert [table.read_bytes() for table in tables] == before
    assert len(before) == 4
    assert len(pandas.read_parquet(tmp_path / "completions" / "completions_00005.parquet")) == 16


@pytest.mark.parametrize("shaping", ["none", "ces"])
def test_auto_tau_uses_a_new_rollout_if_the_checkpoint_has_no_tau(tmp_path, shaping):
    make_trainer(tmp_path / "full", max_steps=1, shaping=shaping, ces_tau=0.01).train()
    resumed = make_trainer(tmp_path / "resumed", max_steps=2, ces_tau="auto")
    resumed.train(resume_from_checkpoint=str(tmp_path / "full" / "checkpoint-1"))
    assert resumed.args.ces_tau == automatic_tau(resumed.state.log_history[1]["completions/mean_length"])


@pytest.mark.parametrize(
    ("damage", "changes"),
    [
        ("missing", {}),
        ("truncated", {}),
        (None, {"per_device_train_batch_size": 8}),
        (None, {"shaping": "none"}),
        (None, {"normalize_each_step": True}),
        (None, {"vllm_importance_sampling_correction": False}),
    ],
    ids=str,
)
def test_an_unusable_rollout_is_generated_again_with_a_warning(tmp_path, caplog, damage, changes):
    make_trainer(tmp_path / "full").train()
    file = tmp_path / "full" / "checkpoint-6" / "rollout-0.safetensors"
    if damage == "missing":
        file.unlink()
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[:-100])
    resumed = make_trainer(tmp_path / "resumed", **changes)
    with caplog.at_level(logging.WARNING, logger="trl_ces"):
        resumed.train(resume_from_checkpoint=str(file.parent))
    assert "generated again" in caplog.text
    assert resumed.state.global_step == 8


def test_a_missing_state_file_between_rollouts_causes_a_warning(tmp_path, caplog):
    make_trainer(tmp_path / "full", max_steps=4, save_steps=4).train()
    file = tmp_path / "full" / "checkpoint-4" / "rollout-0.safetensors"
    file.unlink()
    with caplog.at_level(logging.WARNING, logger="trl_ces"):
        make_trainer(tmp_path / "resumed", max_steps=5).train(resume_from_checkpoint=str(file.parent))
    assert "checkpoint-4 is missing or damaged" in caplog.text


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    return make_trainer(tmp_path_factory.mktemp("settings"))


# Setting stored with a rollout -> a different value.
CHANGED_SETTINGS = {
    "shaping": "none",
    "beta": 0.1,
    "num_generations": 2,
    "num_iterations": 2,
    "steps_per_generation": 8,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 2,
    "max_tokens_per_micro_batch": 90,
    "normalize_each_step": True,
    "use_vllm": True,
    "vllm_importance_sampling_correction": False,
    "num_processes": 2,
    "decides_tau": True,
}


def test_every_setting_of_a_saved_rollout_is_tested(trainer):
    assert trainer._rollout_settings().keys() == CHANGED_SETTINGS.keys()


@pytest.mark.parametrize(("name", "value"), CHANGED_SETTINGS.items())
def test_a_rollout_is_not_reused_if_a_setting_has_changed(trainer, tmp_path, monkeypatch, name, value):
    monkeypatch.setattr(trainer, "_step", 1)
    monkeypatch.setattr(trainer, "_buffered_inputs", [{"ids": torch.zeros(1, 1)}])
    trainer._save_rollout(tmp_path)
    trainer._load_rollout(tmp_path)
    assert trainer._step == 1
    owners = {"num_processes": type(trainer.accelerator), "decides_tau": trainer}
    monkeypatch.setattr(owners.get(name, trainer.args), "_uses_auto_tau" if name == "decides_tau" else name, value)
    trainer._load_rollout(tmp_path)
    assert trainer._step == 0


def test_other_state_is_saved_if_a_rollout_has_images(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer._step, trainer._buffered_inputs, trainer._nonfinite_steps = 1, [{"images": [object()]}], 3
    trainer._save_rollout(tmp_path)
    rollout, state = load_micro_batches(tmp_path / "rollout-0.safetensors")
    assert (rollout, state["step"]) == ([], 1)
    trainer._nonfinite_steps = 0
    trainer._load_rollout(tmp_path)
    # The step is 0, as on a process without the file; otherwise only some processes would generate a rollout.
    assert (trainer._step, trainer._nonfinite_steps) == (0, 3)


def test_a_rollout_is_saved_only_if_it_has_steps_left(tmp_path):
    make_trainer(tmp_path).train()
    files = [tmp_path / f"checkpoint-{step}" / "rollout-0.safetensors" for step in range(1, 9)]
    assert [len(load_micro_batches(file)[0]) for file in files] == [4, 4, 4, 0, 4, 4, 4, 0]


def run_two_processes(folder, name, checkpoint="", **changes):
    run_processes("resume_processes.py", folder / name, 2, 280, arguments=(str(checkpoint), json.dumps(changes)))
    return torch.load(folder / name / "weights.pt", weights_only=True)


@pytest.mark.slow
def test_two_processes_resume_inside_a_rollout(tmp_path):
    full = run_two_processes(tmp_path, "full")
    checkpoint = tmp_path / "full" / "checkpoint-3"
    assert {file.name for file in checkpoint.glob("rollout-*")} == {"rollout-0.safetensors", "rollout-1.safetensors"}
    assert_bitwise_equal(run_two_processes(tmp_path, "resumed", checkpoint), full)


def test_two_machines_resume_with_the_first_machines_prompt_position(tmp_path):
    """Without a shared disk, only the first machine has dynamic_sampling.json."""
    changes = {"per_device_train_batch_size": 2, "max_steps": 8, "max_completion_length": 4}
    changes = CASES["dynamic sampling"] | changes
    full = run_two_processes(tmp_path, "full", **changes)
    for checkpoint, key in (
        ("checkpoint-3", "after_rollout"),
        ("checkpoint-4", "position"),
    ):  # inside a rollout, and between rollouts
        for rank in (0, 1):
            folder = tmp_path / f"machine{rank}" / checkpoint
            shutil.copytree(tmp_path / "full" / checkpoint, folder)
            (folder / f"rollout-{1 - rank}.safetensors").unlink()
        state = tmp_path / "machine1" / checkpoint / "dynamic_sampling.json"
        assert json.loads(state.read_text())[key] != 4, "the test needs a dropped group"
        state.unlink()
        resumed = run_two_processes(tmp_path, f"resumed-{key}", tmp_path / "machine{rank}" / checkpoint, **changes)
        assert_bitwise_equal(resumed, full)


def test_micro_batches_are_loaded_unchanged(tmp_path):
    rows = torch.arange(12).view(4, 3)
    batches = [{"ids": rows[:2], "none": None}, {"ids": rows[2:].t(), "count": torch.tensor(0.5), "pieces": [1, 1]}]
    save_micro_batches(tmp_path / "deep" / "file.safetensors", batches, {"metrics": {"a": [1.5]}})
    loaded, more = load_micro_batches(tmp_path / "deep" / "file.safetensors")
    assert more == {"metrics": {"a": [1.5]}}
    for batch, expected in zip(loaded, batches, strict=True):
        assert batch.keys() == expected.keys()
        assert torch.equal(batch["ids"], expected["ids"])
    assert (loaded[0]["none"], loaded[1]["count"].item(), loaded[1]["pieces"]) == (None, 0.5, [1, 1])
    with pytest.raises(TypeError):
        save_micro_batches(tmp_path / "failed.safetensors", [{"picture": object()}], {})
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["file.safetensors"]
