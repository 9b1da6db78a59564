"""Check that the scripts in experiments/ print the documented results. tests/lab/study checks the study files."""

import re
import runpy
import shutil
import sys

import pytest
import yaml
from docs_blocks import ROOT

FORTY_TASKS = ROOT / "experiments" / "forty_more_worlds"


def output_of(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    return capsys.readouterr().out


def test_the_documented_seed_reproduces_the_forty_tasks():
    tasks = runpy.run_path(str(FORTY_TASKS / "draw_worlds.py"))["draw_worlds"](40, 97398135, easy=10)
    variants = yaml.safe_load((FORTY_TASKS / "study.yaml").read_text(encoding="utf-8"))["variants"]
    assert [variant["model_builder_kwargs"] for variant in variants.values()] == tasks


def test_the_four_expectations_of_the_forty_tasks_hold(monkeypatch, capsys):
    lines = output_of(FORTY_TASKS / "judge.py", monkeypatch, capsys).splitlines()[-4:]
    assert [line.split()[:2] for line in lines] == [["holds", str(number)] for number in (1, 2, 3, 4)]


@pytest.mark.parametrize("script", ["arena/judge.py", "optimization_speed/judge.py", "paper_dose/entropy.py"])
def test_a_script_prints_the_table_in_its_readme(script, monkeypatch, capsys, tmp_path):
    file = ROOT / "experiments" / script
    monkeypatch.chdir(tmp_path)  # entropy.py would measure the runs in the working directory
    monkeypatch.setattr("torch.set_num_threads", lambda count: None)
    table = output_of(file, monkeypatch, capsys)
    assert len(table.splitlines()) > 2
    assert table in (file.parent / "README.md").read_text(encoding="utf-8")


def test_the_published_numbers_match_the_csv_files(monkeypatch, capsys):
    assert "| forty_more_worlds, over 60 % | 12 tasks | -6.2 ± 7.8;" in output_of(
        ROOT / "experiments" / "check.py", monkeypatch, capsys
    )


@pytest.mark.parametrize(
    ("page", "pattern", "replacement"),
    [
        ("README.md", r"\| -(\d+\.\d ±)", r"| +\1"),
        ("README.md", r"(\.\d\s±\s\d+\.\d\spoints)", r"1\1"),
        ("README.md", r"No run diverged", "1 run diverged"),
        ("README.md", r"lost\s14\.0", "lost 13.0"),
        ("README.md", r" 1 of 24", " 11 of 24"),
        ("README.md", r" 38 of 38", " 37 of 38"),
        ("docs/results.md", r" 27 of 32", " 29 of 32"),
        ("docs/results.md", r"accuracy\s14\sto", "accuracy 24 to"),
        ("docs/results.md", r"lost\s58\.0", "lost 57.0"),
        ("docs/results.md", r"lower\sin\s7", "lower in 8"),
        ("docs/results.md", r"0 of 80 runs", "1 of 80 runs"),
        ("docs/results.md", r"6 of 18", "5 of 18"),
        ("docs/results.md", r"-2\.0 ± 1\.8", "-2.1 ± 1.8"),
        ("docs/results.md", r"-2\.1 ± 3\.0 points", "+3.1 ± 2.9 points"),  # a difference from CES, not from DAPO
        ("docs/results.md", r"No run diverged", "1 run diverged"),
        ("README.md", r"0, 1 and 2\sof", "0, 0 and 2 of"),
        ("experiments/paper_dose/README.md", r"-1\.8 ± 0\.7, ", "-1.8 ± 0.6, "),
        ("docs/results.md", r"DAPO at 60 %", "DAPO at 50 %"),
        ("README.md", r"70\s%, tau", "71 %, tau"),
        ("experiments/paper_dose/README.md", r"17\.2 ± 4\.5", "17.2 ± 4.4"),
        ("README.md", r"\| 75 to 85 %", "| 70 to 85 %"),
        ("README.md", r"## Does it help\?", "## Results"),
        ("docs/results.md", r"## Does it help\?", "## Results"),
        ("docs/results.md", r"\| arena, mostly right", "| arena, mostly wrong"),
        ("docs/results.md", r"\(\+(\d+\.\d ±)", r"(-\1"),
    ],
)
def test_the_check_fails_if_a_page_differs_from_the_csv_files(
    tmp_path, monkeypatch, capsys, page, pattern, replacement
):
    for file in ("README.md", "docs/results.md", "experiments/check.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    for file in (ROOT / "experiments").glob("*/results.csv"):
        folder = tmp_path / "experiments" / file.parent.name
        shutil.copytree(file.parent, folder, ignore=shutil.ignore_patterns("*.png"))
    output_of(tmp_path / "experiments" / "check.py", monkeypatch, capsys)
    text, count = re.subn(pattern, replacement, (tmp_path / page).read_text(encoding="utf-8"), count=1)
    assert count == 1
    (tmp_path / page).write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit, match=r"does not match the results\.csv files"):
        output_of(tmp_path / "experiments" / "check.py", monkeypatch, capsys)
