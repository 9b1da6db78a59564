"""Evaluation runs: stored files, resuming after a kill, and errors for samples with different settings."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fixtures_evaluation import ScriptedBackend, write_data, write_model

from trl_ces.lab.evaluation import run as run_module
from trl_ces.lab.evaluation.benchmarks import SETS, Problem
from trl_ces.lab.evaluation.models import EncodedPrompts, read_model
from trl_ces.lab.evaluation.run import (
    check_evaluate,
    evaluate,
    list_requests,
    pending_batches,
    report_missing_answers,
    run_evaluation,
    sample_seed,
)
from trl_ces.lab.evaluation.samples import open_samples
from trl_ces.lab.evaluation.settings import EvaluationSettings
from trl_ces.lab.study.measuring import check_evaluation
from trl_ces.support.errors import UserError
from trl_ces.train.recipe import make_recipe

QUICK = {"num_samples": 3, "max_problems": 5, "max_new_tokens": 30, "batch_size": 4, "backend": "transformers"}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Write data and a model with random weights."""
    folder = tmp_path_factory.mktemp("run")
    write_data(folder, ["aime24", "amc23", "gaokao2023en"])
    write_model(folder / "model")
    return folder


def settings(workspace, **changes):
    defaults = {"model": str(workspace / "model"), "data_dir": str(workspace), "benchmarks": ["aime24", "amc23"]}
    return EvaluationSettings(**defaults | QUICK | changes)


def run(workspace, folder, **changes):
    messages = []
    summary = run_evaluation(settings(workspace, **changes), folder, report=messages.append, progress=False)
    return summary, " ".join(messages)


def lines(folder):
    return sorted((folder / "samples.jsonl").read_text(encoding="utf-8").splitlines())


@pytest.fixture(scope="module")
def finished(workspace, tmp_path_factory):
    """Run an evaluation without interruption, and return its folder."""
    folder = tmp_path_factory.mktemp("finished")
    run(workspace, folder)
    return folder


@pytest.fixture
def scripted(monkeypatch):
    texts = {"2+3": "so \\boxed{5}", "4+4": "so \\boxed{9}", "6/4": "\\boxed{\\frac{3}{2}}", "14": "7.0"}
    backends = []

    def load(facts, settings, longest):
        backends.append(ScriptedBackend(facts.tokenizer, {**texts, "Compute": "\\boxed{25}"}))
        return backends[-1]

    monkeypatch.setattr(run_module, "load_backend", load)
    return backends


def test_samples_store_the_correctness_of_both_graders(workspace, tmp_path, scripted):
    summary, messages = run(workspace, tmp_path, max_problems=2)
    assert "no final answer" not in messages
    samples = {(s["benchmark"], s["problem"], s["sample"]): s for s in map(json.loads, lines(tmp_path))}
    assert len(samples) == 2 * 2 * 3
    assert samples["aime24", 0, 1] == {
        "benchmark": "aime24",
        "problem": 0,
        "sample": 1,
        "seed": sample_seed(0, "aime24", 0, 1),
        "gold": "005",
        "final_answer": "5",
        "correct": True,
        "correct_qwen": True,
        "tokens": len("so \\boxed{5}"),
        "finish_reason": "stop",
        "text": "so \\boxed{5}",
    }
    assert summary["benchmarks"]["aime24"]["correct"]["accuracy"]["mean"] == 0.5
    assert summary["benchmarks"]["aime24"]["problems"] == 2
    assert scripted[0].closed
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert "| AIME24 " in (tmp_path / "table.md").read_text()


def test_final_answer_inside_prefilled_thinking_does_not_count(workspace, tmp_path, scripted):
    write_model(tmp_path / "thinker", chat_template="{% for m in messages %}{{ m['content'] }}{% endfor %}<think>\n")
    summary, messages = run(workspace, tmp_path / "out", model=str(tmp_path / "thinker"), benchmarks=["aime24"])
    assert re.search(r"no final answer in any of the \d+ completions of AIME24 \(0\.0 % truncated\), for ex", messages)
    assert summary["benchmarks"]["aime24"]["correct"]["accuracy"]["mean"] == 0.0
    # The paper's script accepts a boxed answer in the thinking block.
    assert summary["benchmarks"]["aime24"]["correct_qwen"]["accuracy"]["mean"] > 0


