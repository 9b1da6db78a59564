"""Test `correct_qwen` end to end with workers. The rules of `correct_qwen` are tested in the other files here."""

import pytest
from cpu_time import cpu_seconds
from rows import rows

from trl_ces.grading import Grade, WorkerPool, grade, grade_many, grader


@pytest.fixture(scope="module")
def pool():
    pool = WorkerPool(1)
    yield pool
    pool.close()


@rows("qwen_qwen/graded")
def test_correct_qwen_agrees_with_the_script_including_its_errors(gold, answer, expected, pool):
    assert grade(rf"\boxed{{{answer}}}", gold, with_qwen=True, pool=pool).correct_qwen is expected


def test_correct_and_correct_qwen_differ_where_the_script_errs(pool):
    completions = [r"\boxed{500}", r"\boxed{[0,2]}", "<think> \\boxed{5}", r"\boxed{f(2)=5}", r"\boxed{}"]
    grades = grade_many(completions, ["5", "(0,2)", "5", "5", ""], with_qwen=True, pool=pool)
    assert [(g.correct, g.correct_qwen) for g in grades] == [
        (False, True),
        (False, True),
        (False, True),
        (True, False),
        (None, True),
    ]


def test_an_empty_completion_is_incorrect_even_for_an_empty_gold(pool):
    assert [g.correct_qwen for g in grade_many(["", ""], ["5", ""], with_qwen=True, pool=pool)] == [False, False]


def test_the_benchmark_changes_only_correct_qwen(pool):
    grades = grade_many(
        [r"\boxed{10 km}"] * 2, ["10", "10"], benchmarks=["minerva_math", "cmath"], with_qwen=True, pool=pool
    )
    assert [(g.correct, g.correct_qwen) for g in grades] == [(True, False), (True, True)]


def test_without_qwen_the_scripts_extraction_does_not_run(pool, monkeypatch):
    monkeypatch.setattr(grader, "predict", lambda *_: pytest.fail("the script's extraction ran"))
    assert grade(r"\boxed{\sqrt{8}}", r"2\sqrt{2}", pool=pool) == Grade(
        correct=True, answer=r"\sqrt{8}", correct_qwen=None
    )


HOSTILE = ["9^{9^{9^{9^9}}}", "1" * 100_000, "(" * 3000, "{" * 59 + "x" + "}" * 59, "1e999999999", "(x+y)^{99999}"]


@pytest.mark.parametrize("answer", HOSTILE)
def test_a_hostile_answer_is_incorrect_within_twice_the_limit(answer, pool):
    grade(r"\boxed{\sqrt{8}}", r"2\sqrt{2}", with_qwen=True, pool=pool)  # starts the worker, which takes seconds
    before = cpu_seconds(pool.workers[0].process.pid)
    graded = grade(rf"\boxed{{{answer}}}", r"42\pi+\sqrt{x}", limit_s=1.0, with_qwen=True, pool=pool)
    assert cpu_seconds(pool.workers[0].process.pid) - before < 2 * 1.0 + 0.5
    assert (graded.correct, graded.correct_qwen) == (False, False)
    assert grade(r"\boxed{\sqrt{8}}", r"2\sqrt{2}", with_qwen=True, pool=pool).correct_qwen is True


def test_code_in_an_answer_is_not_executed(pool, tmp_path):
    target = tmp_path / "created"
    grade(rf"\boxed{{__import__('pathlib').Path('{target}').touch()}}", "x+1", with_qwen=True, pool=pool)
    assert not target.exists()
