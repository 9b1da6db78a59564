"""Seconds per rollout, compared with hand-computed values of the documented formula."""

import json

import pytest
import yaml
from plan_steps import SMALL

from trl_ces.cli import plan as command
from trl_ces.lab.plan.memory import GIB, VLLM_WORKSPACE
from trl_ces.lab.plan.plan import DEVICES, LENGTHS, PROMPT, UTILIZATION, plan_recipe, rollout_seconds
from trl_ces.lab.plan.step import count_step

FLOPS, BANDWIDTH = DEVICES["A800"]
KEYS = 2 * 4 * 2 * 32 * 2  # bytes per token: keys and values, layers, heads, width, bfloat16


@pytest.fixture
def make_plan(tmp_path):
    """Return a function that plans a run on 4 GPUs with 16 completions per rollout, 8 per step."""
    (tmp_path / "config.json").write_text(json.dumps(SMALL))

    def make(options=None, engine=None, **fields):
        default = {"model_name_or_path": "someone/model", "output_dir": "out", "dataset_name": "someone/data"}
        default |= {"bf16": True, "dtype": "float32", "num_generations": 4, "per_device_train_batch_size": 1}
        default |= {"responses_per_step": 8, "responses_per_rollout": 16, "max_completion_length": 100}
        default |= {"use_vllm": True, "attn_implementation": "flash_attention_2", "gradient_checkpointing": False}
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({**default, **fields}))
        arguments = {"gpus": 4, "rows": 8, "prompt_length": 20, "model_config": str(tmp_path), **(options or {})}
        return plan_recipe([str(tmp_path / "recipe.yaml")], {}, accelerate_config=engine, **arguments)

    return make


def test_generation_time_is_the_bytes_read_divided_by_the_bandwidth(make_plan):
    plan = make_plan()
    weights = count_step(plan.setup.step).weights
    # Each engine generates its four completions together, so there is one step per token of the longest completion.
    lengths = [10, 30]
    bytes_read = 2 * weights * 30 + KEYS * 4 * (20 * PROMPT + (10**2 + 30**2) / 2 / 2)
    for phases, (_, bandwidth_share) in zip(rollout_seconds(plan, lengths), UTILIZATION, strict=True):
        assert phases["generation"] == pytest.approx(bytes_read / (BANDWIDTH * bandwidth_share))
    # An engine on two devices shards its weights and cache, and generates twice as many completions.
    bytes_read = 2 * weights * 30 + KEYS * 8 * (20 * PROMPT + 500 / 2)
    sharded = rollout_seconds(make_plan(vllm_tensor_parallel_size=2), lengths)[0]
    assert sharded["generation"] == pytest.approx(bytes_read / 2 / (BANDWIDTH * UTILIZATION[0][1]))


def test_completions_are_queued_if_the_cache_is_small(make_plan):
    weights = count_step(make_plan().setup.step).weights
    cache = KEYS * 2 * (PROMPT + 1000 / 2)  # two completions, on average half complete
    gib = 2 * (cache + 2 * weights + VLLM_WORKSPACE) / GIB
    fields = {"max_completion_length": 1000, "vllm_gpu_memory_utilization": 0.5}
    small, large = (
        rollout_seconds(make_plan({"gpu_memory": memory}, **fields), [1000, 1000])[0] for memory in (gib, 80)
    )
    # Only two completions fit at a time, so the weights are read 1,000 more times. Cache reads do not change.
    extra_seconds = 2 * weights * 1000 / (BANDWIDTH * UTILIZATION[0][1])
    assert small["generation"] - large["generation"] == pytest.approx(extra_seconds, rel=0.01)


def test_an_update_costs_three_forward_passes_or_four_with_checkpointing(make_plan):
    def phases(**fields):
        return rollout_seconds(make_plan(**fields), [10, 30])[0]

    default = phases()
    weights = count_step(make_plan().setup.step).weights
    attention = 2 * 4 * 128 * (PROMPT**2 + 2 * PROMPT * 20 + 500)
    forward = (2 * weights * (PROMPT + 20) + attention) * 16 / 4 / (FLOPS * UTILIZATION[0][0])
    assert default["log-probs"] == pytest.approx(forward)
    assert default["update"] == pytest.approx(3 * forward)
    assert phases(gradient_checkpointing=True)["update"] == pytest.approx(4 * forward)
    assert phases(num_iterations=2)["update"] == pytest.approx(6 * forward)
    # The weights of a frozen base model need no gradients.
    lora = phases(gradient_checkpointing=True, use_peft=True, lora_target_modules=["all-linear"])
    assert lora["update"] == pytest.approx(3 * lora["log-probs"])
    # In on-policy training, only the importance sampling correction, which is on by default, needs log-probs.
    on_policy = {"responses_per_rollout": 8}
    assert phases(**on_policy)["log-probs"] == pytest.approx(forward / 2)
    assert phases(**on_policy, vllm_importance_sampling_correction=False)["log-probs"] == 0
    assert phases(beta=0.1)["log-probs"] == pytest.approx(2 * forward)


def test_hours_cover_all_rollouts_with_the_completion_lengths_of_r1(make_plan):
    plan = make_plan({"rows": 16})
    assert plan.schedule.rollouts == 3 * 4  # epochs x rollouts per epoch
    phases = rollout_seconds(plan, [100 * share for share in LENGTHS])
    assert plan.hours == pytest.approx([12 * sum(seconds.values()) / 3600 for seconds in phases])
    assert plan.hours[0] < plan.hours[1]


def test_hours_are_estimated_only_for_colocated_vllm_on_one_node(make_plan):
    for changes in ({"use_vllm": False}, {"vllm_mode": "server"}, {"use_cpu": True, "bf16": False}):
        assert make_plan(**changes).hours is None
    assert make_plan({"nodes": 2}).hours is None
    assert make_plan({"rows": None}).hours is None


def test_the_command_accepts_all_devices():
    assert set(command.DEVICES) == set(DEVICES)
