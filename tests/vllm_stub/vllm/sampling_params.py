"""Imported by TRL right after its client, which thus can be told here that any device will do.

TRL refuses a device that is not CUDA before it opens the group. An unnumbered "cuda" passes that check, and nothing
is done with it but to hand it on: the group below has no device.
"""

from trl.generation.vllm_client import VLLMClient


class StructuredOutputsParams:
    """Named by TRL, for colocated vLLM."""


def _on_any_device(init_communicator):
    return lambda client, device=0: init_communicator(client, device="cuda")


VLLMClient.init_communicator = _on_any_device(VLLMClient.init_communicator)
