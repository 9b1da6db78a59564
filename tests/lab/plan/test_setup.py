"""Setups read from a recipe and an accelerate file: engines, weight dtypes and generation."""

import json

import pytest
import torch
import yaml
from tiny import tiny_model

from trl_ces.lab.plan.memory import Engine
from trl_ces.lab.plan.plan import plan_recipe
from trl_ces.lab.plan.setup import read_engine
from trl_ces.support.errors import UserError
from trl_ces.train.launch import read_accelerate_config
from trl_ces.train.recipe import find_config

LORA = {"use_peft": True, "dtype": "bfloat16", "lora_target_modules": ["all-linear"]}


@pytest.fixture
def make_setup(tmp_path):
    """Return a function that plans a small recipe on 2 GPUs and returns its setup."""
    tiny_model().save_pretrained(tmp_path / "model")
    (tmp_path / "fsdp2.yaml").write_text("{distributed_type: FSDP, fsdp_config: {fsdp_version: 2}}")

    def make(engine=None, **fields):
        default = {"model_name_or_path": str(tmp_path / "model"), "output_dir": "out", "dataset_name": "data.jsonl"}
        default |= {"bf16": True, "dtype": "float32", "num_generations": 4, "per_device_train_batch_size": 4}
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({**default, **fields}))
        config_file = str(tmp_path / "fsdp2.yaml") if engine == "fsdp2" else engine
        return plan_recipe([str(tmp_path / "recipe.yaml")], {}, gpus=2, accelerate_config=config_file).setup

    return make


@pytest.mark.parametrize(
    ("engine", "fields", "stored", "sent", "dtype"),
    [
        (None, {}, (4, 4), 4, "float32"),  # with autocast
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
def test_frozen_trained_and_sent_weights_have_the_expected_sizes(make_setup, engine, fields, stored, sent, dtype):
    setup = make_setup(engine, **fields)
    assert (setup.frozen_bytes, setup.trained_bytes) == stored
    assert setup.sent_bytes == sent
    assert setup.step.dtype == dtype


@pytest.mark.parametrize(("dtype", "bytes_per_weight"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_dtype_auto_selects_the_dtype_of_the_saved_model(make_setup, tmp_path, dtype, bytes_per_weight):
    tiny_model().to(dtype).save_pretrained(tmp_path / "model")
    assert make_setup(dtype="auto").frozen_bytes == bytes_per_weight


def test_each_vllm_engine_generates_its_share_of_a_rollout(make_setup):
    batches = {"responses_per_step": 48, "responses_per_rollout": 576, "use_vllm": True}
    one_gpu, two_gpus = (make_setup(**batches, vllm_tensor_parallel_size=size).generation for size in (1, 2))
    assert (one_gpu.sequences, two_gpus.sequences) == (576 // 2, 576)
    # 2 bytes x (keys and values) x 2 layers x width 8; both devices hold a copy of the single key-value head.
    assert one_gpu.kv_bytes == two_gpus.kv_bytes == 2 * 2 * 2 * 8


def test_a_token_budget_reduces_the_micro_batch(make_setup):
    fields = {"per_device_train_batch_size": 4, "max_completion_length": 512}  # the prompt length is assumed to be 512
    setups = [make_setup(**fields, max_tokens_per_micro_batch=budget) for budget in (4096, 2048, 100)]
    assert [(setup.step.rows, setup.accumulation) for setup in setups] == [(4, 1), (2, 2), (1, 4)]


# Engines


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("zero2", Engine(4, 2)),
        ("zero3", Engine(4, 3)),
        ("zero3_offload", Engine(4, 3, offload_optimizer=True)),
        ("zero3_multinode", Engine(4, 3, nodes=2)),
        ("fsdp2", Engine(4, fsdp=True)),
        ("fsdp2_multinode", Engine(4, fsdp=True, nodes=2)),
    ],
)
def test_shipped_accelerate_files_select_the_engine_in_their_name(name, engine):
    assert read_engine(read_accelerate_config(find_config(name, "accelerate")), 4) == engine


def test_the_number_of_nodes_comes_from_the_option_or_the_file():
    assert read_engine({}, 2) == read_engine({"distributed_type": None}, 2) == Engine(2)
    assert read_engine({"num_machines": 2}, 4).nodes == 2
    assert read_engine({"num_machines": 2}, 4, 4).nodes == 4


def test_a_deepspeed_config_file_is_read(tmp_path):
    file = tmp_path / "ds.json"
    file.write_text(json.dumps({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}))
    fields = {"distributed_type": "DEEPSPEED", "deepspeed_config": {"deepspeed_config_file": str(file)}}
    assert read_engine(fields, 4) == Engine(4, 3, False, True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_machines": 2}, "`--gpus` is 3, which is not divisible by the number of nodes \\(2\\): .*`--nodes`"),
        ({"num_machines": None, "distributed_type": None}, "`num_machines` is None"),
        ({"distributed_type": "MEGATRON_LM"}, "does not support `distributed_type: MEGATRON_LM`"),
        ({"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 0}}, "ZeRO stage 0"),
        ({"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 1}}, "only FSDP2"),
        ({"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2, "fsdp_offload_params": True}}, "offloading"),
    ],
)
def test_unsupported_engines_are_rejected(settings, message):
    with pytest.raises(UserError, match=message):
        read_engine(settings, 3)


@pytest.mark.parametrize("content", [None, "{", "[]", '{"zero_optimization": [3]}'])
def test_a_deepspeed_config_file_that_cannot_be_read_is_rejected(tmp_path, content):
    if content is not None:
        (tmp_path / "ds.json").write_text(content)
    fields = {"deepspeed_config_file": str(tmp_path / "ds.json")}
    with pytest.raises(UserError, match=r"`deepspeed_config_file` is '.*ds\.json', which cannot be read"):
        read_engine({"distributed_type": "DEEPSPEED", "deepspeed_config": fields}, 4)


def test_engine_names_state_sharding_offloading_and_processes():
    assert Engine(1).name == "one process"
    assert Engine(2).name == "DDP on 2 processes"
    assert Engine(4, 3, True, nodes=2).name == "ZeRO-3, optimizer offloaded on 4 processes, 2 nodes"
    assert Engine(8, fsdp=True).name == "FSDP2 on 8 processes"
