"""Check that hostile answers cannot hang the trainer, exhaust memory, run code or affect other answers."""

import json
import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hostile_answers import FAMILIES, MEGABYTE, SENTINEL, hostile_completions

from trl_ces.grading import grade_many
from trl_ces.grading.pool import DEFAULT_MEMORY_BYTES

# On a busy machine, some requests reach the wall-clock limit, so their answers remain ungraded.
EXPECTED_WARNINGS = re.compile(r"comparisons exceeded|worker died twice on the answer")
SCRIPT = Path(__file__).parents[1] / "hostile_answers.py"


def run_corpus(folder, limit_s, every):
    """Grade every n-th hostile completion in a separate process, so that its memory can be measured."""
    command = [sys.executable, str(SCRIPT), str(limit_s), str(every)]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1500)
    assert result.returncode == 0, result.stderr
    assert [line for line in result.stderr.splitlines() if not EXPECTED_WARNINGS.search(line)] == []
    return json.loads(result.stdout)


def check(outcome, folder):
    # The reward of a hostile answer is 0, or None if the batch had no time to grade it.
    assert outcome["wrong_rewards"] == []
    assert outcome["wrong_grades"] == []
    assert outcome["lost_workers"] == 0  # the kernel ends each request at its limit
    assert outcome["largest_worker_bytes"] < DEFAULT_MEMORY_BYTES
    assert outcome["growth_bytes"] < 200 * MEGABYTE
    assert not (folder / SENTINEL).exists()
    assert list(folder.iterdir()) == []


def test_the_corpus_is_large_and_has_no_duplicates():
    corpus = hostile_completions()
    assert len(corpus) >= 500
    assert len({*corpus.values()}) == len(corpus)
    assert sum(len(text) >= MEGABYTE for text in corpus.values()) >= 30
    assert {name.split()[0] for name in corpus} >= {family.__name__ for family in FAMILIES}


def test_a_sample_of_hostile_answers_is_rejected_without_affecting_other_answers(tmp_path):
    outcome = run_corpus(tmp_path, 0.3, 12)
    assert outcome["completions"] >= 40
    check(outcome, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_all_hostile_answers_are_rejected_without_affecting_other_answers(tmp_path):
    outcome = run_corpus(tmp_path, 3, 1)
    assert outcome["requests_at_the_limit"] > 20  # otherwise the corpus does not test the limit of a request
    assert outcome["no_reward"] > 20  # otherwise the corpus does not test the limit of a batch
    check(outcome, tmp_path)


def test_the_memory_of_a_megabyte_answer_is_released():
    grade_many([r"\boxed{x}"], ["42"])
    tracemalloc.start()
    try:
        for number in range(3):
            grade_many([rf"\boxed{{{number} {'x ' * (MEGABYTE // 2)}}}"], ["42"])
        allocated, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert allocated < MEGABYTE
