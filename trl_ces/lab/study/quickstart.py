"""Compare CES with DAPO on a model that trains on a CPU in minutes.

A base model learns to write additions with intermediate steps (tasks/arithmetic.py). `trl-ces train` then trains it
with DAPO and with CES, from the same seed and problems. All three models are measured on the same held-out problems.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...support.errors import UserError
from ...support.files import write_json
from ...support.imports import install_line
from ...train.curves import plot_curves, read_curves
from ..evaluation.tables import markdown
from ..tasks.arithmetic import arithmetic_accuracy_reward, load_problems
from .processes import Pending, Step, run_all

METHODS = {"DAPO": ["arithmetic", "dapo"], "CES": ["arithmetic"]}  # name -> recipe and overlays, in training order
SAMPLES, SAMPLING_SEED = 8, 0
PICTURE, NUMBERS = "quickstart.png", "quickstart.json"
# Measure -> (title, factor to the displayed unit, decimals).
SHOWN = {
    "accuracy": ("accuracy, %", 100, 1),
    "length_tokens": ("completion length, tokens", 1, 1),
    "entropy_bits": ("entropy, bits per token", 1, 3),
}
# 95 % prediction intervals for a run with another seed or on another machine, in the order of `SHOWN`. They are
# computed with Student's t over the seeds of `trl-ces study --config arithmetic`; a test recomputes them.
BANDS = {
    "before": ((70.0, 88.6), (22.7, 24.3), (0.116, 0.149)),
    "DAPO": ((80.8, 100.0), (18.3, 19.6), (0.046, 0.096)),
    "CES": ((84.4, 100.0), (17.4, 17.7), (0.006, 0.067)),
}
Measures = dict[str, dict[str, float]]  # model -> its measures


def quickstart(
    output_dir: Path,
    stage: Callable[[str], AbstractContextManager[Any]],
    seed: int = 0,
    base_steps: int = 450,
    rl_steps: int = 160,
    num_problems: int = 200,
) -> str:
    """
    Train and measure the models `before`, `DAPO` and `CES`, and return a summary; an existing base model is reused.

    `stage` takes a title and returns a context manager of an object whose `show` method displays progress.
    """
    if find_spec("matplotlib") is None:
        raise UserError(f"the plot needs matplotlib: {install_line('quickstart')}.")
    # A second thread hardly speeds up such a small model, and on a busy machine the threads wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    folders = {"before": output_dir / f"base-{seed}", **{method: output_dir / method.lower() for method in METHODS}}
    with stage("1/4  Train a small base model on additions with arithmetic errors") as line:
        import torch
        from transformers.utils import logging

        from ..tasks.arithmetic_evaluation import measure
        from ..tasks.arithmetic_model import make_base_model

        logging.disable_progress_bar()
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        make_base_model(
            str(folders["before"]),
            lambda done, steps, _: line.show(f"step {done} of {steps}"),
            seed=seed,
            steps=base_steps,
        )
    for number, method in enumerate(METHODS, start=2):
        with stage(f"{number}/4  Train it with {method}") as line:
            fields = {"model_name_or_path": folders["before"], "seed": seed, "dataset_seed": seed}
            run_training(method, folders[method], fields | {"max_steps": rl_steps}, line)
    with stage(f"4/4  Measure all three on {num_problems} held-out problems") as line:
        problems = load_problems("held_out", num_problems, SAMPLING_SEED)
        measures, completions = {}, {}
        for number, (name, folder) in enumerate(folders.items(), start=1):
            line.show(f"model {number} of {len(folders)}")
            model_measures, completions[name] = measure(folder, problems, SAMPLES, SAMPLING_SEED)
            measures[name] = {measure_name: model_measures[measure_name] for measure_name in SHOWN}
        accuracy = arithmetic_accuracy_reward.__name__
        plot_curves({name: [read_curves(folders[name], accuracy)] for name in METHODS}, output_dir / PICTURE)
        write_json(output_dir / NUMBERS, {"seed": seed, **measures})
    return (
        f"{table(measures)}\n\n"
        f"Measured on {num_problems} held-out problems x {SAMPLES} completions at temperature 1, sampling seed "
        f"{SAMPLING_SEED}.\n"
        "Length includes the end token; entropy is the mean entropy of the sampling distribution over all tokens.\n"
        f"{outside_bands(measures)}\n{gain(measures)}\n\n"
        f"{examples(list(problems['prompt']), list(problems['solution']), completions)}"
    )


def run_training(method: str, folder: Path, fields: dict[str, Any], stage: Any) -> None:
    """Run the command `trl-ces train` with `folder` as output directory and a log file next to it."""
    log, steps = folder.with_suffix(".log"), fields["max_steps"]
    command = [sys.executable, "-P", "-m", "trl_ces.cli.main", "train", "--config", *METHODS[method]]
    for name, value in {"output_dir": folder, "overwrite_output_dir": True, **fields}.items():
        command += [f"--{name}", str(value)]

    def show_progress() -> None:
        # In the log, the Trainer's progress bar looks like "| 40/160 [".
        done = re.findall(rf"\b(\d+)/{steps} \[", log.read_text(encoding="utf-8", errors="replace"))
        stage.show(f"step {done[-1]} of {steps}" if done else "starting")

    step = Step(command, log, before=lambda: log.unlink(missing_ok=True))
    for failure in run_all([Pending(method, folder, [step])], [{}], on_wait=show_progress):
        raise failure


def table(measures: Measures) -> str:
    """Render the comparison with one column per model and, below each measure, a row with the bands."""
    rows = []
    for place, (name, (title, factor, digits)) in enumerate(SHOWN.items()):
        rows.append([title, *(f"{factor * values[name]:.{digits}f}" for values in measures.values())])
        bands = [BANDS[model][place] for model in measures]
        rows.append(["95 % of runs", *(f"{low:.{digits}f} to {high:.{digits}f}" for low, high in bands)])
    return markdown(["", *measures], rows)


def outside_bands(measures: Measures) -> str:
    """List the rounded results that are outside their band."""
    outside = [
        f"{title.partition(',')[0]} of {model}"
        for model, values in measures.items()
        for (name, (title, factor, digits)), (low, high) in zip(SHOWN.items(), BANDS[model], strict=True)
        if not low <= round(factor * values[name], digits) <= high
    ]
    if not outside:
        return "All results lie within the expected 95 % range."
    return f"Outside the expected 95 % range: {', '.join(outside)}. See docs/quickstart.md."


def gain(measures: Measures) -> str:
    """Compare CES with DAPO in one sentence."""
    dapo, ces = measures["DAPO"], measures["CES"]
    points = 100 * (ces["accuracy"] - dapo["accuracy"])
    length, entropy = (100 * (ces[name] / dapo[name] - 1) for name in ("length_tokens", "entropy_bits"))
    return (
        f"CES vs. DAPO: accuracy {points:+.1f} points, completion length {length:+.0f} %, entropy "
        f"{entropy:+.0f} %. (One seed; experiments/arithmetic has the mean over ten.)"
    )


def examples(prompts: list[str], solutions: list[str], completions: dict[str, list[list[str]]], count: int = 3) -> str:
    """List each model's first completion of the first problems, and how many of its completions are correct."""
    lines = ['First completions of the first problems ("?" starts a re-check, "#" the final answer):']
    for row, (prompt, solution) in enumerate(zip(prompts[:count], solutions, strict=False)):
        lines.append(f"  {prompt}")
        for model, texts in completions.items():
            samples = texts[row]
            correct = sum(arithmetic_accuracy_reward(samples, [solution] * len(samples)))
            lines.append(f"    {model:<8}{samples[0]:<40}  {correct:.0f} of {len(samples)} completions correct")
    return "\n".join(lines)