def test_missing_final_answers_are_reported_except_for_code():
    def sample(answer, reason):
        return {"final_answer": answer, "finish_reason": reason, "text": "so it is 5"}

    messages = []
    for name, answers in {
        "aime24": (None, None),
        "amc23": (None, "5"),
        "humaneval": (None, None),
        "svamp": (),
    }.items():
        samples = [sample(answer, reason) for answer, reason in zip(answers, ("stop", "length"), strict=False)]
        report_missing_answers(SETS[name], samples, messages.append)
    assert len(messages) == 1
    assert "any of the 2 completions of AIME24 (50.0 % truncated), for example in 'so it is 5'." in messages[0]


def test_repeated_run_loads_no_model_and_changes_no_file(workspace, finished, monkeypatch):
    before, content = lines(finished), (finished / "summary.json").read_bytes()
    monkeypatch.setattr(run_module, "load_backend", None)
    _, messages = run(workspace, finished)
    assert lines(finished) == before
    assert (finished / "summary.json").read_bytes() == content
    assert "10 problems x 3 completions" in messages
    assert "30 already done" in messages


def test_problems_without_a_reference_answer_count_only_for_the_papers_script(workspace, tmp_path, scripted):
    summary, _ = run(workspace, tmp_path, benchmarks=["gaokao2023en"], max_problems=None, num_samples=1)
    entry = summary["benchmarks"]["gaokao2023en"]
    assert (entry["problems"], entry["correct"]["problems"], entry["correct_qwen"]["problems"]) == (385, 383, 385)
    assert entry["correct"]["accuracy"]["mean"] == 1.0
    assert entry["correct_qwen"]["accuracy"]["mean"] == 383 / 385  # the paper's script accepts an empty final answer
    assert "2 completions are unscored" in (tmp_path / "table.md").read_text()


@pytest.mark.parametrize(("line_count", "cut_bytes"), [(0, 0), (5, 2), (13, 0), (29, 40), (30, 1)])
def test_resumed_run_matches_the_uninterrupted_run(workspace, finished, tmp_path, line_count, cut_bytes):
    (tmp_path / "settings.json").write_bytes((finished / "settings.json").read_bytes())
    content = (finished / "samples.jsonl").read_bytes().splitlines(keepends=True)
    # Keep some lines and cut the end of the last line. If the number of lines is odd, reverse the lines first.
    remaining = b"".join(content[:: -1 if line_count % 2 else 1][:line_count])
    (tmp_path / "samples.jsonl").write_bytes(remaining[: len(remaining) - cut_bytes])
    run(workspace, tmp_path)
    assert lines(tmp_path) == lines(finished)


KILLER = """
import os, random, signal, time
from pathlib import Path
import peft
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaForCausalLM
from trl_ces.lab.evaluation.run import run_evaluation
from trl_ces.lab.evaluation.settings import EvaluationSettings

folder, random = Path({folder!r}), random.Random({seed})
def child():
    pid = os.fork()
    if not pid:
        run_evaluation(EvaluationSettings(**{settings!r}), folder, report=lambda text: None, progress=False)
        os._exit(0)
    return pid
samples, killed_at = folder / "samples.jsonl", []
for _ in range(3):
    pid, kill_size = child(), (samples.stat().st_size if samples.exists() else 0) + random.randrange(1, {step})
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if samples.exists() and samples.stat().st_size >= kill_size:
            time.sleep(random.random() * 0.05)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            killed_at.append(samples.stat().st_size)
            break
        time.sleep(0.002)
os.waitpid(child(), 0)
print(killed_at)
"""


