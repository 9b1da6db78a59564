"""Folders as training, study and evaluation write them, with numbers chosen for the tests of the report."""

import csv
import json
import math

PACKAGES = json.dumps({"trl_ces": "0.1.0", "trl": "1.16.0", "torch": "2.13.0", "vllm": "not installed"})


def write_training(folder, points, recipe="", max_steps=8, step=None, reward="accuracy_reward"):
    """A trained run; `points` are (step, accuracy, tokens, bits)."""
    folder.mkdir(parents=True, exist_ok=True)
    history = [
        {
            "step": at,
            f"rewards/{reward}/mean": accuracy,
            "completions/mean_length": length,
            "entropy": bits * math.log(2),
        }
        for at, accuracy, length, bits in points
    ]
    at = step or points[-1][0]
    state = {"log_history": history, "global_step": at, "max_steps": max_steps, "epoch": at / max_steps}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    if recipe:
        (folder / "recipe.yaml").write_text(recipe)
    return folder


POINTS = [(2, 0.5, 20.0, 0.8), (4, 0.6, 18.0, 0.6), (6, 0.7, 15.0, 0.4), (8, 0.8, 12.0, 0.2)]
# Method -> for each seed accuracy and length on the first and on the second set.
STUDY = {
    "DAPO": [((0.8, 20.0), (0.4, 40.0)), ((0.6, 24.0), (0.2, 44.0))],
    "CES w/o Dynamic b": [((0.7, 22.0), (0.4, 38.0)), ((0.7, 22.0), (0.4, 38.0))],
    "CES": [((0.9, 16.0), (0.6, 30.0)), ((0.8, 18.0), (0.5, 32.0))],
}
FIELDS = {
    "DAPO": {"shaping": "none"},
    "CES w/o Dynamic b": {"shaping": "ces", "ces_dynamic_multiplier": False},
    "CES": {"shaping": "ces", "ces_tau": 0.01, "ces_beta_correct": 0.4, "ces_beta_incorrect": 0.4},
}


def write_study(
    folder,
    study=STUDY,
    fields=FIELDS,
    sets=("easy", "hard"),
    curves=True,
    name="mine",
    base="bases/one",
    lines=None,
):
    """A finished study of two seeds, on sets of any name; `lines`: method -> line."""
    folder.mkdir(parents=True)
    rows = []
    for method, seeds in study.items():
        for seed, values in enumerate(seeds):
            cell = f"{method.lower().replace(' ', '_').replace('/', '_')}/seed-{seed}"
            settings = {
                **fields[method],
                "max_train_samples": 64,
                "model_name_or_path": f"{base}/seed-{seed}",
                "output_dir": f"elsewhere/{folder.name}/{cell}",
                "run_name": f"{name}-{cell.replace('/', '-')}",
            }
            row = {"variant": "", "method": method, "seed": seed, "measured_on": " + ".join(sets)}
            row |= {"line": lines.get(method, "")} if lines else {}
            row["accuracy"] = sum(value for value, _ in values) / len(values)
            row["length_tokens"] = sum(value for _, value in values) / len(values)
            for of, (accuracy, length) in zip(sets, values, strict=True):
                row |= {f"{of}/accuracy": accuracy, f"{of}/length_tokens": length}
            rows.append({**row, "train/steps": 8, "settings": json.dumps(settings), "packages": PACKAGES})
    write_csv(folder / "results.csv", rows)
    if curves:
        write_csv(
            folder / "curves.csv",
            [
                {
                    "variant": "",
                    "method": row["method"],
                    "seed": row["seed"],
                    "step": step,
                    "accuracy": accuracy,
                    "length_tokens": length + row["seed"],
                    "entropy_bits": bits,
                }
                for row in rows
                for step, accuracy, length, bits in POINTS
            ],
        )
    return folder


def write_csv(file, rows):
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_evaluation(folder, answers, model="m", whole=True):
    """A finished evaluation; `answers`: benchmark -> problem -> list of (right, tokens), as many for each."""
    folder.mkdir(parents=True)
    count = len(next(iter(next(iter(answers.values())))))
    data = {name: {"problems": len(problems), "digest": name} for name, problems in answers.items()}
    settings = {"model": str(model), "benchmarks": list(answers), "num_samples": count, "data": data}
    settings["max_new_tokens"] = 16384
    (folder / "settings.json").write_text(json.dumps(settings))
    lines = [
        {
            "benchmark": name,
            "problem": problem,
            "sample": sample,
            "seed": 1,
            "gold": "2",
            "answer": "2",
            "correct": right,
            "correct_qwen": bool(right),
            "tokens": tokens,
            "finish_reason": "stop",
            "text": "2",
        }
        for name, problems in answers.items()
        for problem, samples in enumerate(problems)
        for sample, (right, tokens) in enumerate(samples)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines[: len(lines) if whole else 1])
    (folder / "samples.jsonl").write_text(text)
    return folder
