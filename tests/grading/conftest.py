import pytest

from trl_ces.grading import grader


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch):
    """No test sees another's verdicts."""
    monkeypatch.setattr(grader, "_known", {})
