import time

import pytest
from hub_server import TOKEN, Hub
from huggingface_hub import constants

from trl_ces.lab.hub import push
from trl_ces.train import card


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A local Hub, and the client's constants pointing to it, as HF_ENDPOINT would at import."""
    with Hub() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr("transformers.utils.hub._hf_api", None, raising=False)  # keeps the first endpoint it sees
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        monkeypatch.chdir(tmp_path)
        yield server


@pytest.fixture
def undrawn(monkeypatch):
    """As without matplotlib, and faster."""
    for module in (push, card):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
