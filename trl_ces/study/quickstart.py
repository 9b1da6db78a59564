"""`trl-ces quickstart`: CES beside DAPO on a model so small that both are trained on this machine's CPU in minutes.

A base model learns to write additions with their working (toy/arithmetic.py). Then `trl-ces train` trains it twice
from the same start, seed and problems, once by DAPO and once by CES, and all three models answer the same held-out
problems. A table, a picture of the training and a few answers show what came out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..support.errors import UserError
from ..toy.arithmetic import arithmetic_accuracy_reward, load_problems
from ..train.curves import draw, read_curves

if TYPE_CHECKING:
    from ..toy.arithmetic_evaluation import Measurement

METHODS = {"DAPO": "arithmetic/dapo", "CES": "arithmetic/ces"}  # name -> recipe, in the order of training
RL_STEPS = 160
BASE_STEPS = 450
HELD_OUT_PROBLEMS, SAMPLES, SAMPLING_SEED = 200, 8, 0
# The model is too small to gain much from a second thread, and on a busy machine two threads wait for each other.
THREADS = 1
CLEAR_LINE = "\r\x1b[K"


def run(argv: list[str]) -> int:
    """
    Trains, compares and shows.

    Args:
        argv (`list[str]`):
            The words behind `trl-ces quickstart`.

    Returns:
        `int`: 0, or 1 if a training failed.

    Raises:
        UserError: if matplotlib is not installed.
    """
    parser = argparse.ArgumentParser(
        prog="trl-ces quickstart",
        description="See the effect of CES on a small model, on this machine's CPU, in a few minutes.",
        allow_abbrev=False,
    )
    parser.add_argument("--output_dir", type=Path, default=Path("runs/quickstart"), help="where everything goes")
    parser.add_argument("--seed", type=int, default=0, help="seed of the base model, the problems and the training")
    options = parser.parse_args(argv)
    return quickstart(options.output_dir, options.seed)


def quickstart(
    output_dir: Path,
    seed: int = 0,
    base_steps: int = BASE_STEPS,
    rl_steps: int = RL_STEPS,
    num_problems: int = HELD_OUT_PROBLEMS,
) -> int:
    """The whole of it.

    Args:
        output_dir (`Path`):
            Gets `base`, `dapo` and `ces` (models), a log for each training, `quickstart.png` and `quickstart.json`.
        seed (`int`, *optional*, defaults to `0`):
            Seed of the base model, of the problems and of both trainings.
        base_steps (`int`, *optional*, defaults to `450`):
            Supervised steps of the base model.
        rl_steps (`int`, *optional*, defaults to `160`):
            Optimizer steps of each method.
        num_problems (`int`, *optional*, defaults to `200`):
            Held-out problems to measure on.

    Returns:
        `int`: 0, or 1 if a training failed.

    Raises:
        UserError: if matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise UserError('the picture needs matplotlib: pip install "trl_ces[quickstart]".')
    started = time.monotonic()
    print(f"CES beside DAPO on two-digit additions. Everything goes to {output_dir}.\n", flush=True)
    os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))

    with Stage("1/4", "A small model learns to write additions, with slips") as stage:
        make_base(output_dir / "base", seed, base_steps, stage)
    for number, (method, recipe) in enumerate(METHODS.items(), start=2):
        with Stage(f"{number}/4", f"{method} trains it") as stage:
            log = output_dir / f"{method.lower()}.log"
            words = ["--model_name_or_path", output_dir / "base", "--output_dir", output_dir / method.lower()]
            words += ["--seed", seed, "--dataset_seed", seed, "--max_steps", rl_steps]
            code = train(recipe, list(map(str, words)), log, rl_steps, stage)
        if code:
            last = (log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["(it is empty)"])[-1]
            print(f"\n{method} stopped with exit code {code}. The last line of {log}: {last}", file=sys.stderr)
            return 1
    with Stage("4/4", f"All three answer {num_problems} problems that no training saw"):
        from ..toy.arithmetic_evaluation import measure

        problems = load_problems("held_out", num_problems, SAMPLING_SEED)
        folders = {"before": output_dir / "base", **{name: output_dir / name.lower() for name in METHODS}}
        measured = {name: measure(folder, problems, SAMPLES, SAMPLING_SEED) for name, folder in folders.items()}
        accuracy = arithmetic_accuracy_reward.__name__
        curves = {name: [read_curves(output_dir / name.lower(), accuracy)] for name in METHODS}
        picture = draw(curves, output_dir / "quickstart.png")
        write_numbers(output_dir / "quickstart.json", seed, measured)

    print(f"\n{table(measured)}\n")
    sampled = f"{num_problems} held-out problems x {SAMPLES} answers at temperature 1, sampling seed {SAMPLING_SEED}"
    print(f"Measured on {sampled}.")
    print("Length counts the end token; entropy is the sampling distribution's, mean over the answers' tokens.")
    print(verdict(measured) + "\n")
    print(examples(measured) + "\n")
    print(f"Picture of both trainings: {picture}")
    print(f"Took {time.monotonic() - started:.0f} s in all.\n")
    print("Next: a real pretrained model on this CPU,\n  trl-ces train --config recipes/smollm2_135m/ces.yaml")
    print("or your own model and data: README.md. How to read the above: docs/quickstart.md.")
    return 0


