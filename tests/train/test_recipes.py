"""Every YAML under recipes/ is read as the command line reads it; siblings differ only in the lines that matter."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from trl import get_peft_config

from trl_ces.methods.group_reward import is_group_reward
from trl_ces.support.errors import UserError
from trl_ces.support.reward_names import reward_name
from trl_ces.support.yaml import read_yaml
from trl_ces.train import checks
from trl_ces.train.launch import read_accelerate_config
from trl_ces.train.lookup import find_reward_functions, import_function
from trl_ces.train.recipe import load_recipe
from trl_ces.train.server import server_command
from trl_ces.train.shipped import OTHER_KINDS

RECIPES = Path(__file__).parents[2] / "recipes"
ALL = sorted(RECIPES.rglob("*.y*ml"))
ACCELERATE = [file for file in ALL if file.parent.name == "accelerate"]
# Other kinds of YAML are parsed by their own commands' tests.
TRAINING = [file for file in ALL if file.parent.name not in OTHER_KINDS]
METHODS = ["ces", "ces_without_dynamic_b", "ces_without_entropy_gradient", "dapo", "entropy_advantage"]
# DAPO with all that its own paper has.
DAPO_FULL = {"dynamic_sampling": True, "dynamic_sampling_max_rounds": 10}
METHOD_KEYS = {
    "shaping",
    "ces_tau",
    "ces_beta_correct",
    "ces_beta_incorrect",
    "ces_dynamic_multiplier",
    "ces_entropy_gradient",
    "entropy_advantage_alpha",
    "entropy_advantage_kappa",
}
R1 = ["DeepSeek-R1-Distill-Qwen-1.5B", "DeepSeek-R1-Distill-Qwen-7B"]
SMALL = "arithmetic"
# Added to the rewards of dapo.yaml: the factory, its settings in the small world and for R1, accuracy's weight.
ADDED_REWARDS = {
    "kimi": ("get_kimi_length_reward", None, None, 1.0),
    "arora": ("get_arora_length_reward", {"alpha": 0.2}, {"alpha": 0.2}, 1.0),
    "alp": ("get_alp_length_reward", {"beta": 0.5}, {"beta": 0.5}, 1.0),
    "linear": ("get_linear_length_reward", {"coefficient": 0.25}, {"coefficient": 0.25}, 1.0),
    "shorter": ("get_shorter_length_reward", {"beta": 0.02}, {"beta": 0.001}, 2.0),
    "laser": ("get_laser_length_reward", {"alpha": 0.5, "target": 18}, {"alpha": 0.5, "target": 4096}, 1.0),
    "gr3": ("get_gr3_length_reward", {"alpha": 0.33}, {"alpha": 0.33}, 1.0),
    "overlong": ("get_soft_overlong_punishment", {"soft_punish_cache": 13}, {"soft_punish_cache": 2400}, 1.0),
}


def adaptive(step, target):
    return {
        "use_adaptive_entropy": True,
        "entropy_coef": step,
        "entropy_coef_delta": step,
        "entropy_target": target,
    }


CLIP_COV = {"shaping": "clip_cov", "clip_cov_ratio": 0.0002, "clip_cov_low": 1.0, "clip_cov_high": 5.0}
NO_CLIP = {"epsilon": 1.0, "epsilon_high": 1000000.0}
KL_COV = {"shaping": "kl_cov", "kl_cov_ratio": 0.002, "kl_cov_coef": 1.0, **NO_CLIP}
GFPO = {"gfpo_keep": 4, "gfpo_metric": "length"}
# What else differs from dapo.yaml, in the small world and for R1.
CHANGED = {
    "clip_cov": (CLIP_COV, CLIP_COV),
    "kl_cov": (KL_COV, KL_COV),
    "gfpo": (GFPO, {**GFPO, "num_generations": 8, "responses_per_step": 8, "responses_per_rollout": 96}),
    "top_entropy": ({"top_entropy_quantile": 0.2}, {"top_entropy_quantile": 0.2}),
    "entropy_bonus": ({"entropy_coef": 0.01}, {"entropy_coef": 0.001}),
    "adaptive_entropy": (adaptive(0.001, 0.05), adaptive(0.005, 0.2)),
    "truncation": ({"max_completion_length": 32}, {"max_completion_length": 4000, "vllm_max_model_length": 6000}),
    "dler": (
        {**DAPO_FULL, "scale_rewards": "batch", "max_completion_length": 32},
        {**DAPO_FULL, "scale_rewards": "batch", "max_completion_length": 4000, "vllm_max_model_length": 6000},
    ),
}
LORA = {
    "dtype": "bfloat16",
    "use_peft": True,
    "lora_target_modules": ["all-linear"],
    "lora_r": 16,
    "lora_alpha": 32,
    "lora_dropout": 0.0,
    "per_device_train_batch_size": 1,
}
# Instead of a vLLM in the training processes.
SERVER = {
    "vllm_mode": "server",
    "vllm_server_port": 8000,
    "vllm_server_timeout": 900,
    "vllm_enable_sleep_mode": None,
    "vllm_gpu_memory_utilization": None,
}
OTHERS = [*ADDED_REWARDS, *CHANGED, "ces_alp", "ces_signs_swapped"]
# TRL's cosine reward grades chat messages, which the small world has not.
COSINE = {
    "reward_funcs": ["get_cosine_scaled_reward", "think_format_reward"],
    "reward_kwargs": {"get_cosine_scaled_reward": {"max_len": 12000}},
}


def name_of(file):
    return str(file.relative_to(RECIPES))


def content(folder, method):
    return read_yaml(RECIPES / folder / f"{method}.yaml")


@pytest.mark.parametrize("file", TRAINING, ids=name_of)
def test_a_training_recipe_is_accepted(file):
    recipe = load_recipe(file)
    recipe.check_training(1)
    find_reward_functions(recipe)
    if recipe.script.model_builder is not None:
        import_function(recipe.script.model_builder, "model_builder")


@pytest.mark.parametrize("file", TRAINING, ids=name_of)
def test_a_training_recipe_says_what_it_is_and_how_to_start_it(file):
    header = [line for line in file.read_text().splitlines() if line.startswith("#")]
    assert f"trl-ces train --config recipes/{name_of(file)}" in "\n".join(header)
    assert len(header[0]) > 20


@pytest.mark.parametrize("file", TRAINING, ids=name_of)
def test_a_training_recipe_reads_the_same_by_any_yaml_parser(file):
    # `2e-7` is a number here and a string to PyYAML: our own files avoid what parsers disagree on
    assert yaml.safe_load(file.read_text()) == read_yaml(file)


@pytest.mark.parametrize("file", ACCELERATE, ids=name_of)
def test_an_accelerate_file_is_one_that_accelerate_reads(file):
    from accelerate.commands.config.config_args import load_config_from_file

    settings = read_accelerate_config(file)
    loaded = load_config_from_file(str(file))
    assert loaded.num_processes == settings["num_processes"]
    assert str(loaded.distributed_type.value) == settings["distributed_type"]


def test_zero3_gathers_the_weights_it_saves():
    for name in ("zero3", "zero3_offload", "zero3_multinode"):
        assert read_yaml(RECIPES / "accelerate" / f"{name}.yaml")["deepspeed_config"]["zero3_save_16bit_model"] is True


@pytest.mark.parametrize("engine", ["zero3", "fsdp2"])
def test_a_file_for_several_nodes_differs_in_nodes_processes_and_port(engine):
    one, several = (read_yaml(RECIPES / "accelerate" / f"{engine}{end}.yaml") for end in ("", "_multinode"))
    assert several == {**one, "num_machines": 2, "num_processes": 16, "main_process_port": 29500}


def test_fsdp2_is_read_as_meant_by_accelerate(monkeypatch):
    """Through accelerate's launcher, its variables and its plugin: an unknown key would be dropped without a word."""
    from accelerate import FullyShardedDataParallelPlugin
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env
    from torch.distributed.fsdp import StateDictType

    file = RECIPES / "accelerate" / "fsdp2.yaml"
    words = ["--config_file", str(file), "--num_processes", "4", "--main_process_port", "0", "script.py"]
    arguments, _, _ = _validate_launch_command(launch_command_parser().parse_args(words))
    for name, value in prepare_multi_gpu_env(arguments).items():
        if name.startswith("FSDP_"):
            monkeypatch.setenv(name, value)
    plugin = FullyShardedDataParallelPlugin()
    found = {name: getattr(plugin, name) for name in ("fsdp_version", "reshard_after_forward")}
    assert found == {"fsdp_version": 2, "reshard_after_forward": True}
    assert plugin.auto_wrap_policy.__name__ == "transformer_auto_wrap_policy"
    assert plugin.transformer_cls_names_to_wrap is None  # then the model's own layers
    assert plugin.state_dict_type is StateDictType.FULL_STATE_DICT
    assert plugin.cpu_ram_efficient_loading is True
    assert plugin.activation_checkpointing is False  # with the recipes' own the Trainer would refuse it
    keys = {f"--{name}" for name in read_yaml(file)["fsdp_config"]}
    assert keys <= {option for action in launch_command_parser()._actions for option in action.option_strings}


