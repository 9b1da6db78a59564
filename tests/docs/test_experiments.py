"""Scripts of experiments/ print what their pages report; tests/lab/study parses the studies."""

import runpy
import sys

import yaml
from docs_blocks import ROOT

ARENA, FORTY = ROOT / "experiments" / "arena", ROOT / "experiments" / "forty_more_worlds"


def printed(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    return capsys.readouterr().out


def test_the_forty_tasks_are_those_drawn_from_the_seed():
    tasks = runpy.run_path(str(FORTY / "draw_worlds.py"))["draw_worlds"](40, 97398135, easy=10)
    variants = yaml.safe_load((FORTY / "study.yaml").read_text(encoding="utf-8"))["variants"]
    assert [one["model_builder_kwargs"] for one in variants.values()] == tasks


def test_the_four_expectations_of_the_forty_tasks_hold(monkeypatch, capsys):
    verdicts = printed(FORTY / "judge.py", monkeypatch, capsys).splitlines()[-4:]
    assert [line.split()[:2] for line in verdicts] == [["holds", str(number)] for number in (1, 2, 3, 4)]


def test_the_arenas_table_is_what_its_script_prints(monkeypatch, capsys):
    assert printed(ARENA / "judge.py", monkeypatch, capsys) in (ARENA / "README.md").read_text(encoding="utf-8")
