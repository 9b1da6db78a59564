"""Code benchmarks: program extraction, grading, and malicious programs, which must not pass."""

import gzip
import json
from dataclasses import replace

import pytest
from code_sandbox import needs_sandbox
from fixtures_evaluation import CODE_ROWS, REAL_DATA, ScriptedBackend, write_data, write_model

from trl_ces.cli.main import main
from trl_ces.lab.evaluation import run as run_module
from trl_ces.lab.evaluation.benchmarks import Problem, data_digest, load_benchmark
from trl_ces.lab.evaluation.code import grader
from trl_ces.lab.evaluation.code.grader import CodeGrade, CodeGrader, find_program
from trl_ces.lab.evaluation.code.inside import Opaque, decode, encode, equal_outputs
from trl_ces.lab.evaluation.code.sandbox import run_sandboxed
from trl_ces.lab.evaluation.code.tasks import CodeTask, read_task
from trl_ces.lab.evaluation.run import Request, grade_completions, run_evaluation
from trl_ces.lab.evaluation.settings import EvaluationSettings
from trl_ces.support.errors import UserError

DOUBLE = read_task("humaneval", CODE_ROWS["humaneval"])


def task(reference, *groups, **changes):
    """Make a task for a function named `f`."""
    encoded = tuple(json.dumps(encode(list(group))) for group in groups)
    return CodeTask("f", reference, encoded, **({"atol": 0} | changes))


def code_block(program):
    return f"Here it is:\n```python\n{program}\n```\nDone."


def grade_programs(tasks, programs, seconds=20.0):
    completions = [(task, code_block(program), False) for task, program in zip(tasks, programs, strict=True)]
    return [grade.passed for grade in CodeGrader(seconds).grade(completions)]


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\ndef f(): pass\n```", "def f(): pass\n"),
        ("```\ndef f(): pass\n```", "def f(): pass\n"),
        ("```py\ndef f(): pass\n```\nBetter:\n```Python\ndef f():\n    return 2\n```", "def f():\n    return 2\n"),
        ("```python\ndef f(): pass\n```\nUse it:\n```python\nf()\n```", "def f(): pass\n"),
        ("```python\ndef g(): pass\n```\n```python\ng()\n```", "g()\n"),
        ("```python\ndef f(): pass\n```\nOutput:\n```text\n3\n```", "def f(): pass\n"),
        ("```python\nf = len\n```\n```python\nff = 3\n```", "f = len\n"),
        ("It was cut off:\n```python\ndef f():\n    return 1", "def f():\n    return 1"),
        ("Out:\n~~~text\n3\n~~~\n  ```Py title=x\n  f = 1\n  ```\n", "  f = 1\n"),
        ("```python", ""),
        ("def f(): pass", None),
        ("```text\ndef f(): pass\n```", None),
        ("", None),
    ],
)
def test_program_is_the_last_python_block_that_defines_the_function(text, program):
    assert find_program(text, "f") == program


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -(2**60),
        10**5000,
        1.5,
        float("inf"),
        "ä\ud800",
        2 + 3j,
        b"\x00\xff",
        [1, [2.0]],
        (1, (2,)),
        {1, 2},
        {"a": {1: (2,)}, (3,): []},
    ],
    ids=lambda value: type(value).__name__,
)
def test_encoding_preserves_values_and_types(value):
    decoded = decode(json.loads(json.dumps(encode(value))))
    assert decoded == value
    assert type(decoded) is type(value)
    assert isinstance(value, int) or repr(decoded) == repr(value)


def test_value_that_cannot_be_encoded_equals_no_other_value():
    generator = decode(json.loads(json.dumps(encode(iter([1])))))
    assert isinstance(generator, Opaque)
    assert not equal_outputs(generator, decode(encode(iter([1]))), 0)


@pytest.mark.parametrize(
    ("output", "expected", "atol", "equal"),
    [
        (1, 1.0, 0, True),
        (0.3, 0.1 + 0.2, 0, True),
        (0.3001, 0.3, 0, False),
        (0.3001, 0.3, 1e-3, True),
        ([0.1 + 0.2, 1.0], [0.3, 1.0], 0, True),
        ([0.1 + 0.2], (0.3,), 0, False),
        ([0.3], [0.3, 0.3], 0, False),
        (True, 1, 0, True),
        ("a", "b", 1e-3, False),
        ([1, 2], (1, 2), 0, False),
        ({1: 2}, {1: 2}, 0, True),
        (float("nan"), float("nan"), 0, False),
        (None, 1.0, 0, False),
        (float("inf"), 1.0, 1e-3, False),
    ],
)
def test_outputs_are_compared_as_in_evalplus(output, expected, atol, equal):
    assert equal_outputs(output, expected, atol) is equal


