"""
Measure the entropy of correct and incorrect completions during training: `python experiments/paper_dose/entropy.py`.

For every checkpoint of the study, the script samples two completions for each of 100 held-out problems. It writes
entropy.csv (entropies in bits per token) and skips runs that the file already contains. Then it prints the table in
README.md.
"""

from pathlib import Path

import pandas
import torch

from trl_ces.lab.evaluation.tables import markdown
from trl_ces.lab.study.cells import load_study
from trl_ces.lab.study.comparison import estimate
from trl_ces.lab.tasks.arithmetic_evaluation import evaluate

FOLDER = Path(__file__).parent
RUN = ["variant", "method", "seed"]


def main() -> None:
    torch.set_num_threads(1)
    file = FOLDER / "entropy.csv"
    rows = pandas.read_csv(file).to_dict("records") if file.exists() else []
    finished_runs = {tuple(row[name] for name in RUN) for row in rows}
    for cell in load_study(FOLDER / "study.yaml").cells:
        run = (cell.variant, cell.method, cell.seed)
        checkpoints = sorted(cell.folder.glob("checkpoint-*"), key=step_of)
        if not cell.has_training or run in finished_runs or not (cell.folder / "evaluation.json").exists():
            continue
        for folder in checkpoints:
            metrics = evaluate(folder, num_problems=100, num_samples=2, max_new_tokens=360, sums=10)["held out"]
            selected = {name: value for name, value in metrics.items() if name.startswith(("accuracy", "entropy"))}
            rows.append(dict(zip(RUN, run, strict=True)) | {"step": step_of(folder)} | selected)
        pandas.DataFrame(rows).to_csv(file, index=False)
        print(", ".join(map(str, run)), flush=True)
    print(table(pandas.DataFrame(rows)))


def table(rows: pandas.DataFrame) -> str:
    """Render the mean entropies of incorrect, correct completions by step, and the differences for incorrect ones."""
    entropies = rows.pivot(index=["variant", "seed", "step"], columns="method")
    incorrect, correct = entropies["entropy_bits_incorrect"], entropies["entropy_bits_correct"]
    lines = []
    for variant, group in incorrect.groupby("variant"):
        steps = [values for _, values in group.groupby("step")]
        for method in incorrect:
            means = [(step[method].mean(), correct.loc[step.index, method].mean()) for step in steps]
            lines.append([str(variant), method, *("{:.3f}, {:.3f}".format(*pair) for pair in means)])
        differences = [estimate(step["CES"] - step["DAPO"]).text(1, 3, signed=True) for step in steps]
        lines.append([str(variant), "CES - DAPO", *differences])
    return markdown(["base accuracy", "method", *(f"step {step}" for step in sorted(rows["step"].unique()))], lines)


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


if __name__ == "__main__":
    main()
