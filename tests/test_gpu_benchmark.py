"""Check that benchmarks/gpu.py runs its parts in order, each with a separate time limit, and keeps their output."""

import subprocess
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import psutil
import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks/gpu.py"


@pytest.fixture(scope="module")
def gpu():
    spec = spec_from_file_location("gpu", SCRIPT)
    module = sys.modules["gpu"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["gpu"]


def test_parts_share_the_time_that_remains(gpu, tmp_path, monkeypatch):
    clock, limits = [100.0], []

    def run_part(args, file, device, seconds):
        limits.append(seconds)
        clock[0] += 6 if len(limits) == 1 else seconds  # the first part ends early
        file.write_text("")
        return "6 s"

    monkeypatch.setattr(gpu, "run_part", run_part)
    monkeypatch.setattr(gpu.time, "monotonic", lambda: clock[0])
    args = ["--shape", "tiny", "--parts", "plan", "packed", "vocabulary", "--minutes", "3.5"]
    assert gpu.main([*args, "--output_dir", str(tmp_path)]) == 0
    # Shares of 1.5, 1 and 1: 90 of 210 s, then half of the remaining 204 s, then the rest.
    assert limits == pytest.approx([90, 102, 102])


def test_a_part_is_stopped_at_its_limit_and_its_output_is_kept(gpu, tmp_path):
    script, file = tmp_path / "part.py", tmp_path / "part.md"
    script.write_text("import os, time\nprint(f'| {os.getpid()} |')\ntime.sleep(60)\nprint('| late row |')\n")
    assert gpu.run_part([str(script)], file, "a device", 5).startswith("timed out after 0.1 minutes")
    lines = file.read_text().splitlines()
    assert lines[0].startswith("a device, torch")
    [pid] = [int(line.strip("| ")) for line in lines if line.startswith("|")]  # fails if the late row was printed
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize(("code", "outcome", "result"), [("print('| 7 |')", " s", 0), ("exit(3)", "(3)", 1)])
def test_each_part_prints_its_table_and_a_failed_part_fails_the_script(
    gpu, tmp_path, monkeypatch, capsys, code, outcome, result
):
    script = tmp_path / "part.py"
    script.write_text(code)
    monkeypatch.setattr(gpu, "command_of", lambda *_: [str(script)])
    args = ["--shape", "tiny", "--parts", "plan", "--output_dir", str(tmp_path / "out")]
    assert gpu.main(args) == result
    printed = capsys.readouterr().out
    assert f"{outcome}; {tmp_path / 'out/plan.md'}" in printed
    assert ("| 7 |" in printed) is (result == 0)


def test_parts_without_remaining_time_are_listed(gpu, tmp_path, capsys):
    assert gpu.main(["--shape", "tiny", "--minutes", "0", "--output_dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("no time left") == len(gpu.PARTS)


def test_a_random_model_requires_a_model_path(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))  # step.py imports rollouts.py
    with pytest.raises(SystemExit):
        import_module("step").main(["--config", "arithmetic", "--random_shape", "tiny"])
    assert "--random_shape needs --model_name_or_path" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_part_runs_on_a_cpu(gpu, tmp_path):
    args = ["--shape", "tiny", "--minutes", "60", "--output_dir", str(tmp_path)]
    result = subprocess.run([sys.executable, SCRIPT, *args], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert "zero2_offload: skipped" in result.stdout
    for name in gpu.PARTS.keys() - {"zero2_offload"}:
        text = (tmp_path / f"{name}.md").read_text()
        assert "\n| " in text or "packed / trimmed, time" in text, name
