"""A stand-in for the `vllm` package of a trainer in server mode, without CUDA. Its folder goes on PYTHONPATH.

TRL's client, its HTTP requests, their order and their bodies are real, and so is the rendezvous at the group's port.
Not real: NCCL (the weights travel as a file whose name goes through the rendezvous' socket), and the refusal of a
device that is not CUDA, which sampling_params.py lifts. There is no engine: that of colocated vLLM is stood in for by
tests/helpers/colocated_vllm.py.
"""

__version__ = "0.31.0"


class LLM:
    def __init__(self, *_, **__):
        raise NotImplementedError("tests/vllm_stub has no engine: it serves `vllm_mode: server` only.")


class RequestOutput:
    """Named in TRL's annotations."""


class SamplingParams:
    """Named by TRL, for colocated vLLM."""
