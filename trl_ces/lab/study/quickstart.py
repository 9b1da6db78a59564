"""Compare CES with DAPO on a model that trains on a CPU in minutes.

A base model learns to solve addition problems by writing intermediate steps (tasks/arithmetic.py). Three methods then
train this model with the same seed and problems: DAPO, CES, and CES on correct completions only. All models are
measured on the same held-out problems.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...support.errors import UserError
from ...support.files import write_json, write_text
from ...support.imports import install_line
from ...support.yaml import dump_yaml
from ...train.curves import plot_curves, read_curves
from ...train.launch import WORKER
from ...train.recipe import compose
from ..evaluation.tables import markdown
from ..tasks.arithmetic import arithmetic_accuracy_reward, load_problems
from .processes import Pending, RunFailed, Step, run_all

if TYPE_CHECKING:
    from datasets import Dataset

METHODS = {  # name -> recipe and overlays, in training order
    "DAPO": ["arithmetic", "dapo"],
    "CES": ["arithmetic"],
    "ces_correct_only": ["arithmetic", "ces_correct_only"],
}
SAMPLES, SAMPLING_SEED = 8, 0
PLOT_FILE, RESULTS_FILE = "quickstart.png", "quickstart.json"
# Measure -> (title, factor to the displayed unit, decimals).
TABLE_ROWS = {
    "accuracy": ("accuracy, %", 100, 1),
    "length_tokens": ("completion length, tokens", 1, 1),
    "entropy_bits": ("entropy, bits per token", 1, 3),
}
# 95 % prediction intervals for a run with a different seed or on a different machine, in the order of `TABLE_ROWS`. A
# test recomputes the intervals with Student's t over the seeds of `trl-ces study --config arithmetic`. That study does
# not include ces_correct_only.
BANDS = {
    "before": ((70.0, 88.6), (22.7, 24.3), (0.116, 0.149)),
    "DAPO": ((80.8, 100.0), (18.3, 19.6), (0.046, 0.096)),
    "CES": ((84.4, 100.0), (17.4, 17.7), (0.006, 0.067)),
}
Measures = dict[str, dict[str, float]]  # model -> measure -> value


def quickstart(
    output_dir: Path,
    stage: Callable[[str], AbstractContextManager[Any]],
    seed: int = 0,
    base_steps: int = 450,
    rl_steps: int = 160,
    num_problems: int = 200,
) -> str:
    """Train and measure the base model (`before`) and one model per method in `METHODS`; return a summary.

    `stage` takes a title and returns a context manager that yields an object with a `show` method for progress.
    """
    if find_spec("matplotlib") is None:
        raise UserError(f"the plot needs matplotlib: {install_line('quickstart')}.")
    # A second thread barely speeds up such a small model, and on a busy machine threads wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    folders = {"before": output_dir / f"base-{seed}", **{method: output_dir / method.lower() for method in METHODS}}
    with stage("1/3  Train a base model on addition problems") as line:
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
    problems = load_problems("held_out", num_problems, SAMPLING_SEED)
    to_measure, results = ["before"], {}

    def measure_next() -> None:
        name = to_measure.pop(0)
        results[name] = measure(folders[name], problems, SAMPLES, SAMPLING_SEED)

    fields = {"model_name_or_path": str(folders["before"]), "seed": seed, "dataset_seed": seed, "max_steps": rl_steps}
    runs = [training(method, folders[method], fields) for method in METHODS]

    def on_wait() -> None:
        line.show(progress(runs, rl_steps))
        if len(results) + len(to_measure) == len(runs) and to_measure:  # only one run is left, so a core is free
            measure_next()

    def on_failure(failure: RunFailed) -> None:
        raise failure  # `run_all` ends the other runs

    with stage("2/3  Train three methods") as line:
        run_all(runs, [{}] * len(runs), on_finish=to_measure.append, on_failure=on_failure, on_wait=on_wait)
    with stage(f"3/3  Measure all models on {num_problems} held-out problems"):
        while to_measure:
            measure_next()
        measures = {name: {key: results[name][0][key] for key in TABLE_ROWS} for name in folders}
        accuracy = arithmetic_accuracy_reward.__name__
        plot_curves({name: [read_curves(folders[name], accuracy)] for name in METHODS}, output_dir / PLOT_FILE)
        write_json(output_dir / RESULTS_FILE, {"seed": seed, **measures})
    return summary(measures, problems, {name: results[name][1] for name in folders})


def summary(measures: Measures, problems: Dataset, completions: dict[str, list[list[str]]]) -> str:
    """Render examples, the comparison table and the measurement settings."""
    return (
        f"{examples(list(problems['prompt']), list(problems['solution']), completions)}\n\n"
        f"{table(measures)}\n\n"
        f"Measured on {len(problems)} held-out problems x {SAMPLES} completions at temperature 1, sampling seed "
        f"{SAMPLING_SEED}.\n"
        "Length includes the end token; entropy is the mean entropy of the sampling distribution over all tokens.\n"
        f"{outside_bands(measures)}\nThis is one seed; experiments/arithmetic compares DAPO and CES over ten seeds."
    )


def training(method: str, folder: Path, fields: dict[str, Any]) -> Pending:
    """Prepare a training run in `folder`; its recipe and log are written next to the folder."""
    recipe, log = folder.with_suffix(".yaml"), folder.with_suffix(".log")
    log.unlink(missing_ok=True)
    content = compose(METHODS[method]) | {"output_dir": str(folder), "overwrite_output_dir": True, **fields}
    write_text(recipe, dump_yaml(content))
    return Pending(method, folder, [Step([sys.executable, "-P", "-m", WORKER, "--recipe", str(recipe)], log)])


def progress(runs: Sequence[Pending], steps: int) -> str:
    """Return the number of steps that each run has completed, from the progress bar in its log (`| 40/160 [`)."""
    done = {}
    for run in runs:
        log = run.steps[0].log
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        done[run.name] = (re.findall(rf"\b(\d+)/{steps} \[", text) or ["0"])[-1]
    return f"{', '.join(f'{name} {count}' for name, count in done.items())} of {steps}"


def table(measures: Measures) -> str:
    """Render a table with one column per model and, below each measure, a row with the available `BANDS`."""
    rows = []
    for index, (name, (title, factor, digits)) in enumerate(TABLE_ROWS.items()):
        rows.append([title, *(f"{factor * values[name]:.{digits}f}" for values in measures.values())])
        bands = {
            model: "{:.{d}f} to {:.{d}f}".format(*model_bands[index], d=digits) for model, model_bands in BANDS.items()
        }
        rows.append(["95 % of runs", *(bands.get(model, "") for model in measures)])
    return markdown(["", *measures], rows)


def outside_bands(measures: Measures) -> str:
    """Return a sentence that lists the displayed results outside their band."""
    outside = [
        f"{title.partition(',')[0]} of {model}"
        for model, values in measures.items()
        if model in BANDS
        for (name, (title, factor, digits)), (low, high) in zip(TABLE_ROWS.items(), BANDS[model], strict=True)
        if not low <= round(factor * values[name], digits) <= high
    ]
    if not outside:
        return "All results lie within the expected 95 % range."
    # 1 - 0.95^9 is 0.37; the nine values are correlated.
    return f"Outside the expected 95 % range: {', '.join(outside)}. About one run in three has such a value."


def examples(prompts: list[str], solutions: list[str], completions: dict[str, list[list[str]]], count: int = 2) -> str:
    """List, for the first problems, each model's first completion and its number of correct completions."""
    lines = ['First completion of each model for the first problems ("?" starts a re-check, "#" the final answer):']
    for row, (prompt, solution) in enumerate(zip(prompts[:count], solutions, strict=False)):
        lines.append(f"  {prompt}")
        for model, texts in completions.items():
            samples = texts[row]
            correct = sum(arithmetic_accuracy_reward(samples, [solution] * len(samples)))
            lines.append(f"    {model:<18}{samples[0]:<40}  {correct:.0f} of {len(samples)} completions correct")
    return "\n".join(lines)
