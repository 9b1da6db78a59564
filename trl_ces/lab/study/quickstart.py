"""CES beside DAPO on a model so small that this machine's CPU trains both in minutes.

A base model learns to write additions with their working (worlds/arithmetic.py). Then `trl-ces train` trains it twice
from the same start, seed and problems, once by DAPO and once by CES, and all three models answer the same held-out
problems.
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
from ...support.tables import markdown
from ...train.curves import plot_curves, read_curves
from ..tasks.arithmetic import arithmetic_accuracy_reward, load_problems, read_prompt, write_solution
from ..tasks.arithmetic_evaluation import Measurement, measure
from .processes import Pending, Step, run_all

METHODS = {"DAPO": ["arithmetic", "dapo"], "CES": ["arithmetic"]}  # name -> recipe, in the order of training
RL_STEPS = 160
BASE_STEPS = 450
HELD_OUT_PROBLEMS, SAMPLES, SAMPLING_SEED = 200, 8, 0
# A model this small gains little from a second thread, and on a busy machine two threads wait for each other.
THREADS = 1
PICTURE, NUMBERS = "quickstart.png", "quickstart.json"
MEASURES = {"accuracy, %": 1, "completion length, tokens": 1, "entropy, bits per token": 3}  # digits shown
# Where 95 % of runs with other seeds or on other machines fall, in the order of `MEASURES`: from the seeds of
# `trl-ces study --config arithmetic`, by Student's t for one more run. A test works them out again.
BANDS = {
    "before": ((70.0, 88.6), (22.7, 24.3), (0.116, 0.149)),
    "DAPO": ((80.8, 100.0), (18.3, 19.6), (0.046, 0.096)),
    "CES": ((84.4, 100.0), (17.4, 17.7), (0.006, 0.067)),
}


def quickstart(
    output_dir: Path,
    stage: Callable[[str, str], AbstractContextManager[Any]],
    seed: int = 0,
    base_steps: int = BASE_STEPS,
    rl_steps: int = RL_STEPS,
    num_problems: int = HELD_OUT_PROBLEMS,
) -> dict[str, Measurement]:
    """Trains and measures the models `before`, `DAPO` and `CES`.

    `output_dir` gets the models `base`, `dapo` and `ces`, a log of each training, a picture and the numbers. `stage`
    makes the context of a part from its number ("1/4") and its title: `show` says how far it is, `remark` adds to it.
    """
    if find_spec("matplotlib") is None:
        raise UserError(f"the picture needs matplotlib: {install_line('quickstart')}.")
    os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))
    folders = {"before": output_dir / "base", **{method: output_dir / method.lower() for method in METHODS}}
    with stage("1/4", "A small model learns to write additions, with slips") as line:
        make_base(folders["before"], seed, base_steps, line)
    for number, method in enumerate(METHODS, start=2):
        with stage(f"{number}/4", f"{method} trains it") as line:
            fields = {"model_name_or_path": folders["before"], "seed": seed, "dataset_seed": seed}
            run_training(method, folders[method], fields | {"max_steps": rl_steps}, line)
    with stage("4/4", f"All three answer {num_problems} problems that no training saw") as line:
        problems = load_problems("held_out", num_problems, SAMPLING_SEED)
        measured = {}
        for number, (name, folder) in enumerate(folders.items(), start=1):
            line.show(f"model {number} of {len(folders)}")
            measured[name] = measure(folder, problems, SAMPLES, SAMPLING_SEED)
        accuracy = arithmetic_accuracy_reward.__name__
        plot_curves({name: [read_curves(folders[name], accuracy)] for name in METHODS}, output_dir / PICTURE)
        rows = {
            name: {"accuracy": found.accuracy, "length_tokens": found.length, "entropy_bits": found.entropy_bits}
            for name, found in measured.items()
        }
        write_json(output_dir / NUMBERS, {"seed": seed, **rows})
    return measured


def make_base(folder: Path, seed: int, steps: int, stage: Any) -> None:
    """Makes the base model, or keeps one that was made with the same settings."""
    import torch
    from transformers.utils import logging

    from ..tasks.arithmetic_model import build_base_model

    logging.disable_progress_bar()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if not build_base_model(
        folder, seed=seed, steps=steps, on_step=lambda done, of, _: stage.show(f"step {done} of {of}")
    ):
        stage.remark(" (kept from before)")


def run_training(method: str, folder: Path, fields: dict[str, Any], stage: Any) -> None:
    """Runs `trl-ces train` as a user would, into `folder`, with its output in a log beside it."""
    log, steps = folder.with_suffix(".log"), fields["max_steps"]
    command = [sys.executable, "-m", "trl_ces.cli.main", "train", "--config", *METHODS[method]]
    for name, value in {"output_dir": folder, **fields}.items():
        command += [f"--{name}", str(value)]

    def show() -> None:
        # The Trainer's progress bar in the log: "| 40/160 ["
        done = re.findall(rf"\b(\d+)/{steps} \[", log.read_text(encoding="utf-8", errors="replace"))
        stage.show(f"step {done[-1]} of {steps}" if done else "starting")

    step = Step(command, log, before=lambda: log.unlink(missing_ok=True))
    for failure in run_all([Pending(method, folder, [step])], [{}], on_wait=show):
        raise failure


def summary(measured: dict[str, Measurement]) -> str:
    """What came out, as text: the table, how it was measured, CES against DAPO, and examples."""
    count = len(measured["before"].problems)
    return (
        f"{table(measured)}\n\n"
        f"Measured on {count} held-out problems x {SAMPLES} completions at temperature 1, sampling seed "
        f"{SAMPLING_SEED}.\n"
        "Length counts the end token; entropy is the sampling distribution's, mean over the completions' tokens.\n"
        f"{outside_bands(measured)}\n{gain(measured)}\n\n{examples(measured)}"
    )


def figures(found: Measurement) -> tuple[float, float, float]:
    """Of one model, in the order and the units of `MEASURES`."""
    return 100 * found.accuracy, found.length, found.entropy_bits


def table(measured: dict[str, Measurement]) -> str:
    """The comparison, a column for each model, with the band of each figure below it."""
    rows = []
    for index, (title, digits) in enumerate(MEASURES.items()):
        rows.append([title, *(f"{figures(found)[index]:.{digits}f}" for found in measured.values())])
        bands = [BANDS[name][index] for name in measured]
        rows.append(["95 % of runs", *(f"{low:.{digits}f} to {high:.{digits}f}" for low, high in bands)])
    return markdown(["", *measured], rows)


def outside_bands(measured: dict[str, Measurement]) -> str:
    """Whether every figure, as it is shown, lies in its band."""
    outside = [
        f"{title.partition(',')[0]} of {name}"
        for name, found in measured.items()
        for value, (low, high), (title, digits) in zip(figures(found), BANDS[name], MEASURES.items(), strict=True)
        if not low <= round(value, digits) <= high
    ]
    if not outside:
        return "Every figure lies where 95 % of runs do, with other seeds or on other machines."
    return (
        f"Outside of where 95 % of runs lie, with other seeds or on other machines: {', '.join(outside)}.\n"
        "One figure in twenty lies outside by chance; if several do, docs/quickstart.md says what to look at."
    )


def gain(measured: dict[str, Measurement]) -> str:
    """CES against DAPO in one sentence, whichever way it went."""
    dapo, ces = measured["DAPO"], measured["CES"]
    points = 100 * (ces.accuracy - dapo.accuracy)
    length, entropy = 100 * (ces.length / dapo.length - 1), 100 * (ces.entropy_bits / dapo.entropy_bits - 1)
    return (
        f"CES against DAPO: accuracy {points:+.1f} points, completion length {length:+.0f} %, entropy "
        f"{entropy:+.0f} %. (One seed; experiments/arithmetic has the mean of several.)"
    )


def examples(measured: dict[str, Measurement], count: int = 3) -> str:
    """Each model's first completion for the first problems: not selected, so some may be wrong."""
    lines = ['First completions for the first problems ("?" checks the working, "#" gives the answer):']
    for index, prompt in enumerate(measured["before"].problems[:count]):
        answer = write_solution(read_prompt(prompt))
        lines.append(f"  {prompt}")
        for name, found in measured.items():
            texts = found.completions[index]
            right = sum(arithmetic_accuracy_reward(texts, [answer] * len(texts)))
            lines.append(f"    {name:<8}{texts[0]:<40}  {right:.0f} of {len(texts)} completions correct")
    return "\n".join(lines)
