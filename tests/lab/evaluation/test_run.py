"""A run and its directory: what is recorded, how it goes on after a kill, and what it refuses to mix."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fixtures_evaluation import Scripted, write_data, write_model

from trl_ces.lab.evaluation import run as run_module
from trl_ces.lab.evaluation.models import EncodedPrompts, read_model
from trl_ces.lab.evaluation.problems import Problem
from trl_ces.lab.evaluation.run import check_evaluate, evaluate, run_evaluation
from trl_ces.lab.evaluation.samples import open_samples
from trl_ces.lab.evaluation.settings import EvaluationSettings
from trl_ces.lab.evaluation.units import list_units, pending_batches, sample_seed
from trl_ces.lab.study.measuring import check_evaluation
from trl_ces.support.errors import UserError
from trl_ces.train.recipe import make_recipe

QUICK = {"num_samples": 3, "max_problems": 5, "max_new_tokens": 30, "batch_size": 4, "backend": "transformers"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Data and a model of random weights."""
    folder = tmp_path_factory.mktemp("run")
    write_data(folder, ["aime24", "amc23", "gaokao2023en"])
    write_model(folder / "model")
    return folder


def settings(place, **changes):
    given = {"model": str(place / "model"), "data_dir": str(place), "benchmarks": ["aime24", "amc23"]}
    return EvaluationSettings(**given | QUICK | changes)


def run(place, folder, **changes):
    said = []
    summary = run_evaluation(settings(place, **changes), folder, say=said.append, progress=False)
    return summary, " ".join(said)


def lines(folder):
    return sorted((folder / "samples.jsonl").read_text(encoding="utf-8").splitlines())


@pytest.fixture(scope="module")
def whole(place, tmp_path_factory):
    """The directory of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    run(place, folder)
    return folder


@pytest.fixture
def scripted(monkeypatch):
    made = []

    def load(facts, settings, longest):
        texts = {
            "2+3": "so \\boxed{5}",
            "4+4": "so \\boxed{9}",
            "6/4": "\\boxed{\\frac{3}{2}}",
            "14": "7.0",
            "Compute": "\\boxed{25}",
        }
        made.append(Scripted(facts.tokenizer, texts))
        return made[-1]

    monkeypatch.setattr(run_module, "load_backend", load)
    return made


def test_answers_get_both_verdicts_and_what_belongs_to_them(place, tmp_path, scripted):
    summary, _ = run(place, tmp_path, max_problems=2)
    samples = {(s["benchmark"], s["problem"], s["sample"]): s for s in map(json.loads, lines(tmp_path))}
    assert len(samples) == 2 * 2 * 3
    assert samples["aime24", 0, 1] == {
        "benchmark": "aime24",
        "problem": 0,
        "sample": 1,
        "seed": sample_seed(0, "aime24", 0, 1),
        "gold": "005",
        "answer": "5",
        "correct": True,
        "correct_qwen": True,
        "tokens": len("so \\boxed{5}"),
        "finish_reason": "stop",
        "text": "so \\boxed{5}",
    }
    assert summary["benchmarks"]["aime24"]["correct"]["accuracy"] == 0.5
    assert summary["benchmarks"]["aime24"]["problems"] == 2
    assert scripted[0].closed
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert "| AIME24 " in (tmp_path / "table.md").read_text()


def test_an_answer_inside_thinking_that_the_template_opened_does_not_count(place, tmp_path, scripted):
    write_model(tmp_path / "thinker", chat_template="{% for m in messages %}{{ m['content'] }}{% endfor %}<think>\n")
    summary, _ = run(place, tmp_path / "out", model=str(tmp_path / "thinker"), benchmarks=["aime24"])
    assert summary["benchmarks"]["aime24"]["correct"]["accuracy"] == 0.0
    assert summary["benchmarks"]["aime24"]["correct_qwen"]["accuracy"] > 0  # a box in the thinking counts there


def test_a_finished_run_loads_no_model_and_gives_its_table_again(place, whole, monkeypatch):
    def load(*arguments):
        raise AssertionError("a model was loaded")

    before, content = lines(whole), (whole / "summary.json").read_bytes()
    monkeypatch.setattr(run_module, "load_backend", load)
    _, said = run(place, whole)
    assert lines(whole) == before
    assert (whole / "summary.json").read_bytes() == content
    assert "10 problems x 3 completions" in said
    assert "30 are there" in said


def test_problems_without_a_gold_count_for_the_script_alone(place, tmp_path, scripted):
    summary, _ = run(place, tmp_path, benchmarks=["gaokao2023en"], max_problems=None, num_samples=1)
    found = summary["benchmarks"]["gaokao2023en"]
    assert (found["problems"], found["correct"]["problems"], found["correct_qwen"]["problems"]) == (385, 383, 385)
    assert found["correct"]["accuracy"] == 1.0
    assert found["correct_qwen"]["accuracy"] == 383 / 385  # an empty answer would be right
    assert (
        "2 completions are not judged: `correct` cannot grade against their golds"
        in (tmp_path / "table.md").read_text()
    )


@pytest.mark.parametrize(("kept", "torn"), [(0, 0), (1, 0), (5, 2), (13, 0), (29, 40), (30, 1)])
def test_a_run_goes_on_with_the_very_answers_that_it_would_have_drawn(place, whole, tmp_path, kept, torn):
    (tmp_path / "settings.json").write_bytes((whole / "settings.json").read_bytes())
    content = (whole / "samples.jsonl").read_bytes().splitlines(keepends=True)
    # scattered, as a backend that finishes out of order would leave them, the last line torn
    left = b"".join(content[:: -1 if kept % 2 else 1][:kept])
    (tmp_path / "samples.jsonl").write_bytes(left[: len(left) - torn])
    run(place, tmp_path)
    assert lines(tmp_path) == lines(whole)


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
        run_evaluation(EvaluationSettings(**{settings!r}), folder, say=lambda text: None, progress=False)
        os._exit(0)
    return pid
samples, killed_at = folder / "samples.jsonl", []
for _ in range(3):
    pid, wanted = child(), (samples.stat().st_size if samples.exists() else 0) + random.randrange(1, {step})
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if samples.exists() and samples.stat().st_size >= wanted:
            time.sleep(random.random() * 0.05)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            killed_at.append(samples.stat().st_size)
            break
        time.sleep(0.002)
os.waitpid(child(), 0)
print(killed_at)
"""


