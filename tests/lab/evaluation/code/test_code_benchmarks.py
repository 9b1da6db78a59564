"""Code benchmarks: which program is taken from an answer, which is right, and that no trick passes for right."""

import gzip
import json
from dataclasses import replace

import pytest
from code_sandbox import built
from fixtures_evaluation import CODE_ROWS, REAL_DATA, Scripted, write_data, write_model

from trl_ces.cli.main import main
from trl_ces.lab.evaluation import run as run_module
from trl_ces.lab.evaluation.code import judge
from trl_ces.lab.evaluation.code.inside import Opaque, decode, encode, equal_outputs
from trl_ces.lab.evaluation.code.judge import CodeJudge, CodeVerdict, find_program
from trl_ces.lab.evaluation.code.sandbox import run_sandboxed
from trl_ces.lab.evaluation.code.tasks import CodeTask, read_task
from trl_ces.lab.evaluation.problems import Problem, data_digest, load_benchmark
from trl_ces.lab.evaluation.run import run_evaluation
from trl_ces.lab.evaluation.settings import EvaluationSettings
from trl_ces.lab.evaluation.units import Unit, judge_answers
from trl_ces.support.errors import UserError

DOUBLE = read_task("humaneval", CODE_ROWS["humaneval"])


def task(reference, *groups, **more):
    """A task whose function is `f`."""
    encoded = tuple(json.dumps(encode(list(group))) for group in groups)
    return CodeTask("f", reference, encoded, **({"atol": 0} | more))


def fenced(program):
    return f"Here it is:\n```python\n{program}\n```\nDone."


def verdicts(tasks, programs, seconds=20.0):
    answers = [(task, fenced(program), False) for task, program in zip(tasks, programs, strict=True)]
    return [verdict.passed for verdict in CodeJudge(seconds).verdicts(answers)]


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
def test_the_last_python_block_that_defines_the_function_is_the_program(text, program):
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
def test_values_travel_as_they_are(value):
    back = decode(json.loads(json.dumps(encode(value))))
    assert back == value
    assert type(back) is type(value)
    assert isinstance(value, int) or repr(back) == repr(value)


def test_what_cannot_travel_equals_nothing():
    generator = decode(json.loads(json.dumps(encode(iter([1])))))
    assert isinstance(generator, Opaque)
    assert not equal_outputs(generator, decode(encode(iter([1]))), 0)


