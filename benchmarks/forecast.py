"""The forecast of `trl-ces inspect` on worlds that it never saw: does the sign of the length's change come true?

    trl-ces bench forecast --output_dir runs/forecast                       # 30 worlds, about 4 core hours
    trl-ces bench forecast --output_dir runs/forecast --first 1 --last 15   # a part: run the other one beside it

Draws worlds from the ranges below, makes each its base model, forecasts, trains it by DAPO and by CES with the recipes
of recipes/arithmetic, and measures held-out problems before and after. docs/study/forecast.md has the protocol. What
is done is kept: the same command continues. Writes `worlds.csv` and `worlds.md` of the worlds that are finished.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

from trl_ces.support.errors import UserError

# The protocol. Change nothing here once a world has been run.
WORLDS, SEED = 30, 1605
CHECK, SLIP, FORGET = (0.10, 0.65), (0.05, 0.40), (0.30, 0.90)  # uniform; every other world forgets no carry
TERMS = {1: (4, 5), 2: (2, 4), 3: (2, 3)}  # digits -> fewest and most terms; fewer would make too few problems
LONGEST = 128  # tokens, as in the study of checks
PROMPTS, SAMPLES = 128, 32  # that the forecast is made of
HELD_OUT, ANSWERS = 200, 8
METHODS = {"DAPO": "arithmetic/dapo", "CES": "arithmetic/ces"}
TARGET = 0.9


def draw_worlds(count: int = WORLDS, seed: int = SEED) -> list[dict]:
    """The worlds, as fields of `World` and the seed of the base model; the first ones whatever the count."""
    rng, worlds = random.Random(seed), []
    for number in range(1, count + 1):
        digits = sorted(TERMS)[number % len(TERMS)]
        terms = sorted(rng.randint(*TERMS[digits]) for _ in range(2))
        forget = round(rng.uniform(*FORGET), 2)
        worlds.append(
            {
                "seed": number,
                "digits": digits,
                "min_terms": terms[0],
                "max_terms": terms[1],
                "check_probability": round(rng.uniform(*CHECK), 2),
                "slip_probability": round(rng.uniform(*SLIP), 2),
                # A number of one digit has no column to carry into.
                "forget_probability": forget if number % 2 and digits > 1 else 0.0,
            }
        )
    return worlds


def problems_of(world: dict) -> dict:
    """What the problems of a world look like, as `dataset_kwargs` takes it."""
    return {name: world[name] for name in ("digits", "min_terms", "max_terms")}


def run_world(folder: Path, world: dict, options: argparse.Namespace) -> None:
    """Base model, forecasts, trainings and lengths of one world; keeps what is there."""
    from trl_ces.toy.arithmetic_model import make_base_model

    folder.mkdir(parents=True, exist_ok=True)
    setup = {"world": world, "base_steps": options.base_steps, "steps": options.steps, "seeds": options.seeds}
    setup |= {"prompts": options.prompts, "samples": options.samples}
    keep(folder / "setup.json", lambda: setup)
    if json.loads((folder / "setup.json").read_text()) != setup:
        raise UserError(f"{folder} was run with other settings: name another --output_dir.")
    base = folder / "base"
    make_base_model(str(base), steps=options.base_steps, **world)
    keep(folder / "forecast.json", lambda: forecasts(base, world, options))
    keep(folder / "before.json", lambda: lengths(base, world))
    for method, recipe in METHODS.items():
        for seed in range(options.seeds):
            trained = folder / f"{method.lower()}-{seed}"

            def train_and_measure(recipe=recipe, seed=seed, trained=trained):
                train(recipe, base, trained, world, seed, options.steps)
                return lengths(trained, world)

            keep(folder / f"{method.lower()}-{seed}.json", train_and_measure)


def keep(file: Path, make) -> None:
    """Writes what `make` returns, unless the file is there; a killed run leaves no half file."""
    if file.is_file():
        return
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(make(), indent=1) + "\n")
    partial.rename(file)


def forecasts(base: Path, world: dict, options: argparse.Namespace) -> dict:
    """What `trl-ces inspect` would say of the base model, by method."""
    from trl_ces.forks.forecast import forecast
    from trl_ces.forks.sampling import sample_recipe
    from trl_ces.forks.settings import Sampling, read_prompts, recipe_to_sample
    from trl_ces.train.shipped import find_recipe

    overrides = {"dataset_kwargs": [json.dumps(problems_of(world))], "max_completion_length": [str(LONGEST)]}
    recipe = recipe_to_sample(find_recipe(METHODS["CES"]), overrides, model=str(base))
    sampling = Sampling.of_recipe(recipe, num_samples=options.samples, batch_size=256)
    sample = sample_recipe(recipe, read_prompts(recipe, options.prompts), sampling)
    betas = (recipe.setting("ces_beta_correct"), recipe.setting("ces_beta_incorrect"))
    found = forecast(sample.answers, sample.correct or [], tau=sampling.tau, betas=betas)
    return {one.method: {"change": one.change, "error": one.error, "verdict": one.verdict} for one in found}


def train(recipe: str, base: Path, trained: Path, world: dict, seed: int, steps: int) -> None:
    """`trl-ces train`, as a user starts it."""
    words = {
        "config": recipe,
        "model_name_or_path": base,
        "dataset_kwargs": json.dumps(problems_of(world)),
        "max_completion_length": LONGEST,
        "output_dir": trained,
        "seed": seed,
        "dataset_seed": seed,
        "max_steps": steps,
    }
    command = [sys.executable, "-m", "trl_ces.cli.main", "train"]
    for name, value in words.items():
        command += [f"--{name}", str(value)]
    log = trained.with_suffix(".log")
    with log.open("w") as output:
        code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    if code:
        raise UserError(f"The training into {trained} failed with exit code {code}: read {log}.")


def lengths(model: Path, world: dict) -> dict:
    """Accuracy, and the mean length of the answers to each held-out problem, in tokens, the end token included."""
    from trl_ces.toy.arithmetic import load_problems
    from trl_ces.toy.arithmetic_evaluation import measure

    problems = load_problems("held_out", HELD_OUT, 0, **problems_of(world))
    found = measure(model, problems, ANSWERS, 0, LONGEST)
    # A character is a token.
    means = [statistics.fmean(min(len(text) + 1, LONGEST) for text in texts) for texts in found.completions]
    return {"accuracy": found.accuracy, "lengths": means}


def change_of(before: list[float], after: list[list[float]]) -> tuple[float, float]:
    """
    The mean change of length and its standard error.

    Args:
        before (`list[float]`): Per problem.
        after (`list[list[float]]`): Per training seed and problem.

    Returns:
        `tuple[float, float]`: Tokens. The error is over problems, paired; with several seeds over these too.
    """
    per_problem = [statistics.fmean(values) - old for old, *values in zip(before, *after, strict=True)]
    variance = statistics.variance(per_problem) / len(per_problem)
    if len(after) > 1:
        variance += statistics.variance([statistics.fmean(values) for values in after]) / len(after)
    return statistics.fmean(per_problem), math.sqrt(variance)


def results(output_dir: Path, worlds: list[dict]) -> list[dict]:
    """One row per finished world and method."""
    rows = []
    for number, world in enumerate(worlds, start=1):
        folder = output_dir / f"world-{number:02}"
        before = read(folder / "before.json")
        for method in METHODS:
            after = [read(file) for file in sorted(folder.glob(f"{method.lower()}-*.json"))]
            setup, said = read(folder / "setup.json"), read(folder / "forecast.json")
            if not before or not after or len(after) < setup["seeds"]:
                continue
            change, error = change_of(before["lengths"], [one["lengths"] for one in after])
            expected = said.get(method, {"change": math.nan, "error": math.nan, "verdict": "cannot tell"})
            large = abs(change) > error
            rows.append(
                {
                    "number": number,
                    **world,
                    "method": method,
                    "accuracy_before": before["accuracy"],
                    "accuracy_after": statistics.fmean(one["accuracy"] for one in after),
                    "length_before": statistics.fmean(before["lengths"]),
                    "forecast": expected["change"],
                    "forecast_error": expected["error"],
                    "verdict": expected["verdict"],
                    "change": change,
                    "error": error,
                    "hit": (change > 0) == (expected["change"] > 0) if large else None,
                }
            )
    return rows


def read(file: Path) -> dict:
    return json.loads(file.read_text()) if file.is_file() else {}


def report(rows: list[dict]) -> str:
    """The hits by method, then every world; a miss is marked."""
    lines = [
        '| | worlds | changed | sign right | share | of those told | right | "shortens" always |',
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for method in (*METHODS, "both"):
        mine = [row for row in rows if method in (row["method"], "both")]
        large = [row for row in mine if row["hit"] is not None]
        told = [row for row in large if row["verdict"] != "cannot tell"]
        hits, right = sum(row["hit"] for row in large), sum(row["hit"] for row in told)
        share = f"{100 * hits / len(large):.0f} %" if large else "-"
        constant = sum(row["change"] < 0 for row in large)  # what a forecast without looking would hit
        cells = [method, len(mine), len(large), hits, share, len(told), right, constant]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += [
        "",
        f'Target: {100 * TARGET:.0f} %. `changed`: by more than one standard error. `told`: not "cannot tell".',
        "",
        "| world | digits | terms | check | slip | forget | method | length | forecast | measured | |",
        "|--:|--:|--:|--:|--:|--:|---|--:|--:|--:|---|",
    ]
    marks = {True: "", False: "**miss**", None: "no change"}
    for row in rows:
        lines.append(
            f"| {row['number']} | {row['digits']} | {row['min_terms']}-{row['max_terms']} "
            f"| {row['check_probability']:.2f} | {row['slip_probability']:.2f} | {row['forget_probability']:.2f} "
            f"| {row['method']} | {row['length_before']:.1f} | {row['forecast']:+.1f} ± {row['forecast_error']:.1f}"
            f"{' (cannot tell)' if row['verdict'] == 'cannot tell' else ''} "
            f"| {row['change']:+.1f} ± {row['error']:.1f} | {marks[row['hit']]} |"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=Path, default=Path("runs/forecast"))
    parser.add_argument("--first", type=int, default=1, help="first world to run (1)")
    parser.add_argument("--last", type=int, default=WORLDS, help=f"last world to run ({WORLDS})")
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each method (1)")
    parser.add_argument("--steps", type=int, default=160, help="of a training; fewer only to try this out (160)")
    parser.add_argument("--base_steps", type=int, default=450, help="of a base model; likewise (450)")
    parser.add_argument("--prompts", type=int, default=PROMPTS, help=f"of the forecast; likewise ({PROMPTS})")
    parser.add_argument("--samples", type=int, default=SAMPLES, help=f"per prompt; likewise ({SAMPLES})")
    options = parser.parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    import pandas as pd

    worlds = draw_worlds(max(options.last, WORLDS))
    for number in range(options.first, options.last + 1):
        run_world(options.output_dir / f"world-{number:02}", worlds[number - 1], options)
        rows = results(options.output_dir, worlds)
        pd.DataFrame(rows).to_csv(options.output_dir / "worlds.csv", index=False)
        (options.output_dir / "worlds.md").write_text(report(rows) + "\n")
        for row in rows:
            if row["number"] == number:
                print(
                    f"world {number} {row['method']}: forecast {row['forecast']:+.1f}, measured {row['change']:+.1f}",
                    flush=True,
                )
    print(f"\n{report(results(options.output_dir, worlds))}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
