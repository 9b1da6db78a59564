"""A device's memory by part, by hand; what is advised where it is too small; which engine a file starts."""

import json
from dataclasses import replace

import pytest
from plan_steps import step

from trl_ces.plan.advice import advise
from trl_ces.plan.engine import Engine, read_engine
from trl_ces.plan.memory import Generation, Setup, plan_memory
from trl_ces.plan.step import count_step
from trl_ces.support.errors import UserError

GIB = 2**30


def setup(engine, accumulation=1, device=None, **changes):
    """A step of the small model, with generation elsewhere."""
    off = Generation(vllm=False, utilization=0, sleeps=False, tensor_parallel=1, sequences=0, kv_bytes=0, server=True)
    return Setup(step(**changes), engine, accumulation, off, device)


def parts(engine, **changes):
    planned = plan_memory(setup(engine, **changes))
    wanted = ("weights", "gradients", "optimizer", "engine's buffers")
    return tuple(planned.parts[name] for name in wanted), planned.host


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
    assert parts(Engine(2, 3, offload_optimizer=True), **half) == ((weights, 0, 0, 4 * weights), 14 * weights)
    assert parts(Engine(2, 3, True, True), **half) == ((0, 0, 0, 4 * weights), 16 * weights)


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
    assert changes == {"activation_checkpointing": "true"}
    assert after.training == checkpointed
    changes, after = advise(replace(free, device=checkpointed - 1))
    assert changes == {"activation_checkpointing": "true", "per_device_train_batch_size": "1"}
    one_row = replace(free, accumulation=8, step=replace(free.step, checkpointing=True, rows=1))
    assert after == replace(plan_memory(one_row), device=checkpointed - 1)


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
    with pytest.raises(UserError, match="no plan for `distributed_type: FSDP`"):
        read_engine({"distributed_type": "FSDP"}, 2)
    with pytest.raises(UserError, match="ZeRO stage 0"):
        deepspeed(zero_stage=0)
    with pytest.raises(UserError, match=r"nowhere\.json cannot be read"):
        deepspeed(deepspeed_config_file="nowhere.json")


def test_a_deepspeed_file_is_read(tmp_path):
    file = tmp_path / "ds.json"
    file.write_text(json.dumps({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}))
    given = {"distributed_type": "DEEPSPEED", "deepspeed_config": {"deepspeed_config_file": str(file)}}
    assert read_engine(given, 4) == Engine(4, 3, False, True)
