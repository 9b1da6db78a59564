"""Test the public grading functions with real workers."""

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from cpu_time import cpu_seconds
from rows import answers_to

from trl_ces.grading import Grade, WorkerPool, grade, grade_many, usable_golds

LIMIT_S = 1.0
GRACE_S = 0.5  # time for extraction, which is not limited, and for starting the next child
NEEDS_ALGEBRA = (r"\boxed{\sqrt{8}}", r"2\sqrt{2}")  # only algebra shows that the two texts are equal


@answers_to("grading/graded")
def test_only_answers_equal_to_the_gold_are_correct(gold, answer, expected):
    graded = grade(f"So it is $\\boxed{{{answer}}}$.", gold)
    assert graded.correct is expected


def test_boxes_are_joined_if_there_is_one_per_gold_value():
    text = r"First $\boxed{3}$ and second $\boxed{4}$."
    assert grade(text, "3;4", with_qwen=True) == Grade(correct=True, answer="3; 4", correct_qwen=False)
    assert grade(text, "4;3").correct is False
    assert grade(text, "4, 3").correct is True
    assert grade(text, "4").correct is True
    assert grade(r"\boxed{1}, \boxed{3}, \boxed{4}", "3;4").correct is False
    assert grade(r"\boxed{7}, or \boxed{3; 4}", "3;4").correct is True


def test_answers_inside_unclosed_thinking_are_ignored():
    completion = r"\boxed{3}"
    assert grade(completion, "3").correct is True
    # The Qwen script ignores thinking tags, so it accepts a box inside them.
    assert grade(completion, "3", thinking_prefilled=True, with_qwen=True) == Grade(
        correct=False, answer=None, correct_qwen=True
    )
    assert grade("<think>" + completion, "3", with_qwen=True) == Grade(correct=False, answer=None, correct_qwen=True)
    assert [g.correct for g in grade_many([completion] * 2, ["3"] * 2, thinking_prefilled=[True, False])] == [
        False,
        True,
    ]


def test_only_answers_to_unusable_golds_are_ungraded():
    golds = ["", " ", "$$", r"\boxed{}", r"\frac{", "{" * 5000 + "1" + "}" * 5000, "---", "1" * 20_000, "3"]
    assert usable_golds(golds) == [False] * 8 + [True]
    assert [g.correct for g in grade_many([r"\boxed{3}"] * 9, golds)] == [None] * 8 + [True]
    assert usable_golds([None]) == [False]
    assert usable_golds([r"\sqrt{2}", "(0,1)", "A", "5;10", "yes", "No solution", r"x \geq 2"]) == [True] * 7
    # For these golds, it is ambiguous which part an answer must state.
    ambiguous = [
        r"For 1 \leq j \leq 6, P(\max =j)=(j / 6)^{20}",
        r"P(X=0)=P(X=2)=1 / 4, P(X=x)=0 for x \neq 0,1,2",
        r"\mathbf{w}(1)=(.5,.25) \mathbf{w}(2)=(.4,.1)",
    ]
    assert usable_golds(ambiguous) == [False] * 3


# ---- answers that could hang the grader or exhaust memory


@pytest.fixture(scope="module")
def pool():
    pool = WorkerPool(1)
    yield pool
    pool.close()


INTEGRAL = r"\int_0^1 \int_0^x \frac{\sin(x^{y^{z}})}{\log(\cos(e^{x^x}))} \, dy \, dx"
COSTLY = {
    "power_tower": "9^{9^{9^9}}",
    "taller_tower": "9^{9^{9^{9^{9}}}}",
    "factorial_tower": "((100000!)!)!",
    "factorial": "100000000!",
    "long_box": "1" * 100_000,
    "long_sum": "+".join(["x"] * 4500),
    "deep_braces": "{" * 5000 + "1" + "}" * 5000,
    "deep_parentheses": "(" * 5000 + "1" + ")" * 5000,
    "nested_roots": r"\sqrt{" * 59 + "2" + "}" * 59,
    "integral": INTEGRAL,
    "integrals": INTEGRAL * 40,
    "sum": r"\sum_{n=1}^{10^{12}} \frac{1}{n^{1.5}}",
    "binomial": r"\binom{10^{9}}{5\cdot 10^8}",
    "expansion": "(x+y+z)^{100000}",
    "exponent": "1e999999999",
    "many_boxes": r"\boxed{" * 20_000,
    "many_items": ",".join(rf"\sqrt{{{n}}}" for n in range(95)),
    "lone_surrogate": "\ud800",
}


