"""The second verdict end to end, through workers. The files beside this one test it rule by rule."""

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
def test_the_second_verdict_is_the_scripts_even_where_the_script_errs(gold, answer, expected, pool):
    assert grade(rf"\boxed{{{answer}}}", gold, pool=pool).correct_qwen is expected


def test_the_two_verdicts_differ_where_the_script_errs(pool):
    responses = [r"\boxed{500}", r"\boxed{[0,2]}", "<think> \\boxed{5}", r"\boxed{f(2)=5}", r"\boxed{}"]
    grades = grade_many(responses, ["5", "(0,2)", "5", "5", ""], pool=pool)
    assert [(g.correct, g.correct_qwen) for g in grades] == [
        (False, True),
        (False, True),
        (False, True),
        (True, False),
        (None, True),
    ]


def test_an_empty_response_is_wrong_even_for_an_empty_gold(pool):
    assert [g.correct_qwen for g in grade_many(["", ""], ["5", ""], pool=pool)] == [False, False]


def test_benchmarks_change_the_second_verdict_alone(pool):
    grades = grade_many([r"\boxed{10 km}"] * 2, ["10", "10"], ["minerva_math", "cmath"], pool=pool)
    assert [(g.correct, g.correct_qwen) for g in grades] == [(True, False), (True, True)]


def test_without_qwen_nothing_is_extracted_for_the_script(pool, monkeypatch):
    monkeypatch.setattr(grader, "predict", lambda *_: pytest.fail("extracted for the script"))
    assert grade(r"\boxed{\sqrt{8}}", r"2\sqrt{2}", with_qwen=False, pool=pool) == Grade(
        correct=True, answer=r"\sqrt{8}", correct_qwen=None
    )


MONSTERS = ["9^{9^{9^{9^9}}}", "1" * 100_000, "(" * 3000, "{" * 59 + "x" + "}" * 59, "1e999999999", "(x+y)^{99999}"]


@pytest.mark.parametrize("monster", MONSTERS)
def test_a_monster_costs_two_limits_at_most_and_is_wrong(monster, pool):
    grade(r"\boxed{\sqrt{8}}", r"2\sqrt{2}", pool=pool)  # starts the worker, which takes seconds
    before = cpu_seconds(pool.workers[0].process.pid)
    graded = grade(rf"\boxed{{{monster}}}", r"42\pi+\sqrt{x}", limit_s=1.0, pool=pool)
    assert cpu_seconds(pool.workers[0].process.pid) - before < 2 * 1.0 + 0.5
    assert (graded.correct, graded.correct_qwen) == (False, False)
    assert grade(r"\boxed{\sqrt{8}}", r"2\sqrt{2}", pool=pool).correct_qwen is True


def test_code_in_an_answer_is_never_run(pool, tmp_path):
    target = tmp_path / "made"
    grade(rf"\boxed{{__import__('pathlib').Path('{target}').touch()}}", "x+1", pool=pool)
    assert not target.exists()
