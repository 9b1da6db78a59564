"""The cells of a study, the rows of finished cells, and the tables of the comparison."""

import json
import math
import os
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from pandas import DataFrame
from saved_checkpoints import checkpoint

from trl_ces.lab.study import comparison as tables
from trl_ces.lab.study.cells import Cell, load_study
from trl_ces.lab.study.comparison import average, final_means, make_row, write_curves, write_results
from trl_ces.lab.study.folder import begin_training, check_unchanged, finish_training, is_finished
from trl_ces.lab.study.measuring import check_evaluation
from trl_ces.support.errors import UserError
from trl_ces.support.files import write_json
from trl_ces.support.yaml import parse_yaml, read_yaml
from trl_ces.train.checkpoints import newest_checkpoint
from trl_ces.train.curves import read_curves
from trl_ces.train.recipe import find_config

STUDIES = sorted((Path(__file__).parents[3] / "experiments").glob("*/study.yaml"))
PLAIN = {
    "output_dir": "out",
    "seeds": [3, 5],
    "methods": {"DAPO": {"config": ["arithmetic", "dapo"]}, "CES w/o b": {"config": "arithmetic", "ces_tau": 0.5}},
}


def make_study(tmp_path, **changes):
    file = tmp_path / "small.yaml"
    content = {name: value for name, value in {**PLAIN, **changes}.items() if value is not None}
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return load_study(file)


def test_each_method_and_seed_has_a_cell_with_a_recipe(tmp_path):
    study = make_study(tmp_path, overrides={"ces_tau": 0.1, "max_steps": 7, "model_name_or_path": "base/{seed}"})
    assert [(cell.method, cell.seed, str(cell.folder)) for cell in study.cells] == [
        ("DAPO", 3, "out/dapo/seed-3"),
        ("DAPO", 5, "out/dapo/seed-5"),
        ("CES w/o b", 3, "out/ces_w_o_b/seed-3"),
        ("CES w/o b", 5, "out/ces_w_o_b/seed-5"),
    ]
    recipe = study.cells[-1].recipe
    assert (recipe["seed"], recipe["output_dir"]) == (5, "out/ces_w_o_b/seed-5")
    assert recipe["run_name"] == "small-ces_w_o_b-seed-5"
    assert recipe["shaping"] == "ces"  # from the recipe
    assert recipe["max_steps"] == 7  # the study overrides the recipe
    assert recipe["ces_tau"] == 0.5  # the method overrides both
    assert recipe["model_name_or_path"] == "base/5"
    assert study.cells[0].recipe["ces_tau"] == 0.1
    assert study.baseline == "DAPO"


def test_variants_and_untrained_models_have_separate_cells(tmp_path):
    study = make_study(
        tmp_path,
        variants={"easy 0.2": {"max_steps": 1}, "hard": {"max_steps": 2}},
        untrained="Before",
        evaluation={"function": "trl_ces.lab.tasks.arithmetic_evaluation.evaluate"},
        overrides={"dataset_seed": "{seed}", "model_builder_kwargs": {"seed": "{seed}"}, "run": "{variant}"},
    )
    assert len(study.cells) == 2 * 3 * 2
    first, last = study.cells[0], study.cells[-1]
    assert (first.name, first.has_training) == ("easy 0.2, Before, seed 3", False)
    assert str(first.folder) == "out/easy_0.2/before/seed-3"
    assert first.recipe["shaping"] == "none"  # the baseline's recipe
    assert (last.recipe["dataset_seed"], last.recipe["model_builder_kwargs"]) == (5, {"seed": 5})  # not strings
    assert (last.recipe["run"], last.recipe["max_steps"], last.name) == ("hard", 2, "hard, CES w/o b, seed 5")


