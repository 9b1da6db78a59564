"""`trl-ces eval` from the outside: its options, its recipes, its table, and what it refuses before loading a model."""

import dataclasses
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from fixtures_evaluation import write_data, write_model

from trl_ces.cli.main import main
from trl_ces.lab.evaluation.benchmarks import GROUPS
from trl_ces.lab.evaluation.settings import EvaluationSettings, default_folder, read_settings
from trl_ces.support.errors import UserError
from trl_ces.support.prompts import PAPER_SYSTEM_PROMPT
from trl_ces.support.yaml import read_yaml
from trl_ces.train.recipe import find_config, shipped_files

RECIPES = Path(__file__).parents[3] / "recipes" / "evaluation"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eval")
    write_data(folder, ["aime24", "amc23", "openbookqa"])
    write_model(folder / "model")
    (folder / "empty").mkdir()
    (folder / "broken.yaml").write_text("num_sample: 3\n")
    (folder / "typed.yaml").write_text("num_samples: many\n")
    return folder


def test_the_defaults_and_the_shipped_recipe_are_the_papers():
    paper = read_settings(find_config("paper", kind="evaluation"), {"model": ["m"]})
    stated = {"num_samples": 4, "temperature": 0.4, "top_p": 0.95, "repetition_penalty": 1.05}
    assert {name: getattr(paper, name) for name in stated} == stated
    assert paper.system_prompt == PAPER_SYSTEM_PROMPT
    assert paper.benchmarks == GROUPS["math12"]
    assert paper == EvaluationSettings(model="m", benchmarks=["math12"])


@pytest.mark.parametrize("file", sorted(RECIPES.glob("*.yaml")), ids=lambda file: file.name)
def test_every_shipped_recipe_is_read_and_says_how_to_start_it(file):
    settings = read_settings(file, {"model": ["m"]})
    rivals = ["aime24", "amc23", "minerva_math", "olympiadbench"]
    assert settings.benchmarks in (GROUPS["math12"], GROUPS["reasoning"], GROUPS["code"], rivals)
    header = [line for line in file.read_text().splitlines() if line.startswith("#")]
    assert f"trl-ces eval --config {file.stem} --model MODEL" in "\n".join(header)
    assert shipped_files("evaluation")[file.stem] == file
    assert file.stem not in shipped_files()  # no training recipe
    if file.stem == "dot_protocol":
        assert (settings.num_samples, settings.max_new_tokens) == (32, 32768)
        assert (settings.temperature, settings.top_p, settings.top_k) == (0.6, 0.95, 20)
    assert set(read_yaml(file)) <= {knob.name for knob in dataclasses.fields(EvaluationSettings)}


def test_words_of_the_command_line_override_the_file(tmp_path):
    (tmp_path / "x.yaml").write_text("benchmarks: [aime24, amc23]\nnum_samples: 2\ntemperature: 1\nseed: 5\n")
    words = {"model": ["m"], "num_samples": ["8"], "system_prompt": ["null"], "max_problems": ["3"]}
    settings = read_settings(tmp_path / "x.yaml", words)
    assert (settings.num_samples, settings.temperature, settings.seed) == (8, 1.0, 5)
    assert (settings.system_prompt, settings.max_problems) == (None, 3)
    assert settings.benchmarks == ["aime24", "amc23"]
    given = read_settings(None, {"model": ["m"], "benchmarks": ["gsm8k,svamp", "cmath"]})
    assert given.benchmarks == ["gsm8k", "svamp", "cmath"]