def test_a_run_killed_at_random_moments_ends_with_the_answers_of_one_that_was_not(place, whole, tmp_path):
    size = (whole / "samples.jsonl").stat().st_size
    code = KILLER.format(
        folder=str(tmp_path),
        seed=time.time_ns() % 1000,
        settings={"model": str(place / "model"), "data_dir": str(place), "benchmarks": ["aime24", "amc23"]} | QUICK,
        step=size // 4,
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    killed_at = json.loads(done.stdout.splitlines()[-1])
    assert len(killed_at) == 3, done.stderr
    assert killed_at[0] < size
    assert lines(tmp_path) == lines(whole)
    assert (tmp_path / "summary.json").read_bytes() == (whole / "summary.json").read_bytes()


def test_answers_that_are_there_get_this_versions_verdicts_where_that_is_asked_for(place, whole, tmp_path, scripted):
    run(place, tmp_path, max_problems=2)
    samples = tmp_path / "samples.jsonl"
    right = samples.read_text()
    # as a grader of another version would have left them, the last answer not yet drawn
    old = right.replace('"correct": true', '"correct": null').replace('"answer": "5"', '"answer": "?"')
    samples.write_text("".join(old.splitlines(keepends=True)[:-1]))
    summary, said = run(place, tmp_path, max_problems=2)
    assert summary["benchmarks"]["aime24"]["not_judged"] == 3
    assert "judged again" not in said
    summary, said = run(place, tmp_path, max_problems=2, judge_again=True)
    assert "12 completions judged again." in said
    assert summary["benchmarks"]["aime24"]["correct"]["accuracy"] == 0.5
    assert samples.read_text() == right
    assert len(scripted) == 2  # the second drew what was missing, the third nothing


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 1}, "`seed` is 0 there and 1 here"),
        ({"temperature": 1.0}, "`temperature` is 0.4 there and 1.0 here"),
        ({"num_samples": 2}, "`num_samples` is 3 there and 2 here"),
        ({"max_problems": 4}, "`max_problems` is 5 there and 4 here; `data.aime24.problems` is 5 there and 4 here"),
        ({"benchmarks": ["aime24"]}, "`benchmarks`"),
        ({"system_prompt": None}, "`system_prompt`"),
        ({"batch_size": 3}, "`batch_size` is 4 there and 3 here"),
    ],
)
def test_other_settings_are_refused_and_named(place, whole, changes, words):
    before = lines(whole)
    with pytest.raises(UserError) as refused:
        run(place, whole, **changes)
    assert words in str(refused.value)
    assert "Name another `--output_dir`" in str(refused.value)
    assert lines(whole) == before


