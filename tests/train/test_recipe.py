"""Recipes are validated strictly, and errors name the file, the key and a fix."""

import dataclasses
import os

import pytest

from trl_ces.support.errors import UserError
from trl_ces.train.arguments import coerce, coerce_words
from trl_ces.train.recipe import batch_sizes, load_recipe, make_recipe, recipe_fields

BASE = "model_name_or_path: a/model\noutput_dir: out\ndataset_name: some/data\n"


def write(tmp_path, text):
    file = tmp_path / "recipe.yaml"
    file.write_text(BASE + text)
    return file


def error_for(tmp_path, text="", overrides=None):
    with pytest.raises(UserError) as caught:
        load_recipe(write(tmp_path, text), overrides)
    return str(caught.value)


def test_values_are_set_in_the_dataclasses_that_define_them(tmp_path):
    text = (
        "learning_rate: 2e-7\nces_tau: 0\nlr_scheduler_type: cosine_with_min_lr\n"
        "lr_scheduler_kwargs: {min_lr_rate: 0.1}\n"
        "dtype: bfloat16\nsystem_prompt: null\nresume_from_checkpoint: true\neval_strategy: no\nbf16: yes\n"
        "env: {SOME_VARIABLE: 1}\n"
    )
    recipe = load_recipe(write(tmp_path, text))
    assert recipe.training == {
        "output_dir": os.path.abspath("out"),
        "learning_rate": 2e-7,
        "ces_tau": 0.0,
        "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
        "resume_from_checkpoint": True,
        "eval_strategy": "no",
        "bf16": True,
    }
    assert recipe.model.dtype == "bfloat16"
    assert recipe.script.system_prompt is None
    assert recipe.env == {"SOME_VARIABLE": "1"}


def test_the_command_line_overrides_the_recipe(tmp_path):
    overrides = {
        "learning_rate": ["3e-6"],
        "reward_funcs": ["accuracy_reward"],
        "max_steps": ["-1"],
        "bf16": [],
        "lr_scheduler_kwargs": ["{num_cycles: 2}"],
        "run_name": ["007"],
        "report_to": ["wandb", "trackio"],
        "solution_column": ["null"],
        "resume_from_checkpoint": ["false"],
    }
    recipe = load_recipe(write(tmp_path, "learning_rate: 2e-7\nmax_steps: 3\nsolution_column: x\n"), overrides)
    assert recipe.training == {
        "output_dir": os.path.abspath("out"),
        "learning_rate": 3e-6,
        "max_steps": -1,
        "bf16": True,
        "lr_scheduler_kwargs": {"num_cycles": 2},
        "run_name": "007",
        "report_to": ["wandb", "trackio"],
        "resume_from_checkpoint": False,
    }
    assert recipe.script.reward_funcs == ["accuracy_reward"]
    assert recipe.script.solution_column is None


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("learning_rat: 1", ["recipe.yaml", "`learning_rat`", "`learning_rate`"]),
        ("zzzz: 1", ["recipe.yaml", "`zzzz`", "--help"]),
        ("max_steps: true", ["`max_steps`", "expected int", "bool True"]),
        ("max_steps: 8.0", ["`max_steps`", "expected int", "float 8.0"]),
        ("max_steps: null", ["`max_steps`", "expected int", "null"]),
        ("max_steps: [1, 2]", ["`max_steps`", "expected int", "list [1, 2]"]),
        ("learning_rate: fast", ["`learning_rate`", "expected float", "'fast'"]),
        ("learning_rate: true", ["`learning_rate`", "expected float", "bool True"]),
        ("learning_rate: '2e-7'", ["`learning_rate`", "expected float", "str '2e-7'"]),
        ("bf16: 1", ["`bf16`", "expected bool | None", "int 1"]),
        ("run_name: 7", ["`run_name`", "expected str | None", "int 7"]),
        ("reward_funcs: accuracy_reward", ["`reward_funcs`", "expected list[str]"]),
        ("reward_weights: [1, x]", ["`reward_weights`", "expected float", "'x'"]),
        ("model_init_kwargs: 3", ["`model_init_kwargs`", "expected dict"]),
        ("model_init_kwargs: hello", ["`model_init_kwargs`", "expected dict"]),
        ("generation_kwargs: hello", ["`generation_kwargs`", "expected dict"]),
        ("dtype: fp32", ["`dtype`", "one of auto, bfloat16, float16, float32"]),
        ("env: [A]", ["`env`: expected a mapping"]),
        ("max_train_samples: 0", ["`max_train_samples` is 0"]),
        ("solution_pattern: '####'", ["`solution_pattern` is '####'", "one group"]),
        ("5: x", ["unknown key `5`"]),
        ("dataset_kwargs: {max_terms: 3}", ["`dataset_kwargs`", "needs a `dataset_builder`"]),
        (
            "dataset_builder: a.b",
            ["`dataset_builder` cannot be combined with `dataset_name`", "set one of them to null"],
        ),
        ("model_builder_kwargs: {seed: 3}", ["`model_builder_kwargs`", "needs a `model_builder`"]),
        ("- a list", ["not valid YAML"]),
        ("lora_r: 16", ["`lora_r` has no effect without `use_peft`"]),
        ("use_dora: true", ["`use_dora` has no effect without `use_peft`"]),
    ],
)
def test_the_error_for_an_invalid_value_names_the_key_and_the_expected_type(tmp_path, text, parts):
    message = error_for(tmp_path, text)
    assert all(part in message for part in parts), message


