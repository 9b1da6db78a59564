"""Planned memory by part, compared with hand-computed values and with a measurement on an H100."""

import json

import pytest
from plan_steps import setup, step

from trl_ces.lab.plan.memory import GIB, Engine, Generation, plan_memory
from trl_ces.lab.plan.sizes import KNOWN_SHAPES
from trl_ces.lab.plan.step import count_step

BF16 = {"dtype": "bfloat16"}
LORA = json.dumps({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "target_modules": ["q_proj"]})


def parts_of(memory):
    return tuple(memory.parts[name] for name in ("weights", "gradients", "optimizer", "engine's buffers"))


def parts_and_host(engine, **changes):
    memory = plan_memory(setup(engine, step(**changes)))
    return parts_of(memory), memory.host


@pytest.mark.slow
def test_the_1_5b_plan_matches_the_h100_measurement():
    # experiments/h100: peak of PyTorch's allocator for 2 rows of 12,032 tokens, float32 weights and bf16 autocast
    shape = KNOWN_SHAPES["deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"]
    changes = {
        "rows": 2,
        "tokens": 12_032,
        "checkpointing": True,
        "autocast": True,
        "flash_attention": True,
        "gpu": True,
    }
    memory = plan_memory(setup(Engine(1), step(shape, **changes)))
    planned = (memory.training - memory.parts["reserve (estimate)"]) / 2**20
    assert round(planned) == 30_089
    assert planned == pytest.approx(29_964, rel=0.005)


def test_bytes_per_weight_depend_on_the_engine():
    weights = count_step(step()).weights
    assert parts_and_host(Engine(1)) == ((4 * weights, 4 * weights, 8 * weights, 0), 0)
    assert parts_and_host(Engine(2))[0] == (4 * weights, 4 * weights, 8 * weights, 4 * weights)  # DDP's buckets
    # bfloat16 weights and gradients; master weights and Adam's moments in float32
    assert parts_and_host(Engine(2, 1), **BF16)[0][:3] == (2 * weights, 2 * weights, 6 * weights)
    assert parts_and_host(Engine(2, 2), **BF16)[0][:3] == (2 * weights, weights, 6 * weights)
    assert parts_and_host(Engine(2, 3), **BF16)[0][:3] == (weights, weights, 6 * weights)
    assert parts_and_host(Engine(4, 3), **BF16)[0][2] == 3 * weights
    assert parts_and_host(Engine(2, 3, offload_optimizer=True), **BF16) == ((weights, 0, 0, 4 * weights), 18 * weights)
    assert parts_and_host(Engine(2, 3, True, True), **BF16) == ((0, 0, 0, 4 * weights), 20 * weights)


def test_fsdp2_shards_float32_and_gathers_layers_in_bfloat16():
    count = count_step(step(**BF16))
    weights, layer, head = count.weights, count.layer, 2048 * 128
    # q and o: 128 x 128. k and v: 128 x 64. Biases of q, k and v. MLP: three matrices of 128 x 384. Two norms.
    assert layer == 2 * 128 * 128 + 2 * 128 * 64 + 128 + 2 * 64 + 3 * 128 * 384 + 2 * 128
    assert count.head == head
    mixed = setup(Engine(4, fsdp=True), step(**BF16), frozen_bytes=4, trained_bytes=4)
    assert parts_of(plan_memory(mixed)) == (weights, weights, 2 * weights, 2 * (3 * layer + max(layer, head)))
    # Without `bf16`, a model loaded as bfloat16 has no float32 weights.
    bf16 = setup(Engine(4, fsdp=True), step(**BF16))
    assert parts_of(plan_memory(bf16))[:3] == (weights / 2, weights / 2, weights)
    assert (mixed.sent_bytes, bf16.sent_bytes) == (4, 2)