def test_an_untrained_model_that_all_seeds_share_has_one_cell(tmp_path):
    settings = {"untrained": "Before", "evaluation": {"function": "f"}}
    shared = make_study(tmp_path, overrides={"model_name_or_path": "base"}, **settings)
    separate = make_study(tmp_path, overrides={"model_name_or_path": "base/{seed}"}, **settings)
    assert [cell.seed for cell in shared.cells if not cell.has_training] == [3]
    assert [cell.seed for cell in separate.cells if not cell.has_training] == [3, 5]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": [1]}, "`seed` is not a key of a study. Did you mean `seeds`?"),
        ({"seeds": []}, "expected distinct whole numbers"),
        ({"seeds": [1, 1]}, "expected distinct whole numbers"),
        ({"seeds": [True]}, "expected distinct whole numbers"),
        ({"seeds": 3}, "`seeds`: expected type list"),
        ({"methods": {}}, "`baseline` '' is not one of the `methods`"),
        ({"methods": {"CES": "arithmetic"}}, "expected a name and a mapping of fields"),
        ({"methods": {"CES": {"ces_tau": 1}}}, "'CES' needs `config`"),
        ({"methods": {"CES": {"config": ["arithmetic", 3]}}}, "a recipe, or a list of a recipe and its overlays"),
        ({"methods": {"CES": {"config": ["arithmetic", "dappo"]}}}, "Did you mean `dapo`"),
        ({"methods": {"a b": {"config": "arithmetic"}, "A-B": {"config": "arithmetic"}}}, "share a folder"),
        ({"baseline": "dapo"}, "`baseline` 'dapo' is not one of the `methods`: DAPO, CES w/o b."),
        ({"overrides": {"seed": 1}}, "`overrides` sets `seed`"),
        ({"methods": {"DAPO": {"config": ["arithmetic", "dapo"], "output_dir": "x"}}}, "sets `output_dir`"),
        ({"variants": {"v": {"output_dir": "x"}}}, "sets `output_dir`"),
        ({"evaluation": {"num_problems": 3}}, "`evaluation` needs `function`"),
        ({"untrained": "Before"}, "`untrained` needs `evaluation`"),
        ({"output_dir": ""}, "`output_dir` is missing"),
        ({"seeds": None}, "`seeds` is missing"),
        ({"methods": {"..": {"config": "arithmetic"}}}, "'..' cannot be converted to a folder name"),
        ({"overrides": {"model_name_or_path": "base/{sed}"}}, "unknown placeholder {sed}: use {seed} or {variant}"),
        ({"untrained": "DAPO", "evaluation": {"function": "f"}}, "share a folder"),
    ],
)
def test_the_error_for_an_invalid_study_suggests_a_fix(tmp_path, changes, message):
    with pytest.raises(UserError) as error:
        make_study(tmp_path, **changes)
    assert message in str(error.value)


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.parent.name)
def test_all_runs_of_shipped_studies_are_valid(file, monkeypatch):
    from trl_ces.train.recipe import make_recipe

    study = load_study(file)
    for cell in study.cells:
        make_recipe(cell.recipe, cell.name).check_training(study.num_processes or 1)
        # The recipe must survive a round trip through YAML; otherwise, a restart would find changed settings.
        assert parse_yaml(yaml.safe_dump(cell.recipe, sort_keys=False, allow_unicode=True)) == cell.recipe
    # The base models of some studies are trained before the study.
    monkeypatch.setattr("trl_ces.lab.inspect.settings.check_model", lambda name: None)
    if study.evaluation and not study.evaluation["function"].startswith("trl_ces.lab.evaluation."):
        check_evaluation(study.evaluation, study.cells[-1].checked_recipe)
    elif study.evaluation:  # the data is unavailable, and the model is on the Hub
        monkeypatch.setattr("trl_ces.lab.evaluation.run.read_model", lambda settings: None)
        with pytest.raises(UserError, match="Set `--data_dir`"):
            check_evaluation({**study.evaluation, "data_dir": "./nowhere"}, study.cells[-1].checked_recipe)
    assert f"trl-ces study --config {file.parent.name}" in file.read_text()
    assert yaml.safe_load(file.read_text())["output_dir"] == str(study.output_dir)


