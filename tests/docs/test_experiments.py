"""Check that the scripts in experiments/ print the documented results; tests/lab/study tests the study files."""

import runpy
import sys

import yaml
from docs_blocks import ROOT

ARENA, FORTY = ROOT / "experiments" / "arena", ROOT / "experiments" / "forty_more_worlds"


def output_of(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    return capsys.readouterr().out


def test_the_documented_seed_reproduces_the_forty_tasks():
    tasks = runpy.run_path(str(FORTY / "draw_worlds.py"))["draw_worlds"](40, 97398135, easy=10)
    variants = yaml.safe_load((FORTY / "study.yaml").read_text(encoding="utf-8"))["variants"]
    assert [variant["model_builder_kwargs"] for variant in variants.values()] == tasks


def test_the_four_expectations_of_the_forty_tasks_hold(monkeypatch, capsys):
    lines = output_of(FORTY / "judge.py", monkeypatch, capsys).splitlines()[-4:]
    assert [line.split()[:2] for line in lines] == [["holds", str(number)] for number in (1, 2, 3, 4)]


def test_the_arena_script_prints_the_table_in_its_readme(monkeypatch, capsys):
    assert output_of(ARENA / "judge.py", monkeypatch, capsys) in (ARENA / "README.md").read_text(encoding="utf-8")


def test_the_figures_on_the_results_page_and_in_the_readme_match_the_csv_files(monkeypatch, capsys):
    assert "| forty_more_worlds, over 60 % | 12 tasks | -6.2 ± 7.8;" in output_of(
        ROOT / "experiments" / "check.py", monkeypatch, capsys
    )