@pytest.mark.slow
def test_run_killed_at_random_times_matches_the_uninterrupted_run(workspace, finished, tmp_path):
    size = (finished / "samples.jsonl").stat().st_size
    options = {
        "model": str(workspace / "model"),
        "data_dir": str(workspace),
        "benchmarks": ["aime24", "amc23"],
    } | QUICK
    code = KILLER.format(folder=str(tmp_path), seed=time.time_ns() % 1000, settings=options, step=size // 4)
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280)
    assert process.returncode == 0, process.stderr
    killed_at = json.loads(process.stdout.splitlines()[-1])
    assert len(killed_at) == 3, process.stderr
    assert killed_at[0] < size
    assert lines(tmp_path) == lines(finished)
    assert (tmp_path / "summary.json").read_bytes() == (finished / "summary.json").read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "`seed` was 0 and is now 1"),
        ({"max_problems": 4}, "`max_problems` was 5 and is now 4; `data.aime24.problems` was 5 and is now 4"),
        ({"benchmarks": ["aime24"]}, "`benchmarks`"),
        ({"system_prompt": None}, "`system_prompt`"),
        ({"batch_size": 3}, "`batch_size` was 4 and is now 3"),
    ],
)
def test_error_names_the_settings_that_differ(workspace, finished, changes, message):
    before = lines(finished)
    with pytest.raises(UserError, match="Choose another `--output_dir`") as raised:
        run(workspace, finished, **changes)
    assert message in str(raised.value)
    assert lines(finished) == before


def test_changed_model_files_and_changed_data_are_rejected(workspace, tmp_path, scripted):
    write_model(tmp_path / "model")
    write_data(tmp_path, ["aime24"])
    options = {"model": str(tmp_path / "model"), "data_dir": str(tmp_path), "benchmarks": ["aime24"]}
    run(workspace, tmp_path / "out", **options)
    file = tmp_path / "math" / "aime24" / "test.jsonl"
    file.write_text(file.read_text().replace("005", "6"))
    with pytest.raises(UserError, match=r"`data.aime24.digest`"):
        run(workspace, tmp_path / "out", **options)
    write_data(tmp_path, ["aime24"])
    write_model(tmp_path / "model", seed=1)
    with pytest.raises(UserError, match="`fingerprint`"):
        run(workspace, tmp_path / "out", **options)


def test_samples_without_settings_are_rejected(workspace, finished, tmp_path):
    (tmp_path / "samples.jsonl").write_bytes((finished / "samples.jsonl").read_bytes())
    with pytest.raises(UserError, match=r"exists without settings\.json"):
        run(workspace, tmp_path)


def open_and_close(folder, settings):
    with open_samples(folder, settings):
        pass


def test_local_model_may_be_moved_with_its_samples(tmp_path):
    open_and_close(tmp_path, {"model": "runs/a", "fingerprint": "1", "seed": 0})
    open_and_close(tmp_path, {"model": "moved/a", "fingerprint": "1", "seed": 0})
    with pytest.raises(UserError, match="`fingerprint` was '1'"):
        open_and_close(tmp_path, {"model": "moved/a", "fingerprint": "2", "seed": 0})


def test_only_one_process_can_use_an_output_directory(tmp_path):
    with open_samples(tmp_path, {}), pytest.raises(UserError, match="Another evaluation is running"):
        open_and_close(tmp_path, {})
    open_and_close(tmp_path, {})


def test_incomplete_batches_are_regenerated_as_a_whole():
    problems = [Problem("aime24", number, "?", "1") for number in range(3)] + [Problem("amc23", 0, "?", "1")]
    prompts = EncodedPrompts([[1, 2, 3], [1], [1, 2], [1]], [False] * 4)
    options = EvaluationSettings(model="x", benchmarks=["amc23", "aime24"], num_samples=2)
    requests = list_requests(options, problems, prompts)
    keys = [key for request in requests for key in request.keys]
    assert keys == [
        *(("amc23", 0, sample) for sample in (0, 1)),
        *(("aime24", problem, sample) for problem in (1, 2, 0) for sample in (0, 1)),
    ]
    done = {keys[0], keys[1], keys[2], keys[4], keys[7]}
    assert pending_batches(requests, done, 3) == [requests[3:6], requests[6:8]]
    assert pending_batches(requests, done, None) == [[requests[3], requests[5], requests[6]]]
    assert pending_batches(requests, set(keys), None) == pending_batches(requests, set(keys), 3) == []


