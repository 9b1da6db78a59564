"""Stub of the package `vllm` for a trainer in server mode without CUDA; its folder must be on PYTHONPATH.

TRL's client, its HTTP requests and the rendezvous at the group's port are real. NCCL is replaced: weights are written
to a file, and its name is sent through the socket of the rendezvous. sampling_params.py disables the check for a CUDA
device. The stub has no engine; tests/helpers/colocated_vllm.py is the stub of colocated vLLM.
"""

__version__ = "0.31.0"


class LLM:
    def __init__(self, *_, **__):
        raise NotImplementedError("tests/vllm_stub has no engine: it serves `vllm_mode: server` only.")


class RequestOutput:
    """Imported by TRL for type annotations."""


class SamplingParams:
    """Imported by TRL for colocated vLLM."""
