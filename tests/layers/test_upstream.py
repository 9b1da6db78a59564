"""Test the workarounds for bugs in TRL, accelerate and peft. Some tests fail once their bug is fixed upstream."""

import json
from types import SimpleNamespace

import pytest
import requests
import torch
from accelerate.utils import FullyShardedDataParallelPlugin
from peft import LoraConfig, get_peft_model
from processes import free_port, run_processes
from requests.adapters import HTTPAdapter
from tiny import tiny_model
from tool_processes import CALLS
from tool_turns import qwen_tokenizer
from trl import GRPOTrainer
from trl.distributed import DistributedBackend
from trl.generation.vllm_generation import VLLMGeneration
from urllib3.util.retry import Retry

from trl_ces.layers import UpstreamFixes, upstream
from trl_ces.layers.upstream import keep_float32_outputs, restore_base_after_merge, seed_colocated_vllm, set_timeout

SYNCS = 20


# set_timeout


def session_with_timeout(retries):
    session = requests.Session()
    session.mount("http://", HTTPAdapter(max_retries=retries))
    set_timeout(session, seconds=60)
    return session


def test_a_refused_connection_is_not_retried(monkeypatch):
    monkeypatch.setattr("urllib3.util.retry.time.sleep", lambda _: pytest.fail("retried"))
    with pytest.raises(requests.exceptions.ConnectionError, match="Connection refused"):
        session_with_timeout(Retry(total=5, connect=5, read=5, backoff_factor=2)).get(
            f"http://127.0.0.1:{free_port()}"
        )


def test_other_retry_settings_are_unchanged():
    original = Retry(
        total=5, connect=5, read=4, status=3, backoff_factor=2, status_forcelist=[503], allowed_methods=None
    )
    retries = session_with_timeout(original).get_adapter("http://").max_retries
    assert {**vars(retries), "connect": 5} == vars(original)


# _tool_call_loop


def test_ranks_with_unequal_tool_rounds_neither_hang_nor_mix_rows(tmp_path):
    model = tiny_model(vocabulary=len(qwen_tokenizer()))
    model.config.max_position_embeddings = 4096
    model.save_pretrained(tmp_path / "model")
    run_processes("tool_processes.py", tmp_path / "two", 2, timeout=200, arguments=(str(tmp_path / "model"),))
    for rank, (name, calls) in enumerate(CALLS.items()):
        final_turns = json.loads((tmp_path / "two" / f"turns-{rank}.json").read_text())
        assert final_turns == [f"{name} {member} {num_calls}" for member, num_calls in enumerate(calls)]


# keep_float32_outputs


def test_fsdp2_returns_float32_outputs_and_keeps_its_other_dtypes():
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    keep_float32_outputs(plugin)
    assert plugin.mixed_precision_policy is None
    plugin.set_mixed_precision("bf16")
    assert plugin.mixed_precision_policy.output_dtype is torch.bfloat16, (
        "accelerate has fixed this bug: remove keep_float32_outputs"
    )
    keep_float32_outputs(plugin)
    policy = plugin.mixed_precision_policy
    assert (policy.param_dtype, policy.reduce_dtype, policy.output_dtype) == (torch.bfloat16, torch.bfloat16, None)
    keep_float32_outputs(None)  # without FSDP


def test_the_trainer_keeps_float32_outputs_in_the_accelerators_plugin(monkeypatch):
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    plugin.set_mixed_precision("bf16")

    def create(self):
        self.accelerator = SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin))

    monkeypatch.setattr(GRPOTrainer, "create_accelerator_and_postprocess", create)
    UpstreamFixes.__new__(UpstreamFixes).create_accelerator_and_postprocess()
    assert plugin.mixed_precision_policy.output_dtype is None


# restore_base_after_merge


def make_adapter_model(dtype, **changes):
    model = tiny_model().to(dtype)
    return get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", **changes))


def base_weights(model):
    """Map vLLM's parameter names to copies of the base model's weights."""
    return {
        name.removeprefix("base_model.model.").replace(".base_layer", ""): weight.detach().clone()
        for name, weight in model.named_parameters()
        if "lora_" not in name
    }


def sync(model):
    """Change the adapter, run TRL's sync, and return the weights that vLLM would receive."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter += 0.01 * torch.randn_like(parameter)
    generation = VLLMGeneration.__new__(VLLMGeneration)
    generation.model = model
    generation._dist = DistributedBackend(
        SimpleNamespace(state=SimpleNamespace(deepspeed_plugin=None, fsdp_plugin=None))
    )
    return {name: weight.clone() for name, weight in generation._iter_named_params()}


def changed_names(before, after):
    return [name for name in before if not torch.equal(before[name], after[name])]


def test_a_16_bit_base_drifts_without_the_fix():
    model = make_adapter_model(torch.bfloat16)
    before = base_weights(model)
    for _ in range(SYNCS):
        sync(model)
    assert changed_names(before, base_weights(model)), "peft has fixed this bug: remove restore_base_after_merge"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_16_bit_base_is_bitwise_identical_after_many_syncs(dtype):
    model, plain = make_adapter_model(dtype), make_adapter_model(dtype)
    plain.load_state_dict(model.state_dict())
    restore_base_after_merge(model)
    before = base_weights(model)
    for seed in range(SYNCS):
        torch.manual_seed(seed)
        sent = sync(model)
        if seed == 0:  # vLLM receives the weights merged by peft
            torch.manual_seed(seed)
            assert changed_names(sync(plain), sent) == []
            assert changed_names(before, sent)
        assert changed_names(before, base_weights(model)) == []


def test_the_base_is_copied_once_and_trained_biases_keep_their_values(monkeypatch):
    copies, rounded = [], upstream._rounded_weights
    monkeypatch.setattr(upstream, "_rounded_weights", lambda model: copies.extend(rounded(model)) or rounded(model))
    model = make_adapter_model(torch.bfloat16, bias="all")
    restore_base_after_merge(model)
    biases = {name: weight for name, weight in model.named_parameters() if name.endswith("bias")}
    assert biases
    for number in range(3):
        for weight in biases.values():
            weight.data.fill_(number)
        sync(model)
        assert all((weight == number).all() for weight in biases.values())
    frozen = [weight for name, weight in model.named_parameters() if ".base_layer.weight" in name]
    assert len(copies) == len(frozen) > 0


@pytest.mark.parametrize(
    ("use_vllm", "peft", "is_restored"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_the_trainer_restores_the_base_if_vllm_receives_merged_weights(monkeypatch, use_vllm, peft, is_restored):
    model = make_adapter_model(torch.bfloat16) if peft else tiny_model()

    def init(self):
        self.model, self.use_vllm, self.vllm_mode = model, use_vllm, "server"
        self.vllm_generation = SimpleNamespace(model=model)
        self.accelerator = SimpleNamespace(state=SimpleNamespace(deepspeed_plugin=None), is_main_process=False)

    monkeypatch.setattr(GRPOTrainer, "__init__", init)
    UpstreamFixes()
    assert ("merge_adapter" in vars(model)) == is_restored


# seed_colocated_vllm; test_trainer_colocated.py tests its effect on training


def test_the_ranks_of_a_tensor_parallel_group_share_a_seed():
    samples = []
    for rank in range(4):
        seed_colocated_vllm(SimpleNamespace(seed=7, vllm_tensor_parallel_size=2), rank)
        samples.append(torch.rand(1).item())
    assert samples[0] == samples[1] != samples[2] == samples[3]
