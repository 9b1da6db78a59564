"""`trl-ces eval`: options, recipes, the result table, and errors raised before a model is loaded."""

import dataclasses
import json
from pathlib import Path

import pytest
from fixtures_evaluation import ScriptedBackend, write_data, write_model

from trl_ces.cli.main import main
from trl_ces.lab.evaluation.benchmarks import GROUPS
from trl_ces.lab.evaluation.settings import EvaluationSettings, default_folder, read_settings
from trl_ces.support.errors import UserError
from trl_ces.support.prompts import PAPER_SYSTEM_PROMPT
from trl_ces.train.recipe import find_config, shipped_files


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eval")
    write_data(folder, ["aime24", "amc23", "openbookqa"])
    write_model(folder / "model")
    (folder / "broken.yaml").write_text("num_sample: 3\n")
    (folder / "typed.yaml").write_text("num_samples: many\n")
    return folder


def test_defaults_and_shipped_recipe_match_the_paper():
    paper = read_settings(find_config("paper", kind="evaluation"), {"model": "m"})
    paper_values = {"num_samples": 4, "temperature": 0.4, "top_p": 0.95, "repetition_penalty": 1.05}
    assert {name: getattr(paper, name) for name in paper_values} == paper_values
    assert paper.system_prompt == PAPER_SYSTEM_PROMPT
    assert paper.benchmarks == GROUPS["math12"]
    assert paper == EvaluationSettings(model="m", benchmarks=["math12"])


@pytest.mark.parametrize("name", shipped_files("evaluation"))
def test_every_shipped_recipe_is_valid(name):
    settings = read_settings(find_config(name, kind="evaluation"), {"model": "m"})
    assert settings.benchmarks
    assert name not in shipped_files()  # not a training recipe


def test_options_override_the_file(tmp_path):
    (tmp_path / "x.yaml").write_text("benchmarks: [aime24, amc23]\nnum_samples: 2\ntemperature: 1\nseed: 5\n")
    options = {"model": "m", "num_samples": "8", "system_prompt": "null", "max_problems": "3", "top_p": "5e-1"}
    settings = read_settings(tmp_path / "x.yaml", options)
    assert (settings.num_samples, settings.temperature, settings.seed, settings.top_p) == (8, 1, 5, 0.5)
    assert (settings.system_prompt, settings.max_problems) == (None, 3)
    assert settings.benchmarks == ["aime24", "amc23"]
    from_command_line = read_settings(None, {"model": "m", "benchmarks": ["gsm8k,svamp", "cmath"]})
    assert from_command_line.benchmarks == ["gsm8k", "svamp", "cmath"]
    (tmp_path / "x.yaml").write_text("data: own.jsonl\n")
    settings = read_settings(tmp_path / "x.yaml", {"model": "m", "benchmarks": ["gsm8k"]})
    assert (settings.benchmarks, settings.data) == (["gsm8k"], None)


