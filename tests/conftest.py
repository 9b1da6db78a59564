"""One process, no network, no telemetry: the tests must run on a laptop in a train."""

import gc
import os
import signal
import sys

import pytest

# A shell that starts the tests in the background lets them ignore Ctrl-C, and their children inherit that: the tests
# that send it would wait in vain.
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
    """Takes the imported packages out of the garbage collector's sight.

    Every `train` ends with a full collection, which took half a second over their million objects.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def default_sigterm():
    """A training in this process leaves its handler behind, which outlasts the saving of the model."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def whole_steps():
    """A training that a test ends inside an optimizer step leaves accelerate's shared state there."""
    if "accelerate.state" in sys.modules:
        sys.modules["accelerate.state"].GradientState()._set_sync_gradients(True)
