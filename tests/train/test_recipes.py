"""The shipped recipes and all their overlays are valid and have the values stated in the papers."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from trl_ces.support.errors import UserError
from trl_ces.support.imports import import_path
from trl_ces.support.yaml import read_yaml
from trl_ces.train.launch import read_accelerate_config
from trl_ces.train.lookup import find_reward_functions
from trl_ces.train.recipe import compose, load_recipe, shipped_files
from trl_ces.train.server import server_command

RECIPES = Path(__file__).parents[2] / "recipes"
ACCELERATE = sorted(RECIPES.glob("accelerate/*.yaml"))
TRAINING = sorted(file for folder in ("models", "methods", "cluster") for file in RECIPES.glob(f"{folder}/*.yaml"))
R1, TOY = ["R1-1.5B", "R1-7B"], "arithmetic"
METHODS = sorted(shipped_files("methods"))
# These overlays need chat prompts or GPUs, so they cannot be combined with the toy recipe.
R1_ONLY = {"cosine", "lora"}
COMPOSED = [
    *([model] for model in [*R1, TOY, "smollm2_135m"]),
    *([model, method] for model in [*R1, TOY] for method in METHODS if model in R1 or method not in R1_ONLY),
    *([model, machines] for model in R1 for machines in shipped_files("cluster")),
]
CES = {"shaping": "ces", "ces_tau": 0.01, "ces_beta_correct": 0.4, "ces_beta_incorrect": 0.4}
SAMPLING = {"dynamic_sampling": True, "dynamic_sampling_max_rounds": 10}
SHORT = {"max_completion_length": 4000, "vllm_max_model_length": 6000}


def dapo_with_reward(name, settings=None, **more):
    """Return the changes of an overlay that adds a reward to DAPO."""
    changes = {"shaping": "none", "reward_funcs": ["accuracy_reward", "think_format_reward", name], **more}
    return changes if settings is None else {**changes, "reward_kwargs": {name: settings}}


# Changes that each overlay makes to the R1 recipes, with the values stated in the papers.
EXPECTED = {
    "dapo": {"shaping": "none"},
    "dapo_full": dapo_with_reward("get_soft_overlong_punishment", **SAMPLING),
    "dler": {
        "shaping": "none",
        **SAMPLING,
        "scale_rewards": "batch",
        "beta": 0.0005,
        "delta": 10.0,
        **SHORT,
        "num_generations": 16,
        "responses_per_step": 16,
        "responses_per_rollout": 192,
    },
    "truncation": {"shaping": "none", **SHORT},
    "entropy_advantage": {
        "shaping": "entropy_advantage",
        "entropy_advantage_alpha": 0.4,
        "entropy_advantage_kappa": 2.0,
    },
    "entropy_bonus": {"shaping": "none", "entropy_coef": 0.001},
    "adaptive_entropy": {
        "shaping": "none",
        "use_adaptive_entropy": True,
        "entropy_coef": 0.005,
        "entropy_coef_delta": 0.005,
        "entropy_target": 0.2,
    },
    "gdpo": {"shaping": "none", "multi_objective_aggregation": "normalize_then_sum"},
    "top_entropy": {"shaping": "none", "top_entropy_quantile": 0.2},
    "on_policy_sft": {
        "shaping": "on_policy_sft",
        "epsilon": 1.0,
        "epsilon_high": 1e6,
        "max_completion_length": 3500,
        "vllm_max_model_length": 5500,
    },
    "ces_signs_swapped": {**CES, "ces_beta_correct": -0.4, "ces_beta_incorrect": -0.4},
    "ces_without_dynamic_b": {**CES, "ces_dynamic_multiplier": False},
    "ces_without_entropy_gradient": {**CES, "ces_entropy_gradient": False},
    "ces_capped": {**CES, "ces_cap_incorrect": 2.0},
    "ces_correct_only": {**CES, "ces_beta_incorrect": 0.0},
    "ces_mai": {**dapo_with_reward("get_mai_length_reward", {"weight": 0.25}), **CES, "ces_beta_incorrect": 0.0},
    "ces_alp": {**dapo_with_reward("get_alp_length_reward", {"beta": 0.5}), **CES},
    "alp": dapo_with_reward("get_alp_length_reward", {"beta": 0.5}),
    "arora": dapo_with_reward("get_arora_length_reward", {"alpha": 0.2}),
    "gr3": dapo_with_reward("get_gr3_length_reward", {"alpha": 0.33}),
    "kimi": dapo_with_reward("get_kimi_length_reward"),
    "laser": dapo_with_reward("get_laser_length_reward", {"alpha": 0.5, "target": 4096}),
    "linear": dapo_with_reward("get_linear_length_reward", {"coefficient": 0.25}),
    "mai": dapo_with_reward("get_mai_length_reward", {"weight": 0.25}),
    "smart_thinker": dapo_with_reward("get_smart_thinker_length_reward"),
    "grpo_lead": dapo_with_reward("get_grpo_lead_length_reward", {"alpha": 0.1}, reward_weights=[0.0, 1.0, 1.0]),
    "overlong": dapo_with_reward("get_soft_overlong_punishment"),
    "shorter": dapo_with_reward("get_shorter_length_reward", {"beta": 0.001}, reward_weights=[2.0, 1.0, 1.0]),
    "cosine": {
        "shaping": "none",
        "reward_funcs": ["get_cosine_scaled_reward", "think_format_reward"],
        "reward_kwargs": None,
    },
    "lora": {
        **CES,
        "use_peft": True,
        "lora_target_modules": ["all-linear"],
        "lora_r": 16,
        "lora_alpha": 32,
        "lora_dropout": 0.0,
        "dtype": "bfloat16",
        "learning_rate": 2e-6,
        "vllm_importance_sampling_correction": True,
        "vllm_importance_sampling_mode": "token_truncate",
        "per_device_train_batch_size": 1,
        "vllm_gpu_memory_utilization": 0.55,
    },
}
# Values for the toy task that differ from EXPECTED.
TOY_VALUES = {
    "adaptive_entropy": {"entropy_coef": 0.001, "entropy_coef_delta": 0.001, "entropy_target": 0.05},
    "entropy_bonus": {"entropy_coef": 0.01},
    "grpo_lead": {"reward_weights": [0.0, 1.0]},
    "laser": {"reward_kwargs": {"get_laser_length_reward": {"alpha": 0.5, "target": 18}}},
    "shorter": {"reward_kwargs": {"get_shorter_length_reward": {"beta": 0.02}}, "reward_weights": [2.0, 1.0]},
    "overlong": {"reward_kwargs": {"get_soft_overlong_punishment": {"soft_punish_cache": 13}}},
    "dapo_full": {"reward_kwargs": {"get_soft_overlong_punishment": {"soft_punish_cache": 13}}},
    "truncation": {"max_completion_length": 32},
    "on_policy_sft": {"max_completion_length": 32},
}


def relative_path(file):
    return str(file.relative_to(RECIPES))


@pytest.mark.parametrize("names", COMPOSED, ids=" ".join)
def test_a_recipe_is_valid_alone_and_with_each_overlay(names):
    recipe = load_recipe(names)
    recipe.check_training(8 if names[-1] in ("colocate", "server") else 1)
    find_reward_functions(recipe)
    for field in ("model_builder", "dataset_builder"):
        if getattr(recipe.script, field) is not None:
            import_path(getattr(recipe.script, field), field)


@pytest.mark.parametrize("model", R1)
def test_an_overlay_makes_only_the_expected_changes_to_the_r1_recipes(model):
    base, expected = compose([model]), {}
    assert EXPECTED.keys() == set(METHODS)
    for method, changes in EXPECTED.items():
        # The settings of CES are dropped if the overlay replaces CES.
        remaining = {name: value for name, value in base.items() if name not in CES}
        expected[method] = {**remaining, **changes, "output_dir": f"outputs/{model}-{method}"}
    expected["lora"]["vllm_gpu_memory_utilization"] = {"R1-7B": 0.55, "R1-1.5B": 0.6}[model]
    assert {method: compose([model, method]) for method in METHODS} == expected


def test_an_overlay_makes_only_the_expected_changes_to_the_toy_recipe():
    base = compose([TOY])
    for method in set(METHODS) - R1_ONLY - {"dler"}:
        actual, changes = compose([TOY, method]), dict(EXPECTED[method])
        changes.pop("vllm_max_model_length", None)  # only in the R1 recipes
        if "reward_funcs" in changes:
            changes["reward_funcs"] = [*base["reward_funcs"], changes["reward_funcs"][-1]]
        changes |= {name: base[name] for name in CES if name in changes and changes[name] == CES[name]}
        remaining = {name: value for name, value in base.items() if name not in CES}
        names = {name: f"{base[name]}-{method}" for name in ("output_dir", "run_name")}
        assert actual == {**remaining, **changes, **TOY_VALUES.get(method, {}), **names}


@pytest.mark.parametrize("file", TRAINING, ids=relative_path)
def test_recipe_files_start_with_a_description_and_contain_standard_yaml(file):
    first = file.read_text().splitlines()[0]
    assert first.startswith("# ")
    assert len(first) > 20
    # Shipped files avoid values such as `2e-7`, which are numbers in this package but strings in PyYAML.
    assert yaml.safe_load(file.read_text()) == read_yaml(file)


@pytest.mark.parametrize(("model", "cache"), [("R1-7B", 2400), (TOY, 13)])
def test_the_overlong_punishment_grows_over_the_last_fifth_of_the_limit(model, cache):
    for method in ("overlong", "dapo_full"):
        recipe = load_recipe([model, method])
        limit = recipe.training["max_completion_length"]
        assert cache == pytest.approx(limit / 5, abs=0.5)  # DAPO: 4,096 of 20,480
        lengths = [[0] * (limit - cache), [0] * limit, [0] * (limit + 1)]
        punishment = find_reward_functions(recipe)[-1]
        assert punishment(prompts=None, completions=None, completion_ids=lengths) == [0.0, -1.0, -1.0]


@pytest.mark.parametrize(("overlays", "length"), [(["cosine"], 12000), (["cosine", "truncation"], 4000)])
def test_the_cosine_reward_spans_the_maximum_completion_length(overlays, length):
    assert find_reward_functions(load_recipe(["R1-7B", *overlays]))[0].max_len == length


@pytest.mark.parametrize("file", ACCELERATE, ids=relative_path)
def test_accelerate_can_load_the_shipped_configurations(file):
    from accelerate.commands.config.config_args import load_config_from_file

    settings = read_accelerate_config(file)
    loaded = load_config_from_file(str(file))
    assert loaded.num_processes == settings["num_processes"]
    assert str(loaded.distributed_type.value) == settings["distributed_type"]


# Server settings, which replace the settings of colocated vLLM.
SERVER = {
    "vllm_mode": "server",
    "vllm_server_port": 8000,
    "vllm_server_timeout": 900,
    "vllm_enable_sleep_mode": False,
}


def changed_values(names, base):
    before, after = compose(base), compose(names)
    return {key: after.get(key) for key in before | after if before.get(key) != after.get(key) and key != "output_dir"}


@pytest.mark.parametrize("model", R1)
def test_the_cluster_recipes_change_only_batches_and_vllm_settings(model):
    assert changed_values([model, "server_paper"], [model]) == SERVER
    actual = changed_values([model, "colocate"], [model])
    assert changed_values([model, "server"], [model]) == {
        **SERVER,
        **{key: value for key, value in actual.items() if key != "vllm_gpu_memory_utilization"},
    }
    rate_ratio = actual["learning_rate"] / compose([model])["learning_rate"]
    batch_ratio = actual["responses_per_step"] / 4
    assert rate_ratio == pytest.approx(batch_ratio**0.5, rel=0.005)  # square-root scaling, arXiv 2205.10287
    names = {"responses_per_step", "responses_per_rollout", "per_device_train_batch_size", "learning_rate"}
    assert actual.keys() == names | {"save_steps", "vllm_gpu_memory_utilization"}


@pytest.mark.parametrize("model", R1)
def test_the_cluster_recipes_keep_their_batch_sizes_on_supported_process_counts(model):
    names = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation")
    for kind, processes, step in [("colocate", (8,), 48), ("server", (8, 16, 24), 48), ("server_paper", (1, 2, 4), 4)]:
        recipe = load_recipe([model, kind])
        for number in processes:
            recipe.check_training(number)
            batch_size, accumulation, micro_batches = (recipe.training_fields(number)[name] for name in names)
            assert batch_size * accumulation * number == step
            assert batch_size * micro_batches * number == 12 * step
        assert recipe.training["save_steps"] % 12 == 0
    with pytest.raises(UserError, match="8 processes cannot share"):
        recipe.check_training(8)


@pytest.mark.parametrize("name", ["server", "server_paper"])
def test_the_header_of_a_server_recipe_contains_the_server_command(name):
    header = re.sub(r"\\\n# +", "", (RECIPES / "cluster" / f"{name}.yaml").read_text())
    (command,) = re.findall(r"VLLM_SERVER_DEV_MODE=1 vllm serve .*", header)
    words, expected = shlex.split(command), shlex.split(server_command(load_recipe(["R1-7B", name])))
    position = words.index("--data-parallel-size")
    assert sorted(words[:position] + words[position + 2 :]) == sorted(expected)


@pytest.mark.parametrize("model", R1)
def test_the_r1_recipes_have_the_values_stated_in_the_paper(model):
    recipe = load_recipe(model)
    expected = {
        **CES,
        "learning_rate": 2e-7,  # appendix, Table 3
        "temperature": 1.0,
        "top_p": 1.0,
        "max_completion_length": 12000,
        "num_generations": 4,
        "adam_beta1": 0.9,  # docs/deviations.md, row 21
        "adam_beta2": 0.95,
        "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
        "warmup_steps": 0.03,
        "max_grad_norm": 1.0,
        "weight_decay": 0.0,
        "epsilon": 0.2,  # row 12
        "epsilon_high": 0.28,
        "beta": 0.0,  # row 13
        "vllm_importance_sampling_correction": False,  # row 15
        "num_iterations": 1,  # row 20
        "num_train_epochs": 1.0,
        "vllm_enable_sleep_mode": True,  # row 22
        "vllm_mode": "colocate",
        "bf16": True,
    }
    assert {key: recipe.training[key] for key in expected} == expected
    assert recipe.model.dtype == "float32"  # fp32 master weights, row 21
    assert recipe.attention == "flash_attention_2"  # supports packed rows
    assert recipe.script.max_train_samples == 2500
    assert recipe.script.reward_funcs == ["accuracy_reward", "think_format_reward"]


@pytest.mark.parametrize("model", R1)
@pytest.mark.parametrize(("processes", "batches"), [(1, (2, 2, 24)), (2, (2, 1, 12)), (4, (1, 1, 12))])
def test_the_r1_recipes_have_4_completions_per_step_and_48_per_rollout(model, processes, batches):
    recipe = load_recipe(model)
    fields = recipe.training_fields(processes)
    names = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation")
    assert tuple(fields[name] for name in names) == batches
    recipe.check_training(processes)
    # Checkpoints are saved at the end of every fifth rollout, so a resumed run does not repeat a rollout.
    assert recipe.training["save_steps"] == 5 * 12