def changes(folder, method, base="dapo"):
    """The keys of a recipe that differ from those of a sibling, with their values."""
    before, after = content(folder, base), content(folder, method)
    names = {"output_dir", "run_name"} & {*after}
    assert {name: after[name] for name in names} == {name: before[name][: -len(base)] + method for name in names}
    return {key: after.get(key) for key in before | after if before.get(key) != after.get(key) and key not in names}


def added_reward(folder, method):
    name, small, large, weight = ADDED_REWARDS[method]
    settings = small if folder == SMALL else large
    rewards = [*content(folder, "dapo")["reward_funcs"], name]
    added = {"reward_funcs": rewards}
    if settings is not None:
        added["reward_kwargs"] = {name: settings}
    if weight != 1.0:
        added["reward_weights"] = [weight, *[1.0] * (len(rewards) - 1)]
    return added


@pytest.mark.parametrize("folder", [*R1, SMALL])
def test_each_model_has_every_method(folder):
    cosine = [] if folder == SMALL else ["cosine"]
    lora = [] if folder == SMALL else ["ces_lora"]
    expected = sorted([*METHODS, "dapo_full", *OTHERS, *cosine, *lora])
    assert sorted(file.stem for file in (RECIPES / folder).glob("*.yaml")) == expected


@pytest.mark.parametrize("folder", [*R1, SMALL])
@pytest.mark.parametrize("method", ADDED_REWARDS)
def test_a_recipe_with_one_more_reward_is_dapo_with_that_reward(folder, method):
    assert changes(folder, method) == added_reward(folder, method)
    recipe = load_recipe(RECIPES / folder / f"{method}.yaml")
    added = find_reward_functions(recipe)[-1]
    assert is_group_reward(added) == (method != "overlong")
    assert reward_name(added).startswith("soft_overlong" if method == "overlong" else f"{method}_length_reward")


