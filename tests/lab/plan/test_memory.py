"""A device's memory by part, by hand; what is advised where it is too small; which engine a file starts."""

import json
from dataclasses import replace

import pytest
from plan_steps import step

from trl_ces.lab.plan.advice import ENGINES, OVER_NODES, _engine, advise
from trl_ces.lab.plan.engine import Engine, read_engine
from trl_ces.lab.plan.memory import Generation, Setup, plan_memory
from trl_ces.lab.plan.step import count_step
from trl_ces.support.errors import UserError
from trl_ces.train.launch import read_accelerate_config
from trl_ces.train.recipe import find_config

GIB = 2**30


def setup(engine, accumulation=1, device=None, **changes):
    """A step of the small model that generates next to nothing, by transformers."""
    off = Generation(vllm=False, utilization=0, sleeps=False, tensor_parallel=1, sequences=0, kv_bytes=0)
    return Setup(step(**changes), engine, accumulation, off, device, one_row=(("per_device_train_batch_size", "1"),))


def parts_of(planned):
    wanted = ("weights", "gradients", "optimizer", "engine's buffers")
    return tuple(planned.parts[name] for name in wanted)


def parts(engine, **changes):
    planned = plan_memory(setup(engine, **changes))
    return parts_of(planned), planned.host


def test_bytes_for_each_weight_by_engine():
    weights = count_step(step()).weights
    assert parts(Engine(1)) == ((4 * weights, 4 * weights, 8 * weights, 0), 0)
    assert parts(Engine(2))[0] == (4 * weights, 4 * weights, 8 * weights, 4 * weights)  # DDP's buckets
    half = {"dtype": "bfloat16"}
    # bfloat16 weights and gradients; master weights and Adam's moments in float32
    assert parts(Engine(2, 1), **half)[0][:3] == (2 * weights, 2 * weights, 6 * weights)
    assert parts(Engine(2, 2), **half)[0][:3] == (2 * weights, weights, 6 * weights)
    assert parts(Engine(2, 3), **half)[0][:3] == (weights, weights, 6 * weights)
    assert parts(Engine(4, 3), **half)[0][2] == 3 * weights
    assert parts(Engine(2, 3, offload_optimizer=True), **half) == ((weights, 0, 0, 4 * weights), 18 * weights)
    assert parts(Engine(2, 3, True, True), **half) == ((0, 0, 0, 4 * weights), 20 * weights)


def test_fsdp2_shares_out_float32_and_gathers_layers_in_bfloat16():
    count = count_step(step(dtype="bfloat16"))
    weights, layer, head = count.weights, count.layer, 2048 * 128
    # q and o 128 x 128, k and v 128 x 64, their biases, three of 128 x 384, two norms
    assert layer == 2 * 128 * 128 + 2 * 128 * 64 + 128 + 2 * 64 + 3 * 128 * 384 + 2 * 128
    assert count.head == head
    mixed = replace(setup(Engine(4, fsdp=True), dtype="bfloat16"), loaded="float32", trained="float32")
    assert parts_of(plan_memory(mixed)) == (weights, weights, 2 * weights, 2 * (3 * layer + max(layer, head)))
    # Without `bf16`, loaded as bfloat16: nothing is float32.
    half = replace(mixed, loaded="bfloat16", trained=None)
    assert parts_of(plan_memory(half))[:3] == (weights / 2, weights / 2, weights)
    assert (mixed.sent_bytes, half.sent_bytes) == (4, 2)


LORA = json.dumps({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "target_modules": ["q_proj"]})


