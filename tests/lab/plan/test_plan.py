"""A recipe's plan: the model's shape, its schedule against real training, its tensors against PyTorch's allocator."""

import json
from contextlib import nullcontext

import pytest
import torch
from datasets import Dataset
from plan_steps import SMALL, allocator_peak, step
from tiny import random_script, scripted_accuracy_reward, scripted_rollout, settings, tiny_model, tiny_tokenizer
from transformers import AutoConfig, AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

from trl_ces import CESConfig, CESTrainer
from trl_ces.lab.plan.setup import make_schedule, whole_run
from trl_ces.lab.plan.shapes import BUILT_SHAPES, KNOWN_SHAPES, find_shape
from trl_ces.lab.plan.step import count_step
from trl_ces.lab.worlds.arithmetic_model import BASE_TRAINING, _new_model, build_tokenizer
from trl_ces.support.errors import UserError
from trl_ces.train.recipe import make_recipe

# The model's shape


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        # What the Hub says of their safetensors.
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1_777_088_000),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 7_615_616_512),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008),
    ],
)
def test_the_known_shapes_have_the_models_numbers_of_weights(name, weights):
    shape = find_shape(name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shape.config())
    assert model.num_parameters() == weights


def test_the_quickstarts_shape_is_that_of_the_model_it_makes():
    made = _new_model(build_tokenizer(), 0, BASE_TRAINING["layers"], BASE_TRAINING["width"]).config
    ((builder, known),) = BUILT_SHAPES.items()
    assert {name: getattr(made, name) for name in known} == known
    assert find_shape("runs/not/there", builder).config().vocab_size == made.vocab_size


def test_a_models_directory_goes_before_what_is_known(tmp_path, monkeypatch):
    tiny_model().save_pretrained(tmp_path / "model")
    assert find_shape(str(tmp_path / "model")).config().hidden_size == 16
    (name, *_) = KNOWN_SHAPES
    assert find_shape(name, given=str(tmp_path / "model" / "config.json")).config().hidden_size == 16
    (tmp_path / "config.json").write_text('{"hidden_size": 16}')
    with pytest.raises(UserError, match="has no `model_type`"):
        find_shape(name, given=str(tmp_path))
    with pytest.raises(UserError, match="--model_config"):
        find_shape("nobody/nothing")


# The schedule


def made(tmp_path, **fields):
    usual = {
        "model_name_or_path": "unused",
        "dataset_name": "arithmetic",
        "output_dir": str(tmp_path),
        "use_cpu": True,
        "bf16": False,
        "num_generations": 4,
    }
    return make_recipe({**usual, **fields}, "this test")


