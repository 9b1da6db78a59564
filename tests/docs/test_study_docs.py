"""What the pages of experiments/, docs/study.md and README.md say follows from the results beside the pages."""

import re
from pathlib import Path

import pandas
import pytest
import torch
from docs_blocks import words_of

from trl_ces.lab.study.cells import load_study
from trl_ces.lab.study.comparison import estimate
from trl_ces.lab.study.results import comparison, read_results
from trl_ces.lab.tasks.arithmetic_model import BASE_TRAINING, _new_model, build_tokenizer
from trl_ces.methods.ces import selection_size
from trl_ces.train.recipe import find_config, make_recipe

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"
# Their figures are in test_thirty_worlds.py, test_forty_worlds.py and test_arena.py.
PARTS = ("thirty_worlds", "forty_worlds", "forty_more_worlds", "arena", "arena_strengths", "arena_long")
RESULTS = sorted(file for file in EXPERIMENTS.glob("*/results.csv") if file.parent.name not in PARTS)


def tables_of(text):
    """The tables that begin as those of a comparison do."""
    return [part.strip() for part in text.split("\n\n") if part.startswith("| Method")]


def results_of(name, **pivot):
    return pandas.read_csv(EXPERIMENTS / name / "results.csv").pivot(**pivot)


def test_there_are_results():
    assert "arithmetic" in {file.parent.name for file in RESULTS}


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.parent.name)
def test_the_page_shows_what_the_results_give(file):
    """The table over all variants if there are several, else the one table of methods."""
    study = load_study(find_config(file.parent.name, kind="study"))
    runs = read_results(file)
    assert sorted(runs[["variant", "method", "seed"]].itertuples(index=False, name=None)) == sorted(
        (cell.variant, cell.method, cell.seed) for cell in study.cells
    )
    page = file.with_name("README.md")
    assert f"`trl-ces study --config {file.parent.name} --jobs " in words_of(page)
    shown = tables_of(page.read_text(encoding="utf-8"))
    if file.parent.name == "pareto":  # its own table, below
        assert not shown
    else:
        assert shown == tables_of(comparison(runs, study.baseline))[-1:]


def test_every_run_of_the_weak_base_models_is_shown():
    found = results_of("weak_and_long", index="seed", columns="method", values=["accuracy", "length_tokens"])
    lines = []
    for seed in found.index:
        accuracy, length = 100 * found["accuracy"].loc[seed], found["length_tokens"].loc[seed]
        lines.append(f"{accuracy['Before training']:.1f} %, {length['Before training']:.1f} tokens")
        lines[-1] += "".join(
            f" | {accuracy[name]:.1f} %, {length[name]:.1f}" for name in ("DAPO", "CES, tau 0.01", "CES, tau 0.2")
        )
    page, study = EXPERIMENTS / "weak_and_long" / "README.md", EXPERIMENTS.parent / "docs" / "study.md"
    assert len(lines) == 2
    for line in lines:
        assert f"| {line} |" in page.read_text(encoding="utf-8")
    ruined = found["accuracy"]["CES, tau 0.01"] < found["accuracy"]["Before training"] / 2
    assert list(ruined) == [True, False]
    said = "At the paper's 0.01 a base model correct in {:.1f} % was ruined, too, without the trainer's warning, one "
    before = 100 * found["accuracy"]["Before training"]
    assert said.format(*before) + f"correct in {before.iloc[1]:.0f} % was not" in words_of(study)
    said = f"correct in {before.iloc[1]:.0f} % was not ruined, one in {before.iloc[0]:.1f} % was ("
    assert said in words_of(EXPERIMENTS.parent / "README.md")


