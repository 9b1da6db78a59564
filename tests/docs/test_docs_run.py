"""Every command in the docs parses and is run at a small size, or docs_table.py says why not.

A training's process is this one: what starts processes is tested in test_cli.py, and importing TRL takes seconds.
"""

import io
import json
import os
import re
import shlex
import shutil
import sys
import tomllib
from contextlib import redirect_stdout, suppress
from functools import cache, partial
from pathlib import Path

import pytest
import yaml
from code_sandbox import CANNOT
from docs_blocks import BLOCK, DOCS, OTHERS, PAGES, SHELLS, blocks, cases, commands, functions_of, write_tutorial
from docs_table import NOT_RUN, RUN
from fixtures_evaluation import write_data, write_model
from report_runs import POINTS, write_evaluation, write_study, write_training
from trl_ces.lab.commands import bench

from trl_ces.cli import train_worker
from trl_ces.cli.main import COMMANDS, main
from trl_ces.lab.study import quickstart
from trl_ces.lab.tasks.arithmetic_model import build_base_model
from trl_ces.support.yaml import dump_yaml
from trl_ces.train import launch
from trl_ces.train.arguments import accelerate_flags, read_words
from trl_ces.train.launch import WORKER, read_accelerate_config
from trl_ces.train.lookup import find_reward_functions
from trl_ces.train.recipe import compose, find_config, load_recipe, recipe_fields

ROOT = Path(__file__).parents[2]
STUDY = {
    "output_dir": "runs/study/small",
    "seeds": [0],
    "baseline": "DAPO",
    "methods": {"DAPO": {"config": ["arithmetic", "dapo"]}, "CES": {"config": "arithmetic"}},
    "overrides": {
        "model_name_or_path": "runs/arithmetic/base",
        "max_steps": 2,
        "logging_steps": 1,
        "per_device_train_batch_size": 32,
        "steps_per_generation": 1,
    },
    "evaluation": {
        "function": "trl_ces.lab.tasks.arithmetic_evaluation.evaluate",
        "num_problems": 4,
        "num_samples": 2,
    },
}


def words_of(line):
    """The command's words, and its environment variables."""
    words, variables = shlex.split(line.removeprefix(".venv/bin/")), {}
    while "=" in words[0]:
        name, _, variables[name] = words.pop(0).partition("=")
    return words, variables


def here(line, how):
    """`line` as it is run here."""
    for part, other in how.replaced.items():
        assert line.count(part) == 1, f"{part!r} stands {line.count(part)} times in {line!r}"
        line = line.replace(part, other)
    return f"{line} {how.added}"


# The tables


def test_every_command_of_the_documentation_is_run_or_excepted():
    written = {(words[0].removeprefix(".venv/bin/"), *words[1:]) for words in (case.values[0] for case in cases())}
    known = [tuple(shlex.split(line)) for line in (*RUN, *NOT_RUN)]
    assert len(known) == len(set(known)) > 50
    assert written - set(known) == set(), "put it into RUN or NOT_RUN of tests/docs_table.py"
    assert set(known) - written == set(), "no page has it any more"


def test_a_reason_that_is_a_test_names_one_that_exists():
    named = [reason.split("::") for reason in NOT_RUN.values() if "::" in reason]
    assert named
    for file, name in named:
        assert name in functions_of(file)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_block_hides_its_commands(page):
    assert len(blocks(page, *SHELLS, *OTHERS)) == len(re.findall("^ *```", page.read_text("utf-8"), re.MULTILINE)) / 2


