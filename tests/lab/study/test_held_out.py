"""The evaluation by a recipe asks its held-out problems and counts what its accuracy reward says."""

import json
import statistics

import pytest
import yaml

from trl_ces.lab.inspect.sampling import sample_recipe
from trl_ces.lab.inspect.settings import Prompts, Sampling, recipe_to_sample
from trl_ces.lab.study.held_out import check_evaluate, evaluate
from trl_ces.lab.tasks.arithmetic import load_problems
from trl_ces.lab.tasks.arithmetic_model import build_base_model
from trl_ces.support.errors import UserError
from trl_ces.train.data import load_datasets
from trl_ces.train.recipe import compose, load_recipe

REWARD = '''"""A reward of a test."""

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
    """The small world's recipe with a reward that gives every verdict."""
    (tmp_path / "odd_reward.py").write_text(REWARD)
    monkeypatch.syspath_prepend(tmp_path)
    fields = compose(["arithmetic"])
    fields |= {"reward_funcs": ["odd_reward.accuracy_reward"], "max_completion_length": 20}
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(fields))
    return file


def test_it_measures_answers_to_the_held_out_problems(base, recipe_file):
    found = evaluate(base, str(recipe_file), num_problems=6, num_samples=3, seed=4, batch_size=9)
    assert list(found) == ["held out"]
    problems = load_problems("held_out", 6, 0)
    recipe = recipe_to_sample([str(recipe_file)], {}, model=str(base))
    sampling = Sampling(num_samples=3, max_new_tokens=20, tau=0.2, seed=4, batch_size=9)
    asked = Prompts(list(problems["prompt"]), {"solution": list(problems["solution"])})
    sample = sample_recipe(recipe, asked, sampling)
    assert {True, False, None} == set(sample.correct)
    assert found["held out"]["accuracy"] == sample.correct.count(True) / 18
    assert found["held out"]["length_tokens"] == statistics.fmean(len(one.tokens) for one in sample.answers)
    left = [
        verdict is True and 1 - len(one.tokens) / 20
        for one, verdict in zip(sample.answers, sample.correct, strict=True)
    ]
    assert found["held out"]["area"] == pytest.approx(sum(left) / 18)
    bits = [value for one in sample.answers for value in one.entropies]
    assert found["held out"]["entropy_bits"] == pytest.approx(sum(bits) / len(bits))


def test_a_column_of_the_data_groups_the_problems(base, recipe_file, monkeypatch):
    data = load_problems("held_out", 4, 0).add_column("task", ["sum", "product", "sum", "sum"])
    monkeypatch.setattr("trl_ces.lab.study.held_out.load_datasets", lambda script, say: (None, data))
    found = evaluate(base, str(recipe_file), num_problems=4, num_samples=2, group_by="task")
    assert list(found) == ["product", "sum"]
    whole = evaluate(base, str(recipe_file), num_problems=4, num_samples=2)["held out"]
    # The mean over answers, of which three quarters are of sums.
    for measure in ("accuracy", "length_tokens"):
        assert whole[measure] == pytest.approx(0.25 * found["product"][measure] + 0.75 * found["sum"][measure])


def test_its_problems_are_in_no_training_of_the_recipe(base):
    script = load_recipe("smollm2_135m").script
    train, _ = load_datasets(script, say=lambda text: None)
    questions = {prompt[-1]["content"] for prompt in train["prompt"]}
    seen = []

    def keep(recipe, asked, sampling):
        seen.extend(prompt[-1]["content"] for prompt in asked.prompts)
        raise UserError("enough")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trl_ces.lab.inspect.sampling.sample_recipe", keep)
        with pytest.raises(UserError, match="enough"):
            evaluate(base, "smollm2_135m", num_problems=30)
    assert len(seen) == 30
    assert not questions & set(seen)


def test_a_file_of_other_problems_may_be_named(recipe_file, tmp_path, monkeypatch):
    file = tmp_path / "test.jsonl"
    rows = [{"question": f"{number}+1=", "answer": str(number + 1)} for number in range(5)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    seen = {}

    def keep(recipe, asked, sampling):
        seen.update(zip((prompt[-1]["content"] for prompt in asked.prompts), asked.columns["solution"], strict=True))
        raise UserError("enough")

    monkeypatch.setattr("trl_ces.lab.inspect.sampling.sample_recipe", keep)
    monkeypatch.setattr("trl_ces.lab.inspect.settings.check_model", lambda name: None)
    with pytest.raises(UserError, match="enough"):
        evaluate("model", str(recipe_file), num_problems=5, data=str(file))
    assert seen == {row["question"]: row["answer"] for row in rows}
    check_evaluate(str(recipe_file), num_problems=5, data=str(file))
    with pytest.raises(UserError, match="6 are asked for"):
        check_evaluate(str(recipe_file), num_problems=6, data=str(file))


def test_what_no_model_could_be_measured_with_is_refused_before_the_first_run(recipe_file):
    check_evaluate(str(recipe_file), num_problems=5)
    with pytest.raises(UserError, match="no column 'task' to group by; they have solution"):
        check_evaluate(str(recipe_file), group_by="task")
    with pytest.raises(UserError, match=r"nowhere\.yaml does not exist"):
        check_evaluate("nowhere.yaml")


def test_a_recipe_without_verdicts_is_named(base, recipe_file, monkeypatch):
    monkeypatch.setattr("odd_reward.accuracy_reward", lambda completions, **kwargs: 1 / 0, raising=False)
    with pytest.raises(UserError, match=r"gives no verdicts: The reward function .* raised ZeroDivisionError"):
        evaluate(base, str(recipe_file), num_problems=2, num_samples=1)


def test_data_of_ones_own_are_measured_on_what_the_recipe_itself_holds_out(recipe_file, tmp_path):
    lines = [json.dumps({"problem": f"1+{number}=", "answer": str(number + 1)}) for number in range(30)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    fields = yaml.safe_load(recipe_file.read_text()) | {
        "dataset_name": str(tmp_path / "data.jsonl"),
        "dataset_builder": None,
    }
    del fields["max_train_samples"]

    def refused(num_problems, **changes):
        recipe_file.write_text(yaml.safe_dump(fields | changes))
        with pytest.raises(UserError) as error:
            check_evaluate(str(recipe_file), num_problems)
        return str(error.value)

    assert "the recipe trains on all of" in refused(4)
    assert "holds 5 problems out, and 6 are asked for" in refused(6, num_eval_samples=5)
    check_evaluate(str(recipe_file), num_problems=4)  # of the five
