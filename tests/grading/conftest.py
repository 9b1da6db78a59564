import pytest

from trl_ces.grading import judge


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch):
    """Clear the cache of comparisons, so that tests do not affect each other."""
    monkeypatch.setattr(judge, "_cached_replies", {})
