"""Nothing a policy writes may hang the trainer, exhaust its memory, run as code, or cost another answer its reward."""

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

# A busy machine ends some requests by the clock: those have no verdict.
EXPECTED = re.compile(r"comparisons exceeded|worker died twice on the answer")
SCRIPT = Path(__file__).parents[1] / "hostile_answers.py"


def run_corpus(folder, limit_s, every):
    """Grades every n-th hostile completion in a separate process, whose memory the kernel counts."""
    command = [sys.executable, str(SCRIPT), str(limit_s), str(every)]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if not EXPECTED.search(line)] == []
    return json.loads(done.stdout)


def check(outcome, folder):
    assert outcome["wrong_rewards"] == []  # 0 for the hostile, or none where the batch had no time for them
    assert outcome["wrong_verdicts"] == []
    assert outcome["lost_workers"] == 0  # the kernel ends each request at its limit
    assert outcome["largest_worker_bytes"] < DEFAULT_MEMORY_BYTES
    assert outcome["growth_bytes"] < 200 * MEGABYTE
    assert not (folder / SENTINEL).exists()
    assert list(folder.iterdir()) == []


def test_the_corpus_is_large_and_each_completion_once_in_it():
    corpus = hostile_completions()
    assert len(corpus) >= 500
    assert len({*corpus.values()}) == len(corpus)
    assert sum(len(text) >= MEGABYTE for text in corpus.values()) >= 30
    assert {name.split()[0] for name in corpus} >= {family.__name__ for family in FAMILIES}


def test_every_twelfth_hostile_answer_scores_0_and_its_neighbour_what_it_deserves(tmp_path):
    outcome = run_corpus(tmp_path, 0.3, 12)
    assert outcome["completions"] >= 40
    check(outcome, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_hostile_answer_scores_0_and_its_neighbour_what_it_deserves(tmp_path):
    outcome = run_corpus(tmp_path, 3, 1)
    assert outcome["requests_at_the_limit"] > 20  # else the corpus would not reach the limit
    assert outcome["no_reward"] > 20  # nor the budget of the batch
    check(outcome, tmp_path)


def test_nothing_of_a_megabyte_answer_stays():
    grade_many([r"\boxed{x}"], ["42"])
    tracemalloc.start()
    try:
        for number in range(3):
            grade_many([rf"\boxed{{{number} {'x ' * (MEGABYTE // 2)}}}"], ["42"])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < MEGABYTE