@needs_sandbox
def test_base_and_additional_tests_have_separate_results():
    programs = [
        "def double(x): return x + x",
        "def double(x): return x * 2.0",  # inexact above 2^53
        "def double(x): return abs(x) * 2",
        "def double(x): return 3",
        "def twice(x): return 2 * x",
        "def double(x) return",
        "import os\ndef double(x):\n    return 2 * x if x > 0 else os._exit(0)",
    ]
    expected = [[True, True], [True, True], [True, False], [False, False], [False, False], [False, False]]
    assert grade_programs([DOUBLE] * 7, programs) == [*expected, [True, False]]


MALICIOUS = {
    "exit": "import os\nos._exit(0)",
    "system exit": "import sys\nsys.exit(0)",
    "exit in the call": "import os\ndef f(x): os._exit(0)",
    "printing": "print('passed', 'correct', '[true, true]')\ndef f(x): print('correct')",
    "writing a result": "import os\nos.write(3, b'correct')\nos._exit(0)",
    "forging a result": "import sys\nf = lambda x: (sys._getframe(1).f_locals['send'](b'correct'), os._exit(0))",
    "always equal": "class E:\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(x): return E()",
    "an int that is always equal": "class E(int):\n    def __eq__(self, other): return True\ndef f(x): return E(7)",
    "a list that is always equal": "class E(list):\n    def __eq__(self, other): return True\ndef f(x): return E()",
    "patching json": "import json\njson.dumps = lambda value: '[true]'\ndef f(x): return 7",
    "patching exit": "import os\nos._exit = lambda code: None\ndef f(x): raise ValueError",
    "reading expected outputs": "import gc\ndef f(x):\n    found = [o for o in gc.get_objects() if isinstance(o, dict)"
    " and 'expected' in o]\n    return found[0]['expected'][0] if found else 7",
    "walking the stack frames": "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n        "
    "if 'expected' in frame.f_locals: return frame.f_locals['expected'][0]\n        frame = frame.f_back\n"
    "    return 7",
    "reading the reference's text": "import gc\ndef f(x):\n    if any(isinstance(o, str) and 'secret_of' in o "
    "and 'gc' not in o for o in gc.get_objects()): return secret\n    return 7",
    "fork": "import os\ndef f(x): return 7 * (os.fork() >= 0)",
    "memory": "def f(x): return [0] * 10**12",
    "endless output": "def f(x):\n    while True: print('x' * 10**6)",
    "endless loop": "def f(x):\n    while True: pass",
    "deep nesting": "def f(x):\n    y = []\n    for _ in range(10**6): y = [y]\n    return y",
    "a reference cycle": "def f(x):\n    y = []\n    y.append(y)\n    return y",
    "huge output": "def f(x): return 'x' * 10**9",
    "colliding hashes": "def f(x): return {n * (2**61 - 1) for n in range(20000)}",
    "endless thread": "import threading\ndef f(x):\n    threading.Thread(target=lambda: [0 "
    "for _ in iter(int, 1)]).start()\n    return 7",
    "kill": "import os\ndef f(x): os.kill(-1, 9)",
}


@needs_sandbox
@pytest.mark.parametrize("name", MALICIOUS)
def test_malicious_programs_do_not_pass(name):
    secret_of = task("def f(x): return 'secret_of_' + str(x)", [[1]], [[2]])
    assert grade_programs([secret_of], [MALICIOUS[name]], seconds=8.0) == [[False, False]]


@needs_sandbox
def test_correct_programs_pass_alongside_malicious_programs():
    attacks = [MALICIOUS[name] for name in ("fork", "memory", "kill", "exit")]
    tasks = [task("def f(x): return x", [[1]])] * 8
    results = grade_programs(
        tasks, [program for attack in attacks for program in (attack, "def f(x): return x")], 20.0
    )
    assert results == [[False], [True]] * 4


