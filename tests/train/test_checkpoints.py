"""Test the selection of the checkpoint from which a stopped run resumes."""

import os

import pytest
import torch
from saved_checkpoints import checkpoint

from trl_ces.support.errors import UserError
from trl_ces.train.checkpoints import (
    Length,
    find_damage,
    is_finished,
    newest_checkpoint,
    read_state,
    resume_hint,
    write_manifest,
)
from trl_ces.train.recipe import make_recipe
from trl_ces.train.resume import check_resume as check_resume_of_recipe


@pytest.mark.parametrize("text", ["", '{"global_step": 1', "[]", "{}"])
def test_an_incomplete_checkpoint_is_skipped(tmp_path, text):
    good = checkpoint(tmp_path, 9)
    broken = checkpoint(tmp_path, 12, text)
    (tmp_path / "checkpoint-15").mkdir()  # contains only a file that is saved before trainer_state.json
    (tmp_path / "checkpoint-15" / "dynamic_sampling.json").write_text("{}")
    checkpoint(tmp_path, "best")
    assert read_state(broken) is None
    assert newest_checkpoint(tmp_path) == good


def remove(file):
    file.unlink()


def truncate(file):
    file.write_bytes(file.read_bytes()[:-3])


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [remove, truncate, flip_a_bit])
@pytest.mark.parametrize(
    "name", ["model.safetensors", "config.json", "rng_state.pth", "trainer_state.json", "part/0.pt"]
)
def test_a_checkpoint_with_a_missing_or_changed_file_is_skipped(tmp_path, caplog, name, damage):
    good, bad = (checkpoint(tmp_path, step) for step in (9, 12))
    (bad / "part").mkdir()
    torch.save({}, bad / "part" / "0.pt")  # FSDP and DeepSpeed also save files in subfolders
    write_manifest(bad)
    assert newest_checkpoint(tmp_path) == bad
    damage(bad / name)
    assert newest_checkpoint(tmp_path) == good
    assert f"{bad} is damaged ({name} " in caplog.text
    assert "trying the previous checkpoint" in caplog.text
    if read_state(bad) is not None:
        with pytest.raises(
            UserError, match=rf"checkpoint-12' is damaged \({name} .*set .* to true to use the newest complete"
        ):
            check_resume(tmp_path, str(bad))


def test_a_checkpoint_without_a_manifest_is_incomplete(tmp_path, caplog):
    good, bad = (checkpoint(tmp_path, step) for step in (9, 12))
    (bad / "manifest.json").unlink()
    assert [find_damage(good), newest_checkpoint(tmp_path)] == [None, good]
    assert f"{bad} is damaged (it has no manifest.json" in caplog.text
    with pytest.raises(
        UserError, match=r"checkpoint-12' is damaged \(it has no manifest\.json, which `trl-ces train`"
    ):
        check_resume(tmp_path, str(bad))


def test_the_checkpoint_of_a_finished_run_is_skipped(tmp_path):
    assert newest_checkpoint(tmp_path) is None
    last = checkpoint(tmp_path, 20)
    assert is_finished(read_state(last))
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "missing") is None
    earlier = checkpoint(tmp_path, 16)
    assert newest_checkpoint(tmp_path) == earlier


def test_a_finished_run_can_be_extended(tmp_path):
    last = checkpoint(tmp_path, 20)
    state = {**read_state(last), "num_train_epochs": 2}
    assert not is_finished(state, Length(max_steps=21))
    assert is_finished(state, Length(max_steps=20))
    assert is_finished(state, Length(max_steps=12))  # the run has already completed more steps
    assert not is_finished(state, Length(num_train_epochs=3))
    assert is_finished(state, Length(num_train_epochs=2))
    assert newest_checkpoint(tmp_path, Length(max_steps=40)) == last
    assert newest_checkpoint(tmp_path, Length(max_steps=20)) is None


LENGTH = Length(max_steps=20)
RESUME = "with the same command and `--resume_from_checkpoint "


def test_the_resume_hint_names_a_checkpoint_of_the_same_run(tmp_path):
    old, no_checkpoint = checkpoint(tmp_path, 16), "This run has no checkpoint to resume from: start it again"
    os.utime(old / "trainer_state.json", (1, 1))
    assert resume_hint(tmp_path, LENGTH, 2.0, None) == f"{no_checkpoint} with `--overwrite_output_dir true`."
    assert resume_hint(tmp_path / "new", LENGTH, 2.0, None) == f"{no_checkpoint}."
    assert resume_hint(tmp_path, LENGTH, 0.0, None).endswith(f"{old} {RESUME}true`.")
    new = checkpoint(tmp_path, 4)
    assert resume_hint(tmp_path, LENGTH, 2.0, None).endswith(f"{new} {RESUME}{new}`.")
    os.utime(new / "trainer_state.json", (1, 1))  # saved before the run was resumed from it
    assert resume_hint(tmp_path, LENGTH, 2.0, new).endswith(f"{RESUME}{new}`.")


RUN = {"model_name_or_path": "m", "dataset_name": "d", "max_steps": 20, "learning_rate": 1e-3}


def check_resume(folder, value, **changes):
    recipe = make_recipe({**RUN, "output_dir": str(folder), "resume_from_checkpoint": value, **changes}, "r")
    return check_resume_of_recipe(recipe, folder, recipe.check_training(1))


def test_a_run_cannot_resume_without_remaining_steps_or_optimizer_state(tmp_path):
    last = checkpoint(tmp_path, 20)
    with pytest.raises(UserError, match=r"is the last checkpoint of a finished run \(step 20\): raise `max_steps`"):
        check_resume(tmp_path, str(last))
    for value in (True, str(tmp_path)):
        with pytest.raises(UserError, match="has no complete checkpoint with steps left"):
            check_resume(tmp_path, value)
    middle = checkpoint(tmp_path, 12)
    for value in (True, str(middle)):
        check_resume(tmp_path, value)
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (middle / name).unlink()
    with pytest.raises(UserError, match=r"checkpoint-12 contains only the model \(`save_only_model`\)"):
        check_resume(tmp_path, str(middle))
    assert newest_checkpoint(tmp_path, LENGTH) is None
    check_resume(tmp_path, str(last), max_steps=30)


@pytest.mark.parametrize(
    ("saved", "changed", "message"),
    [
        ({}, {"learning_rate": 1e-2}, r"`learning_rate` is 0\.01 but was 0\.001, and the optimizer's saved state"),
        ({}, {"use_peft": True}, "`use_peft` is True but was False"),
        ({"use_peft": True, "lora_r": 8}, {"use_peft": True, "lora_r": 4}, "`lora_r` is 4 but was 8"),
    ],
)
def test_a_resumed_run_cannot_change_settings_saved_with_the_optimizer(tmp_path, saved, changed, message):
    checkpoint(tmp_path, 12, recipe={**RUN, **saved})
    check_resume(tmp_path, True, **saved, logging_steps=3)
    with pytest.raises(UserError, match=message):
        check_resume(tmp_path, True, **changed)