def test_another_model_in_the_same_place_and_other_data_are_refused(place, tmp_path, scripted):
    write_model(tmp_path / "model")
    write_data(tmp_path, ["aime24"])
    where = {"model": str(tmp_path / "model"), "data_dir": str(tmp_path), "benchmarks": ["aime24"]}
    run(place, tmp_path / "out", **where)
    file = tmp_path / "math" / "aime24" / "test.jsonl"
    file.write_text(file.read_text().replace("005", "6"))
    with pytest.raises(UserError, match=r"`data.aime24.digest`"):
        run(place, tmp_path / "out", **where)
    write_data(tmp_path, ["aime24"])
    write_model(tmp_path / "model", seed=1)
    with pytest.raises(UserError, match="`fingerprint`"):
        run(place, tmp_path / "out", **where)


def test_a_file_that_is_not_its_own_is_refused(place, whole, tmp_path):
    content = (whole / "samples.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "samples.jsonl").write_bytes(content[0])
    with pytest.raises(UserError, match=r"has no settings\.json"):
        run(place, tmp_path)
    (tmp_path / "settings.json").write_bytes((whole / "settings.json").read_bytes())
    for broken, words in [
        ([content[0], b'{"benchmark": "aime24"}\n'], "line 2 was not written by this version"),
        ([content[0], b"5\n"], "line 2 was not written by this version"),
        ([content[0], b"nonsense\n", content[1]], "line 2 was not written by this version"),
        ([content[0], content[1], content[0]], "line 3 was not written by this version, or repeats an answer"),
    ]:
        (tmp_path / "samples.jsonl").write_bytes(b"".join(broken))
        with pytest.raises(UserError, match=words):
            run(place, tmp_path)
        assert (tmp_path / "samples.jsonl").read_bytes() == b"".join(broken)


def test_a_local_model_may_be_moved_with_its_answers(tmp_path):
    with open_samples(tmp_path, {"model": "runs/a", "fingerprint": "1", "seed": 0}):
        pass
    with open_samples(tmp_path, {"model": "moved/a", "fingerprint": "1", "seed": 0}):
        pass
    for other in ({"fingerprint": "2"}, {"fingerprint": None}):
        with (
            pytest.raises(UserError, match="`fingerprint` is '1' there"),
            open_samples(tmp_path, {"seed": 0, **other}),
        ):
            pass


def test_one_process_at_a_time_works_in_a_directory(tmp_path):
    def work(folder):
        with open_samples(folder, {}):
            pass

    with open_samples(tmp_path, {}), pytest.raises(UserError, match="Another evaluation is at work"):
        work(tmp_path)
    work(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        work(tmp_path / "file" / "x")


def test_batches_with_something_missing_are_asked_whole():
    problems = [Problem("aime24", number, "?", "1") for number in range(3)] + [Problem("amc23", 0, "?", "1")]
    prompts = EncodedPrompts([[1, 2, 3], [1], [1, 2], [1]], [False] * 4)
    chosen = EvaluationSettings(model="x", benchmarks=["amc23", "aime24"], num_samples=2)
    units = list_units(chosen, problems, prompts)
    keys = [key for unit in units for key in unit.keys]
    assert keys == [
        *(("amc23", 0, sample) for sample in (0, 1)),
        *(("aime24", problem, sample) for problem in (1, 2, 0) for sample in (0, 1)),
    ]
    done = {keys[0], keys[1], keys[2], keys[4], keys[7]}
    assert pending_batches(units, done, 3) == [units[3:6], units[6:8]]
    assert pending_batches(units, done, None) == [[units[3], units[5], units[6]]]
    assert pending_batches(units, set(keys), None) == pending_batches(units, set(keys), 3) == []


def test_no_two_answers_share_a_seed_and_each_seed_fits_31_bits():
    seeds = [
        sample_seed(seed, name, problem, sample)
        for seed in (0, 1)
        for name in ("aime24", "amc23")
        for problem in range(100)
        for sample in range(4)
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert sample_seed(0, "aime24", 0, 1) == sample_seed(0, "aime24", 0, 1)


def test_a_study_gets_accuracy_and_length_and_its_samples_stay_with_the_model(place, tmp_path, scripted, monkeypatch):
    model = write_model(tmp_path / "model")
    knobs = {"data_dir": str(place), "backend": "transformers", "num_samples": 1, "max_problems": 2}
    found = evaluate(model, benchmarks="aime24,amc23", max_new_tokens=30, **knobs)
    length, longer = len("so \\boxed{5}"), len("\\boxed{\\frac{3}{2}}")
    assert found == {
        "aime24": {"accuracy": 0.5, "length_tokens": length, "area": pytest.approx(0.5 * (1 - length / 30))},
        # rows 0 and 20 are the same
        "amc23": {"accuracy": 1.0, "length_tokens": longer, "area": pytest.approx(1 - longer / 30)},
    }
    assert evaluate(model, benchmarks=["aime24", "amc23"], max_new_tokens=30, **knobs) == found
    assert len(scripted) == 1  # the second time nothing was left to draw
    write_model(model, seed=1)
    evaluate(model, benchmarks=["aime24", "amc23"], max_new_tokens=30, **knobs)
    assert len(scripted) == 2
    assert len(list((model / "evaluation").glob("*/samples.jsonl"))) == 2
    for vllm in (None, "here"):  # installed since: with transformers' settings its completions would be refused
        monkeypatch.setattr(run_module, "find_spec", lambda name, found=vllm: found)
        evaluate(model, benchmarks=["aime24"], max_new_tokens=30, **knobs | {"backend": "auto"})
    with pytest.raises(UserError, match="`verdict` is 'right'"):
        evaluate(model, verdict="right")
    for name in ("model", "output_dir"):  # the second model would be refused in the first one's folder
        with pytest.raises(UserError, match=f"^`{name}`: a study "):
            check_evaluate(["aime24"], **{name: "x"})
    with pytest.raises(UserError, match="`num_sample` is not known"):
        evaluate(model, num_sample=2)
    with pytest.raises(UserError, match="`evaluation`: `num_samples`: expected int, got str 'four'"):
        evaluate(model, num_samples="four")


def test_a_studys_answers_of_a_hub_model_stay_in_the_usual_folder(place, tmp_path, scripted, monkeypatch):
    monkeypatch.chdir(tmp_path)
    facts = read_model(settings(place))
    monkeypatch.setattr(run_module, "read_model", lambda chosen: facts)
    for _ in range(2):
        evaluate(
            "org/Base-7B", "aime24", data_dir=str(place), backend="transformers", max_problems=2, max_new_tokens=9
        )
    assert len(scripted) == 1
    assert len(list(Path("runs/evaluation/org_Base_7B").glob("*/samples.jsonl"))) == 1


def test_a_study_asks_whether_its_model_can_be_measured_before_it_is_trained(place):
    fields = {"model_name_or_path": str(place / "model"), "dataset_name": "d", "output_dir": "o"}
    recipe = make_recipe(fields, "the study")
    settings = {"function": "trl_ces.lab.evaluation.run.evaluate", "benchmarks": "aime24", "data_dir": str(place)}
    check_evaluation({**settings, "max_new_tokens": 30, "backend": "transformers"}, recipe)
    with pytest.raises(UserError, match=r"takes 1024 tokens, .* `max_new_tokens` is 16384"):
        check_evaluation({**settings, "backend": "transformers"}, recipe)


def test_a_grader_that_cannot_give_both_verdicts_is_refused_first(place, tmp_path, monkeypatch):
    def grade_many(*arguments, **keywords):
        raise RuntimeError("install another antlr")

    monkeypatch.setattr(run_module, "grade_many", grade_many)
    with pytest.raises(UserError, match="install another antlr"):
        run(place, tmp_path, model="no-one/nothing")


def test_a_missing_set_is_named_before_the_model_is_looked_for(place, monkeypatch, tmp_path):
    with pytest.raises(UserError, match=r"svamp: .* does not exist"):
        run(place, tmp_path, model="no-one/nothing", benchmarks=["svamp"])
    assert os.listdir(tmp_path) == []