@pytest.mark.parametrize(
    ("output", "wanted", "atol", "verdict"),
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
def test_outputs_are_equal_as_evalplus_has_it(output, wanted, atol, verdict):
    assert equal_outputs(output, wanted, atol) is verdict


@built
def test_base_and_further_tests_have_a_verdict_each():
    programs = [
        "def double(x): return x + x",
        "def double(x): return x * 2.0",  # not exact beyond 2^53
        "def double(x): return abs(x) * 2",
        "def double(x): return 3",
        "def twice(x): return 2 * x",
        "def double(x) return",
        "import os\ndef double(x):\n    return 2 * x if x > 0 else os._exit(0)",
    ]
    expected = [[True, True], [True, True], [True, False], [False, False], [False, False], [False, False]]
    assert verdicts([DOUBLE] * 7, programs) == [*expected, [True, False]]


TRICKS = {
    "exit": "import os\nos._exit(0)",
    "system exit": "import sys\nsys.exit(0)",
    "exit in the call": "import os\ndef f(x): os._exit(0)",
    "printing": "print('passed', 'right', '[true, true]')\ndef f(x): print('right')",
    "sending": "import os\nos.write(3, b'right')\nos._exit(0)",
    "the caller's send": "import sys\nf = lambda x: (sys._getframe(1).f_locals['send'](b'right'), os._exit(0))",
    "equal to all": "class E:\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(x): return E()",
    "an int equal to all": "class E(int):\n    def __eq__(self, other): return True\ndef f(x): return E(7)",
    "a list equal to all": "class E(list):\n    def __eq__(self, other): return True\ndef f(x): return E()",
    "patching json": "import json\njson.dumps = lambda value: '[true]'\ndef f(x): return 7",
    "patching exit": "import os\nos._exit = lambda code: None\ndef f(x): raise ValueError",
    "reading what is expected": "import gc\ndef f(x):\n    found = [o for o in gc.get_objects() if isinstance(o, dict)"
    " and 'expected' in o]\n    return found[0]['expected'][0] if found else 7",
    "looking up the frames": "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n        "
    "if 'expected' in frame.f_locals: return frame.f_locals['expected'][0]\n        frame = frame.f_back\n"
    "    return 7",
    "the reference's text": "import gc\ndef f(x):\n    if any(isinstance(o, str) and 'secret_of' in o "
    "and 'gc' not in o for o in gc.get_objects()): return secret\n    return 7",
    "fork": "import os\ndef f(x): return 7 * (os.fork() >= 0)",
    "memory": "def f(x): return [0] * 10**12",
    "flood": "def f(x):\n    while True: print('x' * 10**6)",
    "endless": "def f(x):\n    while True: pass",
    "deep": "def f(x):\n    y = []\n    for _ in range(10**6): y = [y]\n    return y",
    "cycle": "def f(x):\n    y = []\n    y.append(y)\n    return y",
    "huge": "def f(x): return 'x' * 10**9",
    "colliding": "def f(x): return {n * (2**61 - 1) for n in range(20000)}",
    "a thread left behind": "import threading\ndef f(x):\n    threading.Thread(target=lambda: [0 "
    "for _ in iter(int, 1)]).start()\n    return 7",
    "kill": "import os\ndef f(x): os.kill(-1, 9)",
}


@built
@pytest.mark.parametrize("name", TRICKS)
def test_no_trick_passes_for_right(name):
    secret_of = task("def f(x): return 'secret_of_' + str(x)", [[1]], [[2]])
    assert verdicts([secret_of], [TRICKS[name]], seconds=8.0) == [[False, False]]


@built
def test_a_right_answer_among_hostile_ones_stays_right():
    hostile = [TRICKS[name] for name in ("fork", "memory", "kill", "exit")]
    tasks = [task("def f(x): return x", [[1]])] * 8
    found = verdicts(tasks, [program for trick in hostile for program in (trick, "def f(x): return x")], 20.0)
    assert found == [[False], [True]] * 4


@built
def test_a_slow_call_is_ended_by_its_own_limit(monkeypatch):
    # A second of CPU time, for the reference takes none; the whole answer has 60 on the clock.
    ends = []

    def watched(*arguments, **settings):
        outcome = run_sandboxed(*arguments, **settings)
        ends.append(outcome.status)
        return outcome

    monkeypatch.setattr(judge, "run_sandboxed", watched)
    slow = "def f(x):\n    while x: pass\n    return x"
    assert verdicts([task("def f(x): return x", [[0]], [[1]])], [slow], 60.0) == [[True, False]]
    assert ends == ["ok", "died"]  # the reference, and the answer, by the timer's signal and not by the clock


@built
def test_rules_of_their_own():
    same_set = task("def f(x): return sorted(x)", [[[3, 1]]], convert="set")
    there = task("def f(x): return x > 0", [[1], [2]], convert="not_none")
    root = task("def f(c): return -c[0] / c[1]", [[[2.0, 1.0]]], rule="root", atol=1e-4)
    beside = task("def f(x): return 5", [[1]], accepted=(json.dumps([7]),))
    for tested, right, wrong in (
        (same_set, "def f(x): return (1, 3, 3)", "def f(x): return [1]"),
        (there, "def f(x): return object()", "def f(x): return None"),
        (root, "def f(c): return -2.00001", "def f(c): return -2.1"),
        (beside, "def f(x): return 7", "def f(x): return 6"),
    ):
        assert verdicts([tested, tested], [right, wrong]) == [[True], [False]]


@built
def test_a_reference_that_does_not_run_judges_nothing():
    whole = task("def f(x): raise ValueError", [[1]], [[2]])
    half = task("def f(x): return 1 / (x - 2)", [[1]], [[2]])
    assert verdicts([whole, half, half], ["def f(x): return -1.0"] * 2 + ["def f(x): return 0"]) == [
        [None, None],
        [True, None],
        [False, None],
    ]


def test_an_answer_that_cannot_be_judged_is_wrong_by_neither_verdict():
    class ReferenceThatFails:
        def verdicts(self, answers):
            return [CodeVerdict("def double(x): return 2 * x", [True, None])] * len(answers)

    base = Problem("humaneval", 0, "Double x.", "double", DOUBLE)
    stricter = replace(base, benchmark="humaneval_plus")
    drawn = {"tokens": 9, "finish_reason": "stop", "text": "text"}
    found = judge_answers([(Unit([base, stricter], 0, [1], False, 7), drawn)], ReferenceThatFails())
    assert [(sample["correct"], sample["correct_qwen"]) for sample in found] == [(True, True), (None, None)]


@built
def test_code_in_the_thinking_does_not_count():
    judge, answer = CodeJudge(20.0), fenced("def double(x): return 2 * x")
    texts = [f"<think>{answer}", answer, f"{answer}</think>No idea.", f"so</think>{answer}"]
    prefilled = [False, True, True, True]
    found = judge.verdicts([(DOUBLE, text, opened) for text, opened in zip(texts, prefilled, strict=True)])
    assert [verdict.passed[0] for verdict in found] == [False, False, False, True]
    assert [verdict.program is None for verdict in found] == [True, True, True, False]


def test_permission_is_asked_for_before_anything_is_loaded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run_module, "read_model", None)
    write_model(tmp_path / "model")
    words = ["eval", "--model", str(tmp_path / "model"), "--data_dir", str(tmp_path), "--benchmarks", "humaneval"]
    assert main([*words, "--output_dir", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "programs that the model wrote are run on this machine" in said
    assert "`--allow_code_execution`" in said
    assert not (tmp_path / "out").exists()


def test_a_machine_without_a_sandbox_is_refused(tmp_path, monkeypatch, capsys):
    write_model(tmp_path / "model")
    monkeypatch.setattr("trl_ces.lab.evaluation.code.sandbox.sys.platform", "darwin")
    words = ["--data_dir", str(tmp_path), "--benchmarks", "humaneval", "--allow_code_execution"]
    assert main(["eval", "--model", str(tmp_path / "model"), *words]) == 2
    assert "cannot be built here (the sandbox needs Linux" in capsys.readouterr().err


@built
def test_one_answer_is_judged_for_the_set_and_the_stricter_set(tmp_path, monkeypatch):
    write_data(tmp_path, ["humaneval", "aime24"])
    write_model(tmp_path / "model")
    made = []

    def load(facts, settings, longest):
        made.append(Scripted(facts.tokenizer, {"": fenced("def double(x): return abs(2 * x)")}))
        return made[-1]

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
    summary = run_evaluation(settings, tmp_path / "out", say=lambda text: None, progress=False)
    assert sum(map(len, made[0].asked)) == 6 + 6  # three problems of aime24 and three of the two code sets
    accuracy = {name: entry["correct"]["accuracy"] for name, entry in summary["benchmarks"].items()}
    assert accuracy == {"humaneval_plus": 0.0, "aime24": 0.0, "humaneval": 1.0}
    file = tmp_path / "out" / "samples.jsonl"
    whole = sorted(file.read_text().splitlines())
    assert len(whole) == 18
    sample = next(s for s in map(json.loads, whole) if s["benchmark"] == "humaneval_plus")
    assert sample["answer"] == "def double(x): return abs(2 * x)\n"
    assert (sample["gold"], sample["correct"], sample["correct_qwen"]) == ("double", False, False)
    # killed between the two lines of an answer: the other is written, none twice
    kept = [line for line in whole if '"humaneval_plus"' not in line]
    file.write_text("".join(line + "\n" for line in kept))
    run_evaluation(settings, tmp_path / "out", say=lambda text: None, progress=False)
    assert sorted(file.read_text().splitlines()) == whole


def test_the_limit_counts_among_the_settings_only_where_programs_are_judged():
    maths = EvaluationSettings(model="m", benchmarks=["aime24"]).sampling()
    code = EvaluationSettings(model="m", benchmarks=["humaneval"], code_time_limit=9.0).sampling()
    assert not {"code_time_limit", "allow_code_execution"} & set(maths)
    assert code["code_time_limit"] == 9.0
    with pytest.raises(UserError, match="`code_time_limit` is 0"):
        EvaluationSettings(model="m", benchmarks=["aime24"], code_time_limit=0.0)


def test_a_changed_test_changes_the_digest(tmp_path):
    write_data(tmp_path, ["humaneval"])
    base, plus = (load_benchmark(name, tmp_path) for name in ("humaneval", "humaneval_plus"))
    assert [len(problems[0].code.groups) for problems in (base, plus)] == [1, 2]
    assert data_digest(base) != data_digest(plus)


FILES = {"humaneval": "HumanEvalPlus.jsonl.gz", "mbpp": "MbppPlus.jsonl.gz"}
# Outputs larger than the sandbox's memory: its further tests judge nothing here.
TOO_LARGE = {"Mbpp/255"}


def real_rows(dataset):
    file = REAL_DATA / "code" / FILES[dataset]
    if not file.is_file():
        pytest.skip(f"{file} is not there (TRL_CES_DATA)")
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def judge_canonical(dataset, rows):
    tasks = [read_task(dataset, row) for row in rows]
    found = verdicts(tasks, [row["prompt"] + row["canonical_solution"] for row in rows], 120.0)
    return {row["task_id"]: passed for row, passed in zip(rows, found, strict=True) if passed != [True, True]}


@built
@pytest.mark.parametrize("dataset", FILES)
def test_twenty_canonical_solutions_pass(dataset):
    rows = real_rows(dataset)
    assert judge_canonical(dataset, rows[5 :: len(rows) // 20][:20]) == {}


@built
@pytest.mark.parametrize("dataset", FILES)
def test_an_empty_function_fails_every_problem(dataset):
    rows = real_rows(dataset)[3::40]
    tasks = [read_task(dataset, row) for row in rows]
    empty = [f"def {row['entry_point']}(*arguments): return 'x'" for row in rows]
    assert all(passed == [False, False] for passed in verdicts(tasks, empty))


@built
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("dataset", FILES)
def test_all_canonical_solutions_pass(dataset):
    failed = judge_canonical(dataset, real_rows(dataset))
    assert failed == {name: [True, None] for name in failed if name in TOO_LARGE}