@pytest.mark.parametrize("folder", [*R1, SMALL])
@pytest.mark.parametrize("method", CHANGED)
def test_a_recipe_with_other_settings_is_dapo_with_those(folder, method):
    assert changes(folder, method) == CHANGED[method][folder != SMALL]


@pytest.mark.parametrize("folder", [*R1, SMALL])
def test_ces_alp_is_ces_with_the_reward_of_alp(folder):
    assert changes(folder, "ces_alp", base="ces") == added_reward(folder, "alp")


@pytest.mark.parametrize("folder", [*R1, SMALL])
def test_signs_swapped_is_ces_with_negative_betas(folder):
    swapped = {"ces_beta_correct": -0.4, "ces_beta_incorrect": -0.4}
    assert changes(folder, "ces_signs_swapped", base="ces") == swapped
    assert {name: content(folder, "ces")[name] for name in swapped} == dict.fromkeys(swapped, 0.4)


@pytest.mark.parametrize("folder", R1)
def test_lora_is_ces_with_adapters_ten_times_the_learning_rate_and_less_memory(folder):
    found = changes(folder, "ces_lora", base="ces")
    assert found.pop("learning_rate") == pytest.approx(10 * content(folder, "ces")["learning_rate"])
    del found["vllm_gpu_memory_utilization"]
    assert found == LORA
    peft = get_peft_config(load_recipe(RECIPES / folder / "ces_lora.yaml").model)
    assert (peft.target_modules, peft.r, peft.lora_alpha) == ("all-linear", 16, 32)


