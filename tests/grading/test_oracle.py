"""Agreement with 3,274 judged answers, if the file exists: the Qwen2.5-Math script's verdicts and the truth."""

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

DATA = Path(os.environ.get("TRL_CES_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


@pytest.fixture(scope="module")
def oracle():
    path = DATA / "oracle" / "qwen_math_verdicts.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"no judged answers at {path}: set TRL_CES_DATA to the folder that holds oracle/")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    realistic = set((path.parent / "realistic_kinds.txt").read_text().split())
    return rows, realistic


@pytest.fixture(scope="module")
def graded(oracle):
    """Grades of the rows, and the seconds they took two workers."""
    rows, _ = oracle
    columns = [[row[name] for row in rows] for name in ("response_text", "gold_raw", "benchmark")]
    two = WorkerPool(2)
    grade_many(["", r"\boxed{\sqrt{8}}"] * 2, [r"2\sqrt{2}", r"2\sqrt{2}+1"] * 2, pool=two)
    start = time.monotonic()
    grades = grade_many(*columns, pool=two)
    seconds = time.monotonic() - start
    two.close()
    return grades, seconds


def test_extraction_and_gold_preparation_are_the_scripts(oracle, capsys):
    rows, _ = oracle
    golds = {(row["benchmark"], row["gold_raw"]): row["gold"] for row in rows}
    right_golds = sum(prepare_gold(raw, benchmark) == gold for (benchmark, raw), gold in golds.items())
    right = sum(predict(row["response_text"], row["gold"], row["benchmark"]) == row["extracted"] for row in rows)
    with capsys.disabled():
        print(f"\nAs the script: {right} of {len(rows)} extracted answers, {right_golds} of {len(golds)} golds")
    assert right >= 0.998 * len(rows)
    assert right_golds >= 0.998 * len(golds)


def test_both_verdicts_agree_with_the_judged_answers(oracle, graded, capsys):
    (rows, realistic), (grades, seconds) = oracle, graded
    agreed = [g.correct_qwen is row["expected_correct"] for g, row in zip(grades, rows, strict=True)]
    usual = [agrees for agrees, row in zip(agreed, rows, strict=True) if row["kind"] in realistic]
    judged = [(g.correct, row["truth"]) for g, row in zip(grades, rows, strict=True) if row["truth"] is not None]
    right = sum(correct is truth for correct, truth in judged) / len(judged)
    false = [correct for correct, truth in judged if not truth]
    with capsys.disabled():
        print(
            f"\ncorrect_qwen: {sum(agreed)} of {len(agreed)} as the script ({sum(agreed) / len(agreed):.2%}), "
            f"realistic kinds {sum(usual)} of {len(usual)} ({sum(usual) / len(usual):.2%}). "
            f"correct: {right:.2%} right, {sum(map(bool, false))} of {len(false)} wrong ones accepted. "
            f"{2 * len(rows) / seconds:.0f} verdicts/s ({len(rows) / seconds:.0f} responses/s) with 2 workers"
        )
    assert len(rows) == 3274
    assert sum(agreed) >= 0.985 * len(agreed)
    assert sum(usual) >= 0.995 * len(usual)
    assert right >= 0.990
    assert sum(map(bool, false)) <= 0.003 * len(false)


def test_with_their_questions_as_many_wrong_answers_are_refused(oracle, capsys):
    rows = [row for row in oracle[0] if row["truth"] is not None]
    if not (DATA / "math").is_dir():
        pytest.skip(f"no sets at {DATA / 'math'}: set TRL_CES_DATA to the folder that holds math/")
    problems = [problem for name in GROUPS["math12"] for problem in load_benchmark(name, DATA)]
    questions = {(problem.benchmark, problem.id): problem.question for problem in problems}
    responses, golds = ([row[name] for row in rows] for name in ("response_text", "gold_raw"))
    asked = [questions[row["benchmark"], row["idx"]] for row in rows]
    grades = grade_many(responses, golds, questions=asked, with_qwen=False)
    right = sum(grade.correct is row["truth"] for grade, row in zip(grades, rows, strict=True)) / len(rows)
    wrong = [grade.correct for grade, row in zip(grades, rows, strict=True) if not row["truth"]]
    accepted = f"{sum(map(bool, wrong))} of {len(wrong)} wrong ones accepted"
    with capsys.disabled():
        print(f"\ncorrect, with the questions: {right:.2%} right, {accepted}")
    assert right >= 0.982
    assert not any(wrong)


def test_the_limits_of_a_reward_cost_no_right_answer_its_verdict(oracle, graded):
    right = [(row, grade.correct) for row, grade in zip(oracle[0], graded[0], strict=True) if row["truth"]]
    found = []
    # In batches as a process grades them while it trains: each may give three comparisons the full limit.
    for start in range(0, len(right), 256):
        batch = right[start : start + 256]
        found += accuracy_reward(*([row[name] for row, _ in batch] for name in ("response_text", "gold_raw")))
    pairs = list(zip(found, (correct for _, correct in right), strict=True))
    assert [pair for pair in pairs if pair[0] is not None and pair[0] != pair[1]] == []
    # The limits are of processor time, and busy neighbours slow a core: it leaves ungraded what a free one ends.
    assert sum(reward is None for reward, _ in pairs) <= sum(correct is None for _, correct in pairs) + 3


@pytest.mark.slow
def test_the_golds_of_the_twelve_sets_can_be_graded_against_and_accept_themselves(capsys):
    if not (DATA / "math").is_dir():
        pytest.skip(f"no sets at {DATA / 'math'}: set TRL_CES_DATA to the folder that holds math/")
    problems = [problem for name in GROUPS["math12"] for problem in load_benchmark(name, DATA)]
    golds = [problem.gold for problem in problems]
    usable = usable_golds(golds)
    unusable = Counter(problem.benchmark for problem, is_usable in zip(problems, usable, strict=True) if not is_usable)
    with capsys.disabled():
        print(f"\n{sum(unusable.values())} of {len(golds)} golds are unusable: {dict(unusable)}")
    assert unusable == {"college_math": 76, "gaokao2023en": 2, "olympiadbench": 1}
    grades = grade_many([f"\\boxed{{{gold}}}" for gold in golds], golds, with_qwen=False)
    refused = [p for p, g in zip(problems, grades, strict=True) if g.correct is False]
    assert refused == []
