"""Run the GPU benchmarks of this folder in at most 30 minutes.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --parts update plan
    python benchmarks/gpu.py --shape tiny          # a small version of every part, on a CPU

Each part is a process with its own time limit. Its output is written to OUTPUT_DIR/PART.md as it appears, so the rows
of a part that fails or times out are kept. The tables of `step` and `plan` are printed at the end.
"""

import argparse
import os
import platform
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers.utils import is_flash_attn_2_available

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Part:
    """A script in this folder, with its options for the 1.5B shape and for a small test run."""

    script: str
    large: str
    tiny: str
    minutes: float
    has_shape: bool = True  # whether the script has a --shape option
    has_attention: bool = True  # whether the script has --attention and --checkpointing options


# Sorted by importance. The time limits add up to 27 minutes.
PARTS = {
    "update": Part(
        "update_step",
        "--parts mixed_lengths --rows 16 --longest 12000 --micro_batches 1 2 --repeats 3",
        "--parts mixed_lengths --rows 8 --longest 100 --micro_batches 2 --repeats 1",
        7,
    ),
    "memory": Part(
        "update_step",
        "--parts memory --rows 16 --longest 12000 --micro_batches 1 2",
        "--parts memory --rows 8 --longest 100 --micro_batches 2",
        4,
    ),
    "step": Part("step", "--config R1-1.5B", "--config arithmetic", 7, has_shape=False, has_attention=False),
    "plan": Part("memory", "", "--cases 0", 3, has_shape=False, has_attention=False),
    "vocabulary": Part(
        "update_step",
        "--parts vocabulary --rows 8 --longest 4000 --vocabularies 8192 32768 151936",
        "--parts vocabulary --rows 8 --longest 100 --vocabularies 512 2048 --repeats 1",
        2,
    ),
    "packed": Part(
        "update_step",
        "--parts packed --rows 16 --longest 12000 --repeats 3",
        "--parts packed --rows 8 --longest 100 --repeats 1",
        2,
    ),
    "first_ratio": Part("first_ratio", "--rows 16 --longest 4000", "--rows 8 --longest 100", 2, has_attention=False),
}


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=["1.5b", "tiny"], default="1.5b", help="tiny also runs on a CPU")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--attention", help="attn_implementation; default: flash_attention_2 if installed, else sdpa")
    parser.add_argument(
        "--minutes",
        type=float,
        default=30.0,
        help="total time limit; the last part may use all of the remaining time",
    )
    parser.add_argument("--output_dir", type=Path, default=Path("runs/bench/gpu"))
    return parser.parse_args(argv)


def command_of(name: str, options: argparse.Namespace, device: str) -> list[str]:
    """Return the name of a part's script, followed by its options."""
    part, tiny = PARTS[name], options.shape == "tiny"
    words = [part.script, "--device", device, *shlex.split(part.tiny if tiny else part.large)]
    if part.has_shape:
        words += ["--shape", options.shape]
    flash = device == "cuda" and is_flash_attn_2_available(kernels_fallback_ok=True)
    attention = options.attention or ("flash_attention_2" if flash else "sdpa")
    if part.has_attention:
        words += ["--attention", attention, *([] if tiny else ["--checkpointing"])]
    if name == "step":
        words += ["--output_dir", str(options.output_dir / f"{name}-{options.shape}")]
        words += ["--attn_implementation", attention]
        base = ["--model_name_or_path", str(options.output_dir / "base"), "--model_builder_kwargs", "{steps: 2}"]
        words += [*base, "--save_strategy", "steps"] if tiny else []
    return words


def run_part(words: list[str], file: Path, device: str, seconds: float) -> str:
    """Run a part for at most `seconds`, write its output to `file` as it appears, and return its outcome."""
    start = time.monotonic()
    with file.open("w", encoding="utf-8") as output:
        script, *rest = words
        line = shlex.join(["python", f"benchmarks/{script}.py", *rest])
        output.write(f"{device}, torch {torch.__version__}\n\n    {line}\n\n")
        output.flush()
        command = [sys.executable, "-u", str(HERE / f"{script}.py"), *rest]
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            outcome = f"timed out after {seconds / 60:.1f} minutes"
        else:
            outcome = f"failed ({code})" if code else f"{time.monotonic() - start:.0f} s"
        output.write(f"\n{outcome}\n")
    return outcome


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and options.shape != "tiny":
        raise SystemExit("There is no CUDA device. `--shape tiny` runs a small version of every part on the CPU.")
    device_name = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()} CPU"
    options.output_dir.mkdir(parents=True, exist_ok=True)
    deadline, failed, tables = time.monotonic() + 60 * options.minutes, 0, []
    for name in options.parts:
        left = deadline - time.monotonic()
        if left <= 0:
            print(f"{name}: no time is left (--minutes {options.minutes:g}); run it with --parts {name}.")
            continue
        words = command_of(name, options, device)
        if name == "packed" and device == "cuda" and "flash" not in words[words.index("--attention") + 1]:
            print(f"{name}: needs flash attention, which is not installed.")
            continue
        limit = left if name == options.parts[-1] else min(left, 60 * PARTS[name].minutes)
        file = options.output_dir / f"{name}.md"
        outcome = run_part(words, file, device_name, limit)
        failed += outcome.startswith("failed")
        print(f"{name}: {outcome}; {file}", flush=True)
        if name in ("plan", "step"):
            tables += ["", *(line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("|"))]
    for line in tables:
        print(line)
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
