"""Settings for all tests: one process, no network, no telemetry."""

import gc
import os
import signal
import sys

import pytest

# Shells start background processes with SIGINT ignored, and tests that send SIGINT would then wait forever.
signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    TRL_EXPERIMENTAL_SILENCE="1",
    TOKENIZERS_PARALLELISM="false",
    CUDA_VISIBLE_DEVICES="",
)
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_finish():
    """
    Exclude the objects of the imported packages from garbage collection.

    Every training run ends with a full garbage collection, which takes half a second per million objects.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def default_sigterm():
    """Reset the signal handlers that training in this process may have replaced."""
    interrupt = signal.getsignal(signal.SIGINT)
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)
    yield
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGINT, interrupt)


@pytest.fixture(autouse=True)
def reset_gradient_state():
    """Reset accelerate's shared gradient state, which is stale after a run that ended within an optimizer step."""
    if "accelerate.state" in sys.modules:
        sys.modules["accelerate.state"].GradientState()._set_sync_gradients(True)