def test_lora_keeps_the_base_in_its_dtype_and_trains_float32_adapters():
    adapters = 4 * 4 * (128 + 128)  # four layers, r x (in + out)
    base = count_step(step()).weights
    half = {"dtype": "bfloat16", "lora": LORA}
    kept = replace(setup(Engine(2), **half), trained="float32")
    assert parts_of(plan_memory(kept)) == (2 * base + 4 * adapters, 4 * adapters, 8 * adapters, 4 * adapters)
    assert plan_memory(replace(kept, reference=True)) == plan_memory(kept)  # without the adapters it is the reference
    shared = plan_memory(replace(kept, engine=Engine(2, fsdp=True), loaded="bfloat16"))
    assert parts_of(shared)[:3] == ((2 * base + 4 * adapters) // 2, 2 * adapters, 4 * adapters)
    # DeepSpeed casts the adapters with the rest; its masters are float32.
    assert parts(Engine(2, 2), **half)[0][:3] == (2 * (base + adapters), adapters, 6 * adapters)
    assert kept.sent_bytes == 2  # merged into the base


def test_under_zero3_trl_gathers_a_tensor_at_a_time_but_with_lora_all():
    half = {"dtype": "bfloat16", "gpu": True}
    vllm = Generation(True, 0.5, True, 1, 24, kv_bytes=1024)

    def gathered(engine, **changes):
        planned = plan_memory(replace(setup(engine, device=40 * GIB, **half, **changes), generation=vllm))
        resident = sum(planned.parts[name] for name in ("weights", "optimizer", "engine's buffers", "gradients"))
        return planned.generating - resident - planned.parts["vLLM"] - planned.parts["reserve (estimate)"]

    count = count_step(step(**half, lora=LORA))
    assert gathered(Engine(2, 3)) == 2 * 2048 * 128
    assert gathered(Engine(2, 3), lora=LORA) == 2 * count.weights
    assert gathered(Engine(2, 2), lora=LORA) == 0


def test_host_memory_is_a_nodes():
    weights = count_step(step()).weights
    half = {"dtype": "bfloat16", "gpu": True}

    def planned(engine, **changes):
        return plan_memory(replace(setup(engine, **half), loaded="float32", **changes))

    offloaded = planned(Engine(4, 3, offload_optimizer=True, nodes=2))
    assert offloaded.host == 18 * weights // 2
    # The first process reads bfloat16; or each process, or one of each node, loads float32.
    assert offloaded.loading == 2 * weights
    assert planned(Engine(4, 2, nodes=2)).loading == 2 * 4 * weights
    assert planned(Engine(4, fsdp=True, loads_once=True, nodes=2)).loading == 4 * weights
    assert planned(Engine(1)).loading == 0


def test_gradients_lie_beside_the_activations_only_where_they_are_kept():
    count, reserve = count_step(step()), GIB
    static = 4 * count.weights + 8 * count.weights + reserve
    assert plan_memory(setup(Engine(1))).training == static + max(count.peak_with_gradients, 4 * count.weights)
    accumulated = plan_memory(setup(Engine(1), accumulation=2)).training
    assert accumulated == static + 4 * count.weights + count.peak
    assert accumulated > plan_memory(setup(Engine(1))).training


def colocated(sleeps, device=40, utilization=0.5, **changes):
    vllm = Generation(True, utilization, sleeps, 1, 24, kv_bytes=1024)
    return replace(setup(Engine(2, 3), device=device * GIB, gpu=True, dtype="bfloat16", **changes), generation=vllm)


def test_vllms_share_counts_in_training_unless_it_sleeps():
    awake, asleep = plan_memory(colocated(False)), plan_memory(colocated(True))
    assert awake.training - asleep.training == 19 * GIB  # 20, of which 1 is thought to stay
    assert awake.generating == asleep.generating
    weights = count_step(step()).weights
    assert awake.full_answers == pytest.approx((20 * GIB - 2 * weights - 2 * GIB) / (1024 * 256))


def test_a_cache_that_holds_no_whole_answer_does_not_fit():
    small = plan_memory(colocated(True, utilization=0.06))  # 2.4 GiB, 2 of them for vLLM's own work
    assert small.full_answers > 1
    tiny = plan_memory(colocated(True, utilization=0.05))
    assert tiny.full_answers < 1
    assert (small.fits, tiny.fits) == (True, False)


# What to change


def test_sleep_is_advised_where_vllm_leaves_no_room_to_train():
    wide = {"utilization": 0.9, "rows": 64, "tokens": 4096, "checkpointing": True}
    crowded = colocated(False, **wide)
    assert not plan_memory(crowded).fits
    changes, after = advise(crowded)
    assert changes == {"vllm_enable_sleep_mode": "true"}
    assert after == plan_memory(colocated(True, **wide))
    assert after.fits


def test_a_smaller_or_larger_share_of_the_device_is_advised_for_vllm():
    greedy, starved = colocated(True, utilization=0.99), colocated(True, utilization=0.03)
    (share,) = (advise(setup)[0].pop("vllm_gpu_memory_utilization") for setup in (greedy,))
    assert advise(greedy)[0] == advise(starved)[0] == {"vllm_gpu_memory_utilization": share}
    assert float(share) == 0.9  # 3 GiB are reserved of 40, and 0.95 of them would leave 2


def on_gpu(device_mib, **changes):
    return replace(setup(Engine(2), gpu=True, **changes), device=device_mib * 2**20)


def test_checkpointing_then_the_micro_batch_then_deepspeed_are_advised():
    wide = {"rows": 8, "tokens": 2048}
    free = on_gpu(10**6, **wide)
    plain = plan_memory(free).training
    checkpointed = plan_memory(replace(free, step=replace(free.step, checkpointing=True))).training
    assert checkpointed < plain
    changes, after = advise(replace(free, device=checkpointed))
    assert changes == {"gradient_checkpointing": "true"}
    assert after.training == checkpointed
    changes, after = advise(replace(free, device=checkpointed - 1))
    assert changes == {"gradient_checkpointing": "true", "per_device_train_batch_size": "1"}
    one_row = replace(free, accumulation=8, step=replace(free.step, checkpointing=True, rows=1))
    assert after == replace(plan_memory(one_row), device=checkpointed - 1)


def test_rows_that_share_a_micro_batch_for_a_reason_are_not_separated():
    wide = {"rows": 8, "tokens": 2048, "checkpointing": True, "flash_attention": True}
    crowded = replace(on_gpu(10**6, **wide), engine=Engine(1))
    crowded = replace(crowded, device=plan_memory(crowded).training - 1)
    assert advise(crowded)[0] == {"per_device_train_batch_size": "1"}
    assert advise(replace(crowded, one_row=())) == ({}, plan_memory(crowded))
    both = (("per_device_train_batch_size", "1"), ("gradient_accumulation_steps", "8"))
    assert advise(replace(crowded, one_row=both))[0] == dict(both)


def test_every_advised_engine_is_shipped_and_is_what_it_is_called():
    for name, stage, offload in ENGINES:
        settings = read_accelerate_config(find_config(name, "accelerate"))
        assert read_engine(settings, 2) == Engine(2, stage, offload)
    for name, other in OVER_NODES.items():
        settings = read_accelerate_config(find_config(other, "accelerate"))
        (stage,) = (stage for known, stage, _ in ENGINES if known == name)
        assert read_engine(settings, 4) == Engine(4, stage, nodes=2)


def test_over_several_nodes_their_own_file_is_advised():
    def offered(**where):
        given = setup(Engine(4, 2, **where), gpu=True, dtype="bfloat16")
        return [fields["--accelerate_config"] for fields, _ in _engine(given)]

    assert offered() == ["zero3", "zero3_offload"]
    assert offered(nodes=2) == ["zero3_multinode", "zero3_offload"]


def test_fsdp2_too_large_may_offload_but_gains_nothing_from_other_sharding():
    small = replace(
        setup(Engine(2, fsdp=True), gpu=True, dtype="bfloat16", rows=1, checkpointing=True, flash_attention=True),
        loaded="float32",
        trained="float32",
        device=3 * GIB,
    )
    assert advise(small)[0] == {"--accelerate_config": "zero3_offload"}


def test_where_nothing_helps_what_is_missing_is_said():
    changes, after = advise(replace(setup(Engine(2), gpu=True), device=2 * GIB))  # less than the reserve
    assert not after.fits
    assert changes["--accelerate_config"] == "zero3_offload"
    assert after.excess == after.training - 2 * GIB


def test_reading_an_accelerate_configuration():
    def deepspeed(**fields):
        return read_engine({"distributed_type": "DEEPSPEED", "deepspeed_config": fields}, 2)

    assert read_engine({}, 2) == Engine(2)
    assert deepspeed(zero_stage=3, offload_optimizer_device="cpu") == Engine(2, 3, True)
    with pytest.raises(UserError, match="no plan for `distributed_type: MEGATRON_LM`"):
        read_engine({"distributed_type": "MEGATRON_LM"}, 2)
    with pytest.raises(UserError, match="ZeRO stage 0"):
        deepspeed(zero_stage=0)
    with pytest.raises(UserError, match=r"nowhere\.json cannot be read"):
        deepspeed(deepspeed_config_file="nowhere.json")


def test_reading_fsdp():
    def fsdp(**fields):
        return read_engine({"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2, **fields}}, 2)

    assert fsdp() == Engine(2, fsdp=True, loads_once=True)
    for name, nodes in (("fsdp2", 1), ("fsdp2_multinode", 2)):
        shipped = read_engine(read_accelerate_config(find_config(name, "accelerate")), 2)
        assert shipped == Engine(2, fsdp=True, loads_once=True, nodes=nodes)
    assert fsdp(fsdp_cpu_ram_efficient_loading=False) == Engine(2, fsdp=True)
    for field, value, planned in (
        ("fsdp_version", 1, 2),
        ("fsdp_offload_params", True, "false"),
        ("fsdp_reshard_after_forward", False, "true"),
    ):
        with pytest.raises(UserError, match=f"`{field}: {planned}`"):
            fsdp(**{field: value})


def test_nodes_are_the_users_or_the_files():
    assert read_engine({"num_machines": 2}, 4).nodes == 2
    assert read_engine({"num_machines": 2}, 4, 4).nodes == 4
    assert Engine(16, 3, nodes=2).name == "ZeRO-3 on 16 processes, 2 nodes"
    assert Engine(8, fsdp=True).name == "FSDP2 on 8 processes"
    with pytest.raises(UserError, match=r"`--gpus` is 3, which cannot be spread evenly over 2 nodes: .*`--nodes`"):
        read_engine({}, 3, 2)
    with pytest.raises(UserError, match="`num_machines` is 'two'"):
        read_engine({"num_machines": "two"}, 2)


def test_a_deepspeed_file_is_read(tmp_path):
    file = tmp_path / "ds.json"
    file.write_text(json.dumps({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}))
    given = {"distributed_type": "DEEPSPEED", "deepspeed_config": {"deepspeed_config_file": str(file)}}
    assert read_engine(given, 4) == Engine(4, 3, False, True)
