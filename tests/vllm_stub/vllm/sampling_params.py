"""Patch TRL's client to accept any device. TRL imports this module right after its client.

Before TRL opens the group, it rejects devices other than CUDA. The device "cuda" without an index passes this check,
and the stub of the group ignores the device.
"""

from trl.generation.vllm_client import VLLMClient


class StructuredOutputsParams:
    """Imported by TRL for colocated vLLM."""


def _on_any_device(init_communicator):
    return lambda client, device=0: init_communicator(client, device="cuda")


VLLMClient.init_communicator = _on_any_device(VLLMClient.init_communicator)
