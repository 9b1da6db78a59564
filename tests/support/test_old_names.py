"""Recipes and study folders that name functions where they were go on working, with nothing taken for a change."""

from dataclasses import replace
from pathlib import Path

import pytest

from trl_ces.study.cells import Cell, load_study
from trl_ces.study.folder import check_unchanged, is_finished, write_recipe
from trl_ces.support.files import write_json
from trl_ces.support.old_names import MOVED, current_names
from trl_ces.support.yaml import read_yaml
from trl_ces.train.lookup import find_reward_functions, import_function
from trl_ces.train.recipe import load_recipe

OLD = {
    "trl_ces.arithmetic.arithmetic_accuracy_reward": "reward_funcs",
    "trl_ces.arithmetic_evaluation.evaluate": "evaluation",
    "trl_ces.arithmetic_model.make_base_model": "model_builder",
    "trl_ces.evaluation.run.evaluate": "evaluation",
    "trl_ces.reasoning_tasks.last_number_accuracy_reward": "reward_funcs",
    "trl_ces.smollm2.fetch": "model_builder",
}
SHIPPED = sorted((Path(__file__).parents[2] / "recipes").rglob("*.yaml"))


def in_old_words(text):
    for old, new in MOVED.items():
        text = text.replace(new, old)
    return text


@pytest.mark.parametrize(("old", "field"), OLD.items())
def test_an_old_path_names_the_function_that_it_named(old, field):
    function = import_function(old, field)
    assert function.__name__ == old.rpartition(".")[2]
    assert function is import_function(current_names(old), field)


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_shipped_file_in_old_words_is_read_as_todays(tmp_path, file):
    (tmp_path / "old.yaml").write_text(in_old_words(file.read_text()))
    assert read_yaml(tmp_path / "old.yaml") == read_yaml(file)


def test_a_recipe_in_old_words_is_the_same_recipe(tmp_path):
    for file in SHIPPED:
        if "trl_ces.toy." in file.read_text() and file.parent.name != "study":
            (tmp_path / "old.yaml").write_text(in_old_words(file.read_text()))
            old, new = load_recipe(tmp_path / "old.yaml"), load_recipe(file)
            assert replace(old, source="") == replace(new, source="")
            assert find_reward_functions(old)[0] is find_reward_functions(new)[0]


def test_an_old_path_on_the_command_line_is_found(tmp_path):
    (tmp_path / "recipe.yaml").write_text("model_name_or_path: a/model\noutput_dir: out\ndataset_name: some/data\n")
    words = {"reward_funcs": ["trl_ces.arithmetic.arithmetic_accuracy_reward"]}
    recipe = load_recipe(tmp_path / "recipe.yaml", words)
    assert find_reward_functions(recipe)[0].__module__ == "trl_ces.toy.arithmetic"


def test_a_study_folder_in_old_words_goes_on(tmp_path):
    study = Path(__file__).parents[2] / "recipes" / "study" / "arithmetic.yaml"
    (tmp_path / "arithmetic.yaml").write_text(in_old_words(study.read_text()))
    ours, theirs = load_study(study, tmp_path / "out"), load_study(tmp_path / "arithmetic.yaml", tmp_path / "out")
    assert ours.evaluation == theirs.evaluation
    assert [cell.recipe for cell in ours.cells] == [cell.recipe for cell in theirs.cells]

    cell: Cell = ours.cells[-1]
    cell.folder.mkdir(parents=True)
    write_recipe(cell)
    cell.recipe_file.write_text(in_old_words(cell.recipe_file.read_text()))
    assert "trl_ces.arithmetic_model." in cell.recipe_file.read_text()
    check_unchanged(cell)  # would refuse a run with other settings

    write_json(cell.folder / "training.json", {"seconds": 1.0})
    settings = {**ours.evaluation, "function": "trl_ces.arithmetic_evaluation.evaluate"}
    write_json(cell.folder / "evaluation.json", {"settings": settings, "benchmarks": {}})
    assert is_finished(cell, ours.evaluation)
    write_json(cell.folder / "evaluation.json", {"settings": {**settings, "num_problems": 3}, "benchmarks": {}})
    assert not is_finished(cell, ours.evaluation)