def test_the_shipped_studies_contain_the_papers_methods():
    def methods(name):
        return list(dict.fromkeys(cell.method for cell in load_study(find_config(name, kind="study")).cells))

    paper = ["DAPO", "Entropy Advantage", "CES w/o Dynamic b", "CES w/o Entropy Gradient", "CES"]
    assert methods("arithmetic") == ["Before training", *paper]
    for size in ("7B", "1.5B"):
        names = methods(f"DeepSeek-R1-Distill-Qwen-{size}")
        assert [name for name in names if name != "DAPO with dynamic sampling"] == [f"R1-{size}", *paper]


def test_the_sensitivity_study_contains_the_papers_table_4():
    study = load_study(find_config("sensitivity_7B", kind="study"))
    names = ("ces_tau", "ces_beta_correct", "ces_beta_incorrect")
    grid = [tuple(cell.recipe[name] for name in names) for cell in study.cells if cell.method != "DAPO"]
    assert grid == [(0.005, 1.0, 1.0), (0.01, 1.0, 1.0), (0.05, 1.0, 1.0), (0.01, 0.4, 0.4), (0.01, 2.0, 2.0)]


# Cells and their files


def history(*points):
    rows = [
        {"step": step, "rewards/acc/mean": accuracy, "completions/mean_length": length, "entropy": nats}
        | {"num_tokens": 100.0 * step}
        for step, accuracy, length, nats in points
    ]
    return {"global_step": points[-1][0], "log_history": rows}


def make_cell(tmp_path, **recipe):
    folder = tmp_path / "ces" / "seed-1"
    folder.mkdir(parents=True)
    fields = {"seed": 1, "model_name_or_path": "m", "dataset_name": "d", "output_dir": "o", **recipe}
    return Cell("", "CES", 1, folder, fields)


def test_a_row_contains_the_benchmarks_their_mean_and_final_training_values(tmp_path):
    cell = make_cell(tmp_path, ces_tau=0.2)
    points = [(step, step / 100, 20.0 + step, math.log(2) * step) for step in range(1, 21)]
    write_json(cell.folder / "trainer_state.json", history(*points))
    begin_training(cell)
    assert read_yaml(cell.recipe_file) == cell.recipe
    finish_training(cell)
    benchmarks = {
        "a": {"accuracy": 0.5, "length_tokens": 10.0, "entropy_bits": 0.1},
        "b": {"accuracy": 0.9, "length_tokens": 30.0},
    }
    write_json(cell.folder / "evaluation.json", {"settings": {}, "benchmarks": benchmarks})
    row = make_row(cell, read_curves(cell.folder, "acc"))
    assert (row["method"], row["seed"], row["measured_on"]) == ("CES", 1, "a + b")
    assert row["accuracy"] == pytest.approx(0.7)
    assert row["length_tokens"] == 20.0
    assert "entropy_bits" not in row  # benchmark b has no entropy
    assert (row["a/accuracy"], row["b/length_tokens"]) == (0.5, 30.0)
    # Steps 19 and 20 are the last tenth of the twenty points. Nats are converted to bits.
    assert row["train/accuracy"] == pytest.approx(0.195)
    assert row["train/length_tokens"] == pytest.approx(39.5)
    assert row["train/entropy_bits"] == pytest.approx(19.5)
    assert (row["train/steps"], row["train/tokens"], row["train/attempts"]) == (20, 2000, 1)
    assert json.loads(row["settings"]) == cell.recipe
    assert json.loads(row["packages"])["trl"] == version("trl")


def test_without_an_evaluation_a_row_has_the_final_training_values(tmp_path):
    cell = make_cell(tmp_path)
    write_json(cell.folder / "trainer_state.json", history((4, 0.25, 30.0, 0.0), (8, 0.75, 20.0, math.log(2))))
    begin_training(cell)
    finish_training(cell)
    row = make_row(cell, read_curves(cell.folder, "acc"))
    assert (row["accuracy"], row["length_tokens"], row["measured_on"]) == (0.75, 20.0, "last 10% of the training log")
    assert row["entropy_bits"] == pytest.approx(1.0)


