"""Seconds of a rollout, by hand: each phase from the resource that bounds it."""

import json
from dataclasses import replace
from unittest import mock

import pytest
import yaml
from plan_steps import SMALL

from trl_ces.lab.plan.hours import (
    ADAM_BYTES,
    FAST,
    PROMPT,
    Device,
    Plan,
    _traffic,
    answer_lengths,
    decoding,
    rollout_seconds,
)
from trl_ces.lab.plan.plan import plan_recipe
from trl_ces.lab.plan.step import count_step
from trl_ces.lab.plan.text import text

DEVICE = Device(flops=1e12, memory=1e9, link=1e8, pcie=1e7)
# Everything that is not a size takes no time, and all of a peak is reached.
IDEAL = replace(FAST, flops=1, memory=1, links=1, token=0, host_adam=0, nap=0, tensor=0, network=1e6, disk=1e9)


@pytest.fixture
def plan_of(tmp_path):
    """The plan of a small model's recipe: 16 answers of up to 100 tokens a rollout, 8 a step, on 4 GPUs."""
    (tmp_path / "config.json").write_text(json.dumps(SMALL))

    def make(words=None, engine=None, **fields):
        usual = {"model_name_or_path": "someone/model", "output_dir": "out", "dataset_name": "someone/data"}
        usual |= {"bf16": True, "dtype": "float32", "num_generations": 4, "per_device_train_batch_size": 1}
        usual |= {"responses_per_step": 8, "responses_per_rollout": 16, "max_completion_length": 100}
        usual |= {"use_vllm": True, "attn_implementation": "flash_attention_2", "vllm_enable_sleep_mode": True}
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({**usual, **fields}))
        given = {"gpus": 4, "rows": 8, "prompt_length": 20, "model_config": str(tmp_path), **(words or {})}
        return plan_recipe([str(tmp_path / "recipe.yaml")], {}, accelerate_config=engine, **given)

    return make


SERVED = {"vllm_mode": "server", "vllm_enable_sleep_mode": False}


def test_answers_have_the_lengths_of_r1():
    lengths = answer_lengths(1000, 12_000)
    assert sorted(lengths)[500] == pytest.approx(3200, rel=0.01)
    assert (min(lengths), max(lengths)) == (320, 12_000)  # exp(ln 3200 - 0.7 x 3.29)
    assert lengths != sorted(lengths)
    assert max(answer_lengths(1000, 1200)) == 1200
    assert sorted(answer_lengths(1000, 1200))[500] == pytest.approx(320, rel=0.01)


def test_decoding_reads_the_weights_in_each_step_and_every_key_of_those_alive():
    # Two answers of 1 and 3 tokens, weights of 2 x 10 bytes, 1 byte a token of the cache, 1 byte/s.
    seconds, steps = decoding([1, 3], 2, 10, 1, memory=1, flops=1e9)
    # In the middle of a step an answer has half of its token: 2 P + 2/2; then P + 1 and P + 2, and 2/2 halves.
    assert (seconds, steps) == (3 * 20 + (2 * PROMPT + 1) + (2 * PROMPT + 1 + 2 + 1), 3)
    # One at a time: the same keys, the weights for 4 steps.
    seconds, steps = decoding([1, 3], 1, 10, 1, memory=1, flops=1e9)
    assert (seconds, steps) == (4 * 20 + (PROMPT + 0.5) + (3 * PROMPT + 4.5), 4)
    # FLOPs, 2 a weight and row, where they take longer.
    assert decoding([1, 3], 2, 10, 1, memory=1e9, flops=1) == (2 * 20 + 2 * 20, 3)


