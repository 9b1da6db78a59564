"""A stopped run resumes from its newest complete checkpoint with steps left."""

import json
import os

import pytest
import torch
from safetensors.torch import save_file

from trl_ces.support.errors import UserError
from trl_ces.support.yaml import dump_yaml
from trl_ces.train.checkpoints import (
    Length,
    earlier_checkpoints,
    find_damage,
    is_finished,
    newest_checkpoint,
    read_state,
    resume_hint,
)
from trl_ces.train.checks import _check_resume
from trl_ces.train.recipe import make_recipe


def checkpoint(folder, step, text=None, max_steps=20):
    place = folder / f"checkpoint-{step}"
    place.mkdir()
    (place / "trainer_state.json").write_text(
        json.dumps({"global_step": step, "max_steps": max_steps}) if text is None else text
    )
    torch.save({}, place / "rng_state.pth")
    return place


@pytest.mark.parametrize("text", ["", '{"global_step": 1', "[]", "{}"])
def test_an_incomplete_checkpoint_is_skipped(tmp_path, text):
    good = checkpoint(tmp_path, 9)
    broken = checkpoint(tmp_path, 12, text)
    (tmp_path / "checkpoint-15").mkdir()  # has only a file that is written before the state
    (tmp_path / "checkpoint-15" / "dynamic_sampling.json").write_text("{}")
    checkpoint(tmp_path, "best")
    assert read_state(broken) is None
    assert newest_checkpoint(tmp_path) == good


def with_tensors(place):
    save_file({"weight": torch.arange(100.0)}, place / "model.safetensors")
    torch.save({"exp_avg": torch.arange(100.0)}, place / "optimizer.pt")
    return place


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt"])
@pytest.mark.parametrize("kept", [0, 5, 200, -1])
def test_a_damaged_checkpoint_is_skipped_with_a_warning(tmp_path, caplog, name, kept):
    good, bad = (with_tensors(checkpoint(tmp_path, step)) for step in (9, 12))
    assert find_damage(good) is None
    assert newest_checkpoint(tmp_path) == bad
    assert not caplog.records
    (bad / name).write_bytes((bad / name).read_bytes()[:kept])
    assert newest_checkpoint(tmp_path) == good
    assert f"checkpoint-12 is damaged ({name}" in caplog.text


def test_a_checkpoint_at_the_end_of_its_run_is_skipped(tmp_path):
    assert newest_checkpoint(tmp_path) is None
    last = checkpoint(tmp_path, 20)
    assert is_finished(read_state(last))
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "nowhere") is None
    before = checkpoint(tmp_path, 16)
    assert newest_checkpoint(tmp_path) == before


def test_a_finished_run_can_be_made_longer(tmp_path):
    last = checkpoint(tmp_path, 20)
    state = {**read_state(last), "num_train_epochs": 2}
    assert not is_finished(state, Length(max_steps=21))
    assert is_finished(state, Length(max_steps=20))
    assert is_finished(state, Length(max_steps=12))  # fewer steps than were done
    assert not is_finished(state, Length(num_train_epochs=3))
    assert is_finished(state, Length(num_train_epochs=2))
    assert newest_checkpoint(tmp_path, Length(max_steps=40)) == last
    assert newest_checkpoint(tmp_path, Length(max_steps=20)) is None


LENGTH = Length(max_steps=20)
TRUE = "`--resume_from_checkpoint true`."


def test_a_stopped_run_resumes_from_its_own_checkpoint(tmp_path):
    before = checkpoint(tmp_path, 16)
    earlier = earlier_checkpoints(tmp_path, None)
    assert resume_hint(tmp_path, LENGTH, earlier) == "There is no checkpoint yet: start again."
    assert resume_hint(tmp_path, LENGTH, set()).endswith(f"{before} with the same command and {TRUE}")
    own = checkpoint(tmp_path, 4)
    assert resume_hint(tmp_path, LENGTH, earlier).endswith(f"{own} with the same command and {TRUE[:-6]}{own}`.")
    assert earlier_checkpoints(tmp_path, True) == set()
    resumed = earlier_checkpoints(tmp_path, os.path.relpath(own))
    assert resume_hint(tmp_path, LENGTH, resumed).endswith(f"{own} with the same command and {TRUE[:-6]}{own}`.")
    os.utime(before / "trainer_state.json", (1, 1))  # rewritten, with the clock set back
    assert resume_hint(tmp_path, LENGTH, earlier).endswith(f"{before} with the same command and {TRUE}")


RUN = {"model_name_or_path": "m", "dataset_name": "d", "max_steps": 20, "learning_rate": 1e-3}


def check_resume(folder, value, **changes):
    _check_resume(
        make_recipe({**RUN, "output_dir": str(folder), "resume_from_checkpoint": value, **changes}, "r"), folder
    )


def test_train_refuses_to_resume_without_steps_left_or_optimizer_state(tmp_path):
    last = checkpoint(tmp_path, 20)
    with pytest.raises(UserError, match="is the end of a finished run, step 20: raise `max_steps`"):
        check_resume(tmp_path, str(last))
    for value in (True, str(tmp_path)):
        with pytest.raises(UserError, match="has no complete checkpoint with steps left"):
            check_resume(tmp_path, value)
    middle = checkpoint(tmp_path, 12)
    for value in (True, str(middle)):
        check_resume(tmp_path, value)
    (middle / "rng_state.pth").unlink()
    with pytest.raises(UserError, match=r"checkpoint-12 contains only the model \(`save_only_model`\)"):
        check_resume(tmp_path, str(middle))
    assert newest_checkpoint(tmp_path, LENGTH) is None
    check_resume(tmp_path, str(last), max_steps=30)


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        ({}, {"learning_rate": 1e-2}, r"`learning_rate` is 0\.01 but was 0\.001, and the optimizer's saved state"),
        ({}, {"use_peft": True}, "`use_peft` is True but was False"),
        ({"use_peft": True, "lora_r": 8}, {"use_peft": True, "lora_r": 4}, "`lora_r` is 4 but was 8"),
    ],
)
def test_a_resumed_run_cannot_change_settings_saved_with_the_optimizer(tmp_path, before, now, message):
    checkpoint(tmp_path, 12)
    (tmp_path / "recipe.yaml").write_text(dump_yaml({**RUN, **before}))
    check_resume(tmp_path, True, **before, logging_steps=3)
    with pytest.raises(UserError, match=message):
        check_resume(tmp_path, True, **now)