def test_averages_are_unweighted_and_a_short_log_uses_its_last_point():
    assert average({"a": {"accuracy": 1.0}, "b": {"accuracy": 0.0}, "c": {"accuracy": 0.5}}) == {"accuracy": 0.5}
    measures = {"accuracy": 0.5, "length_tokens": 20.0, "area": 0.25}
    assert average({"a": measures, "b": {**measures, "area": 0.75}}) == {**measures, "area": 0.5}
    curve = {"step": [1, 2], "accuracy": [0.0, 1.0], "length": [5.0, 7.0], "entropy": [2.0, 4.0]}
    assert final_means(curve) == {"accuracy": 1.0, "length_tokens": 7.0, "entropy_bits": 4.0}
    empty = final_means({name: [] for name in curve})
    assert all(map(math.isnan, empty.values()))


def test_a_cell_is_finished_if_trained_and_measured_with_the_same_settings(tmp_path):
    cell, settings = make_cell(tmp_path), {"function": "f", "num_problems": 3}
    assert not is_finished(cell, settings)
    write_json(cell.folder / "evaluation.json", {"settings": settings})
    assert not is_finished(cell, settings)  # measured but not trained
    write_json(cell.folder / "training.json", {})
    assert is_finished(cell, settings)
    assert is_finished(cell, None)
    assert not is_finished(cell, {**settings, "num_problems": 4})
    write_json(cell.folder / "evaluation.json", {"settings": {"map": {1: 2}}})  # JSON keys are strings
    assert is_finished(cell, {"map": {1: 2}})


def test_a_folder_with_different_settings_is_rejected(tmp_path):
    cell = make_cell(tmp_path, ces_tau=0.2, env={"OMP_NUM_THREADS": 1})
    fields = {"seed": 1, "model_name_or_path": "m", "dataset_name": "d", "env": {"OMP_NUM_THREADS": "1"}}
    cell.recipe_file.write_text(yaml.safe_dump({**fields, "ces_tau": 0.1, "max_steps": 3}))
    with pytest.raises(UserError, match=r"`ces_tau` was 0.1 and is now 0.2; `max_steps` was 3 and is now None"):
        check_unchanged(cell)
    cell.recipe_file.write_text(yaml.safe_dump({**fields, "ces_tau": 0.2, "output_dir": "moved", "run_name": "x"}))
    check_unchanged(cell)  # `output_dir`, `run_name` and the types of `env` values are ignored


def test_a_resolved_automatic_tau_is_not_a_changed_setting(tmp_path):
    cell = make_cell(tmp_path, ces_tau="auto")
    recipe = {"seed": 1, "model_name_or_path": "m", "dataset_name": "d"}
    cell.recipe_file.write_text(yaml.safe_dump(recipe | {"ces_tau": 0.1739}))
    check_unchanged(cell)
    cell.recipe_file.write_text(yaml.safe_dump(recipe))  # a run with the default `ces_tau`
    with pytest.raises(UserError, match=r"\(`ces_tau` was None and is now 'auto'\)"):
        check_unchanged(cell)


def test_the_clock_includes_training_time_up_to_the_last_checkpoint(tmp_path):
    cell = make_cell(tmp_path)
    write_json(cell.folder / "clock.json", {"seconds_before": 50.0, "started": 1000.0, "attempts": 1})
    for step, saved in ((4, 1030.0), (10, 1070.0), (9, 1060.0)):
        os.utime(checkpoint(cell.folder, step) / "trainer_state.json", (saved, saved))
    assert newest_checkpoint(cell.folder).name == "checkpoint-10"
    begin_training(cell)
    clock = json.loads((cell.folder / "clock.json").read_text())
    assert (clock["seconds_before"], clock["attempts"]) == (120.0, 2)


def test_results_have_one_row_per_run_with_settings_last(tmp_path):
    first = {"method": "A", "train/steps": None, "settings": '{"a": 1}', "packages": "{}"}
    second = {"method": "None", "train/steps": 160, "x": 0.1 + 0.2, "settings": "{}"}
    write_results(tmp_path / "results.csv", [first, second])
    assert (tmp_path / "results.csv").read_bytes().decode().split("\r\n") == [
        "method,train/steps,x,settings,packages",
        'A,,,"{""a"": 1}",{}',
        "None,160,0.30000000000000004,{},",
        "",
    ]