@needs_sandbox
def test_slow_call_is_killed_at_its_cpu_time_limit(monkeypatch):
    # The reference takes almost no time, so the limit is one second of CPU time. The wall-clock limit is 60 seconds.
    statuses = []

    def record_status(*arguments, **settings):
        outcome = run_sandboxed(*arguments, **settings)
        statuses.append(outcome.status)
        return outcome

    monkeypatch.setattr(grader, "run_sandboxed", record_status)
    slow = "def f(x):\n    while x: pass\n    return x"
    assert grade_programs([task("def f(x): return x", [[0]], [[1]])], [slow], 60.0) == [[True, False]]
    assert statuses == ["ok", "died"]  # the reference ends, and SIGPROF kills the program


@needs_sandbox
@pytest.mark.parametrize(
    "escape",
    [
        "import signal; signal.signal(signal.SIGPROF, signal.SIG_IGN)",
        "import signal; signal.setitimer = lambda *limits: None",
        "import signal; signal.setitimer(signal.ITIMER_PROF, 0)",
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (99, 99))",
    ],
)
def test_a_program_cannot_lift_its_time_limit(escape):
    busy = "    import time\n    while x and time.process_time() < 4: pass\n    return x"
    program = f"def f(x):\n    try: {escape}\n    except ValueError: pass\n{busy}"
    assert grade_programs([task("def f(x): return x", [[0]], [[1]])], [program], 60.0) == [[True, False]]


@needs_sandbox
def test_special_comparison_rules_are_applied():
    same_set = task("def f(x): return sorted(x)", [[[3, 1]]], convert="set")
    not_none = task("def f(x): return x > 0", [[1], [2]], convert="not_none")
    root = task("def f(c): return -c[0] / c[1]", [[[2.0, 1.0]]], rule="root", atol=1e-4)
    accepted = task("def f(x): return 5", [[1]], accepted=(json.dumps([7]),))
    for rule_task, correct, wrong in (
        (same_set, "def f(x): return (1, 3, 3)", "def f(x): return [1]"),
        (not_none, "def f(x): return object()", "def f(x): return None"),
        (root, "def f(c): return -2.00001", "def f(c): return -2.1"),
        (accepted, "def f(x): return 7", "def f(x): return 6"),
    ):
        assert grade_programs([rule_task] * 2, [correct, wrong]) == [[True], [False]]


@needs_sandbox
def test_programs_are_unscored_if_the_reference_fails():
    failing_task = task("def f(x): raise ValueError", [[1]], [[2]])
    partly_failing_task = task("def f(x): return 1 / (x - 2)", [[1]], [[2]])
    programs = ["def f(x): return -1.0"] * 2 + ["def f(x): return 0"]
    results = grade_programs([failing_task, partly_failing_task, partly_failing_task], programs)
    assert results == [[None, None], [True, None], [False, None]]


def test_both_correctness_fields_are_unscored_if_the_reference_fails():
    class FailingReferenceGrader:
        def grade(self, completions):
            return [CodeGrade("def double(x): return 2 * x", [True, None])] * len(completions)

    base = Problem("humaneval", 0, "Double x.", "double", DOUBLE)
    plus = replace(base, benchmark="humaneval_plus")
    completion = {"tokens": 9, "finish_reason": "stop", "text": "text"}
    samples = grade_completions([(Request([base, plus], 0, [1], False, 7), completion)], FailingReferenceGrader())
    assert [(sample["correct"], sample["correct_qwen"]) for sample in samples] == [(True, True), (None, None)]


@needs_sandbox
def test_code_in_the_thinking_block_is_ignored():
    block = code_block("def double(x): return 2 * x")
    texts = [f"<think>{block}", block, f"{block}</think>No idea.", f"so</think>{block}"]
    prefilled = [False, True, True, True]
    grades = CodeGrader(20.0).grade([(DOUBLE, text, opened) for text, opened in zip(texts, prefilled, strict=True)])
    assert [grade.passed[0] for grade in grades] == [False, False, False, True]
    assert [grade.program is None for grade in grades] == [True, True, True, False]