# Running


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Small versions of what a reader has by then: models, data, runs."""
    folder = tmp_path_factory.mktemp("reader")
    os.symlink(ROOT / "recipes", folder / "recipes")
    shutil.copy(ROOT / "recipes" / "models" / "R1-1.5B.yaml", folder / "my.yaml")
    reward = next(block for block in blocks(DOCS / "recipes.md", "python") if "reward" in block)
    (folder / "my_rewards.py").write_text(reward, encoding="utf-8")
    shutil.copy(DOCS / "examples" / "my_rule.py", folder / "my_rule.py")
    write_tutorial(folder)
    (folder / "small_study.yaml").write_text(yaml.safe_dump(STUDY))
    problems = [{"question": f"{n}+{n}=?", "final_answer": str(2 * n)} for n in range(24)]
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in problems))
    (folder / "gsm8k").mkdir()
    rows = [{"question": row["question"], "answer": f"so\n#### {row['final_answer']}"} for row in problems]
    (folder / "gsm8k" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_data(folder / "data")
    write_model(folder / "tiny")
    base = folder / "runs" / "arithmetic" / "base"
    build_base_model(base, steps=2)
    for name in ("base30", "base45", "ces45", "ces"):
        shutil.copytree(base, folder / "runs" / name)
    for name, right in (("base_eval", False), ("ces_eval", True)):
        write_evaluation(folder / "runs" / name, {"gsm8k": [[(right, 5)], [(True, 9)]]})
    study = write_study(folder / "runs" / "study" / "arithmetic", name="arithmetic")
    for cell, names in (("ces", []), ("dapo", ["dapo"]), ("ces_w_o_dynamic_b", ["ces_without_dynamic_b"])):
        shutil.copytree(base, study / cell / "seed-0")
        recipe = dump_yaml(compose(["arithmetic", *names]))
        (study / cell / "seed-0" / "recipe.yaml").write_text(recipe)
        write_training(study / cell / "seed-0", POINTS)
    return folder


@pytest.fixture
def reader(prepared, tmp_path, monkeypatch):
    """A reader's working directory, for one command."""
    for place in prepared.iterdir():
        if place.name == "runs":
            shutil.copytree(place, tmp_path / "runs")
        else:
            os.symlink(place, tmp_path / place.name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    return tmp_path


@pytest.fixture
def one_process(monkeypatch):
    """`trl-ces train` trains in this process, and the quickstart is small."""

    def train_here(command, env):
        assert command[:3] == [sys.executable, "-m", WORKER]
        for name, value in env.items():
            monkeypatch.setenv(name, str(value))
        return train_worker.main(command[3:])

    monkeypatch.setattr(launch, "run_child", train_here)
    small = partial(quickstart.quickstart, base_steps=20, rl_steps=4, num_problems=4)
    monkeypatch.setattr(quickstart, "quickstart", small)


def run(words):
    """Runs the program in this process; returns its exit code."""
    if words[0] == "trl-ces":
        return main(words[1:])
    assert words[:2] == ["python", "-c"]
    exec(compile(words[2], "-c", "exec"), {})
    return 0


def run_cases():
    for line, how in RUN.items():
        marks = [pytest.mark.slow] if how.slow else []
        if "allow_code_execution" in line:
            marks.append(pytest.mark.skipif(bool(CANNOT), reason=CANNOT))
        yield pytest.param(line, how, marks=marks, id=line[:90])


@pytest.mark.parametrize(("line", "how"), run_cases())
def test_a_command_of_the_documentation_runs(line, how, reader, one_process, capsys, monkeypatch):
    words, variables = words_of(here(line, how))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    code = run(words)
    said = capsys.readouterr()
    assert code == 0, said.err[-2000:]
    for pattern in how.leaves:
        assert list(reader.glob(pattern)), f"{pattern} is missing"
    assert re.search(how.says, said.out, re.MULTILINE), said.out[-2000:]
    for state in reader.glob("**/trainer_state.json"):
        if "train" in words[1] and "runs/study" not in str(state):
            assert json.loads(state.read_text())["global_step"] == 2


def test_the_tutorial_runs_from_its_first_line_to_its_last(prepared, one_process, tmp_path, monkeypatch, capsys):
    """Its own files and commands in one folder; a tiny model in the place of SmolLM2, 2 steps, few prompts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write_tutorial(tmp_path)
    cpu = yaml.safe_load(Path("cpu.yaml").read_text())
    cpu |= {"model_name_or_path": str(prepared / "tiny"), "model_builder": None, "max_completion_length": 16}
    Path("cpu.yaml").write_text(yaml.safe_dump(cpu))
    small = {
        "inspect": ["--num_prompts", "3"],
        "plan": ["--model_config", str(prepared / "tiny")],  # of a model of the Hub
        "train": ["--max_steps", "2", "--logging_steps", "1"],
    }
    said = {}
    for words in (words for block in blocks(DOCS / "tutorial.md", "bash") for words in commands(block)):
        if words[0] == "python":
            exec(compile(Path(words[1]).read_text(), words[1], "exec"), {})
        else:
            assert main([*words[1:], *small.get(words[1], [])]) == 0
            said[words[1]] = capsys.readouterr().out
    rows = [len(Path(name).read_text().splitlines()) for name in ("problems.jsonl", "test.jsonl")]
    assert rows == [200, 56]
    assert [*said] == ["inspect", "plan", "train"]
    assert "tokens that CES shapes" in said["inspect"]
    assert "Fits: " in said["plan"]
    assert json.loads(Path("runs/mine/trainer_state.json").read_text())["global_step"] == 2


def test_the_builder_of_text_prompts_serves_a_base_model(one_process, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write_tutorial(tmp_path)
    exec(compile(Path("make_problems.py").read_text(), "make_problems.py", "exec"), {})
    words = ["--config", "mine.yaml", "cpu.yaml", "base.yaml", "--model_builder", "null", "--model_name_or_path"]
    words += [str(write_model(tmp_path / "base", chat_template=None)), "--max_completion_length", "16"]
    assert main(["inspect", *words, "--num_prompts", "2"]) == 0
    assert "16 completions (2 prompts x 8)" in capsys.readouterr().out
    assert main(["train", *words, "--max_steps", "2", "--logging_steps", "1"]) == 0
    log = json.loads(Path("runs/mine-cpu-base/trainer_state.json").read_text())["log_history"]
    assert "rewards/last_number_accuracy_reward/mean" in log[0]
    assert (
        main(
            ["train", *words, "--dataset_builder", "null", "--dataset_kwargs", "null", "--dataset_name", "test.jsonl"]
        )
        == 2
    )
    assert "has no chat template" in capsys.readouterr().err


# Parsing: what the runs above leave out or change


def read_recipe_words(words):
    """As `trl-ces train` does, up to looking for GPUs, vLLM and data."""
    line = read_words(words)
    recipe = load_recipe(line.config, line.overrides)
    launch = {}
    if line.accelerate_config is not None:
        launch = read_accelerate_config(find_config(line.accelerate_config, "accelerate"))
    processes = int(line.accelerate_flags.get("num_processes", [launch.get("num_processes", 1)])[0])
    recipe.check_training(processes)
    find_reward_functions(recipe)


def read_make(words):
    makefile = (ROOT / "Makefile").read_text()
    for word in words:
        name, equals, _ = word.partition("=")
        assert re.search(rf"^{name} \?=" if equals else rf"^{name}:", makefile, flags=re.MULTILINE), word


def read_pip(words):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert words[0] == "install"
    for word in words[1:]:
        named = re.fullmatch(r"(?:trl_ces|\.)\[([\w,]+)\]", word)
        assert set(named[1].split(",") if named else []) <= set(extras), word
        assert named or word in ("-e", "-c", ".", "torch") or (ROOT / word).is_file(), word


@pytest.mark.parametrize("words", cases())
def test_a_command_of_the_documentation_is_one_that_its_program_takes(words, reader):
    words, _ = words_of(shlex.join(words))
    if words[:2] == ["trl-ces", "train"]:
        read_recipe_words(words[2:])
    elif words[0] in ("make", "pip"):
        {"make": read_make, "pip": read_pip}[words[0]](words[1:])


@cache
def flags_of(*command):
    """Flags in a command's help or accepted by its recipe."""
    said = io.StringIO()
    with redirect_stdout(said), suppress(SystemExit):  # argparse prints its help and leaves
        main([*command, "--help"])
    takes_recipe = command[0] in ("train", "plan", "inspect")
    return {"help", *re.findall(r"--(\w+)", said.getvalue())} | (
        {*recipe_fields(), *accelerate_flags(), "config", "accelerate_config"} if takes_recipe else set()
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_command_in_the_text_has_its_name_and_its_flags(page):
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for command, rest in re.findall(r"`trl-ces (\w+)([^`]*)`", text):
        assert command in COMMANDS or command == "COMMAND"
        flags = set(re.findall(r"--(\w+)", rest))
        benchmark = [word for word in rest.split()[:1] if command == "bench" and word in bench.benchmarks()]
        assert not flags or flags <= flags_of(command, *benchmark), f"{command} {rest}"