def test_curves_have_one_row_per_logged_point(tmp_path):
    first = {"step": [4, 8], "accuracy": [0.1 + 0.2, 0.5], "length": [20.0, 19.5], "entropy": [0.5, 0.25]}
    second = {"step": [4], "accuracy": [1.0], "length": [17.0], "entropy": [0.125]}
    write_curves(tmp_path / "curves.csv", {("", "None", 3): first, ("hard", "CES", 5): second})
    assert (tmp_path / "curves.csv").read_bytes().decode().split("\r\n") == [
        "variant,method,seed,step,accuracy,length_tokens,entropy_bits",
        ",None,3,4,0.30000000000000004,20.0,0.5",
        ",None,3,8,0.5,19.5,0.25",
        "hard,CES,5,4,1.0,17.0,0.125",
        "",
    ]
    write_curves(tmp_path / "curves.csv", {})
    assert (tmp_path / "curves.csv").read_text().startswith("variant,method,seed,step")


# The comparison


def test_the_interval_is_students_t_interval_over_seeds():
    interval = tables.estimate([1.0, 2.0, 3.0])
    # t(0.975) with 2 degrees of freedom is 4.30265; the standard deviation is 1
    assert interval.mean == 2.0
    assert interval.half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    five = tables.estimate([0.0, 0.0, 0.0, 0.0, 5.0])
    assert five.half_width == pytest.approx(2.776445 * math.sqrt(5) / math.sqrt(5), rel=1e-6)
    assert math.isnan(tables.estimate([1.0]).half_width)
    assert tables.estimate([1.0]).text(100, 1) == "100.0"
    assert interval.text(1, 1, signed=True) == "+2.0 ± 2.5"


def test_differences_are_paired_by_seed_not_by_position():
    rows = [{"seed": 2, "accuracy": 0.9}, {"seed": 1, "accuracy": 0.6}, {"seed": 7, "accuracy": 0.0}]
    baseline = [{"seed": 1, "accuracy": 0.5}, {"seed": 2, "accuracy": 0.8}]
    difference = tables.paired_difference(DataFrame(rows), DataFrame(baseline), "accuracy")
    assert difference.mean == pytest.approx(0.1)
    assert difference.half_width == pytest.approx(0.0, abs=1e-12)
    assert tables.paired_difference(DataFrame(rows[2:]), DataFrame(baseline), "accuracy") is None


def make_run(method, seed, accuracy, length, variant=""):
    identity = {"variant": variant, "method": method, "seed": seed, "measured_on": "easy + hard"}
    benchmarks = {
        "easy/accuracy": accuracy + 0.1,
        "easy/length_tokens": length - 1,
        "hard/accuracy": accuracy - 0.1,
        "hard/length_tokens": length + 1,
    }
    return {**identity, "accuracy": accuracy, "length_tokens": length, **benchmarks, "train/accuracy": 0.0}


def test_the_tables_have_the_papers_layout():
    runs = DataFrame(
        [
            make_run("DAPO", 0, 0.5, 20.0),
            make_run("DAPO", 1, 0.7, 22.0),
            make_run("CES", 0, 0.6, 17.0),
            make_run("CES", 1, 0.8, 19.0),
            make_run("strong", 0, 0.4, 30.0),
        ]
    )
    assert tables.method_table(runs, "DAPO") == [
        ["Method", "Runs", "Acc ↑, %", "Δ", "Len ↓, tokens", "Δ"],
        ["DAPO", "2", "60.0 ± 127.1", "", "21.0 ± 12.7", ""],
        ["CES", "2", "70.0 ± 127.1", "+10.0 ± 0.0", "18.0 ± 12.7", "-3.0 ± 0.0"],
        ["strong", "1", "40.0", "-10.0", "30.0", "+10.0"],
    ]
    runs["entropy_bits"] = [0.5, 0.5, 0.25, math.nan, 0.5]  # NaN: one run has diverged
    entropies = [line[6:] for line in tables.method_table(runs, "DAPO")[1:]]
    assert entropies == [["0.500 ± 0.000", ""], ["nan", "-0.250"], ["0.500", "+0.000"]]
    assert tables.benchmark_table(runs[runs["method"] != "CES"]) == [
        ["Dataset", "DAPO Acc", "DAPO Len", "strong Acc", "strong Len"],
        ["easy", "70.0 ± 127.1", "20.0 ± 12.7", "50.0", "29.0"],
        ["hard", "50.0 ± 127.1", "22.0 ± 12.7", "30.0", "31.0"],
        ["Average", "60.0 ± 127.1", "21.0 ± 12.7", "40.0", "30.0"],
    ]
    assert tables.benchmark_table(runs.drop(columns=["hard/accuracy", "hard/length_tokens"])) == []