@pytest.mark.parametrize("name", COSTLY)
@pytest.mark.parametrize("gold", ["42", r"42\pi+\sqrt{x}", "1,2;3"])
def test_a_costly_answer_is_stopped_and_does_not_affect_other_answers(name, gold, pool):
    assert grade(*NEEDS_ALGEBRA, pool=pool).correct is True
    assert usable_golds([gold], pool=pool) == [True]
    before = cpu_seconds(pool.workers[0].process.pid)
    assert grade(rf"\boxed{{{COSTLY[name]}}}", gold, with_qwen=False, limit_s=LIMIT_S, pool=pool).correct is False
    assert cpu_seconds(pool.workers[0].process.pid) - before < LIMIT_S + GRACE_S
    assert grade(*NEEDS_ALGEBRA, pool=pool).correct is True


def test_a_costly_answer_does_not_affect_the_rest_of_its_batch():
    workers = WorkerPool(2)
    completions = [NEEDS_ALGEBRA[0], r"\boxed{9^{9^{9^9}}}", NEEDS_ALGEBRA[0], r"\boxed{3}"]
    grades = grade_many(completions, [NEEDS_ALGEBRA[1], "x", NEEDS_ALGEBRA[1], "3"], limit_s=LIMIT_S, pool=workers)
    assert [g.correct for g in grades] == [True, False, True, True]
    workers.close()


def test_a_gold_that_takes_too_long_is_unusable_and_parsed_once(pool, monkeypatch):
    gold = r"\int_0^1 \sqrt{u+v+w} \, du"
    assert grade(r"\boxed{3}", gold, limit_s=0.001, pool=pool).correct is None
    monkeypatch.setattr(pool, "map", lambda messages, limit_s: pytest.fail("parsed again"))
    assert grade(r"\boxed{4}", gold, with_qwen=False, pool=pool).correct is None


# ---- scripts


def run_script(tmp_path, source, *arguments):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(source))
    return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=240)


def test_a_script_without_a_main_guard_runs_once(tmp_path):
    result = run_script(
        tmp_path,
        r"""
        print("started")
        from trl_ces.rewards import accuracy_reward
        print(accuracy_reward([r"\boxed{\sqrt{8}}", r"\boxed{9}"], [r"2\sqrt{2}", r"2\sqrt{2}"], prompts=["", ""]))
        """,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "started\n[1.0, 0.0]\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("end", ["pass", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_workers_end_when_their_parent_exits_or_is_killed(tmp_path, end):
    result = run_script(
        tmp_path,
        rf"""
        import os, signal
        from trl_ces.grading import WorkerPool, grade
        pool = WorkerPool(1)
        grade(r"\boxed{{\sqrt{{8}}}}", r"2\sqrt{{2}}", pool=pool)
        print(pool.workers[0].process.pid, flush=True)
        {end}
        """,
    )
    pid = int(result.stdout)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    state = Path(f"/proc/{pid}/stat").read_text().split()[2] if Path(f"/proc/{pid}").exists() else "gone"
    assert state in {"gone", "Z"}


def test_only_workers_load_sympy_and_no_process_loads_torch_or_trl():
    source = r"""
import sys
from trl_ces.grading import grade
print(grade(r"\boxed{\sqrt{8}}", r"2\sqrt{2}").correct, {"torch", "trl", "sympy"} & {*sys.modules})
from trl_ces.grading import worker
worker.load_algebra()
print({"torch", "trl", "sympy"} & {*sys.modules})
"""
    result = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert result.stdout == "True set()\n{'sympy'}\n"
