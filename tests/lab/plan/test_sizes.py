"""Planned rollouts, steps and checkpoints compared with real runs, and the sources of model shapes."""

import pytest
import torch
from peft import LoraConfig
from tiny import random_script, scripted_accuracy_reward, scripted_rollout, settings, tiny_model
from trainers import scripted_trainer
from transformers import AutoModelForCausalLM

from trl_ces import CESConfig
from trl_ces.lab.plan.sizes import BUILT_SHAPES, KNOWN_SHAPES, Disk, find_shape, make_schedule, plan_disk
from trl_ces.lab.tasks.arithmetic_model import BASE_TRAINING, _new_model, build_tokenizer
from trl_ces.support.errors import UserError
from trl_ces.train.recipe import make_recipe


def build_recipe(tmp_path, **fields):
    default = {
        "model_name_or_path": "unused",
        "dataset_name": "arithmetic",
        "output_dir": str(tmp_path),
        "use_cpu": True,
        "bf16": False,
        "num_generations": 4,
    }
    return make_recipe({**default, **fields}, "this test")


# Each case has a number of training rows and the recipe fields for one process.
SCHEDULES = {
    "on-policy": (7, {"per_device_train_batch_size": 8}),
    "two steps per rollout, two epochs": (
        9,
        {"per_device_train_batch_size": 4, "steps_per_generation": 2, "num_train_epochs": 2},
    ),
    "accumulated": (
        7,
        {
            "per_device_train_batch_size": 4,
            "gradient_accumulation_steps": 2,
            "steps_per_generation": 4,
            "num_train_epochs": 1.5,
        },
    ),
    "two iterations": (6, {"per_device_train_batch_size": 4, "steps_per_generation": 2, "num_iterations": 2}),
    "max_steps": (6, {"per_device_train_batch_size": 4, "steps_per_generation": 2, "max_steps": 5}),
}


@pytest.mark.parametrize("case", SCHEDULES)
def test_planned_steps_and_rollouts_match_a_real_run(tmp_path, case):
    rows, fields = SCHEDULES[case]
    plan = make_schedule(build_recipe(tmp_path, **fields).check_training(1), 1, rows)
    prompts = [f"{n}+{n}=" for n in range(rows)]
    script = random_script(prompts, [[1, 0, 0, 1]] * rows, torch.Generator().manual_seed(1), lengths=(2, 4))
    generate, rollouts = scripted_rollout(script, 4), []

    def count_prompts(prompts, trainer):
        rollouts.append(len(prompts))
        return generate(prompts, trainer)

    more = {"rollout_func": count_prompts}
    trainer = scripted_trainer(tmp_path, script, [scripted_accuracy_reward], more=more, **fields)
    trainer.train()
    assert plan.steps == trainer.state.global_step
    assert plan.rollouts == len(rollouts)
    assert {plan.completions} == set(rollouts)


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_the_papers_schedule_is_the_same_on_any_number_of_devices(tmp_path, processes):
    recipe = build_recipe(tmp_path, responses_per_step=4, responses_per_rollout=48, num_train_epochs=1)
    plan = make_schedule(recipe.check_training(processes), processes, 2500)
    # 12 prompts x 4 samples, 12 steps per rollout, 208 rollouts, 2,496 steps
    assert (plan.completions, plan.prompts, plan.completions_per_step, plan.updates) == (48, 12, 4, 12)
    assert (plan.rollouts, plan.steps, plan.policy) == (208, 2496, "off-policy (11 of 12 updates)")
    assert (plan.micro_batch, plan.accumulation) == {1: (2, 2), 2: (2, 1), 4: (1, 1)}[processes]


def test_too_few_rows_for_a_rollout_are_rejected(tmp_path):
    config = build_recipe(tmp_path, per_device_train_batch_size=8, max_steps=5).check_training(1)
    assert make_schedule(config, 1, 2).rollouts == 5
    with pytest.raises(UserError, match=r"fewer training rows \(1\) than prompts per rollout \(2\): add rows"):
        make_schedule(config, 1, 1)


def test_the_number_of_steps_is_unknown_without_rows(tmp_path):
    plan = make_schedule(build_recipe(tmp_path, responses_per_step=8).check_training(1), 1, None)
    assert (plan.updates, plan.policy, plan.steps, plan.rollouts) == (1, "on-policy", None, None)
    dynamic_plan = make_schedule(
        build_recipe(tmp_path, responses_per_step=8, shaping="none", dynamic_sampling=True).check_training(1), 1, None
    )
    assert dynamic_plan.rounds == 10


def saved_bytes(folder):
    """Count the bytes of the files that contain weights and optimizer state."""
    return sum(file.stat().st_size for name in ("*.safetensors", "optimizer.pt") for file in folder.glob(name))