def cluster_changes(size, kind, base, folder="cluster"):
    """The keys of a cluster recipe that differ from those of another file, `None` where it has none."""
    before, after = content(folder, base), content("cluster", f"{size}_{kind}")
    assert after["output_dir"] == f"outputs/DeepSeek-R1-Distill-Qwen-{size}-ces-{kind.replace('_', '-')}"
    keys = {key for key in before | after if before.get(key) != after.get(key)} - {"output_dir"}
    return {key: after.get(key) for key in keys}


@pytest.mark.parametrize("size", ["7B", "1.5B"])
def test_the_cluster_recipes_are_the_papers_but_for_batches_and_vllm(size):
    paper = f"DeepSeek-R1-Distill-Qwen-{size}"
    assert cluster_changes(size, "server_paper", "ces", paper) == SERVER
    assert cluster_changes(size, "server", f"{size}_colocate") == SERVER
    found = cluster_changes(size, "colocate", "ces", paper)
    before, after = found["learning_rate"] / content(paper, "ces")["learning_rate"], found["responses_per_step"] / 4
    assert before == pytest.approx(after**0.5, rel=0.005)  # arXiv 2205.10287
    names = {"responses_per_step", "responses_per_rollout", "per_device_train_batch_size", "learning_rate"}
    assert found.keys() == names | {"save_steps", "vllm_gpu_memory_utilization"}


def test_the_two_cluster_sizes_differ_only_in_model_output_and_memory():
    for kind in ("colocate", "server", "server_paper"):
        small, large = (content("cluster", f"{size}_{kind}") for size in ("1.5B", "7B"))
        differing = {key for key in small | large if small.get(key) != large.get(key)}
        memory = {"vllm_gpu_memory_utilization", "per_device_train_batch_size"}
        assert differing - memory == {"model_name_or_path", "output_dir"}


@pytest.mark.parametrize("size", ["7B", "1.5B"])
def test_the_cluster_recipes_keep_their_batches_on_the_processes_they_are_for(size):
    names = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation")
    for kind, processes, step in [("colocate", (8,), 48), ("server", (8, 16, 24), 48), ("server_paper", (1, 2, 4), 4)]:
        recipe = load_recipe(RECIPES / "cluster" / f"{size}_{kind}.yaml")
        for number in processes:
            recipe.check_training(number)
            rows, passes, pieces = (recipe.training_fields(number)[name] for name in names)
            assert rows * passes * number == step
            assert rows * pieces * number == 12 * step
        assert recipe.training["save_steps"] % 12 == 0
    with pytest.raises(UserError, match="8 processes cannot share it evenly"):
        recipe.check_training(8)


@pytest.mark.parametrize("file", sorted(RECIPES.glob("cluster/*_server*.yaml")), ids=name_of)
def test_the_server_in_a_header_is_the_one_that_the_recipe_asks_for(file):
    header = re.sub(r"\\\n# +", "", file.read_text().partition("\n\n")[0])
    (given,) = re.findall(r"VLLM_SERVER_DEV_MODE=1 vllm serve .*", header)
    words, expected = shlex.split(given), shlex.split(server_command(load_recipe(file)))
    more = words.index("--data-parallel-size")
    assert sorted(words[:more] + words[more + 2 :]) == sorted(expected)