# Rows of the data, and fields; per_device_train_batch_size is for one process.
SCHEDULES = {
    "on-policy": (7, {"per_device_train_batch_size": 8}),
    "two steps a rollout, two epochs": (
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
    "used twice": (6, {"per_device_train_batch_size": 4, "steps_per_generation": 2, "num_iterations": 2}),
    "a number of steps": (6, {"per_device_train_batch_size": 4, "steps_per_generation": 2, "max_steps": 5}),
}


@pytest.mark.parametrize("case", SCHEDULES)
def test_the_steps_and_rollouts_are_those_of_a_real_run(tmp_path, case):
    rows, fields = SCHEDULES[case]
    plan = make_schedule(whole_run(made(tmp_path, **fields), 1), 1, rows)
    prompts = [f"{n}+{n}=" for n in range(rows)]
    script = random_script(prompts, [[1, 0, 0, 1]] * rows, torch.Generator().manual_seed(1), lengths=(2, 4))
    scripted, rollouts = scripted_rollout(script, 4), []

    def counted(prompts, trainer):
        rollouts.append(len(prompts))
        return scripted(prompts, trainer)

    trainer = CESTrainer(
        model=tiny_model(),
        reward_funcs=[scripted_accuracy_reward],
        args=CESConfig(**settings(tmp_path, **fields)),
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tiny_tokenizer(),
        rollout_func=counted,
    )
    trainer.train()
    assert plan.steps == trainer.state.global_step
    assert plan.rollouts == len(rollouts)
    assert {plan.responses} == set(rollouts)


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_the_papers_schedule_is_the_same_on_any_number_of_devices(tmp_path, processes):
    recipe = made(tmp_path, responses_per_step=4, responses_per_rollout=48, num_train_epochs=1)
    plan = make_schedule(whole_run(recipe, processes), processes, 2500)
    # fidelity: 12 prompts x 4 samples, 12 steps a rollout, 208 rollouts, 2,496 steps
    assert (plan.responses, plan.prompts, plan.responses_per_step, plan.updates) == (48, 12, 4, 12)
    assert (plan.rollouts, plan.steps, plan.policy) == (208, 2496, "off-policy (11 of 12 updates)")
    assert plan.micro_batch * plan.accumulation * processes == 4
    assert (plan.micro_batch, plan.accumulation) == {1: (2, 2), 2: (2, 1), 4: (1, 1)}[processes]


def test_one_update_of_a_rollout_is_on_policy_and_unknown_rows_leave_the_steps_open(tmp_path):
    plan = make_schedule(whole_run(made(tmp_path, responses_per_step=8), 1), 1, None)
    assert (plan.updates, plan.policy, plan.steps, plan.rollouts) == (1, "on-policy", None, None)
    drawn = make_schedule(
        whole_run(made(tmp_path, responses_per_step=8, shaping="none", dynamic_sampling=True), 1), 1, None
    )
    assert drawn.rounds == 10


# One step's tensors


def allocated(settings):
    """Most bytes that PyTorch's CPU allocator held at a time in a real step, beyond those before it."""
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(**json.loads(settings.shape.settings)), dtype=getattr(torch, settings.dtype)
    ).train()
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    if settings.checkpointing:
        model.activation_checkpointing_enable()
    ids = torch.zeros(settings.rows, settings.tokens, dtype=torch.long)
    mask = torch.ones_like(ids)
    mask[0, :9] = 0  # a padded row, as in a rollout

    def act():
        with torch.autocast("cpu", torch.bfloat16) if settings.autocast else nullcontext():
            outputs = model(input_ids=ids, attention_mask=mask, labels=ids, fused_lm_head=True)
        (outputs.log_probs.sum() + outputs.entropy.sum()).backward()

    return allocator_peak(act)


STEPS = {
    "as it is": {},
    "checkpointing": {"checkpointing": True},
    "long": {"tokens": 900, "rows": 1},
    "long, checkpointing": {"tokens": 900, "rows": 1, "checkpointing": True},
    "bfloat16 by autocast": {"autocast": True},
    "llama, tied, large vocabulary": {
        "shape": {**SMALL, "model_type": "llama", "vocab_size": 40000, "tie_word_embeddings": True}
    },
}


@pytest.mark.parametrize("case", STEPS)
def test_a_steps_tensors_are_those_that_the_allocator_saw(case):
    settings = step(**STEPS[case])
    assert count_step(settings).peak_with_gradients == pytest.approx(allocated(settings), rel=0.05)


def test_flash_attention_saves_the_masks_and_the_repeated_heads():
    square = 2 * 256 * 256
    usual, flash = count_step(step()), count_step(step(flash_attention=True))
    # In each of four layers the mask as float32, and keys and values of 2 heads more.
    repeated = 2 * 2 * 256 * 2 * 32 * 4
    assert usual.saved - flash.saved == 4 * (4 * square + repeated)


def test_on_a_gpu_the_lm_head_works_in_place():
    wide = {**SMALL, "vocab_size": 32768, "num_hidden_layers": 1}
    cpu, gpu = (count_step(step(wide, gpu=on, tokens=512)) for on in (False, True))
    tile = 2 * 511 * 32768 * 4
    assert cpu.peak - gpu.peak > 2 * tile
    # One tile, the gradient of the head, and little else.
    head = tile + 32768 * 128 * 4
    assert head < gpu.peak - gpu.saved < 1.05 * head


LORA = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "target_modules": ["q_proj", "v_proj"]}


def test_of_lora_only_the_adapters_are_trained():
    count = count_step(step(lora=json.dumps(LORA)))
    # r x (in + out): q 128 -> 128, v 128 -> 64, four layers
    assert count.trained == 4 * 4 * (128 + 128 + 128 + 64)
    whole = count_step(step())
    assert count.weights == whole.weights + count.trained
    assert whole.trained == whole.weights


def test_loras_dropout_keeps_what_it_dropped_for_the_backward():
    plain, dropped = (count_step(step(lora=json.dumps({**LORA, "lora_dropout": p}))).saved for p in (0.0, 0.1))
    # Per layer and adapter, of (2, 256, 128) inputs: a mask, a byte or a float32 each, and the dropped input, float32.
    inputs = 4 * 2 * 2 * 256 * 128
    assert inputs <= dropped - plain <= 8 * inputs