def test_an_update_is_four_forwards_where_a_layer_is_computed_again(plan_of):
    def phases(**fields):
        return rollout_seconds(plan_of(**fields), replace(DEVICE, link=1e30), IDEAL)

    again, once = phases(gradient_checkpointing=True), phases(gradient_checkpointing=False)
    assert again["update"] == pytest.approx(4 * again["old log-probs"])
    assert once["update"] == pytest.approx(3 * once["old log-probs"])
    twice = phases(gradient_checkpointing=False, num_iterations=2)
    assert twice["update"] == pytest.approx(2 * once["update"])
    # An adapter's base needs no gradient of its own.
    adapter = phases(gradient_checkpointing=True, use_peft=True, lora_target_modules=["all-linear"])
    assert adapter["update"] == pytest.approx(3 * adapter["old log-probs"])
    # On-policy TRL takes the log-probs from the update, unless they are to correct vLLM's, its default.
    on_policy = {"responses_per_rollout": 8, "gradient_checkpointing": False}
    corrected, scored = phases(**on_policy), phases(**on_policy, vllm_importance_sampling_correction=False)
    assert corrected["update"] == pytest.approx(3 * corrected["old log-probs"])
    assert (scored["update"], scored["old log-probs"]) == (corrected["update"], 0)
    assert phases(**on_policy, use_vllm=False)["old log-probs"] == 0
    assert phases(beta=0.1)["reference log-probs"] == pytest.approx(again["old log-probs"])
    assert again["reference log-probs"] == 0


def test_a_rollout_may_have_lengths_that_were_measured(plan_of):
    plan = plan_of()
    usual, same, longest = (
        rollout_seconds(plan, DEVICE, IDEAL, lengths) for lengths in (None, answer_lengths(16, 100), [100] * 16)
    )
    assert same == usual
    assert all(longest[name] > usual[name] for name in ("generation", "old log-probs", "update"))
    assert longest["optimizer"] == usual["optimizer"]


def test_padding_is_computed_without_flash_attention(plan_of):
    # Rows of a pass of two have different lengths.
    fields = {"per_device_train_batch_size": 2}
    packed, padded = (
        rollout_seconds(plan_of(attn_implementation=name, **fields), DEVICE, IDEAL)["old log-probs"]
        for name in ("flash_attention_2", "sdpa")
    )
    assert packed < padded < 2 * packed


def test_an_offloaded_optimizer_waits_for_the_host_and_the_way_there(plan_of):
    plan = plan_of(engine="zero3_offload")
    weights = count_step(plan.setup.step).weights
    # 2 steps of 2 passes; 6 bytes of a weight's share, and 4 a pass.
    assert rollout_seconds(plan, DEVICE, IDEAL)["optimizer"] == pytest.approx(2 * weights / 4 * (6 + 8) / 1e7)
    host = rollout_seconds(plan, replace(DEVICE, pcie=1e30), replace(IDEAL, host_adam=3.0))["optimizer"]
    assert host == pytest.approx(2 * 3.0 * weights / 1e9)
    here = rollout_seconds(plan_of(engine="zero3"), DEVICE, IDEAL)["optimizer"]
    assert here == pytest.approx(2 * ADAM_BYTES * weights / 4 / 1e9)
    alone = rollout_seconds(plan_of(), DEVICE, IDEAL)["optimizer"]
    assert alone == pytest.approx(4 * here)
    of_trl = {"responses_per_step": None, "responses_per_rollout": None, "gradient_accumulation_steps": 4}
    quarter = plan_of(**of_trl, steps_per_generation=1)  # four rollouts make a step
    assert rollout_seconds(quarter, DEVICE, IDEAL)["optimizer"] == pytest.approx(alone / 2 / 4)


def test_engines_send_what_they_shard(plan_of):
    count = count_step(plan_of(engine="zero3").setup.step)
    # 2 steps of 2 passes; three quarters of a tensor come from the three other processes.
    part = count.weights * 3 / 4
    assert _traffic(plan_of()) == 2 * 2 * 4 * part
    assert _traffic(plan_of(engine="zero2")) == (4 + 2) * 2 * part
    assert _traffic(plan_of(engine="zero3")) == 4 * 3 * 2 * part
    assert _traffic(plan_of(engine="fsdp2")) == 4 * 2 * (3 * count.weights - count.head) * 3 / 4
    assert _traffic(plan_of({"gpus": 1})) == 0

    # Over nodes, through the network: 1e6 bytes/s in place of 1e8, or what is given.
    def update(**words):
        return rollout_seconds(plan_of(words, "zero3"), replace(DEVICE, flops=1e30), IDEAL)["update"]

    assert update() == pytest.approx(12 * 2 * part / 1e8)
    assert update(nodes=2) == pytest.approx(12 * 2 * part / 1e6)
    assert update(nodes=2, bandwidth=8e-6) == pytest.approx(12 * 2 * part / 1e3)


