"""Stub of the `vllm` package for a trainer in server mode without CUDA; its folder must be on PYTHONPATH.

TRL's client, its HTTP requests and the rendezvous at the group's port are real. In place of NCCL, the stub writes
weights to a file and sends the name of the file through the rendezvous socket. sampling_params.py disables the check
for a CUDA device. The stub has no engine; tests/helpers/colocated_vllm.py is the stand-in for colocated vLLM.
"""

__version__ = "0.31.0"


class LLM:
    def __init__(self, *_, **__):
        raise NotImplementedError("tests/vllm_stub has no engine: it supports only `vllm_mode: server`.")


class RequestOutput:
    """Imported by TRL for type annotations."""


class SamplingParams:
    """Imported by TRL for colocated vLLM."""
