"""`trl-ces bench` finds the scripts of benchmarks/ and hands them their options; each runs, small, to its end."""

import itertools
import re
import runpy
import signal
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
import torch
from transformers.utils import import_utils

from trl_ces.cli.main import main
from trl_ces.lab.commands import bench
from trl_ces.lab.plan import hours
from trl_ces.lab.study.processes import end_processes


def test_the_benchmarks_are_listed_with_what_they_measure(capsys):
    assert main(["bench"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^  update_step .*optimizer step", printed, re.MULTILINE)
    assert re.search(r"^  shaping ", printed, re.MULTILINE)
    assert "rollouts" not in printed  # what the scripts share


def test_an_unknown_benchmark_is_refused_with_the_names(capsys):
    assert main(["bench", "updatestep"]) == 2
    assert "update_step" in capsys.readouterr().err


def test_a_benchmark_that_ends_with_a_sentence_prints_it_and_ends_with_1(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text('def main():\n    raise SystemExit("3 of 7 are lost")\n')
    monkeypatch.setattr(bench, "benchmarks", lambda: {"broken": tmp_path / "broken.py"})
    with pytest.raises(SystemExit, match="3 of 7 are lost"):  # Python prints it, and ends with 1
        main(["bench", "broken"])


def test_the_shaping_benchmark_runs(capsys):
    assert main(["bench", "shaping", "--rows", "2", "--tokens", "300", "--repeats", "2"]) == 0
    assert re.search(r"\| 2 x 300 \| 14400 \| \d+\.\d+ ms \|", capsys.readouterr().out)


def test_the_grading_benchmark_agrees_with_trls_reward(capsys):
    assert main(["bench", "grading", "--answers", "60", "--repeats", "1", "--hostile", "5"]) == 0
    printed = capsys.readouterr().out
    assert "both agree on 60" in printed
    assert "4 rewards of 0, 1 without a verdict, 0 of 1; all others as without them" in printed


def test_the_gpu_benchmark_wants_a_gpu_and_says_what_runs_without(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "gpu"]) == 2
    assert "`--shape tiny` runs every part, small, on the CPU" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_flash_attention_that_kernels_fetches_is_seen(monkeypatch):
    script = runpy.run_path(str(bench.benchmarks()["gpu"]), run_name="gpu")
    asked = []
    monkeypatch.setattr(import_utils, "is_kernels_available", lambda: True)
    monkeypatch.setitem(sys.modules, "kernels", SimpleNamespace(get_kernel=lambda name, version: asked.append(name)))
    import_utils.is_flash_attn_2_available.cache_clear()
    words = script["command_of"]("packed", script["parse"](["--shape", "tiny"]), "cuda")
    import_utils.is_flash_attn_2_available.cache_clear()
    assert words[words.index("--attention") + 1] == "flash_attention_2"
    assert len(asked) == 1


def test_a_rollout_is_held_against_its_plan_with_a_verdict_a_line():
    table, gib = runpy.run_path(str(bench.benchmarks()["step"]), run_name="step")["table"], 2**30
    fast = {"generation": 60, "old log-probs": 0, "update": 20, "optimizer": 1, "weights to vLLM": 2, "checkpoints": 0}
    slow = {"generation": 90, "old log-probs": 0, "update": 30, "optimizer": 2, "weights to vLLM": 8, "checkpoints": 0}
    planned = {hours.FAST: fast, hours.SLOW: slow}
    table.__globals__["rollout_seconds"] = lambda plan, device, rates, lengths: planned[rates] | lengths
    plan = SimpleNamespace(
        device="H100",
        disk=SimpleNamespace(checkpoint=20e9, saves=1),
        memory=SimpleNamespace(training=40 * gib, generating=50 * gib),
    )
    seconds = Counter({"generation": 98, "update": 45, "optimizer": 0.5, "checkpoint": 42})
    memory = Counter({"update": 30 * gib, "optimizer": 38 * gib, "generation": 60 * gib, "rest": 70 * gib})
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table(plan, seconds, memory, {}).splitlines()
    ]
    assert lines[0] == ["a rollout", "expected (plan, H100)", "measured", "verdict"]
    assert lines[2:] == [
        ["generation, s", "60.0 to 90.0", "98.0", "as planned"],
        ["old log-probs, s", "0.0", "0.0", "not measured"],
        ["update, s", "20.0 to 30.0", "45.0", "1.50 x the plan"],
        ["optimizer, s", "1.0 to 2.0", "0.5", "0.50 x the plan"],
        ["weights to vLLM, s", "2.0 to 8.0", "0.0", "not measured"],
        ["checkpoint, s", "10.0 to 40.0", "42.0", "as planned"],
        ["training, GiB", "40.0", "38.0", "as planned"],
        ["generating, GiB", "50.0", "60.0", "1.20 x the plan"],
    ]


def test_a_term_of_a_rollout_is_timed_without_those_inside_it():
    clock = runpy.run_path(str(bench.benchmarks()["step"]), run_name="step")["Clock"]
    ticks = itertools.count()
    clock.turn.__globals__["time"] = SimpleNamespace(time=lambda: next(ticks))

    def generate():
        trainer.vllm_generation.sync_weights()
        trainer.vllm_generation.llm.sleep(level=2)
        return [[1, 2], [3]], None

    def score(grad):
        with torch.set_grad_enabled(grad):
            trainer._get_per_token_logps_and_entropies()

    llm = SimpleNamespace(sleep=Mock(), wake_up=Mock())
    trainer = SimpleNamespace(
        use_vllm=True,
        vllm_generation=SimpleNamespace(sync_weights=Mock(), llm=llm),
        accelerator=SimpleNamespace(backward=Mock()),
        add_callback=Mock(),
        _generate_single_turn=generate,
        _get_per_token_logps_and_entropies=Mock(),
        _save_checkpoint=Mock(),
    )
    found = clock(trainer, updates=1)
    trainer._generate_single_turn()
    score(False)
    score(True)
    trainer.accelerator.backward()
    trainer._save_checkpoint()
    # A second passes between two looks at the clock.
    inner = {"generation": 3, "weights to vLLM": 2, "old log-probs": 1, "update": 2, "checkpoint": 1}
    assert found.seconds == {**inner, "rest": 5}
    assert found.lengths == [2, 1]
    found.on_step_end(None, SimpleNamespace(global_step=1), None)
    assert not found.seconds


def test_the_gpu_benchmark_ends_with_the_plan_against_what_was_measured(capsys, tmp_path):
    main_of = runpy.run_path(str(bench.benchmarks()["gpu"]), run_name="gpu")["main"]

    def run_part(words, file, device, seconds):
        file.write_text(f"{device}\n\n| {words[0]} | expected (plan) |\n| a line | as planned |\n\n1 s\n")
        return "1 s"

    main_of.__globals__["run_part"] = run_part
    assert main_of(["--shape", "tiny", "--output_dir", str(tmp_path), "--parts", "step", "plan", "shaping"]) == 0
    ends = [*("", "| step | expected (plan) |", "| a line | as planned |"), *("", "| memory | expected (plan) |")]
    assert capsys.readouterr().out.splitlines()[3:] == [*ends, "| a line | as planned |"]


def test_the_gpu_benchmark_ends_a_part_with_its_time_and_says_what_it_left_out(capsys, tmp_path):
    options = ["--shape", "tiny", "--output_dir", str(tmp_path), "--parts", "shaping", "world"]
    assert main(["bench", "gpu", *options, "--minutes", "0.0001"]) == 0
    cut, left_out = capsys.readouterr().out.splitlines()
    assert re.match(r"shaping: cut off after .* minutes; ", cut)
    assert left_out == "world: no time left (--minutes 0.0001); run it with --parts world."
    assert [file.name for file in tmp_path.iterdir()] == ["shaping.md"]
    written = (tmp_path / "shaping.md").read_text()
    assert "trl-ces bench shaping --device cpu" in written
    assert "cut off after" in written


def test_a_part_of_the_gpu_benchmark_that_is_cut_off_leaves_no_process_behind(tmp_path):
    # It starts a process in a session of its own, as a study does, says which, and ignores SIGTERM.
    script = tmp_path / "stubborn.py"
    script.write_text(
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    part = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, start_new_session=True)
    started = int(part.stdout.readline())
    end_processes([part], 0.1)
    assert part.returncode == -signal.SIGKILL
    psutil.wait_procs([psutil.Process(started)] if psutil.pid_exists(started) else [], timeout=30)
    assert not psutil.pid_exists(started) or psutil.Process(started).status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
@pytest.mark.timeout(1800)  # nine benchmarks; only against one that hangs
def test_every_part_of_the_gpu_benchmark_runs_on_a_cpu(capsys, tmp_path):
    assert main(["bench", "gpu", "--shape", "tiny", "--output_dir", str(tmp_path)]) == 0
    ended = re.findall(r"^(\w+): \d+ s; ", capsys.readouterr().out, re.MULTILINE)
    rows = {
        "update": r"^\| 2 \| \d\.\d+ \[.* \| \d+ \| \d+ % \|$",
        "memory": r"^\| 2 \| \d+ MiB \| \d\.\d+ \| \d\.\d+ \|$",
        "step": r"^\| optimizer, s +\| +0\.0 \|.*x the plan \|$",
        "plan": r"^\| Qwen2, 57 M \| 2 x 512 \| no \| [\d,]+ \| [\d,]+ \| [+-][\d.]+ % \|$",
        "vocabulary": r"^\| 2048 \| \d\.\d+ \[.*\] \|$",
        "packed": r"packed / trimmed, time \d\.\d+ \[",
        "first_ratio": r"^\| real tokens, old log-probs as the update sees them \| \d+ \| 0\.0e\+00",
        "shaping": r"^\| 2 x 300 \|",
        "world": r"^\| CES +\| +2 \|",
    }
    assert ended == list(rows)
    for part, row in rows.items():
        written = (tmp_path / f"{part}.md").read_text()
        assert re.search(row, written, re.MULTILINE), written


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
