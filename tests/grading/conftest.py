import pytest

from trl_ces.grading import judge


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch):
    """Isolate tests from comparisons that other tests cached."""
    monkeypatch.setattr(judge, "_known", {})