def test_lora_keeps_the_base_models_dtype_and_trains_float32_adapters():
    adapters = 4 * 4 * (128 + 128)  # four layers, r x (in + out)
    base = count_step(step()).weights
    lora_step = step(**BF16, lora=LORA)
    ddp = setup(Engine(2), lora_step, trained_bytes=4)
    assert parts_of(plan_memory(ddp)) == (2 * base + 4 * adapters, 4 * adapters, 8 * adapters, 4 * adapters)
    # The reference model is the model without its adapters.
    assert plan_memory(setup(Engine(2), lora_step, trained_bytes=4, reference=True)) == plan_memory(ddp)
    fsdp = plan_memory(setup(Engine(2, fsdp=True), lora_step, trained_bytes=4))
    assert parts_of(fsdp)[:3] == ((2 * base + 4 * adapters) // 2, 2 * adapters, 4 * adapters)
    # DeepSpeed casts the adapters like all other weights; its master weights are float32.
    assert parts_and_host(Engine(2, 2), **BF16, lora=LORA)[0][:3] == (2 * (base + adapters), adapters, 6 * adapters)
    assert ddp.sent_bytes == 2  # merged into the base model


def test_a_kl_term_adds_a_reference_model():
    weights = count_step(step()).weights
    memory = plan_memory(setup(Engine(1), step(), reference=True))
    assert memory.parts["weights"] == 2 * 4 * weights


def test_zero3_gathers_the_whole_model_only_with_lora():
    vllm = Generation(True, utilization=0.5, sleeps=True, sequences=24, kv_bytes=1024)

    def gathered_bytes(engine, **changes):
        memory = plan_memory(setup(engine, step(**BF16, gpu=True, **changes), generation=vllm, device=40 * GIB))
        resident = sum(memory.parts[name] for name in ("weights", "optimizer", "engine's buffers", "gradients"))
        return memory.generating - resident - memory.parts["vLLM"] - memory.parts["reserve (estimate)"]

    assert gathered_bytes(Engine(2, 3)) == 2 * 2048 * 128
    assert gathered_bytes(Engine(2, 3), lora=LORA) == 2 * count_step(step(**BF16, gpu=True, lora=LORA)).weights
    assert gathered_bytes(Engine(2, 2), lora=LORA) == 0


def test_host_memory_is_counted_per_node():
    weights = count_step(step()).weights
    engine = Engine(4, 3, offload_optimizer=True, nodes=2)
    assert plan_memory(setup(engine, step(**BF16, gpu=True))).host == 18 * weights // 2


def test_gradients_coexist_with_activations_only_if_accumulated():
    count = count_step(step())
    static = 4 * count.weights + 8 * count.weights + GIB  # the last term is `RESERVE_CPU`
    assert plan_memory(setup(Engine(1), step())).training == static + max(count.peak_with_gradients, 4 * count.weights)
    accumulated = plan_memory(setup(Engine(1), step(), accumulation=2)).training
    assert accumulated == static + 4 * count.weights + count.peak


def plan_with_vllm(sleeps=True, utilization=0.5):
    vllm = Generation(True, utilization=utilization, sleeps=sleeps, sequences=24, kv_bytes=1024)
    return plan_memory(setup(Engine(2, 3), step(**BF16, gpu=True), generation=vllm, device=40 * GIB))


def test_vllm_memory_counts_during_training_unless_vllm_sleeps():
    awake, asleep = plan_with_vllm(sleeps=False), plan_with_vllm()
    assert awake.training - asleep.training == 19 * GIB  # vLLM frees 19 of its 20 GiB
    assert awake.generating == asleep.generating
    assert awake.full_completions == pytest.approx(
        (20 * GIB - 2 * count_step(step()).weights - 2 * GIB) / (1024 * 256)
    )
    # vLLM may use 2.4 or 2 GiB, and its workspace takes 2 GiB.
    assert plan_with_vllm(utilization=0.06).full_completions > 1 > plan_with_vllm(utilization=0.05).full_completions


def test_only_generation_without_vllm_has_a_key_value_cache():
    generation = Generation(False, sequences=24, kv_bytes=1024)
    local = plan_memory(setup(Engine(2, 3), step(**BF16), generation=generation))
    assert local.parts["key-value cache"] == 24 * 1024 * 256
    served = plan_memory(setup(Engine(2, 3), step(**BF16), generation=Generation(False, server=True)))
    assert (served.parts["key-value cache"], served.generating) == (0, 0)
    assert served.training == local.training == served.peak
