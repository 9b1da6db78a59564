"""Every command in the docs parses."""

import argparse
import importlib
import io
import re
import runpy
import shutil
import sys
import tomllib
from contextlib import redirect_stdout, suppress
from functools import cache
from pathlib import Path

import pytest
from docs_blocks import (
    BLOCK,
    DOCS,
    OTHERS,
    PAGES,
    PROGRAMS,
    ROOT,
    SHELLS,
    blocks,
    cases,
    check_python,
    write_tutorial,
)

from trl_ces.cli.main import COMMANDS, main
from trl_ces.lab.commands import bench
from trl_ces.support.yaml import read_yaml
from trl_ces.train.command_line import accelerate_flags, read_words
from trl_ces.train.launch import read_accelerate_config
from trl_ces.train.lookup import find_reward_functions
from trl_ces.train.recipe import load_recipe, recipe_fields
from trl_ces.train.shipped import find_accelerate_config, find_recipe


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_block_hides_its_commands(page):
    assert len(blocks(page, *SHELLS, *OTHERS)) == len(re.findall("^ *```", page.read_text("utf-8"), re.MULTILINE)) / 2


class Read(Exception):
    """argparse has accepted the words."""


@pytest.fixture
def parsers_stop(monkeypatch):
    """Commands stop once their words are parsed."""
    parse = argparse.ArgumentParser.parse_args

    def stop(self, args=None, namespace=None):
        raise Read(parse(self, args, namespace))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """A reader's working directory: recipes, and the files the docs have him write."""
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    shutil.copy(ROOT / "recipes" / "models" / "R1-1.5B.yaml", tmp_path / "my.yaml")
    run_of_a_study = tmp_path / "runs" / "study" / "arithmetic" / "ces" / "seed-0"
    run_of_a_study.mkdir(parents=True)
    shutil.copy(ROOT / "recipes" / "models" / "arithmetic.yaml", run_of_a_study / "recipe.yaml")
    reward = next(block for block in blocks(DOCS / "recipes.md", "python") if "reward" in block)
    (tmp_path / "my_rewards.py").write_text(reward, encoding="utf-8")
    write_tutorial(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    return tmp_path


def read_recipe_words(words):
    """As `trl-ces train` does, up to looking for GPUs, vLLM and data."""
    line = read_words(words)
    recipe = load_recipe(line.config, line.overrides)
    launch = {}
    if line.accelerate_config is not None:
        launch = read_accelerate_config(find_accelerate_config(line.accelerate_config))
    processes = int(line.accelerate_flags.get("num_processes", [launch.get("num_processes", 1)])[0])
    recipe.check_training(processes)
    find_reward_functions(recipe)


def read_trl_ces(command, words):
    assert command in COMMANDS
    if command == "train":
        read_recipe_words(words)
    elif command in ("plan", "inspect"):
        pass  # test_docs_run.py runs them
    elif command == "bench" and words:
        assert words[0] in bench.benchmarks()
        with pytest.raises(Read):
            bench.run(words)
    elif command in ("env", "bench"):
        assert not words
    else:
        with pytest.raises(Read) as read:
            importlib.import_module(COMMANDS[command][0]).run(words)
        named = getattr(read.value.args[0], "config", None)
        if named:
            read_yaml(find_recipe(named, kind={"eval": "evaluation"}.get(command, command)))


def read_python(words):
    if words[0] == "-c":
        check_python(words[1])
    elif words[0] == "-m":
        importlib.import_module(words[1])
    else:
        script = Path(words[0]) if Path(words[0]).is_file() else ROOT / words[0]  # the reader's own, or ours
        assert script.is_file()
        if "argparse" in script.read_text():
            words_before, sys.argv = sys.argv, [str(script), *words[1:]]
            try:
                with pytest.raises(Read):
                    runpy.run_path(str(script), run_name="__main__")
            finally:
                sys.argv = words_before


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
def test_a_command_of_the_documentation_is_one_that_its_program_takes(words, reader, parsers_stop, monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "examples"))
    while "=" in words[0]:  # OMP_NUM_THREADS=1
        words = words[1:]
    program, *rest = words
    program = program.removeprefix(".venv/bin/")
    if program == "trl-ces":
        read_trl_ces(rest[0], rest[1:])
    else:
        dict(zip(PROGRAMS[1:], (read_make, read_python, read_pip), strict=True))[program](rest)


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
