import pytest

from trl_ces.grading import judge


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch):
    """No test sees another's verdicts."""
    monkeypatch.setattr(judge, "_known", {})
