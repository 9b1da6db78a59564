"""Compare grades of 3,274 answers with the Qwen2.5-Math script and with manual grades, if the data exist."""

import gzip
import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from trl_ces.grading import WorkerPool, grade_many, usable_golds
from trl_ces.grading.qwen.extract import predict, prepare_gold
from trl_ces.lab.evaluation.benchmarks import GROUPS, load_benchmark
from trl_ces.rewards import accuracy_reward

pytestmark = pytest.mark.slow
DATA = Path(os.environ.get("TRL_CES_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


@pytest.fixture(scope="module")
def oracle():
    path = DATA / "oracle" / "qwen_math_verdicts.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"{path} is missing: set TRL_CES_DATA to the folder that contains oracle/")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    realistic = set((path.parent / "realistic_kinds.txt").read_text().split())
    return rows, realistic


@pytest.fixture(scope="module")
def graded(oracle):
    """Grade the rows with two workers; return the grades and the elapsed seconds."""
    rows, _ = oracle
    texts, golds, benchmarks = ([row[name] for row in rows] for name in ("response_text", "gold_raw", "benchmark"))
    workers = WorkerPool(2)
    grade_many(["", r"\boxed{\sqrt{8}}"] * 2, [r"2\sqrt{2}", r"2\sqrt{2}+1"] * 2, with_qwen=True, pool=workers)
    start = time.monotonic()
    grades = grade_many(texts, golds, benchmarks=benchmarks, with_qwen=True, pool=workers)
    seconds = time.monotonic() - start
    workers.close()
    return grades, seconds


def test_extraction_and_gold_preparation_agree_with_the_script(oracle, capsys):
    rows, _ = oracle
    golds = {(row["benchmark"], row["gold_raw"]): row["gold"] for row in rows}
    same_golds = sum(prepare_gold(raw, benchmark) == gold for (benchmark, raw), gold in golds.items())
    same_answers = sum(
        predict(row["response_text"], row["gold"], row["benchmark"]) == row["extracted"] for row in rows
    )
    with capsys.disabled():
        print(f"\nEqual to the script: {same_answers} of {len(rows)} answers, {same_golds} of {len(golds)} golds")
    assert same_answers >= 0.998 * len(rows)
    assert same_golds >= 0.998 * len(golds)


def test_correct_and_correct_qwen_agree_with_the_oracle(oracle, graded, capsys):
    (rows, realistic), (grades, seconds) = oracle, graded
    agreed = [g.correct_qwen is row["expected_correct"] for g, row in zip(grades, rows, strict=True)]
    subset = [agrees for agrees, row in zip(agreed, rows, strict=True) if row["kind"] in realistic]
    pairs = [(g.correct, row["truth"]) for g, row in zip(grades, rows, strict=True) if row["truth"] is not None]
    accuracy = sum(correct is truth for correct, truth in pairs) / len(pairs)
    incorrect = [correct for correct, truth in pairs if not truth]
    with capsys.disabled():
        print(
            f"\ncorrect_qwen: {sum(agreed)} of {len(agreed)} agree with the script ({sum(agreed) / len(agreed):.2%}), "
            f"realistic kinds {sum(subset)} of {len(subset)} ({sum(subset) / len(subset):.2%}). "
            f"correct: {accuracy:.2%} agree, {sum(map(bool, incorrect))} of {len(incorrect)} incorrect accepted. "
            f"{2 * len(rows) / seconds:.0f} grades/s ({len(rows) / seconds:.0f} answers/s) with 2 workers"
        )
    assert len(rows) == 3274
    assert sum(agreed) >= 0.985 * len(agreed)
    assert sum(subset) >= 0.995 * len(subset)
    assert accuracy >= 0.990
    assert sum(map(bool, incorrect)) <= 0.003 * len(incorrect)


def test_all_incorrect_answers_are_rejected_if_questions_are_given(oracle, capsys):
    rows = [row for row in oracle[0] if row["truth"] is not None]
    if not (DATA / "math").is_dir():
        pytest.skip(f"{DATA / 'math'} is missing: set TRL_CES_DATA to the folder that contains math/")
    problems = [problem for name in GROUPS["math12"] for problem in load_benchmark(name, DATA)]
    questions = {(problem.benchmark, problem.id): problem.question for problem in problems}
    texts, golds = ([row[name] for row in rows] for name in ("response_text", "gold_raw"))
    own_questions = [questions[row["benchmark"], row["idx"]] for row in rows]
    grades = grade_many(texts, golds, questions=own_questions, with_qwen=False)
    accuracy = sum(grade.correct is row["truth"] for grade, row in zip(grades, rows, strict=True)) / len(rows)
    incorrect = [grade.correct for grade, row in zip(grades, rows, strict=True) if not row["truth"]]
    accepted = f"{sum(map(bool, incorrect))} of {len(incorrect)} incorrect answers accepted"
    with capsys.disabled():
        print(f"\ncorrect, with the questions: {accuracy:.2%} agree, {accepted}")
    assert accuracy >= 0.982
    assert not any(incorrect)


def test_the_time_limits_of_the_reward_do_not_change_grades(oracle, graded):
    correct_rows = [(row, grade.correct) for row, grade in zip(oracle[0], graded[0], strict=True) if row["truth"]]
    reward_values = []
    # Use batches, as training does; three comparisons per batch may get the full limit.
    for start in range(0, len(correct_rows), 256):
        batch = correct_rows[start : start + 256]
        reward_values += accuracy_reward(*([row[name] for row, _ in batch] for name in ("response_text", "gold_raw")))
    pairs = list(zip(reward_values, (correct for _, correct in correct_rows), strict=True))
    assert [pair for pair in pairs if pair[0] is not None and pair[0] != pair[1]] == []
    # The limits apply to CPU time. Cores of a busy machine are slower, so a few more answers may remain ungraded.
    assert sum(reward is None for reward, _ in pairs) <= sum(correct is None for _, correct in pairs) + 3


@pytest.mark.slow
def test_almost_all_benchmark_golds_are_usable_and_equal_to_themselves(capsys):
    if not (DATA / "math").is_dir():
        pytest.skip(f"{DATA / 'math'} is missing: set TRL_CES_DATA to the folder that contains math/")
    problems = [problem for name in GROUPS["math12"] for problem in load_benchmark(name, DATA)]
    golds = [problem.gold for problem in problems]
    usable = usable_golds(golds)
    unusable = Counter(problem.benchmark for problem, is_usable in zip(problems, usable, strict=True) if not is_usable)
    with capsys.disabled():
        print(f"\n{sum(unusable.values())} of {len(golds)} golds are unusable: {dict(unusable)}")
    assert unusable == {"college_math": 36, "gaokao2023en": 2, "olympiadbench": 1}
    grades = grade_many([f"\\boxed{{{gold}}}" for gold in golds], golds, with_qwen=False)
    rejected = [p for p, g in zip(problems, grades, strict=True) if g.correct is False]
    assert rejected == []
