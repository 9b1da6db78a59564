"""A resumed run keeps the settings that affect training, and a new run does not overwrite an earlier run."""

import pytest
from saved_checkpoints import checkpoint

from trl_ces.support.errors import UserError
from trl_ces.train.recipe import make_recipe
from trl_ces.train.resume import changed_settings, check_output_dir, check_resume

RUN = {"model_name_or_path": "m", "dataset_name": "d", "max_steps": 20, "learning_rate": 1e-3, "num_generations": 2}
RUN["max_train_samples"] = 100
SIZES = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "steps_per_generation": 4}


def recipe_of(folder, **changes):
    return make_recipe({**RUN, "output_dir": str(folder), **changes}, "test")


def write_run(folder, world_size=1, **changes):
    """Write a checkpoint of a run at step 12."""
    return checkpoint(folder, 12, None, recipe_of(folder, **changes).given, SIZES, world_size)


def check(folder, processes=1, **changes):
    recipe = recipe_of(folder, **{"resume_from_checkpoint": True, **SIZES, **changes})
    return check_resume(recipe, folder, recipe.check_training(processes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shaping": "none"}, "`shaping` 'ces' -> 'none'"),
        ({"seed": 3}, "`seed` 42 -> 3"),
        ({"dataset_seed": 3}, "`dataset_seed` 42 -> 3"),
        ({"data_seed": 3}, "`data_seed` None -> 3"),
        ({"max_completion_length": 64}, "`max_completion_length` 512 -> 64"),
        ({"reward_funcs": ["accuracy_reward"]}, "`reward_funcs` .* -> \\['accuracy_reward'\\]"),
        ({"ces_tau": 0.5, "temperature": 0.7}, "`temperature` 1.0 -> 0.7, `ces_tau` 0.01 -> 0.5"),
        ({"system_prompt": None}, "`system_prompt`"),
        ({"lr_scheduler_type": "cosine"}, "`lr_scheduler_type`"),
        ({"dataset_name": "other"}, "`dataset_name` 'd' -> 'other'"),
        ({"num_generations": 4}, "`num_generations` 2 -> 4"),
        ({"gradient_accumulation_steps": 4}, "`completions per step` 4 -> 8"),
        ({"per_device_train_batch_size": 4, "steps_per_generation": 2}, "`completions per step` 4 -> 8"),
        ({"steps_per_generation": 2}, "`completions per rollout` 8 -> 4"),
    ],
)
def test_resuming_with_changed_settings_is_rejected_unless_allowed(tmp_path, changes, message):
    saved = write_run(tmp_path, **SIZES)
    with pytest.raises(UserError, match=f"{message}.*`--resume_with_changes true`"):
        check(tmp_path, **changes)
    assert check(tmp_path, **changes, resume_with_changes=True) == saved


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_steps": 40, "num_train_epochs": 5},
        {"save_steps": 3, "save_total_limit": 1, "save_strategy": "steps", "logging_steps": 7, "report_to": "none"},
        {"run_name": "other", "push_to_hub": True, "hub_model_id": "me/other", "log_completions": True},
        {"eval_strategy": "steps", "eval_steps": 2, "num_eval_samples": 4, "per_device_eval_batch_size": 2},
        {"gradient_checkpointing": False, "max_tokens_per_micro_batch": 512, "on_reward_error": "skip"},
        {"env": {"OMP_NUM_THREADS": 1}, "overwrite_output_dir": True, "disable_tqdm": True},
        {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4, "steps_per_generation": 8},
    ],
)
def test_settings_that_do_not_affect_training_may_change(tmp_path, changes):
    saved = write_run(tmp_path, **SIZES)
    assert check(tmp_path, **changes) == saved


def test_a_different_number_of_processes_is_rejected_if_batch_sizes_change(tmp_path):
    saved = write_run(tmp_path, world_size=2, **SIZES)
    with pytest.raises(UserError, match="`completions per step` 8 -> 4, `completions per rollout` 16 -> 8"):
        check(tmp_path, 1)
    assert check(tmp_path, 2) == saved
    assert check(tmp_path, 1, per_device_train_batch_size=4) == saved


@pytest.mark.parametrize("changes", [{"num_eval_samples": 5}, {"eval_dataset_name": "other"}])
def test_the_number_of_rows_held_out_from_training_cannot_change(tmp_path, changes):
    all_rows = {"max_train_samples": None}
    saved = write_run(tmp_path, num_eval_samples=2, **all_rows, **SIZES)
    with pytest.raises(UserError, match=r"`held-out rows` 2 -> [05]\."):
        check(tmp_path, **{"num_eval_samples": 2, **changes, **all_rows})
    assert check(tmp_path, num_eval_samples=2, **all_rows) == saved


@pytest.mark.parametrize("loss", [{"top_entropy_quantile": 0.2}, {"loss_type": "bnpo"}])
def test_micro_batches_cannot_change_if_the_loss_depends_on_them(tmp_path, loss):
    loss = {"shaping": "none", **loss}
    saved = write_run(tmp_path, **loss, **SIZES)
    sizes = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4, "steps_per_generation": 8}
    with pytest.raises(UserError, match="`completions per micro-batch` 2 -> 1"):
        check(tmp_path, **loss, **sizes)
    assert check(tmp_path, **loss) == saved


def test_optimizer_settings_cannot_change_even_with_resume_with_changes(tmp_path):
    write_run(tmp_path)
    with pytest.raises(UserError, match=r"`learning_rate` is 0\.1 but was 0\.001"):
        check(tmp_path, learning_rate=0.1, resume_with_changes=True)


def test_automatic_tau_matches_the_saved_value(tmp_path):
    saved = write_run(tmp_path, ces_tau=0.03)
    recipe = recipe_of(tmp_path, ces_tau="auto", **SIZES)
    assert changed_settings(saved, recipe, recipe.check_training(1)) == {}


@pytest.mark.parametrize("complete", [True, False])
def test_a_new_run_does_not_overwrite_checkpoints(tmp_path, complete):
    checkpoint(tmp_path, 12, *(() if complete else ("",)))
    with pytest.raises(UserError, match=r"`output_dir` .*checkpoint-12.*`--overwrite_output_dir true`"):
        check_output_dir(recipe_of(tmp_path))
    for changes in ({"overwrite_output_dir": True}, {"resume_from_checkpoint": True}):
        check_output_dir(recipe_of(tmp_path, **changes))
    check_output_dir(recipe_of(tmp_path, resume_from_checkpoint=str(tmp_path / "checkpoint-12")))
    check_output_dir(recipe_of(tmp_path / "another"))


def test_a_run_resumed_from_another_directory_does_not_overwrite_checkpoints(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    saved = checkpoint(tmp_path / "a", 4)
    checkpoint(tmp_path / "b", 8)
    with pytest.raises(UserError, match="contains checkpoints of another run"):
        check_output_dir(recipe_of(tmp_path / "b", resume_from_checkpoint=str(saved)))


def test_a_recipe_makes_relative_paths_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = recipe_of("out", resume_from_checkpoint="out/checkpoint-1")
    monkeypatch.chdir("/")
    assert recipe.setting("output_dir") == str(tmp_path / "out")
    assert recipe.setting("resume_from_checkpoint") == str(tmp_path / "out/checkpoint-1")