def test_code_benchmarks_require_permission(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run_module, "read_model", None)
    write_model(tmp_path / "model")
    args = ["eval", "--model", str(tmp_path / "model"), "--data_dir", str(tmp_path), "--benchmarks", "humaneval"]
    assert main([*args, "--output_dir", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert "grading runs model-written programs on this machine" in message
    assert "`--allow_code_execution`" in message
    assert not (tmp_path / "out").exists()


@needs_sandbox
def test_a_completion_is_graded_by_both_code_benchmarks(tmp_path, monkeypatch):
    write_data(tmp_path, ["humaneval", "aime24"])
    write_model(tmp_path / "model")
    backends = []

    def load(facts, settings, longest):
        backends.append(ScriptedBackend(facts.tokenizer, {"": code_block("def double(x): return abs(2 * x)")}))
        return backends[-1]

    monkeypatch.setattr(run_module, "load_backend", load)
    settings = EvaluationSettings(
        model=str(tmp_path / "model"),
        benchmarks=["humaneval_plus", "aime24", "humaneval"],
        data_dir=str(tmp_path),
        backend="transformers",
        num_samples=2,
        max_problems=3,
        max_new_tokens=100,
        allow_code_execution=True,
    )
    summary = run_evaluation(settings, tmp_path / "out", report=lambda text: None, progress=False)
    assert sum(map(len, backends[0].seeds)) == 6 + 6  # 6 for aime24 and 6 for both code benchmarks
    accuracy = {name: entry["correct"]["accuracy"]["mean"] for name, entry in summary["benchmarks"].items()}
    assert accuracy == {"humaneval_plus": 0.0, "aime24": 0.0, "humaneval": 1.0}
    file = tmp_path / "out" / "samples.jsonl"
    all_lines = sorted(file.read_text().splitlines())
    assert len(all_lines) == 18
    sample = next(s for s in map(json.loads, all_lines) if s["benchmark"] == "humaneval_plus")
    assert sample["final_answer"] == "def double(x): return abs(2 * x)\n"
    assert (sample["gold"], sample["correct"], sample["correct_qwen"]) == ("double", False, False)
    # Simulate a kill between the two lines of each completion. The next run adds only the missing lines.
    base_lines = [line for line in all_lines if '"humaneval_plus"' not in line]
    file.write_text("".join(line + "\n" for line in base_lines))
    run_evaluation(settings, tmp_path / "out", report=lambda text: None, progress=False)
    assert sorted(file.read_text().splitlines()) == all_lines


def test_time_limit_is_recorded_only_for_code_benchmarks():
    math = EvaluationSettings(model="m", benchmarks=["aime24"]).sampling()
    code = EvaluationSettings(model="m", benchmarks=["humaneval"], code_time_limit=9.0).sampling()
    assert not {"code_time_limit", "allow_code_execution"} & set(math)
    assert code["code_time_limit"] == 9.0
    with pytest.raises(UserError, match="`code_time_limit` is 0"):
        EvaluationSettings(model="m", benchmarks=["aime24"], code_time_limit=0.0)


def test_data_digest_depends_on_the_tests(tmp_path):
    write_data(tmp_path, ["humaneval"])
    base, plus = (load_benchmark(name, tmp_path) for name in ("humaneval", "humaneval_plus"))
    assert [len(problems[0].code.groups) for problems in (base, plus)] == [1, 2]
    assert data_digest(base) != data_digest(plus)


FILES = {"humaneval": "HumanEvalPlus.jsonl.gz", "mbpp": "MbppPlus.jsonl.gz"}
# The outputs of this task exceed the sandbox's memory, so the additional tests are unscored.
TOO_LARGE = {"Mbpp/255"}


def real_rows(dataset):
    file = REAL_DATA / "code" / FILES[dataset]
    if not file.is_file():
        pytest.skip(f"{file} does not exist (TRL_CES_DATA)")
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def failing_solutions(dataset, rows):
    tasks = [read_task(dataset, row) for row in rows]
    results = grade_programs(tasks, [row["prompt"] + row["canonical_solution"] for row in rows], 120.0)
    return {row["task_id"]: groups for row, groups in zip(rows, results, strict=True) if groups != [True, True]}


@needs_sandbox
@pytest.mark.parametrize("dataset", FILES)
def test_twenty_canonical_solutions_pass(dataset):
    rows = real_rows(dataset)
    assert failing_solutions(dataset, rows[5 :: len(rows) // 20][:20]) == {}


@needs_sandbox
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("dataset", FILES)
def test_all_canonical_solutions_pass(dataset):
    failures = failing_solutions(dataset, real_rows(dataset))
    assert failures == {name: [True, None] for name in failures if name in TOO_LARGE}