def test_each_variant_has_the_same_weight():
    rows = [
        # In variant "a", CES is better by 0.1 (seed 0) and 0.3 (seed 1), and shorter by 2 and 4 tokens.
        # In variant "b", CES is worse by 0.1 and longer by 1 token.
        make_run("DAPO", 0, 0.5, 20.0, "a"),
        make_run("DAPO", 1, 0.5, 20.0, "a"),
        make_run("CES", 0, 0.6, 18.0, "a"),
        make_run("CES", 1, 0.8, 16.0, "a"),
        make_run("DAPO", 0, 0.5, 20.0, "b"),
        make_run("CES", 0, 0.4, 21.0, "b"),
        make_run("unpaired", 7, 0.4, 21.0, "b"),
        # In variant "c", CES is better by 0.2 and shorter by 1 token.
        make_run("DAPO", 0, 0.5, 20.0, "c"),
        make_run("CES", 0, 0.7, 19.0, "c"),
    ]
    rows[3]["hard/accuracy"] = 0.6  # in variant "a", CES is better on "hard" by only 0.1 and 0.2
    header, *lines = tables.variants_table(DataFrame(rows), "DAPO")
    assert header == ["Method", "Dataset", "Δ Acc", "Acc higher in", "Δ Len", "Len lower in"]
    # t(0.975, 2) = 4.303. The accuracy differences per variant are 0.2, -0.1 and 0.2, so the half width is
    # 4.303 * 0.1. The length differences are -3, 1 and -1, so the half width is 4.303 * 2 / sqrt(3).
    assert lines[0] == ["CES", "easy", "+10.0 ± 43.0", "2 of 3", "-1.0 ± 5.0", "2 of 3"]
    assert lines[1][1:4] == ["hard", "+8.3 ± 39.9", "2 of 3"]
    assert lines[2][1:] == ["Average", *lines[0][2:]]
    assert lines[5] == ["unpaired", "Average", "", "0 of 0", "", "0 of 0"]
    assert len(lines) == 6
    assert tables.variants_table(DataFrame(rows[:4]), "DAPO") == []


def test_equal_mean_accuracies_do_not_count_as_higher():
    # The differences -0.01, 0.03 and -0.02 do not sum to 0 in floating point.
    before, after = (0.57, 0.7, 0.9), (0.56, 0.73, 0.88)
    assert sum(b - a for a, b in zip(before, after, strict=True)) > 0
    rows = [
        make_run(method, seed, accuracy, 20.0, variant)
        for variant in ("a", "b")
        for method, accuracies in (("DAPO", before), ("CES", after))
        for seed, accuracy in enumerate(accuracies)
    ]
    _, _, higher, _, shorter = tables.variants_table(DataFrame(rows), "DAPO")[-1][1:]
    assert (higher, shorter) == ("0 of 2", "0 of 2")


def test_one_untrained_row_is_compared_with_all_baseline_seeds():
    baseline = [make_run("DAPO", seed, accuracy, 10.0) | {"train/steps": 8} for seed, accuracy in ((3, 0.5), (5, 0.7))]
    rows = DataFrame([make_run("Before", 3, 0.4, 30.0) | {"train/steps": None}, *baseline])
    difference = tables.paired_difference(rows[:1], rows[1:], "accuracy")
    assert difference.mean == pytest.approx((0.4 - 0.5 + 0.4 - 0.7) / 2)
    assert tables.method_table(rows, "DAPO")[1][:4] == ["Before", "1", "40.0", "-20.0 ± 127.1"]