@pytest.mark.parametrize("adapter", [False, True])
def test_the_size_of_a_checkpoint_matches_the_plan(tmp_path, adapter):
    prompts = [f"{n}+{n}=" for n in range(8)]
    script = random_script(prompts, [[1, 0, 0, 1]] * 8, torch.Generator().manual_seed(1), lengths=(2, 4))
    saves = {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 1, "max_steps": 2}
    more = {"peft_config": LoraConfig(r=64, target_modules="all-linear") if adapter else None}
    trainer = scripted_trainer(tmp_path, script, [scripted_accuracy_reward], more=more, **saves)
    trainer.train()
    weights = [parameter.numel() for parameter in trainer.model.parameters()]
    trainable = [parameter.numel() for parameter in trainer.model.parameters() if parameter.requires_grad]
    disk = plan_disk(trainer.args, 2, weights=sum(weights), trained=sum(trainable), width=4)
    assert disk.checkpoint == 12 * sum(trainable)
    assert (disk.saves, disk.max_checkpoints) == (2, 2)
    headers = 40_000  # tensor names and the rollout file
    assert disk.checkpoint < saved_bytes(tmp_path / "checkpoint-2") < disk.checkpoint + headers


@pytest.mark.parametrize(
    ("engine", "bytes_per_weight"),
    [
        ({}, 4 + 8),
        ({"width": 2}, 2 + 4),
        ({"zero_stage": 2}, 2 + 2 + 12),
        ({"zero_stage": 3}, 2 + 12),
        ({"fsdp": True}, 4 + 4 + 8),
    ],
)
def test_checkpoint_size_depends_on_the_engine(tmp_path, engine, bytes_per_weight):
    config = CESConfig(**settings(tmp_path, save_strategy="steps"))
    disk = plan_disk(config, 100, weights=1000, trained=1000, **{"width": 4, **engine})
    assert disk.checkpoint == 1000 * bytes_per_weight
    model_only = CESConfig(**settings(tmp_path, save_strategy="steps", save_only_model=True))
    assert plan_disk(model_only, 100, weights=1000, trained=1000, **{"width": 4, **engine}).checkpoint == disk.model


@pytest.mark.parametrize(
    ("fields", "steps", "saves"),
    [
        ({"save_strategy": "no"}, 100, 0),
        ({"save_strategy": "steps", "save_steps": 240}, 2496, 11),
        ({"save_strategy": "steps", "save_steps": 0.1}, 50, 10),
        ({"save_strategy": "steps"}, None, None),
        ({"save_strategy": "epoch", "num_train_epochs": 2.5}, None, 3),
        ({"save_strategy": "epoch", "max_steps": 6}, 6, None),
    ],
)
def test_the_save_strategy_determines_the_number_of_checkpoints(tmp_path, fields, steps, saves):
    config = CESConfig(**settings(tmp_path, **fields))
    assert plan_disk(config, steps, weights=10, trained=10, width=4).saves == saves


@pytest.mark.parametrize(
    ("saves", "limit", "max_checkpoints", "peak"),
    [
        (11, 2, 3, 300),  # two are kept, and a third is written before the oldest is deleted
        (11, None, 11, 1110),  # all are kept, and the final model is added
        (2, 2, 2, 210),
        (0, None, 0, 10),
        (None, 2, 3, 300),
        (None, None, None, 110),
    ],
)
def test_peak_disk_usage_includes_one_checkpoint_above_the_limit(saves, limit, max_checkpoints, peak):
    disk = Disk(model=10, checkpoint=100, saves=saves, limit=limit)
    assert (disk.max_checkpoints, disk.peak) == (max_checkpoints, peak)


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        # Parameter counts of the safetensors files, as shown on the Hub.
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1_777_088_000),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 7_615_616_512),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008),
    ],
)
def test_known_shapes_have_the_parameter_counts_of_their_models(name, weights):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(find_shape(name).config())
    assert model.num_parameters() == weights


def test_the_quickstarts_known_shape_matches_its_model():
    config = _new_model(build_tokenizer(), 0, BASE_TRAINING["layers"], BASE_TRAINING["width"]).config
    ((builder, known),) = BUILT_SHAPES.items()
    assert {name: getattr(config, name) for name in known} == known
    assert find_shape("runs/missing", builder).config().vocab_size == config.vocab_size


def test_a_config_file_takes_precedence_over_known_shapes(tmp_path, monkeypatch):
    tiny_model().save_pretrained(tmp_path / "model")
    assert find_shape(str(tmp_path / "model")).config().hidden_size == 16
    (name, *_) = KNOWN_SHAPES
    assert find_shape(name, config_file=str(tmp_path / "model" / "config.json")).config().hidden_size == 16
    (tmp_path / "config.json").write_text('{"hidden_size": 16}')
    with pytest.raises(UserError, match="Cannot read the model configuration"):
        find_shape(name, config_file=str(tmp_path))
    with pytest.raises(
        UserError, match=r"\(this path does not exist\): set `--model_config` .* Did you mean `.*model`"
    ):
        find_shape(str(tmp_path / "modle"))
    with pytest.raises(UserError, match="--model_config"):
        find_shape("nobody/nothing")
