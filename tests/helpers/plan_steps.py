"""Make `StepSettings` and `Setup` objects for a small model, to test `trl-ces plan`."""

import json

import torch

from trl_ces.lab.plan.memory import WIDTHS, Generation, Setup
from trl_ces.lab.plan.sizes import ModelShape
from trl_ces.lab.plan.step import StepSettings

SMALL = {
    "model_type": "qwen2",
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 2048,
    "tie_word_embeddings": False,
}


def step(shape=SMALL, **changes):
    default = {
        "shape": ModelShape(json.dumps(shape)),
        "rows": 2,
        "tokens": 256,
        "checkpointing": False,
        "dtype": "float32",
        "autocast": False,
        "flash_attention": False,
        "gpu": False,
    }
    return StepSettings(**{**default, **changes})


def setup(engine, step, accumulation=1, generation=None, device=None, **changes):
    """Make a setup with weights in the compute dtype and, by default, without a key-value cache."""
    width = WIDTHS[step.dtype]
    sizes = {"frozen_bytes": width, "trained_bytes": width, **changes}
    return Setup(step, engine, accumulation, generation or Generation(vllm=False), device=device, **sizes)


def allocator_peak(function):
    """Return the peak bytes allocated by PyTorch's CPU allocator while `function` runs."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak
