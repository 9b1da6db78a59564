"""Check that commands in the docs have valid names and flags, and that all commands of the tutorial run."""

import io
import json
import re
import shlex
import sys
from contextlib import redirect_stdout, suppress
from functools import cache
from pathlib import Path

import pytest
import yaml
from docs_blocks import BLOCK, DOCS, PAGES, ROOT, blocks, commands, write_tutorial
from fixtures_evaluation import write_model

from trl_ces.cli.main import COMMANDS, main
from trl_ces.train import launch, worker
from trl_ces.train.launch import WORKER

# Flags of accelerate that occur in the docs.
LAUNCH = {"accelerate_config", "num_processes", "num_machines", "machine_rank", "main_process_ip", "rdzv_conf"}


def command_cases():
    for page in PAGES:
        for script in blocks(page, "bash", "sh", "text", ""):
            lines = [
                line
                for line in script.splitlines()
                if re.match(r"(?:[A-Z_]+=\S+ )*(?:trl-ces|python benchm|make) ", line)
            ]
            for args in commands("\n".join(lines)):
                yield pytest.param(args, id=f"{page.name}: {' '.join(args)[:80]}")


@cache
def flags_of(command):
    """Return the flags that a command accepts, including recipe fields."""
    output = io.StringIO()
    with redirect_stdout(output), suppress(SystemExit):
        main([command, "--help"])
    own_flags = {"help", *re.findall(r"--(\w+)", output.getvalue())}
    return own_flags | LAUNCH | (flags_of("train") if command in ("plan", "inspect") else set())


@pytest.mark.parametrize("args", command_cases())
def test_commands_in_code_blocks_have_valid_names_and_flags(args):
    while "=" in args[0]:
        args = args[1:]
    program, first, *rest = args
    flags = {word.removeprefix("--").partition("=")[0] for word in rest if word.startswith("--")}
    if program == "trl-ces":
        assert first in COMMANDS
        assert flags <= flags_of(first)
    elif program == "python":
        assert flags <= set(re.findall(r'"--(\w+)"', (ROOT / first).read_text(encoding="utf-8")))
    else:
        assert re.search(rf"^{first}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_text_have_valid_names_and_flags(page):
    if page.name == "results.md":  # this page names removed commands
        return
    for command, rest in re.findall(r"`trl-ces (\w+)([^`]*)`", BLOCK.sub("", page.read_text(encoding="utf-8"))):
        assert command in COMMANDS or command == "COMMAND"
        flags = set(re.findall(r"--(\w+)", rest))
        assert not flags or flags <= flags_of(command), f"{command} {rest}"


def test_the_make_targets_in_the_readme_exist():
    [block] = [block for block in blocks(ROOT / "README.md", "bash") if "make" in block]
    targets = [line.split()[1] for line in block.splitlines()]
    assert targets == ["quickstart", "test"]
    for target in targets:
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


@pytest.fixture
def one_process(monkeypatch):
    """Make `trl-ces train` run in this process instead of in a child process."""

    def run_in_process(command, env, signals=None):
        assert command[:4] == [sys.executable, "-P", "-m", WORKER]
        for name, value in env.items():
            monkeypatch.setenv(name, str(value))
        return worker.main(command[4:])

    monkeypatch.setattr(launch, "run_child", run_in_process)


def test_all_commands_of_the_tutorial_run(one_process, tmp_path, monkeypatch, capsys):
    """Run the tutorial with a tiny model, two training steps and few prompts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write_tutorial(tmp_path)
    tiny = str(write_model(tmp_path / "tiny"))
    cpu = yaml.safe_load(Path("cpu.yaml").read_text())
    cpu |= {"model_name_or_path": tiny, "model_builder": None, "max_completion_length": 16}
    Path("cpu.yaml").write_text(yaml.safe_dump(cpu))
    small = {
        "inspect": ["--num_prompts", "3"],
        "plan": ["--model_config", tiny],  # prevents a download from the Hub
        "train": ["--max_steps", "2", "--logging_steps", "1"],
    }
    outputs = {}
    for args in (args for block in blocks(DOCS / "tutorial.md", "bash") for args in commands(block)):
        if args[0] == "python":
            exec(compile(Path(args[1]).read_text(), args[1], "exec"), {})
        else:
            assert main([*args[1:], *small.get(args[1], [])]) == 0, shlex.join(args)
            outputs[args[1]] = capsys.readouterr().out
    rows = [len(Path(name).read_text().splitlines()) for name in ("problems.jsonl", "test.jsonl")]
    assert rows == [200, 56]
    assert [*outputs] == ["inspect", "plan", "train"]
    assert "tokens that CES shapes" in outputs["inspect"]
    assert "Fits: " in outputs["plan"]
    assert json.loads(Path("runs/mine/trainer_state.json").read_text())["global_step"] == 2
