"""One process, no network, no telemetry."""

import gc
import os
import signal
import sys

import pytest

# A process started in the background ignores Ctrl-C, and so do its children: tests that send it would wait forever.
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
    Hides the imported packages from the garbage collector.

    Every `train` ends with a full collection, which took half a second over their million objects.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def default_sigterm():
    """Removes the handler that a training in this process leaves behind."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def whole_steps():
    """Resets accelerate's shared state, which a training that ends inside an optimizer step leaves behind."""
    if "accelerate.state" in sys.modules:
        sys.modules["accelerate.state"].GradientState()._set_sync_gradients(True)