def test_tiny_model_is_evaluated_end_to_end(workspace, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args = ["--model", workspace / "model", "--benchmarks", "aime24,amc23,openbookqa", "--data_dir", workspace]
    args += ["--backend", "transformers", "--num_samples", "2", "--max_problems", "3", "--max_new_tokens", "12"]
    assert main(["eval", *map(str, args)]) == 0
    printed = capsys.readouterr()
    folder = Path("runs") / "evaluation" / default_folder(str(workspace / "model")).name
    summary = json.loads((folder / "summary.json").read_text())
    rows = [line.split("|")[1].strip() for line in printed.out.splitlines() if line.startswith("| ")]
    budget_rows = ["Acc ↑ within", "AIME24", "AMC23", "OpenBookQA"]
    assert rows == ["Dataset", "AIME24", "AMC23", "Average", "OpenBookQA", *budget_rows]
    assert list(summary["benchmarks"]["aime24"]["correct"]["budgets"]) == ["1", "3", "6", "12"]
    assert summary["benchmarks"]["openbookqa"]["samples"] == 6
    assert 0 < summary["benchmarks"]["aime24"]["length_tokens"]["mean"] <= 12
    assert (folder / "table.md").read_text() in printed.out
    assert "9 problems x 2 completions" in printed.err
    settings = json.loads((folder / "settings.json").read_text())
    assert (settings["backend"], settings["data"]["aime24"]["problems"]) == ("transformers", 3)


def test_evaluations_of_a_data_file_can_be_compared(workspace, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test.jsonl").write_text('{"question": "2+2=", "answer": 4}\n{"question": "3+3=", "answer": "6"}\n')
    args = ["--model", str(workspace / "model"), "--data", "test.jsonl", "--backend", "transformers"]
    args += ["--num_samples", "2", "--max_new_tokens", "12", "--config", "paper"]  # `--data` replaces `benchmarks`
    for name, answer in (("before", "5"), ("after", "6")):
        texts = {"2+2": "\\boxed{4}", "3+3": f"\\boxed{{{answer}}}"}
        load = lambda facts, *_, texts=texts: ScriptedBackend(facts.tokenizer, texts)  # noqa: E731
        monkeypatch.setattr("trl_ces.lab.evaluation.run.load_backend", load)
        assert main(["eval", *args, "--output_dir", name]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| Your problems"))
    assert row.split("|")[2].strip().startswith("50.0 [")  # before
    assert main(["compare", "before", "after"]) == 0
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("| Your problems")]
    assert [rows[0][2].strip()[:6], rows[0][4].strip()[:7], rows[1][2].strip()[:7]] == ["50.0 [", "100.0 [", "+50.0 ["]
    (tmp_path / "test.jsonl").write_text('{"question": "2+2=", "answer": 4}\n')
    assert main(["eval", *args, "--output_dir", "other"]) == 0
    assert main(["compare", "before", "other"]) == 2
    assert "before and other used different data problems" in capsys.readouterr().err


def test_the_model_is_read_before_the_benchmark(workspace, capsys, monkeypatch):
    monkeypatch.setattr("trl_ces.lab.evaluation.run.load_benchmark", lambda *_: pytest.fail("loaded"))
    (workspace / "no_tokenizer").mkdir()
    (workspace / "no_tokenizer" / "config.json").write_text("{}")
    assert main(["eval", "--model", str(workspace / "no_tokenizer"), "--benchmarks", "aime24"]) == 2
    assert "no_tokenizer' cannot be read: " in capsys.readouterr().err


RUN = ["--model", "MODEL", "--benchmarks", "aime24", "--data_dir", "DATA", "--backend", "transformers"]


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--benchmarks", "aime24"], ["No model is specified", "`--model`"]),
        (["--model", "MODEL"], ["`benchmarks` is empty", "math12"]),
        ([*RUN, "--data", "x.jsonl"], ["`data` and `benchmarks` are both set"]),
        (["--model", "MODEL", "--data", "gone.jsonl"], ["gone.jsonl does not exist", "check `--data`"]),
        (["--model", "MODEL", "--benchmarks", "aime"], ["'aime'", "Did you mean `aime24`?"]),
        (["--model", "MODEL", "--benchmarks", "svamp", "--data_dir", "DATA"], ["svamp/test.jsonl does not exist"]),
        (["--model", "./nowhere", "--benchmarks", "aime24"], ["'./nowhere' has no config.json", "`--model`"]),
        (["--model", "DATA/modle", "--benchmarks", "aime24"], ["modle' has no config.json", "/model`?"]),
        ([*RUN, "--num_samples", "0"], ["`num_samples` is 0", "at least 1"]),
        ([*RUN, "--num_samples", "true"], ["`num_samples` is True", "a whole number"]),
        ([*RUN, "--temperature", "true"], ["`temperature` is True"]),
        ([*RUN, "--seed", "true"], ["`seed` is True", "a whole number"]),
        ([*RUN, "--num_samples", "two"], ["`num_samples` is 'two'", "a whole number"]),
        ([*RUN, "--max_problems", "1.5"], ["`max_problems` is 1.5"]),
        ([*RUN, "--temperature", "-1"], ["`temperature` is -1"]),
        ([*RUN, "--top_p", "0"], ["`top_p` is 0"]),
        ([*RUN, "--seed", "-1"], ["`seed` is -1"]),
        ([*RUN, "--backend", "vlm"], ["`backend` is 'vlm'", "vllm"]),
        ([*RUN, "--allow_code_execution", "no"], ["`allow_code_execution` is 'no'", "true or false"]),
        ([*RUN, "--num_sample", "2"], ["--num_sample", "--help"]),
        ([*RUN, "--max_new_tokens", "2000"], ["context is 1024 tokens", "`--max_new_tokens` to at most"]),
        ([*RUN, "--config", "papr"], ["evaluation papr does not exist", "Did you mean `paper`?"]),
        ([*RUN, "--config", "DATA/broken.yaml"], ["broken.yaml: the key `num_sample`", "Did you mean `num_samples`?"]),
        ([*RUN, "--config", "DATA/typed.yaml"], ["`num_samples` is 'many'", "a whole number"]),
        ([*RUN, "--max_new_tokens", "9", "--output_dir", "DATA/broken.yaml"], ["`--output_dir`", "be written to"]),
    ],
)
def test_errors_are_one_line_and_precede_weight_loading(workspace, tmp_path, capsys, monkeypatch, args, parts):
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", None)
    monkeypatch.chdir(tmp_path)
    args = [word.replace("MODEL", str(workspace / "model")).replace("DATA", str(workspace)) for word in args]
    assert main(["eval", *args]) == 2
    printed = capsys.readouterr()
    (error,) = [line for line in printed.err.splitlines() if line.startswith("trl-ces eval: error: ")]
    assert printed.out == ""
    for part in parts:
        assert part in error
    assert list(tmp_path.iterdir()) == []


def test_help_lists_every_setting_with_its_default(capsys):
    assert main(["eval"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for setting in dataclasses.fields(EvaluationSettings):
        assert f"--{setting.name} " in printed
    assert "completions per problem (default 4)" in printed


def test_default_folder_is_named_after_the_last_two_path_parts(tmp_path):
    (tmp_path / "ces" / "seed-0").mkdir(parents=True)
    assert default_folder(str(tmp_path / "ces" / "seed-0")) == Path("runs/evaluation/ces_seed_0")
    assert default_folder("org/Model-7B") == Path("runs/evaluation/org_Model_7B")


def test_settings_created_in_python_are_validated():
    with pytest.raises(UserError, match="`temperature` is nan"):
        EvaluationSettings(model="m", benchmarks=["aime24"], temperature=float("nan"))
