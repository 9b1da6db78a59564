"""
Train the base models of this experiment: `python experiments/paper_dose/base_models.py [SEED ...]`.

For each seed, one model is trained on the task for 1,200 steps. For each accuracy range, a copy of this model is then
trained for 200 more steps on texts whose share of arithmetic errors leads to an accuracy in this range. Existing
models are not replaced.
"""

import sys
from pathlib import Path

from trl_ces.lab.tasks.arithmetic import ToyTask
from trl_ces.lab.tasks.arithmetic_model import build_base_model

FOLDER = Path("runs/study/paper_dose/base")
ERROR_RATES = {"10_to_20": 0.2, "30_to_40": 0.105, "55_to_65": 0.05, "75_to_85": 0.008}


def main() -> None:
    for seed in map(int, sys.argv[1:] or range(8)):
        start = build(FOLDER / f"start-{seed}", error_rate=0.03, seed=seed, steps=1200)
        for name, error_rate in ERROR_RATES.items():
            build(
                FOLDER / f"{name}-{seed}",
                error_rate,
                seed=1000 + seed,
                steps=200,
                learning_rate=1e-3,
                start_from=start,
            )


def build(folder: Path, error_rate: float, **training: object) -> Path:
    """Train a base model unless its folder exists, and return the folder."""
    if not folder.is_dir():
        partial = folder.with_name(f".{folder.name}.partial")
        build_base_model(partial, ToyTask(sums=10, slip_probability=error_rate), batch_size=16, **training)
        partial.rename(folder)
        print(f"Trained {folder}.", flush=True)
    return folder


if __name__ == "__main__":
    main()