def test_the_table_of_pareto_shows_its_results():
    runs = pandas.read_csv(EXPERIMENTS / "pareto" / "results.csv").set_index(["variant", "method"]).sort_index()
    text = (EXPERIMENTS / "pareto" / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\|.*±.*±.*±.*±.*±.*±.*\|$", text, flags=re.MULTILINE)
    assert len(lines) == 14
    for line in lines:
        method, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        expected = []
        for world in ("check 0.3", "check 0.6", "tokens buy accuracy"):
            own = runs.loc[(world, method)]
            expected += [estimate(list(own["accuracy"])).text(100, 1), estimate(list(own["length_tokens"])).text(1, 1)]
        assert cells == expected, method


def cells_of(table):
    """First cell of a row -> the others."""
    lines = re.findall(r"^\|.*±.*", table, flags=re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first: rest for first, *rest in rows}


def test_readme_shows_means_of_the_study_with_their_intervals():
    parts = comparison(read_results(EXPERIMENTS / "arithmetic" / "results.csv"), "DAPO").split("\n\n")
    table = next(part for part in parts if part.startswith("| Method"))
    found = cells_of(table)
    means = {name: cells[1::2] for name, cells in found.items()}  # after the number of runs, means and differences
    shown = cells_of((ROOT / "README.md").read_text(encoding="utf-8").partition("Means over ten seeds")[2])
    assert shown == {
        "before": means["Before training"],
        "DAPO": means["DAPO"],
        "CES": means["CES"],
        "CES - DAPO, by seed": found["CES"][2::2],
    }


ALONE, RULE = "CES, correct answers only", "CES and MAI, correct answers only"


@pytest.mark.parametrize(
    ("name", "method", "measure", "pages"),
    [
        ("arithmetic_long", "CES", "length_tokens", ["README.md", "docs/study.md"]),
        ("arithmetic_long", "CES", "accuracy", ["README.md", "docs/study.md"]),
        ("arithmetic_carry", "CES", "accuracy", ["docs/study.md"]),
        ("smollm2_135m", "CES", "accuracy", ["README.md", "docs/study.md"]),
        ("smollm2_135m", "CES + ALP", "accuracy", ["docs/study.md"]),
        ("smollm2_135m", ALONE, "accuracy", ["docs/study.md"]),
        ("smollm2_135m", RULE, "accuracy", ["README.md", "docs/study.md"]),
        ("smollm2_135m", RULE, "length_tokens", ["README.md"]),
    ],
)
def test_a_difference_to_dapo_in_the_text_is_that_of_the_results(name, method, measure, pages):
    runs = results_of(name, index="seed", columns="method", values=measure)
    factor = 100 if measure == "accuracy" else 1
    difference = estimate(list((runs[method] - runs["DAPO"]).dropna())).text(factor, 1).lstrip("-")
    for page in pages:
        assert difference in words_of(ROOT / page)


def test_what_readme_says_beside_its_tables_is_so():
    said = words_of(ROOT / "README.md")

    def mean(name, method, measure):
        return results_of(name, index="seed", columns="method", values=measure)[method].mean()

    assert f"shorter than DAPO's {mean('arithmetic_long', 'DAPO', 'length_tokens'):.1f}." in said
    for model, name in (("its base model is", "arithmetic"), ("On SmolLM2-135M, which is", "smollm2_135m")):
        share = mean(name, "Before training", "accuracy")
        assert f"{model} correct {100 * share:.0f} % of the time" in said
    pareto = pandas.read_csv(EXPERIMENTS / "pareto" / "results.csv")
    rewards = {method.split()[0] for method in pareto["method"]} - {"CES", "DAPO", "Before"}
    assert (len(rewards), pareto["variant"].nunique()) == (6, 3)
    assert "Against six length rewards on three worlds" in said
    weights = _new_model(build_tokenizer(), 0, BASE_TRAINING["layers"], BASE_TRAINING["width"]).num_parameters()
    assert f"a model of {round(weights, -3):,} weights" in said
    shaped = [selection_size(torch.tensor([99, 100]), 0.01), selection_size(torch.tensor([199, 200]), 0.01, (1, 2))]
    assert [sizes.tolist() for sizes in shaped] == [[0, 1], [0, 1]]
    assert "shorter than 100 tokens are not shaped at all, nor below 200 where half of the group is correct" in said
    measured = (EXPERIMENTS / "h100" / "README.md").read_text(encoding="utf-8")
    time = re.search(r"without shaping / `GRPOTrainer` \| (0\.\d+) \[", measured)[1]
    assert f"takes {100 * float(time):.0f} % of the time" in said
    assert f"none / TRL takes {time} [" in words_of(ROOT / "docs" / "performance.md")


def thirty_worlds():
    """Their results, a column per measure and method."""
    return pandas.read_csv(EXPERIMENTS / "forecast" / "worlds.csv").pivot(index="number", columns="method")


def test_what_is_said_of_correct_answers_only_is_so():
    runs = pandas.read_csv(EXPERIMENTS / "mostly_wrong" / "results.csv").set_index(["variant", "seed", "method"])
    accuracy, length = (100 * runs["accuracy"]).unstack(), runs["length_tokens"].unstack()
    assert ((accuracy[ALONE] > accuracy["DAPO"]).sum(), (accuracy[ALONE] > accuracy["CES"]).sum()) == (9, 9)
    assert ((accuracy.idxmax(axis=1) == ALONE).sum(), (length.idxmin(axis=1) == ALONE).sum()) == (8, 8)
    gain = (accuracy[ALONE] - accuracy["DAPO"]).groupby("variant").mean()
    assert [round(value, 1) for value in (gain.min(), gain.max())] == [4.0, 7.8]
    shorter = (length["DAPO"] - length[ALONE]).groupby("variant").mean()
    assert [round(value) for value in (shorter.min(), shorter.max())] == [3, 6]
    before = accuracy["Before training"].groupby("variant").mean()
    assert [round(value) for value in before] == [54, 47, 38]


def test_what_is_said_of_the_forecast_is_so():
    worlds, lines = thirty_worlds().stack("method", future_stack=True), []
    large = worlds[worlds["change"].abs() > worlds["error"]]
    hit = (large["change"] > 0) == (large["forecast"] > 0)
    told = large["verdict"] != "cannot tell"
    for name in ("DAPO", "CES", "both"):
        own = large.index.get_level_values("method").isin(["DAPO", "CES"] if name == "both" else [name])
        counts = [60 if name == "both" else 30, own.sum(), hit[own].sum(), f"{100 * hit[own].mean():.0f} %"]
        counts += [told[own].sum(), (hit & told)[own].sum(), (large["change"] < 0)[own].sum()]
        lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
    page = EXPERIMENTS / "forecast" / "README.md"
    assert "\n".join(lines) in page.read_text(encoding="utf-8")
    came_true = {
        verdict: f"{hit[large['verdict'] == verdict].sum()} of {(large['verdict'] == verdict).sum()}"
        for verdict in ("shortens", "lengthens")
    }
    assert came_true == {"shortens": "37 of 38", "lengthens": "4 of 8"}
    assert all(count in words_of(page) for count in came_true.values())


def test_what_is_said_of_accuracy_on_the_thirty_worlds_is_so():
    worlds = thirty_worlds()
    before, after = worlds["accuracy_before"]["CES"], worlds["accuracy_after"]
    wrong = before < 0.4
    assert (wrong.sum(), (after["CES"][wrong] < 0.01).sum()) == (14, 13)
    assert round(after["CES"][wrong].max(), 3) == 0.065
    assert [round(value, 2) for value in (after["DAPO"][wrong].min(), after["DAPO"][wrong].max())] == [0.01, 0.51]
    assert (after["CES"] > after["DAPO"])[~wrong].sum() == 6
    assert [round(value, 2) for value in (before[~wrong].min(), before.max())] == [0.46, 0.72]
    assert after["CES"][~wrong].min() > 0.35
    for chosen in (wrong, ~wrong):
        difference = estimate(list((after["CES"] - after["DAPO"])[chosen])).text(100, 1, signed=True)
        assert f"{difference} points" in words_of(EXPERIMENTS / "forecast" / "README.md")


def test_the_table_of_the_thirty_worlds_is_that_of_the_results():
    worlds, lines = thirty_worlds(), []
    before, after = worlds["accuracy_before"]["CES"], worlds["accuracy_after"]
    points, tokens = after["CES"] - after["DAPO"], worlds["change"]["CES"] - worlds["change"]["DAPO"]
    for title, chosen in (
        ("under 40 %", before < 0.4),
        ("40 to 60 %", (before >= 0.4) & (before <= 0.6)),
        ("over 60 %", before > 0.6),
    ):
        ruined = [(after[method] < before / 2)[chosen].sum() for method in ("CES", "DAPO")]
        difference = estimate(list(points[chosen])).text(100, 1, signed=True)
        above = (points[chosen] > 0).sum()
        lines.append(f"| {title} | {chosen.sum()} | {difference} | {above} | {ruined[0]}; {ruined[1]} |")
    assert "\n".join(lines) in (EXPERIMENTS / "forecast" / "README.md").read_text(encoding="utf-8")
    for page in (ROOT / "README.md", EXPERIMENTS / "forecast" / "README.md"):
        assert estimate(list(points)).text(100, 1).lstrip("-") in words_of(page)
        assert estimate(list(tokens)).text(1, 1, signed=True) in words_of(page)
    assert ((points > 0) & (tokens < 0)).sum() == 6


def test_what_is_said_of_the_length_of_wrong_completions_is_so():
    runs = results_of("length_of_wrong", index="seed", columns="method", values=["accuracy", "length_tokens"])
    page, study = words_of(EXPERIMENTS / "length_of_wrong" / "README.md"), words_of(ROOT / "docs" / "study.md")
    for method, around in {
        "Kimi": "Kimi is {} points above itself without it, in as many tokens ({})",
        "ShorterBetter": "ShorterBetter {} ({} tokens)",
        "linear": "linear {} ({})",
        "ALP": "ALP {} ({})",
    }.items():
        gained, longer = (
            estimate(list(runs[measure][f"{method}, correct only"] - runs[measure][method])).text(
                scale, 1, signed=True
            )
            for measure, scale in {"accuracy": 100, "length_tokens": 1}.items()
        )
        assert around.format(gained.lstrip("+"), longer) in page
        assert method != "Kimi" or f"`correct_only` is worth {gained.lstrip('+')} points to Kimi" in study


def test_the_pages_own_study_is_one(tmp_path):
    block = re.search(r"```yaml\n(.*?)```", (ROOT / "docs" / "study.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    (tmp_path / "mine.yaml").write_text(block, encoding="utf-8")
    study = load_study(tmp_path / "mine.yaml")
    assert len(study.cells) == (3 * 3 + 1) * 2  # methods and seeds, the untrained model once, variants
    assert study.cells[-1].recipe["max_completion_length"] == 64
    for cell in study.cells:
        make_recipe(cell.recipe, cell.name).check_training(2)


def test_the_page_of_copies_says_what_its_csv_holds():
    page = (EXPERIMENTS / "copies" / "README.md").read_text()
    runs = pandas.read_csv(EXPERIMENTS / "copies" / "rollouts.csv")
    for (method, reward, seed), run in runs.groupby(["method", "reward", "seed"]):
        first, last = run.iloc[0], run.tail(5).mean(numeric_only=True)
        copies = f"{100 * first.copies:.0f} | {100 * last.copies:.1f}"
        right = f"{100 * first.right:.0f} | {100 * last.right:.1f}"
        assert f"| {method} | {reward} | {seed} | {copies} | {right} | {last.tokens:.1f} |" in page
    by_value = runs[runs.reward == "by value"].groupby(["method", "seed"])
    assert max(run[run.copies > 0.5].step.min() for _, run in by_value) == 32


def test_the_first_gpus_page_shows_its_rollouts():
    found = pandas.read_csv(EXPERIMENTS / "h100" / "vllm.csv", index_col="step")
    text = words_of(EXPERIMENTS / "h100" / "README.md")
    last = found.tail(5).mean()
    rows = {"correct in the first rollout": found.iloc[0], "correct in the last five": last}
    for name, row in rows.items():
        assert f"| {name} | {100 * row.vllm_accuracy:.1f} % | {100 * row.cpu_accuracy:.1f} % |" in text
    assert f"| tokens in the last five | {last.vllm_tokens:.1f} | {last.cpu_tokens:.1f} |" in text
    first, end = (found.logp_difference_mean.iloc[row] for row in (0, -1))
    highest = found.logp_difference_max.max()
    assert f"by {first:.4f} per token at first and by {end:.4f} at the end ({highest:.2f} at most)" in text


def test_the_first_gpus_tables_are_what_was_printed():
    folder = EXPERIMENTS / "h100"
    page, printed = words_of(folder / "README.md"), words_of(folder / "output.txt")
    time = re.search(
        r"\| 2 \| (\S+ \[.*?\]) \| (\S+ \[.*?\]) \| (\S+) % \| 0.0 % \| (\S+) \| (\d+) \| (\d+) % \|", printed
    )
    assert f"`GRPOTrainer` | {time[1]} |" in page
    assert f"time, CES / without shaping | {time[2]} |" in page
    assert f"{float(time[3]):.0f} % of TRL's positions are padding" in page
    assert f"Gradients are {100 * float(time[4]):.1f} % apart" in page
    assert f"{int(time[5]):,} tokens a second, {time[6]} % of the rate" in page
    packed = re.search(r"packed / trimmed, time (\S+ \[.*?\])", printed)[1]
    assert f"longest of a micro-batch | {packed} |" in page
    trl, none, ces = re.search(r"\| 2 \| (\d+) MiB \| (\S+) \| (\S+) \|", printed).groups()
    assert f"`GRPOTrainer` ({int(trl):,} MiB) | {none} |" in page
    assert f"peak memory, CES / without shaping | {ces} |" in page
    assert re.search(r"\| 2 x 12032 \| yes \| (.*? %) \|", printed)[1] in page
    assert printed.count("| 18793 | 0.0e+00 | 0.0e+00 | 100.0% |") == 3
    times = [float(one) for one in re.findall(r"x 12000 \| \d+ \| (\S+) ms", printed)]
    assert "{:.1f}, {:.1f}, {:.1f} and {:.1f} ms for 1, 2, 4 and 8 rows".format(*times) in page
