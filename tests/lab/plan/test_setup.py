"""What a recipe and an engine make of the setup: dtypes of weights, answers at a time, fields that keep a step."""

import pytest
import torch
import yaml
from tiny import tiny_model

from trl_ces.lab.plan.plan import plan_recipe

LORA = {"use_peft": True, "dtype": "bfloat16", "lora_target_modules": ["all-linear"]}


@pytest.fixture
def setup_of(tmp_path):
    """The setup of a small recipe with `fields`, on 2 GPUs under an engine by name."""
    tiny_model().save_pretrained(tmp_path / "model")
    (tmp_path / "fsdp2.yaml").write_text("{distributed_type: FSDP, fsdp_config: {fsdp_version: 2}}")

    def make(engine=None, **fields):
        usual = {"model_name_or_path": str(tmp_path / "model"), "output_dir": "out", "dataset_name": "data.jsonl"}
        usual |= {"bf16": True, "dtype": "float32", "num_generations": 4, "per_device_train_batch_size": 4}
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({**usual, **fields}))
        named = str(tmp_path / "fsdp2.yaml") if engine == "fsdp2" else engine
        return plan_recipe([str(tmp_path / "recipe.yaml")], {}, gpus=2, accelerate_config=named).setup

    return make


@pytest.mark.parametrize(
    ("engine", "fields", "kept", "sent", "computed"),
    [
        (None, {}, (4, 4), 4, "float32"),  # and autocast
        ("zero2", {}, (2, 2), 2, "bfloat16"),
        ("zero3", {}, (2, 2), 2, "bfloat16"),
        ("fsdp2", {}, (4, 4), 4, "bfloat16"),
        ("fsdp2", {"dtype": "bfloat16"}, (2, 4), 4, "bfloat16"),  # accelerate trains in float32
        ("fsdp2", {"dtype": "bfloat16", "bf16": False}, (2, 2), 2, "bfloat16"),
        (None, LORA, (2, 4), 2, "bfloat16"),
        ("fsdp2", LORA, (2, 4), 2, "bfloat16"),
        ("zero2", LORA, (2, 2), 2, "bfloat16"),
        (None, {**LORA, "dtype": "float32"}, (4, 4), 4, "float32"),
    ],
)
def test_bytes_of_frozen_trained_and_sent_weights(setup_of, engine, fields, kept, sent, computed):
    setup = setup_of(engine, **fields)
    assert (setup.frozen_bytes, setup.trained_bytes) == kept
    assert setup.sent_bytes == sent
    assert setup.step.dtype == computed


@pytest.mark.parametrize(("fields", "answers"), [({}, 576 // 2), ({"use_vllm": True, "vllm_mode": "server"}, 576)])
def test_a_server_is_asked_for_the_whole_rollout_and_a_process_for_its_share(setup_of, fields, answers):
    setup = setup_of(responses_per_step=48, responses_per_rollout=576, **fields)
    assert setup.generation.server is bool(fields)
    assert setup.generation.sequences == answers


def test_each_device_of_an_engine_has_one_key_value_head_at_least(setup_of):
    on_one, on_two = (setup_of(use_vllm=True, vllm_tensor_parallel_size=size).generation for size in (1, 2))
    assert on_one.kv_bytes == on_two.kv_bytes == 2 * 2 * 2 * 8  # bytes, keys and values, layers, width of the one head


@pytest.mark.parametrize(("saved", "loaded"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_dtype_auto_is_that_of_the_saved_model(setup_of, tmp_path, saved, loaded):
    tiny_model().to(saved).save_pretrained(tmp_path / "model")
    assert setup_of(dtype="auto").loaded_bytes == loaded


ONE = ("per_device_train_batch_size", "1")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"responses_per_step": 8}, (ONE,)),
        ({}, (ONE, ("gradient_accumulation_steps", "4"))),
        (
            {"gradient_accumulation_steps": 2, "steps_per_generation": 6},
            (ONE, ("gradient_accumulation_steps", "8"), ("steps_per_generation", "24")),
        ),
        ({"shaping": "clip_cov"}, ()),
        ({"shaping": "none", "loss_type": "bnpo"}, ()),
        ({"shaping": "none", "top_entropy_quantile": 0.2}, ()),
    ],
)
def test_one_row_a_pass_leaves_the_step_as_it_is_or_is_not_offered(setup_of, fields, expected):
    assert setup_of(**fields).one_row == expected