def test_weights_travel_to_vllm_once_a_rollout(plan_of):
    def sync(plan, **rates):
        return rollout_seconds(plan, replace(DEVICE, memory=1e30), replace(IDEAL, **rates))["weights to vLLM"]

    zero3, ddp = plan_of(engine="zero3"), plan_of()
    count = count_step(zero3.setup.step)
    assert sync(zero3) == pytest.approx(2 * count.weights * 3 / 4 / 1e8)
    assert sync(zero3, nap=5, tensor=0.5) == pytest.approx(sync(zero3) + 5 + 0.5 * count.tensors)
    assert sync(plan_of(engine="zero3", vllm_enable_sleep_mode=False), nap=5) == pytest.approx(sync(zero3))
    # A server on the machine of the training, and elsewhere: DDP keeps float32.
    near, far = plan_of({"server_gpus": 4}, **SERVED), plan_of({"server_gpus": 8}, **SERVED)
    assert (near.one_machine, far.one_machine) == (True, False)
    assert sync(near) == pytest.approx(4 * count.weights / 1e8)
    assert sync(far) == pytest.approx(4 * count.weights / 1e6)
    assert sync(ddp) == pytest.approx(0, abs=1e-9)
    adapter = plan_of(use_peft=True, dtype="bfloat16", lora_target_modules=["all-linear"])
    assert sync(adapter) == pytest.approx(2 * 2 * count.weights / 1e7)


def test_more_engines_share_a_rollout_and_a_small_cache_makes_answers_wait(plan_of):
    def generation(plan):
        return rollout_seconds(plan, DEVICE, IDEAL)["generation"]

    one, four = (plan_of({"server_gpus": n, "gpu_memory": 40}, **SERVED) for n in (1, 4))
    assert generation(four) < generation(one)
    # 1.4 GiB of the device is vLLM's here, beside its workspace: no room for two answers.
    small = plan_of({"gpus": 1, "gpu_memory": 4.002})
    assert small.memory.full_answers < 2
    assert generation(small) > 2 * generation(plan_of({"gpus": 1, "gpu_memory": 40}))


def test_saves_and_start_are_in_the_hours(plan_of):
    # 4 rollouts of 2 steps and two checkpoints, at 1e9 bytes/s
    plan = plan_of({"rows": 16}, max_steps=8, save_steps=4)
    phases = rollout_seconds(plan, DEVICE, IDEAL)
    assert phases["checkpoints"] == pytest.approx(plan.disk.checkpoint * 2 / 4 / 1e9)
    fast, slow = plan.phases
    assert plan.hours[0] == pytest.approx((120 + 4 * sum(fast.values())) / 3600)
    assert plan.hours[1] == pytest.approx((600 + 4 * sum(slow.values())) / 3600)
    assert plan.hours[0] < plan.hours[1]
    assert all(fast[name] <= slow[name] for name in fast)


def test_who_waits_for_whom(plan_of):
    plan = plan_of({"server_gpus": 4}, **SERVED)
    phases = {"generation": 5.0, "weights to vLLM": 1.0, "update": 4.0}
    with mock.patch.object(Plan, "phases", (phases, phases)):
        assert "the devices that train idle 50 % of the time, the server's 40 %." in text(plan)


def test_there_are_no_hours_where_vllm_does_not_generate_on_a_gpu(plan_of):
    for plan in (plan_of(use_vllm=False), plan_of(**SERVED), plan_of(use_cpu=True, bf16=False)):
        assert plan.phases is None
        assert plan.hours is None
    unknown = plan_of({"rows": None})
    assert unknown.phases is not None
    assert unknown.hours is None