@pytest.mark.parametrize("folder", R1)
def test_cosine_grades_in_the_place_of_the_accuracy_reward(folder):
    assert changes(folder, "cosine") == COSINE


@pytest.mark.parametrize("folder", [*R1, "arithmetic"])
@pytest.mark.parametrize("method", METHODS)
def test_siblings_differ_only_in_output_and_method(folder, method):
    ces, other = content(folder, "ces"), content(folder, method)
    differing = {key for key in ces | other if ces.get(key) != other.get(key)}
    assert differing <= METHOD_KEYS | {"output_dir", "run_name"}
    assert method == "ces" or "output_dir" in differing


@pytest.mark.parametrize("folder", [*R1, "arithmetic"])
def test_dapo_full_is_dapo_with_dynamic_sampling_and_the_overlong_punishment(folder):
    dapo, full = content(folder, "dapo"), content(folder, "dapo_full")
    differing = {key for key in dapo | full if dapo.get(key) != full.get(key)} - {"output_dir", "run_name"}
    assert differing == {*DAPO_FULL, "reward_funcs", "soft_overlong_cache"}
    assert full["reward_funcs"] == [*dapo["reward_funcs"], "get_soft_overlong_punishment"]
    recipe = load_recipe(RECIPES / folder / "dapo_full.yaml")
    assert {key: recipe.training[key] for key in DAPO_FULL} == DAPO_FULL
    limit = recipe.training["max_completion_length"]
    assert full["soft_overlong_cache"] == pytest.approx(limit / 5, abs=0.5)  # DAPO: 4,096 of 20,480
    punishment = find_reward_functions(recipe)[-1]
    lengths = [[0] * (limit - full["soft_overlong_cache"]), [0] * limit, [0] * (limit + 1)]
    assert punishment(prompts=None, completions=None, completion_ids=lengths) == [0.0, -1.0, -1.0]


@pytest.mark.parametrize("method", [*METHODS, "dapo_full", *OTHERS, "cosine", "ces_lora"])
def test_the_two_r1_sizes_differ_only_in_model_output_and_memory(method):
    small, large = (content(folder, method) for folder in R1)
    differing = {key for key in small | large if small.get(key) != large.get(key)}
    assert differing == {"model_name_or_path", "output_dir", "vllm_gpu_memory_utilization"}


@pytest.mark.parametrize("folder", R1)
def test_the_methods_are_those_of_the_paper(folder):
    def method(name):
        recipe = load_recipe(RECIPES / folder / f"{name}.yaml")
        return {key: value for key, value in recipe.training.items() if key in METHOD_KEYS}

    ces = {"shaping": "ces", "ces_tau": 0.01, "ces_beta_correct": 0.4, "ces_beta_incorrect": 0.4}
    assert method("ces") == ces
    assert method("ces_without_dynamic_b") == {**ces, "ces_dynamic_multiplier": False}
    assert method("ces_without_entropy_gradient") == {**ces, "ces_entropy_gradient": False}
    assert method("dapo") == {"shaping": "none"}
    assert method("entropy_advantage") == {
        "shaping": "entropy_advantage",
        "entropy_advantage_alpha": 0.4,
        "entropy_advantage_kappa": 2.0,
    }


