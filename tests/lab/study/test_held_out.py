"""`held_out.evaluate` samples completions for held-out problems and grades them with the recipe's accuracy reward."""

import json
import statistics

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM

from trl_ces.lab.inspect.sampling import sample_recipe
from trl_ces.lab.inspect.settings import Prompts, Sampling, recipe_to_sample
from trl_ces.lab.study.held_out import check_evaluate, evaluate
from trl_ces.lab.tasks.arithmetic import load_problems
from trl_ces.lab.tasks.arithmetic_model import build_base_model
from trl_ces.support.errors import UserError
from trl_ces.train.data import load_datasets
from trl_ces.train.recipe import compose, load_recipe

REWARD = '''"""Reward for a test."""

def accuracy_reward(completions, solution, **kwargs):
    return [None if "=" not in text else float(len(text) % 2 == int(gold) % 2)
            for text, gold in zip(completions, solution)]
'''


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    build_base_model(folder, steps=60, batch_size=16)
    return folder


@pytest.fixture
def recipe_file(tmp_path, monkeypatch):
    """Write the recipe of the toy task with a reward that returns 1, 0 or None."""
    (tmp_path / "parity_reward.py").write_text(REWARD)
    monkeypatch.syspath_prepend(tmp_path)
    fields = compose(["arithmetic"])
    fields |= {"reward_funcs": ["parity_reward.accuracy_reward"], "max_completion_length": 20}
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(fields))
    return file


def test_completions_of_the_held_out_problems_are_measured(base, recipe_file):
    measures = evaluate(base, str(recipe_file), num_problems=6, num_samples=3, seed=4, batch_size=9)
    assert list(measures) == ["held out"]
    problems = load_problems("held_out", 6, 0)
    recipe = recipe_to_sample([str(recipe_file)], {}, model=str(base))
    sampling = Sampling(num_samples=3, max_new_tokens=20, tau=0.2, seed=4, batch_size=9)
    prompts = Prompts(list(problems["prompt"]), {"solution": list(problems["solution"])})
    sample = sample_recipe(recipe, prompts, sampling)
    assert {True, False, None} == set(sample.correct)
    assert measures["held out"]["accuracy"] == sample.correct.count(True) / 18
    assert measures["held out"]["length_tokens"] == statistics.fmean(len(row.tokens) for row in sample.completions)
    pairs = zip(sample.completions, sample.correct, strict=True)
    area = sum(correct is True and 1 - len(row.tokens) / 20 for row, correct in pairs) / 18
    assert measures["held out"]["area"] == pytest.approx(area)
    bits = [value for row in sample.completions for value in row.entropies]
    assert measures["held out"]["entropy_bits"] == pytest.approx(sum(bits) / len(bits))


def test_dtype_replaces_the_recipes_dtype(base, recipe_file, monkeypatch):
    loaded = []
    load = AutoModelForCausalLM.from_pretrained
    monkeypatch.setattr(
        AutoModelForCausalLM,
        "from_pretrained",
        lambda *args, **kwargs: loaded.append(load(*args, **kwargs)) or loaded[-1],
    )
    evaluate(base, str(recipe_file), num_problems=2, num_samples=1)
    evaluate(base, str(recipe_file), num_problems=2, num_samples=1, dtype="bfloat16")
    assert [model.dtype for model in loaded] == [torch.float32, torch.bfloat16]
    with pytest.raises(UserError, match=r"dtype.*bf16"):
        check_evaluate(str(recipe_file), dtype="bf16")


def test_problems_are_grouped_by_a_data_column(base, recipe_file, monkeypatch):
    data = load_problems("held_out", 4, 0).add_column("task", ["sum", "product", "sum", "sum"])
    monkeypatch.setattr("trl_ces.lab.study.held_out.load_datasets", lambda script: (None, data))
    measures = evaluate(base, str(recipe_file), num_problems=4, num_samples=2, group_by="task")
    assert list(measures) == ["product", "sum"]
    overall = evaluate(base, str(recipe_file), num_problems=4, num_samples=2)["held out"]
    # Three quarters of the completions are for sums.
    for name in ("accuracy", "length_tokens"):
        assert overall[name] == pytest.approx(0.25 * measures["product"][name] + 0.75 * measures["sum"][name])


@pytest.fixture
def recorded_problems(monkeypatch):
    """Record each question and its solution instead of sampling, and stop the evaluation with `UserError`."""
    problems = {}

    def collect(recipe, prompts, sampling):
        questions = [prompt[-1]["content"] for prompt in prompts.prompts]
        problems.update(zip(questions, prompts.columns["solution"], strict=True))
        raise UserError("collected")

    monkeypatch.setattr("trl_ces.lab.inspect.sampling.sample_recipe", collect)
    monkeypatch.setattr("trl_ces.lab.inspect.settings.check_model", lambda name: None)
    return problems


def test_evaluation_problems_are_not_in_the_recipes_training_data(recorded_problems):
    train, _ = load_datasets(load_recipe("smollm2_135m").script)
    with pytest.raises(UserError, match="collected"):
        evaluate("model", "smollm2_135m", num_problems=30)
    assert len(recorded_problems) == 30
    assert not {prompt[-1]["content"] for prompt in train["prompt"]} & set(recorded_problems)


def test_data_replaces_the_recipes_problems(recipe_file, tmp_path, recorded_problems):
    file = tmp_path / "test.jsonl"
    rows = [{"question": f"{number}+1=", "answer": str(number + 1)} for number in range(5)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match="collected"):
        evaluate("model", str(recipe_file), num_problems=5, data=str(file))
    assert recorded_problems == {row["question"]: row["answer"] for row in rows}
    check_evaluate(str(recipe_file), num_problems=5, data=str(file))
    (tmp_path / "train.jsonl").write_text("")
    recorded_problems.clear()
    with pytest.raises(UserError, match="collected"):  # uses the test file in the folder
        evaluate("model", str(recipe_file), num_problems=5, data=str(tmp_path))
    assert recorded_problems == {row["question"]: row["answer"] for row in rows}


def test_invalid_evaluation_settings_are_rejected_before_the_first_run(recipe_file):
    check_evaluate(str(recipe_file), num_problems=5)
    with pytest.raises(UserError, match="`group_by` is 'task', but the dataset has the columns solution"):
        check_evaluate(str(recipe_file), group_by="task")
    with pytest.raises(UserError, match=r"nowhere\.yaml does not exist"):
        check_evaluate("nowhere.yaml")


def test_a_recipe_that_trains_on_all_its_data_is_rejected(recipe_file, tmp_path):
    lines = [json.dumps({"problem": f"1+{number}=", "answer": str(number + 1)}) for number in range(30)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    fields = yaml.safe_load(recipe_file.read_text()) | {"dataset_name": str(tmp_path / "data.jsonl")}
    fields = {name: value for name, value in fields.items() if name not in ("dataset_builder", "max_train_samples")}
    recipe_file.write_text(yaml.safe_dump(fields))
    with pytest.raises(UserError, match="the recipe trains on all of"):
        check_evaluate(str(recipe_file), num_problems=4)
    recipe_file.write_text(yaml.safe_dump(fields | {"num_eval_samples": 5}))
    check_evaluate(str(recipe_file), num_problems=4)
    with pytest.raises(UserError, match="`num_problems` is 6, but only 5 problems exist"):
        check_evaluate(str(recipe_file), num_problems=6)