class Stage:
    """One line on the terminal: what is being done, how far it is, and in the end how long it took."""

    def __init__(self, number: str, title: str):
        self.head = f"{number}  {title}"
        self.live = sys.stdout.isatty()
        self.note = ""

    def __enter__(self) -> Stage:
        self.start = time.monotonic()
        print(f"{self.head} ...", end="", flush=True)
        return self

    def show(self, note: str) -> None:
        """Replaces the line's end on a terminal; a log file gets only the line's final state."""
        if self.live:
            print(f"{CLEAR_LINE}{self.head} ... {note}", end="", flush=True)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        end = f"{'stopped after ' if kind else ''}{time.monotonic() - self.start:.0f} s{self.note}"
        print(f"{CLEAR_LINE}{self.head} ... {end}" if self.live else f" {end}", flush=True)


def make_base(folder: Path, seed: int, steps: int, stage: Stage) -> None:
    """Makes the base model, or keeps the one that is there if it was made in the same way."""
    import torch
    from transformers.utils import logging

    from ..toy.arithmetic_model import build_base_model

    logging.disable_progress_bar()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if not build_base_model(
        folder, seed=seed, steps=steps, on_step=lambda done, of, _: stage.show(f"step {done} of {of}")
    ):
        stage.note = " (kept from before)"


def train(recipe: str, overrides: list[str], log: Path, steps: int, stage: Stage) -> int:
    """Runs `trl-ces train --config recipe ...` as a user would, with its output in `log`. Returns its exit code."""
    command = [sys.executable, "-m", "trl_ces.cli.main", "train", "--config", recipe, *overrides]
    with log.open("w", encoding="utf-8") as output:
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        previous = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        try:
            while True:
                try:
                    return child.wait(timeout=1)
                except subprocess.TimeoutExpired:
                    # The trainer's progress bar, as it stands in the log: "| 40/160 ["
                    done = re.findall(rf"\b(\d+)/{steps} \[", log.read_text(encoding="utf-8", errors="replace"))
                    stage.show(f"step {done[-1]} of {steps}" if done else "starting")
                except KeyboardInterrupt:
                    child.wait()  # it got the same Ctrl-C and ends by itself
                    raise
        finally:
            signal.signal(signal.SIGTERM, previous)
            if child.poll() is None:  # this process alone was asked to end: no training goes on without it
                child.terminate()
                child.wait()


def table(measured: dict[str, Measurement]) -> str:
    """The comparison, one row for each model."""
    lines = [
        f"{'':<8}{'accuracy':>10}{'answer length':>16}{'entropy':>18}",
        f"{'':<8}{'%':>10}{'tokens':>16}{'bits per token':>18}",
    ]
    for name, found in measured.items():
        lines.append(f"{name:<8}{100 * found.accuracy:>10.1f}{found.length:>16.1f}{found.entropy_bits:>18.3f}")
    return "\n".join(lines)


def verdict(measured: dict[str, Measurement]) -> str:
    """One sentence that says how CES came out against DAPO, whichever way it is."""
    dapo, ces = measured["DAPO"], measured["CES"]
    points = 100 * (ces.accuracy - dapo.accuracy)
    length, entropy = 100 * (ces.length / dapo.length - 1), 100 * (ces.entropy_bits / dapo.entropy_bits - 1)
    return (
        f"CES against DAPO: accuracy {points:+.1f} points, answer length {length:+.0f} %, entropy {entropy:+.0f} %. "
        "(One seed; docs/quickstart.md has three.)"
    )


def examples(measured: dict[str, Measurement], count: int = 3) -> str:
    """The first answer of each model to each of the first problems: not chosen, so some may be wrong."""
    lines = ['First answers to the first problems ("?" checks the working, "#" gives the answer):']
    for index in range(count):
        prompt = measured["before"].problems[index]
        answer = str(sum(int(term) for term in prompt.rstrip(":").split("+")))
        lines.append(f"  {prompt}")
        for name, found in measured.items():
            texts = found.completions[index]
            right = sum(arithmetic_accuracy_reward(texts, [answer] * len(texts)))
            lines.append(f"    {name:<8}{texts[0]:<40}  {right:.0f} of {len(texts)} answers right")
    return "\n".join(lines)


def write_numbers(file: Path, seed: int, measured: dict[str, Measurement]) -> None:
    """The table's numbers, for a script."""
    rows = {
        name: {"accuracy": found.accuracy, "length_tokens": found.length, "entropy_bits": found.entropy_bits}
        for name, found in measured.items()
    }
    file.write_text(json.dumps({"seed": seed, **rows}, indent=2) + "\n", encoding="utf-8")
