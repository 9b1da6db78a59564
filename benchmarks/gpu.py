"""Run the GPU benchmarks in this folder in 12 minutes, in order of importance.

    python benchmarks/gpu.py --minutes 12
    python benchmarks/gpu.py --parts update plan
    python benchmarks/gpu.py --shape tiny          # a small version of every part, on a CPU

Each part runs in a separate process with a time limit. The output is written to OUTPUT_DIR/PART.md immediately, so
rows are kept even if the part fails or times out. The table is printed when the part ends. Models have random weights,
and nothing is downloaded. `rollout` generates with vLLM, or with transformers if vLLM is not installed.
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
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers.utils import is_flash_attn_2_available

HERE = Path(__file__).parent
ZERO2 = HERE.parent / "recipes/accelerate/zero2.yaml"


@dataclass(frozen=True)
class Part:
    """Script in this folder, with options for the 1.5B shape and options for a small test run."""

    script: str
    large: str
    tiny: str
    minutes: float  # share of the total time
    has_attention: bool = True  # whether the script has --attention and --checkpointing options


ROLLOUT = (
    "--config arithmetic --disable_tqdm true --use_cpu false --bf16 true --gradient_checkpointing true "
    "--num_generations 4 --per_device_train_batch_size 2 --gradient_accumulation_steps 2"
)
# As in the paper, a rollout has 48 completions and 12 optimizer steps, but completions have at most 1,000 tokens.
PAPER_STEPS = " --steps_per_generation 24 --max_completion_length 1000"
# A rollout has only 8 completions and 2 optimizer steps, because transformers and Adam on the CPU are slow.
FEW_STEPS = " --steps_per_generation 4 --max_completion_length 500"
TINY_ROLLOUT = (
    "--config arithmetic --disable_tqdm true --max_completion_length 24 --num_generations 4 "
    "--per_device_train_batch_size 8 --gradient_accumulation_steps 1 --steps_per_generation 2"
)
VLLM = "--use_vllm true --vllm_mode colocate --vllm_enable_sleep_mode true --vllm_gpu_memory_utilization 0.3 "
VLLM += "--vllm_max_model_length 1100"

# The parts are sorted by importance.
PARTS = {
    "update": Part(
        "update_step",
        "--parts mixed_lengths --rows 16 --longest 12000 --micro_batches 1 2 --repeats 3",
        "--parts mixed_lengths --rows 8 --longest 100 --micro_batches 1 2 --repeats 1",
        2.5,
    ),
    "packed": Part(
        "update_step",
        "--parts packed --rows 16 --longest 12000 --repeats 3",
        "--parts packed --rows 8 --longest 100 --repeats 1",
        1,
    ),
    "plan": Part("memory", "--cases 4 3 2", "--cases 0", 1.5, has_attention=False),
    "rollout": Part("step", ROLLOUT + PAPER_STEPS, TINY_ROLLOUT, 3, has_attention=False),
    "zero2_offload": Part("step", ROLLOUT + FEW_STEPS, TINY_ROLLOUT, 2, has_attention=False),
    "vocabulary": Part(
        "update_step",
        "--parts vocabulary --rows 8 --longest 4000 --vocabularies 32768 151936",
        "--parts vocabulary --rows 8 --longest 100 --vocabularies 512 2048 --repeats 1",
        1,
    ),
    "memory": Part(
        "update_step",
        "--parts memory --rows 16 --longest 12000 --micro_batches 2",
        "--parts memory --rows 8 --longest 100 --micro_batches 2",
        0.7,
    ),
    "first_ratio": Part("first_ratio", "--rows 16 --longest 4000", "--rows 8 --longest 100", 0.3, has_attention=False),
}


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=["1.5b", "tiny"], default="1.5b", help="tiny also runs on a CPU")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--attention", help="attn_implementation; default: flash_attention_2 if installed, else sdpa")
    parser.add_argument(
        "--minutes",
        type=float,
        default=12.0,
        help="total time limit; a part that ends early leaves its remaining time to the parts after it",
    )
    parser.add_argument("--output_dir", type=Path, default=Path("runs/bench/gpu"))
    return parser.parse_args(argv)


def attention_of(options: argparse.Namespace, device: str) -> str:
    """Return the requested attention implementation, or by default FlashAttention if it is installed, else sdpa."""
    flash = device == "cuda" and is_flash_attn_2_available(kernels_fallback_ok=True)
    return options.attention or ("flash_attention_2" if flash else "sdpa")


def reason_to_skip(name: str, options: argparse.Namespace, device: str) -> str:
    """Return the reason to skip a part, or an empty string."""
    if name == "packed" and device == "cuda" and "flash" not in attention_of(options, device):
        return "needs FlashAttention"
    if name == "zero2_offload" and (device == "cpu" or find_spec("deepspeed") is None):
        return "needs DeepSpeed and a GPU"
    return ""


def command_of(name: str, options: argparse.Namespace, device: str) -> list[str]:
    """Return the arguments of the Python command that runs a part."""
    part, tiny, attention = PARTS[name], options.shape == "tiny", attention_of(options, device)
    script = str(HERE / f"{part.script}.py")
    args = [script, "--device", device, *shlex.split(part.tiny if tiny else part.large)]
    if part.script in ("update_step", "first_ratio"):
        args += ["--shape", options.shape]
    if part.has_attention:
        args += ["--attention", attention, *([] if tiny else ["--checkpointing"])]
    if part.script == "step":
        args += ["--random_shape", options.shape, "--attn_implementation", attention]
        args += ["--model_name_or_path", str(options.output_dir / f"model-{options.shape}")]
        args += ["--output_dir", str(options.output_dir / f"{name}-{options.shape}")]
    if name == "rollout" and not tiny and find_spec("vllm") is not None:
        args += shlex.split(VLLM)
    if name == "zero2_offload":
        file = options.output_dir / "zero2_offload.yaml"
        file.write_text(ZERO2.read_text().replace("offload_optimizer_device: none", "offload_optimizer_device: cpu"))
        launch = ["-m", "accelerate.commands.launch", "--config_file", str(file), "--num_processes", "1"]
        args = [*launch, *args, "--accelerate_config", str(file)]
    return args


def run_part(args: list[str], file: Path, device: str, seconds: float) -> str:
    """Run a part for at most `seconds`, write the output to `file` immediately, and return the outcome."""
    start = time.monotonic()
    with file.open("w", encoding="utf-8") as output:
        output.write(f"{device}, torch {torch.__version__}\n\n    {shlex.join(['python', *args])}\n\n")
        output.flush()
        command = [sys.executable, "-u", *args]
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
        raise SystemExit("No CUDA device was found. `--shape tiny` runs a small version of every part on the CPU.")
    device_name = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()} CPU"
    options.output_dir.mkdir(parents=True, exist_ok=True)
    deadline, failures = time.monotonic() + 60 * options.minutes, 0
    for name in options.parts:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            print(f"{name}: no time left (--minutes {options.minutes:g}); run this part with --parts {name}.")
            continue
        if reason := reason_to_skip(name, options, device):
            print(f"{name}: skipped, because this part {reason}.", flush=True)
            continue
        pending = options.parts[options.parts.index(name) :]
        limit = remaining * PARTS[name].minutes / sum(PARTS[part].minutes for part in pending)
        file = options.output_dir / f"{name}.md"
        outcome = run_part(command_of(name, options, device), file, device_name, limit)
        failures += outcome.startswith("failed")
        lines = file.read_text(encoding="utf-8").splitlines()
        results = [line for line in lines if line.startswith("|") or ", time " in line]
        print(f"{name}: {outcome}; {file}", *results, sep="\n", flush=True)
    return int(failures > 0)


if __name__ == "__main__":
    raise SystemExit(main())