def test_a_tiny_model_is_evaluated_from_data_to_table(place, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--model", place / "model", "--benchmarks", "aime24,amc23,openbookqa", "--data_dir", place]
    words += ["--backend", "transformers", "--num_samples", "2", "--max_problems", "3", "--max_new_tokens", "12"]
    assert main(["eval", *map(str, words)]) == 0
    said = capsys.readouterr()
    folder = Path("runs") / "evaluation" / default_folder(str(place / "model")).name
    summary = json.loads((folder / "summary.json").read_text())
    rows = [line.split("|")[1].strip() for line in said.out.splitlines() if line.startswith("| ")]
    within = ["Acc ↑ within", "AIME24", "AMC23", "OpenBookQA"]
    assert rows == ["Dataset", "AIME24", "AMC23", "Average", "OpenBookQA", *within]
    assert summary["benchmarks"]["aime24"]["budgets"]["correct"]["budgets"] == [1, 3, 6, 12]
    assert (folder / "budgets.png").is_file() == (find_spec("matplotlib") is not None)
    assert summary["benchmarks"]["openbookqa"]["samples"] == 6
    assert 0 < summary["benchmarks"]["aime24"]["length_tokens"]["mean"] <= 12
    assert (folder / "table.md").read_text() in said.out
    assert f"Answers: {folder / 'samples.jsonl'}" in said.out
    assert "9 problems x 2 completions" in said.err
    assert "tokens/s" in said.err
    settings = json.loads((folder / "settings.json").read_text())
    assert (settings["backend"], settings["data"]["aime24"]["problems"]) == ("transformers", 3)


OK = ["--model", "MODEL", "--benchmarks", "aime24", "--data_dir", "DATA", "--backend", "transformers"]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--benchmarks", "aime24"], ["No model is named", "`--model`"]),
        (["--model", "MODEL"], ["`benchmarks` is empty", "math12"]),
        (["--model", "MODEL", "--benchmarks", "aime"], ["'aime'", "Did you mean `aime24`?"]),
        (["--model", "MODEL", "--benchmarks", "svamp"], ["svamp", "`--data_dir`"]),
        (["--model", "MODEL", "--benchmarks", "svamp", "--data_dir", "DATA"], ["svamp/test.jsonl does not exist"]),
        (["--model", "./nowhere", "--benchmarks", "aime24"], ["'./nowhere' holds no config.json"]),
        (["--model", "DATA/empty", "--benchmarks", "aime24"], ["holds no config.json"]),
        ([*OK, "--num_samples", "0"], ["`num_samples` is 0", "at least 1"]),
        ([*OK, "--num_samples", "two"], ["`--num_samples`", "expected int, got str 'two'"]),
        ([*OK, "--max_problems", "0"], ["`max_problems` is 0"]),
        ([*OK, "--temperature", "-1"], ["`temperature` is -1.0"]),
        ([*OK, "--top_p", "0"], ["`top_p` is 0.0"]),
        ([*OK, "--repetition_penalty", "0"], ["`repetition_penalty` is 0.0"]),
        ([*OK, "--seed", "-1"], ["`seed` is -1"]),
        ([*OK, "--gpu_memory_utilization", "1.5"], ["`gpu_memory_utilization` is 1.5"]),
        ([*OK, "--backend", "vlm"], ["`--backend`", "vllm"]),
        ([*OK, "--data_parallel_size", "2"], ["`data_parallel_size` is 2", "vLLM"]),
        ([*OK, "--num_sample", "2"], ["--num_sample", "--help"]),
        ([*OK, "--max_new_tokens", "2000"], ["takes 1024 tokens", "`--max_new_tokens` to at most"]),
        ([*OK, "--config", "papr"], ["evaluation papr does not exist", "Did you mean `paper`?"]),
        ([*OK, "--config", "DATA/broken.yaml"], ["broken.yaml: the key `num_sample`", "Did you mean `num_samples`?"]),
        ([*OK, "--config", "DATA/typed.yaml"], ["typed.yaml: `num_samples`", "expected int, got str 'many'"]),
        ([*OK, "--max_new_tokens", "9", "--output_dir", "DATA/broken.yaml"], ["`--output_dir`", "cannot be written"]),
    ],
)
def test_what_cannot_be_evaluated_is_refused_in_one_sentence_before_weights_are_loaded(
    place, tmp_path, capsys, monkeypatch, words, parts
):
    def load(*arguments, **keywords):
        raise AssertionError("weights were loaded")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", load)
    monkeypatch.chdir(tmp_path)
    words = [word.replace("MODEL", str(place / "model")).replace("DATA", str(place)) for word in words]
    assert main(["eval", *words]) == 2
    said = capsys.readouterr()
    refusal = [line for line in said.err.splitlines() if line.startswith("trl-ces eval: error: ")]
    assert len(refusal) == 1
    assert said.out == ""
    for part in parts:
        assert part in refusal[0]
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_knob_with_its_default(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["eval"])
    assert stopped.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    for knob in dataclasses.fields(EvaluationSettings):
        assert f"--{knob.name} " in said
    assert "completions per problem (default 4)" in said
    assert "trl-ces compare" in said


def test_a_local_model_lends_its_last_two_names_to_the_output(tmp_path):
    (tmp_path / "ces" / "seed-0").mkdir(parents=True)
    assert default_folder(str(tmp_path / "ces" / "seed-0")) == Path("runs/evaluation/ces_seed_0")
    assert default_folder("org/Model-7B") == Path("runs/evaluation/org_Model_7B")


def test_settings_made_in_python_are_checked_too():
    with pytest.raises(UserError, match="`temperature` is nan"):
        EvaluationSettings(model="m", benchmarks=["aime24"], temperature=float("nan"))
