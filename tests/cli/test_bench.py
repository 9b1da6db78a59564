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