def test_every_completion_has_a_different_31_bit_seed():
    numbers = [(seed, name, row, k) for seed in (0, 1) for name in "ab" for row in range(100) for k in range(4)]
    seeds = [sample_seed(*number) for number in numbers]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_evaluate_returns_measures_and_stores_samples_with_the_model(workspace, tmp_path, scripted, monkeypatch):
    model = write_model(tmp_path / "model")
    options = {"data_dir": str(workspace), "backend": "transformers", "num_samples": 1, "max_problems": 2}
    options["max_new_tokens"] = 30
    measures = evaluate(model, benchmarks="aime24,amc23", **options)
    short, long = len("so \\boxed{5}"), len("\\boxed{\\frac{3}{2}}")
    assert measures == {
        "aime24": {"accuracy": 0.5, "length_tokens": short, "area": pytest.approx(0.5 * (1 - short / 30))},
        # rows 0 and 20 are identical
        "amc23": {"accuracy": 1.0, "length_tokens": long, "area": pytest.approx(1 - long / 30)},
    }
    assert evaluate(model, benchmarks=["aime24", "amc23"], **options) == measures
    assert len(scripted) == 1  # the second call had no completions to generate
    write_model(model, seed=1)
    evaluate(model, benchmarks=["aime24", "amc23"], **options)
    assert len(scripted) == 2
    assert len(list((model / "evaluation").glob("*/samples.jsonl"))) == 2
    for vllm in (None, "here"):  # each backend stores its completions in a separate folder
        monkeypatch.setattr(run_module, "find_spec", lambda name, installed=vllm: installed)
        evaluate(model, benchmarks=["aime24"], **options | {"backend": "auto"})


def test_check_evaluate_rejects_invalid_options():
    with pytest.raises(UserError, match="`correctness` is 'right'"):
        check_evaluate(correctness="right")
    with pytest.raises(UserError, match="`num_sample` is not an evaluation setting"):
        check_evaluate(num_sample=2)
    with pytest.raises(UserError, match="`num_samples` is 'four'"):
        check_evaluate(num_samples="four")
    with pytest.raises(UserError, match="`data` and `benchmarks` are both set"):
        check_evaluate("aime24", data="test.jsonl")


def test_evaluate_stores_samples_of_a_hub_model_in_the_default_folder(workspace, tmp_path, scripted, monkeypatch):
    monkeypatch.chdir(tmp_path)
    facts = read_model(settings(workspace))
    monkeypatch.setattr(run_module, "read_model", lambda settings: facts)
    options = {"data_dir": str(workspace), "backend": "transformers", "max_problems": 2, "max_new_tokens": 9}
    for _ in range(2):
        evaluate("org/Base-7B", "aime24", **options)
    assert len(scripted) == 1
    assert len(list(Path("runs/evaluation/org_Base_7B").glob("*/samples.jsonl"))) == 1


def test_study_checks_the_context_length_before_training(workspace):
    fields = {"model_name_or_path": str(workspace / "model"), "dataset_name": "d", "output_dir": "o"}
    recipe = make_recipe(fields, "the study")
    options = {"function": "trl_ces.lab.evaluation.run.evaluate", "benchmarks": "aime24", "data_dir": str(workspace)}
    check_evaluation({**options, "max_new_tokens": 30, "backend": "transformers"}, recipe)
    with pytest.raises(UserError, match=r"context is 1024 tokens, .* `max_new_tokens` is 16384"):
        check_evaluation({**options, "backend": "transformers"}, recipe)


def test_grader_and_data_are_checked_before_the_weights_are_loaded(workspace, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "load_backend", None)
    with pytest.raises(UserError, match=r"svamp: .* does not exist"):
        run(workspace, tmp_path, benchmarks=["svamp"])

    def grade_many(*arguments, **keywords):
        raise RuntimeError("install another antlr")

    monkeypatch.setattr(run_module, "grade_many", grade_many)
    with pytest.raises(UserError, match="install another antlr"):
        run(workspace, tmp_path)
    assert os.listdir(tmp_path) == []