@pytest.mark.parametrize("folder", R1)
@pytest.mark.parametrize("method", METHODS)
def test_the_r1_recipes_hold_the_papers_numbers(folder, method):
    recipe = load_recipe(RECIPES / folder / f"{method}.yaml")
    expected = {
        "learning_rate": 2e-7,  # appendix, Table 3
        "temperature": 1.0,
        "top_p": 1.0,
        "max_completion_length": 12000,
        "num_generations": 4,
        "adam_beta1": 0.9,  # fidelity row 21
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
    assert recipe.model.dtype == "float32"  # masters in float32, row 21
    assert recipe.attention == "flash_attention_2"  # rows are packed
    assert recipe.script.max_train_samples == 2500
    assert recipe.script.reward_funcs == ["accuracy_reward", "think_format_reward"]


@pytest.mark.parametrize("installed", [None, "flash_attn", "kernels"])
def test_flash_attention_is_refused_where_no_package_has_it(monkeypatch, installed):
    monkeypatch.setattr(checks, "find_spec", lambda name: name == installed or None)
    monkeypatch.setattr("transformers.utils.is_kernels_available", lambda: installed == "kernels")
    recipe = load_recipe(RECIPES / R1[0] / "ces.yaml")
    if installed is not None:
        return checks._check_attention(recipe)
    said = r"`flash-attn` nor .*`kernels`.*: pip install \"trl_ces\[flash\]\", or give --attn_implementation sdpa"
    with pytest.raises(UserError, match=said):
        checks._check_attention(recipe)
    checks._check_attention(load_recipe(RECIPES / R1[0] / "ces.yaml", {"attn_implementation": ["sdpa"]}))


def test_flash_attention_is_refused_on_a_cpu(monkeypatch):
    monkeypatch.setattr("transformers.utils.is_kernels_available", lambda: True)
    recipe = load_recipe(RECIPES / R1[0] / "ces.yaml", {"use_cpu": ["true"]})
    with pytest.raises(UserError, match=r"which needs a GPU, and `use_cpu` is true: give --attn_implementation sdpa"):
        checks._check_attention(recipe)


@pytest.mark.parametrize("file", [file for file in TRAINING if file.parent.name in R1], ids=name_of)
def test_an_r1_recipe_trains_on_the_numbers_of_gpus_that_its_header_invites(file):
    (line,) = [line for line in file.read_text().splitlines() if "(--num_processes)" in line]
    invited = [int(number) for number in re.match(r"# On (\d+)(?: or (\d+))? GPU", line).groups() if number]
    assert invited[0] == 1
    for processes in [*invited, 2]:
        load_recipe(file).check_training(processes)


@pytest.mark.parametrize("folder", R1)
@pytest.mark.parametrize("method", ["clip_cov", "kl_cov"])
def test_one_response_a_process_is_refused_where_responses_are_compared(folder, method):
    file = RECIPES / folder / f"{method}.yaml"
    said = rf"{method}.yaml: `per_device_train_batch_size` is 1: .*`responses_per_step`, .* a multiple of twice"
    with pytest.raises(UserError, match=said):
        load_recipe(file).check_training(4)
    doubled = load_recipe(file, {"responses_per_step": ["8"], "responses_per_rollout": ["96"]})
    doubled.check_training(4)


def test_kl_cov_with_one_step_a_rollout_is_refused_before_a_model_is_loaded():
    recipe = load_recipe(RECIPES / R1[0] / "kl_cov.yaml", {"responses_per_rollout": ["4"]})
    with pytest.raises(UserError, match=r"one optimizer step.*`responses_per_rollout` above `responses_per_step`"):
        recipe.check_training(2)


@pytest.mark.parametrize("folder", R1)
@pytest.mark.parametrize(("processes", "batches"), [(1, (2, 2, 24)), (2, (2, 1, 12)), (4, (1, 1, 12))])
def test_the_r1_recipes_keep_four_responses_a_step_and_48_a_rollout(folder, processes, batches):
    recipe = load_recipe(RECIPES / folder / "ces.yaml")
    fields = recipe.training_fields(processes)
    names = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation")
    assert tuple(fields[name] for name in names) == batches
    recipe.check_training(processes)
    # whole rollouts of whole steps between two saves: a resumed run does not generate one anew
    assert recipe.training["save_steps"] % 12 == 0
