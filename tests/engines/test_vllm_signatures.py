"""Check that the stand-ins for vLLM accept only arguments that vLLM accepts."""

import json
from pathlib import Path

import pytest
from vllm_signatures import FILE, parameter_names

TESTS = Path(__file__).parents[1]
FACTS = json.loads(FILE.read_text())
TRANSFER = "vllm_stub/vllm/distributed/weight_transfer"


@pytest.mark.parametrize(
    ("stand_in", "name", "in_vllm"),
    [
        ("helpers/colocated_vllm.py", "ColocatedLLM.__init__", "LLM.__init__"),
        ("helpers/colocated_vllm.py", "ColocatedLLM.generate", "LLM.generate"),
        ("helpers/colocated_vllm.py", "ColocatedLLM.sleep", "LLM.sleep"),
        ("helpers/colocated_vllm.py", "ColocatedLLM.wake_up", "LLM.wake_up"),
        ("helpers/colocated_vllm.py", "ColocatedLLM.reset_prefix_cache", "LLM.reset_prefix_cache"),
        ("helpers/colocated_vllm.py", "ColocatedLLM._load_weights", "Qwen2ForCausalLM.load_weights"),
        ("lab/evaluation/test_vllm.py", "Engine.add_request", "LLMEngine.add_request"),
        (f"{TRANSFER}/nccl_common.py", "trainer_init", "trainer_init"),
        (f"{TRANSFER}/packed_tensor.py", "packed_nccl_broadcast_producer", "packed_nccl_broadcast_producer"),
        ("vllm_stub/vllm/utils/network_utils.py", "get_ip", "get_ip"),
    ],
)
def test_stand_ins_accept_only_arguments_that_vllm_accepts(stand_in, name, in_vllm):
    stub, real = parameter_names((TESTS / stand_in).read_text(), name), FACTS[in_vllm]
    if in_vllm == "LLM.__init__":
        real = real + FACTS["EngineArgs"]
    star = stub.index("*")
    assert stub[:star] == real[: real.index("*")][:star]
    assert set(stub[star:]) <= set(real)


def test_the_signatures_come_from_the_vllm_version_in_constraints_gpu():
    pins = (TESTS.parent / "constraints-gpu.txt").read_text().splitlines()
    assert f"vllm=={FACTS['version']}" in pins, "run make vllm-signatures"
