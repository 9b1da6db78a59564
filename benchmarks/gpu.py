"""Everything about GPUs that no machine here could measure: one command, at most 25 minutes.

    trl-ces bench gpu
    trl-ces bench gpu --parts update memory
    trl-ces bench gpu --shape tiny          # the whole of it, small, on a CPU

Each part runs in its own process. Its tables go to OUTPUT_DIR/PART.md as they are printed, below the device and the
command, so that a part that fails or runs out of time costs the others nothing.
"""

import argparse
import os
import platform
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch
from transformers.utils import is_flash_attn_2_available

from trl_ces.support.errors import UserError

HERE = Path(__file__).parent
# Part -> script, its options at the 1.5B shape, and its options where it only has to run. Most wanted first.
PARTS: dict[str, tuple[str, str, str]] = {
    "update": (
        "update_step",
        "--rows 16 --longest 12000 --micro_batches 1 2 --repeats 3 --parts unequal memory",
        "--rows 8 --longest 100 --micro_batches 2 --repeats 1 --parts unequal memory",
    ),
    "kernel": (
        "update_step",
        "--rows 8 --longest 4000 --vocabularies 8192 32768 151936 --repeats 5 --parts vocabulary",
        "--rows 8 --longest 100 --vocabularies 512 2048 --repeats 1 --parts vocabulary",
    ),
    "packed": (
        "update_step",
        "--rows 16 --longest 12000 --repeats 3 --parts packed",
        "--rows 8 --longest 100 --repeats 1 --parts packed",
    ),
    "first_ratio": ("first_ratio", "--rows 16 --longest 4000", "--rows 8 --longest 100"),
    "plan": ("memory", "", "--cases 0"),
    "shaping": ("shaping", "--tokens 12000", "--tokens 300 --rows 2 --repeats 3"),
    "world": ("gpu_world", "", "--tiny"),
}
SHAPED = ("update", "kernel", "packed", "first_ratio")  # parts that take a shape
ATTENDING = ("update", "kernel", "packed")  # parts that take an attention


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=["1.5b", "tiny"], default="1.5b", help="tiny: on a CPU if there is no GPU")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--attention", help="attn_implementation; default: flash_attention_2 if installed, else sdpa")
    parser.add_argument("--minutes", type=float, default=25.0, help="parts that would start or end later are cut off")
    parser.add_argument("--output_dir", type=Path, default=Path("runs/bench/gpu"))
    return parser.parse_args(argv)


def command_of(part: str, options: argparse.Namespace, device: str) -> list[str]:
    """The words after `trl-ces bench`."""
    script, large, small = PARTS[part]
    words = [script, "--device", device, *shlex.split(small if options.shape == "tiny" else large)]
    if part in SHAPED:
        words += ["--shape", options.shape]
    if part in ATTENDING:
        flash = device == "cuda" and is_flash_attn_2_available()
        words += ["--attention", options.attention or ("flash_attention_2" if flash else "sdpa")]
    return words


def run_part(words: list[str], file: Path, name: str, seconds: float) -> str:
    """Runs a part for at most `seconds` and says how it ended; what it prints is in `file` at once."""
    script = HERE / f"{words[0]}.py"
    start = time.monotonic()
    with file.open("w", encoding="utf-8") as output:
        output.write(f"{name}, torch {torch.__version__}\n\n    trl-ces bench {shlex.join(words)}\n\n")
        output.flush()
        command = [sys.executable, "-u", str(script), *words[1:]]
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            _, errors = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            said = f"cut off after {seconds / 60:.1f} minutes"
        else:
            last = (errors.strip().splitlines() or ["no message"])[-1]
            said = f"failed: {last}" if child.returncode else f"{time.monotonic() - start:.0f} s"
        finally:  # whatever it started has the GPU's memory
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        output.write(f"\n{said}\n")
    return said


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and options.shape != "tiny":
        raise UserError("There is no CUDA device here. `--shape tiny` runs every part, small, on the CPU.")
    name = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()} CPU"
    options.output_dir.mkdir(parents=True, exist_ok=True)
    end, failed = time.monotonic() + 60 * options.minutes, 0
    for part in options.parts:
        left = end - time.monotonic()
        if left <= 0:
            print(f"{part}: no time left (--minutes {options.minutes:g}); run it with --parts {part}.")
            continue
        file = options.output_dir / f"{part}.md"
        said = run_part(command_of(part, options, device), file, name, left)
        failed += said.startswith("failed")
        print(f"{part}: {said}; {file}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