def test_a_tilde_in_output_dir_and_model_path_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    fields = {"model_name_or_path": "~/model", "dataset_name": "some/data", "output_dir": "~/run"}
    recipe = make_recipe(fields, "recipe.yaml")
    assert recipe.setting("output_dir") == str(tmp_path / "run")
    assert recipe.model.model_name_or_path == str(tmp_path / "model")


@pytest.mark.parametrize("missing", ["model_name_or_path", "output_dir", "dataset_name"])
def test_the_error_for_a_missing_key_names_the_key(tmp_path, missing):
    file = tmp_path / "recipe.yaml"
    file.write_text("".join(line for line in BASE.splitlines(True) if not line.startswith(missing)))
    with pytest.raises(UserError, match=f"`{missing}` is missing"):
        load_recipe(file)


def test_the_default_of_every_field_matches_its_type():
    for entry in recipe_fields().values():
        default = entry.default
        if isinstance(default, type(dataclasses.MISSING)):
            raise AssertionError(f"{entry.name} has no default")
        if entry.name not in ("num_train_epochs", "scale_rewards"):
            plain = default.value if hasattr(default, "value") else default
            # transformers uses int defaults for some float fields, and "" for some list fields.
            assert coerce(plain, entry.hint) == plain, entry.name


@pytest.mark.parametrize(
    ("step", "rollout", "processes", "micro", "sizes"),
    [
        (4, 48, 2, 2, (2, 1, 12)),  # the paper's setup (docs/deviations.md, rows 19 and 20)
        (4, 48, 1, 2, (2, 2, 24)),
        (4, 48, 4, 2, (1, 1, 12)),
        (4, 48, 1, 4, (4, 1, 12)),
        (6, 12, 1, 4, (3, 2, 4)),  # 4 does not divide 6; 3 is the largest size that does
        (8, 8, 1, 8, (8, 1, 1)),
    ],
)
def test_step_and_rollout_sizes_do_not_depend_on_the_number_of_processes(step, rollout, processes, micro, sizes):
    sizes_by_name = batch_sizes(step, rollout, processes, micro)
    assert list(sizes_by_name) == [
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "steps_per_generation",
    ]
    assert tuple(sizes_by_name.values()) == sizes


def test_eight_processes_cannot_share_four_completions():
    with pytest.raises(UserError, match=r"8 processes cannot share: set `--num_processes` to one of 1, 2, 4"):
        batch_sizes(4, 48, 8)


def test_a_rollout_must_be_a_multiple_of_a_step():
    with pytest.raises(UserError, match=r"is 50, which is not a multiple of `responses_per_step` \(4\)"):
        batch_sizes(4, 50, 2)


@pytest.mark.parametrize("key", ["gradient_accumulation_steps", "steps_per_generation", "generation_batch_size"])
def test_settings_derived_from_responses_per_step_cannot_be_set(tmp_path, key):
    recipe = load_recipe(write(tmp_path, f"responses_per_step: 4\n{key}: 2\n"))
    with pytest.raises(UserError, match=f"`{key}` is derived from `responses_per_step`"):
        recipe.training_fields(1)


def test_divisibility_is_checked_for_the_global_batch(tmp_path):
    # Two completions on each of two processes form a group of four; two completions on one process do not.
    recipe = load_recipe(write(tmp_path, "num_generations: 4\nper_device_train_batch_size: 2\n"))
    recipe.check_training(2)
    with pytest.raises(UserError, match="divisible by num_generations"):
        recipe.check_training(1)


def test_model_init_kwargs_override_the_attention_implementation(tmp_path):
    text = "use_cpu: true\nbf16: false\nattn_implementation: eager\n"
    for extra, expected in (("", "eager"), ("model_init_kwargs: {attn_implementation: sdpa}\n", "sdpa")):
        recipe = load_recipe(write(tmp_path, text + extra))
        assert recipe.attention == expected
        assert recipe.training_config(1).model_init_kwargs["attn_implementation"] == expected


@pytest.mark.parametrize(
    ("text", "strategy"), [("", "end"), ("hub_strategy: end\n", "end"), ("hub_strategy: every_save\n", None)]
)
def test_only_the_hub_strategy_end_is_accepted(tmp_path, text, strategy):
    file = write(tmp_path, f"push_to_hub: true\n{text}")
    if strategy is not None:
        assert load_recipe(file).setting("hub_strategy") == strategy
        return
    with pytest.raises(UserError, match="`hub_strategy` is 'every_save', but runs support only `end`"):
        load_recipe(file)


def test_command_line_words_are_parsed_by_the_type_of_the_field():
    assert coerce_words(["a", "b"], list[str]) == ["a", "b"]
    assert coerce_words(["[1, 2.5]"], list[float] | None) == [1.0, 2.5]
    assert coerce_words([], bool) is True
    assert coerce_words(["True"], str | bool | None) is True  # as the launcher passes it to workers
    with pytest.raises(TypeError, match="expected int, got 2 values"):
        coerce_words(["1", "2"], int)
    with pytest.raises(TypeError, match="expected int, got 0 values"):
        coerce_words([], int)
