"""`trl-ces bench` finds the scripts of benchmarks/ and hands them their options; each runs, small, to its end."""

import re

import pytest

from trl_ces.cli.main import main


def test_the_benchmarks_are_listed_with_what_they_measure(capsys):
    assert main(["bench"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^  update_step .*optimizer step", printed, re.MULTILINE)
    assert re.search(r"^  shaping ", printed, re.MULTILINE)
    assert "rollouts" not in printed  # what the scripts share


def test_an_unknown_benchmark_is_refused_with_the_names(capsys):
    assert main(["bench", "updatestep"]) == 2
    assert "update_step" in capsys.readouterr().err


def test_the_shaping_benchmark_runs(capsys):
    assert main(["bench", "shaping", "--rows", "2", "--tokens", "300", "--repeats", "2"]) == 0
    assert re.search(r"\| 2 x 300 \| 14400 \| \d+\.\d+ ms \|", capsys.readouterr().out)


def test_the_grading_benchmark_agrees_with_trls_reward(capsys):
    assert main(["bench", "grading", "--answers", "60", "--repeats", "1", "--hostile", "5"]) == 0
    printed = capsys.readouterr().out
    assert "both agree on 60" in printed
    assert "3 rewards of 0, 2 without a verdict, 0 of 1; all others as without them" in printed


def test_the_gpu_benchmark_wants_a_gpu_and_says_what_runs_without(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "gpu"]) == 2
    assert "`--shape tiny` runs every part, small, on the CPU" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_part_of_the_gpu_benchmark_that_has_no_time_costs_the_others_nothing(capsys, tmp_path):
    options = ["--shape", "tiny", "--output_dir", str(tmp_path), "--parts", "shaping", "world"]
    assert main(["bench", "gpu", *options, "--minutes", "0.0001"]) == 0
    cut, left_out = capsys.readouterr().out.splitlines()
    assert re.match(r"shaping: cut off after .* minutes; ", cut)
    assert left_out == "world: no time left (--minutes 0.0001); run it with --parts world."
    assert [file.name for file in tmp_path.iterdir()] == ["shaping.md"]
    assert "trl-ces bench shaping --device cpu" in (tmp_path / "shaping.md").read_text()


@pytest.mark.slow
def test_every_part_of_the_gpu_benchmark_runs_on_a_cpu(capsys, tmp_path):
    assert main(["bench", "gpu", "--shape", "tiny", "--output_dir", str(tmp_path)]) == 0
    assert re.findall(r"^(\w+): \d+ s; ", capsys.readouterr().out, re.MULTILINE) == [
        "update",
        "kernel",
        "packed",
        "first_ratio",
        "plan",
        "shaping",
        "world",
    ]
    written = {file.stem: file.read_text() for file in tmp_path.glob("*.md")}
    vocabularies = [line.split("|")[1].strip() for line in written["kernel"].splitlines() if line.startswith("| ")]
    assert vocabularies[-2:] == ["512", "2048"]
    for part, expected in {
        "update": "rows of a micro-batch | none / TRL, time",
        "packed": "packed / trimmed, time",
        "first_ratio": "real tokens, old log-probs as the update sees them",
        "plan": "plan (MiB) | measured (MiB)",
        "shaping": "| 2 x 300 |",
        "world": "| CES ",
    }.items():
        assert expected in written[part], written[part]


@pytest.mark.slow
def test_the_update_benchmark_finds_less_time_memory_and_padding_and_the_same_gradient(capsys):
    options = ["--rows", "16", "--longest", "300", "--micro_batches", "2", "--repeats", "1"]
    assert main(["bench", "update_step", *options, "--parts", "unequal", "memory"]) == 0
    tables = [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in capsys.readouterr().out.splitlines()
        if row.startswith("| 2 |")
    ]
    (_, time, _, padding_trl, padding, apart, _, rate), (_, _, memory, shaped) = tables
    assert 0.1 < float(time.split()[0]) < 0.9
    assert 0.1 < float(memory) < 1.0
    assert 0.9 < float(shaped) < 1.2
    assert float(padding.split()[0]) < 12 < 40 < float(padding_trl.split()[0])
    assert float(apart) < 1e-5
    assert 1 < float(rate.split()[0]) < 100
