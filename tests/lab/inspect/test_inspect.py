"""`trl-ces inspect` from the outside: its table for a model known by hand, its files, and what it refuses."""

import json
import math
import re

import pandas as pd
import pytest
import torch
from bigram import ENTROPY_OF_A, bigram_model
from peft import LoraConfig, get_peft_model
from tiny import save_tiny, tiny_tokenizer

from trl_ces.cli.main import main
from trl_ces.lab.inspect.table import pairs_table

REWARDS = """
def y_is_right(completions, prompts, solution, completion_ids, thinking_prefilled, last_turns, **kwargs):
    assert len(prompts) == len(solution) == len(completion_ids) == len(thinking_prefilled) == len(completions)
    texts = [completion[0]["content"] for completion in completions]
    assert texts == last_turns and set(texts) == {"x", "yzw"}
    return [float(text == "yzw") if gold != "?" else None for text, gold in zip(texts, solution)]

async def y_is_right_later(completions, **kwargs):
    return [float(completion[0]["content"] == "yzw") for completion in completions]

def build(name, **settings):
    raise ValueError(f"asked to build {name} with {settings}")

def broken(**kwargs):
    raise KeyError("environment")

def none_is_right(completions, level, **kwargs):
    return [float(completion[0]["content"] == level) for completion in completions]
"""
RECIPE = """model_name_or_path: {model}
output_dir: {folder}/never
dataset_name: {folder}/data.jsonl
system_prompt: null
use_cpu: true
dtype: float32
reward_funcs: [inspect_test_rewards.y_is_right]
max_completion_length: 8
ces_tau: 0.25
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, data, rewards and a recipe. The chat template ends in "a", after which the model hesitates."""
    folder = tmp_path_factory.mktemp("inspect")
    bigram_model().save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    rows = [{"question": f"{n}+{n}=", "answer": "?" if n == 0 else "1", "level": n} for n in range(4)]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "inspect_test_rewards.py").write_text(REWARDS)
    (folder / "recipe.yaml").write_text(RECIPE.format(model=folder / "model", folder=folder))
    return folder


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)


def inspect(capsys, *words, code=0):
    found = main(["inspect", *map(str, words)])
    said = capsys.readouterr()
    assert found == code, said.err
    assert all(len(line) <= 119 for line in said.out.splitlines() if "/" not in line)  # a path is not broken
    assert "100%" in said.err  # shown off a terminal, too
    return said.out


def rows_of(printed):
    """The cells of the table's rows, units left out."""
    lines = printed.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("---"))
    return [line.split() for line in lines[start + 1 : lines.index("", start)]]


def test_a_recipe_shows_the_fork_of_its_model_with_correct_answers_by_its_reward(folder, capsys):
    printed = inspect(capsys, "--config", "recipe.yaml", "--num_samples", "50", "--output_dir", folder / "out")
    (cells,) = rows_of(printed)
    drawn = float(cells[5])
    assert cells[:5] == ["200", "100.0", f"{ENTROPY_OF_A:.3f}", "'x'", "0.750"]
    assert cells[6:10] == ["2.0", "0.0", "'y'", "0.250"]
    assert [float(cell) for cell in cells[10:]] == [100 - drawn, 4.0, 100.0]
    said = " ".join(printed.split())
    assert f"{folder / 'model'}: 200 completions (4 prompts x 50) at temperature 1, at most 8 tokens, seed 0" in said
    assert "that branch is the shorter one in 100.0 % of the forks" in said

    whole = json.loads((folder / "out" / "forks.json").read_text())
    assert (whole["tau"], whole["temperature"], whole["completions"], whole["truncated"]) == (0.25, 1.0, 200, 0.0)
    scored = whole["accuracy"] * 150  # three prompts of four: the fourth's gold cannot be used
    assert scored == pytest.approx(round(scored), abs=1e-6)
    assert whole["accuracy"] == pytest.approx(0.25, abs=0.12)
    assert whole["forks"][0]["entropy"] == pytest.approx(ENTROPY_OF_A, abs=1e-5)
    (row,) = whole["forks"]
    assert row["other_probability"] == pytest.approx(0.25, abs=1e-5)
    assert (row["likelier_text"], row["other_tokens_left"], row["other_correct"]) == ("'x'", 4.0, 1.0)
    assert not (folder / "never").exists()


def test_groups_and_shaped_tokens_are_those_of_the_recipes_group_size(folder, capsys):
    """All completions are correct, so b is 1: none of 2 tokens is shaped at tau 1/4, and one of 4."""
    words = ["--config", "recipe.yaml", "--reward_funcs", "inspect_test_rewards.y_is_right_later"]
    words += ["--ces_correct_threshold", "0", "--num_generations", "6", "--output_dir", folder / "groups"]
    printed = " ".join(inspect(capsys, *words, "--num_samples", "6").split())
    whole = json.loads((folder / "groups" / "forks.json").read_text())
    drawn = (whole["mean_length"] - 2) / 2  # share of completions of 4 tokens
    assert 0 < drawn < 1
    assert whole["shaped_share"] == pytest.approx(drawn / whole["mean_length"])
    assert (whole["groups_all_incorrect"], whole["groups_all_correct"], whole["num_generations"]) == (0.0, 1.0, 6)
    assert "groups of 6 without a correct completion 0.0 %" in printed
    assert "groups of 6 with correct completions only 100.0 %" in printed
    assert f"tokens that CES shapes (Eq. 5) {100 * whole['shaped_share']:.1f} %" in printed

    few = " ".join(inspect(capsys, *words, "--num_samples", "5").split())
    assert "need 6 completions with a verdict to some prompt: --num_samples 6." in few
    assert "groups of 6 with" not in few
    assert json.loads((folder / "groups" / "forks.json").read_text())["shaped_share"] is None


@pytest.mark.parametrize(
    ("words", "part", "code"),
    [
        (
            ["--reward_funcs", "inspect_test_rewards.broken"],
            "The reward function 'broken' raised KeyError: 'environment'",
            1,
        ),
        (["--reward_funcs", "think_format_reward", "inspect_test_rewards.broken"], "`ces_accuracy_reward`", 0),
        (["--reward_funcs", "[]", "--reward_model_name_or_path", "x/judge"], "the reward model x/judge", 0),
    ],
)
def test_a_reward_that_cannot_be_asked_costs_its_column_and_says_why(capsys, words, part, code):
    printed = inspect(capsys, "--config", "recipe.yaml", "--num_samples", "4", *words, code=code)
    assert part in printed.split("Without the share of correct completions: ")[1]
    assert len(rows_of(printed)[0]) == 11


def test_where_no_answer_is_correct_one_is_shown_as_the_reward_saw_it(capsys):
    words = ["--config", "recipe.yaml", "--num_samples", "2", "--reward_funcs", "inspect_test_rewards.none_is_right"]
    said = " ".join(inspect(capsys, *words).split())
    assert "correct 0.0 %" in said
    assert re.search(
        r"none_is_right calls no completion correct. For example, it got '(x|yzw)' against the gold '", said
    )
    assert "`level` is a number, never equal to text" in said
    assert "Without the share" not in said


LATER = ("--reward_funcs", "inspect_test_rewards.y_is_right_later")


def test_an_asynchronous_reward_and_a_threshold_serve_too(capsys):
    words = ["--config", "recipe.yaml", "--num_samples", "40", *LATER]
    assert [rows_of(inspect(capsys, *words))[0][place] for place in (7, 12)] == ["0.0", "100.0"]
    below = inspect(capsys, *words, "--ces_correct_threshold", "0")
    assert [rows_of(below)[0][place] for place in (7, 12)] == ["100.0", "100.0"]


def test_a_model_that_is_mostly_wrong_is_warned_of(capsys):
    words = ["--config", "recipe.yaml", "--num_samples", "40"]
    wrong = " ".join(inspect(capsys, *words).split())
    share = re.search(r"correct (\d+\.\d) %", wrong)[1]
    assert float(share) < 40
    assert (
        f"Only {share} % of the completions are correct. Of 61 small models below 50.0 %, 58 lost more than half of"
        in wrong
    )
    easier, advice = "Take easier problems or a stronger model first", "take the overlay `ces_mai`, for accuracy"
    assert (easier in wrong, advice in wrong) == (float(share) < 10, float(share) >= 10)
    right = inspect(capsys, *words, *LATER, "--ces_correct_threshold", "0")
    assert "small models" not in right
    mean = float(re.search(r"end token included +(\d+\.\d) tokens", right)[1])
    assert advice in right
    limit = int(re.search(r"`on_policy_sft` with `--max_completion_length (\d+)`", right)[1])
    assert 2 * mean - 0.1 <= limit <= 2 * mean + 1.1
    short = " ".join(inspect(capsys, *words, *LATER, "--ces_correct_threshold", "0", "--max_new_tokens", "3").split())
    assert "`--max_completion_length 3`" in short


def test_prompts_of_the_command_line_need_no_data(folder, capsys):
    words = ["--model", folder / "model", "--num_samples", "50", "--max_new_tokens", "3", "--tau", "0.5"]
    printed = inspect(capsys, *words, "--prompt", "1+1=", "--prompt", "2+2=")
    assert "100 completions (2 prompts x 50)" in printed
    (cells,) = rows_of(printed)
    assert (cells[3], cells[6], cells[7], cells[10]) == ("'x'", "2.0", "'y'", "-")  # y's completions were cut off
    assert "so branches that go on look shorter than they are" in " ".join(printed.split())
    assert "Which way it leads is unknown" in " ".join(printed.split())
    assert "so short that" not in printed
    assert "small models below" not in printed


def test_a_file_alone_gives_prompts_and_no_verdicts(folder, capsys):
    printed = inspect(capsys, "--model", folder / "model", "--data", folder / "data.jsonl", "--num_samples", "30")
    assert "120 completions (4 prompts x 30)" in printed  # of 16 that would be taken
    assert len(rows_of(printed)[0]) == 11
    assert "Without the share" not in printed
    assert "groups of" not in printed
    assert "--num_samples" not in printed
    assert "100.0 % of the completions are so short that floor(length x tau) is 0" in " ".join(printed.split())
    few = inspect(capsys, "--model", folder / "model", "--data", folder / "data.jsonl", "--num_prompts", "2")
    assert "16 completions (2 prompts x 8)" in few
    (folder / "gap.jsonl").write_text((folder / "data.jsonl").read_text().replace('"?"', "null"))
    gap = inspect(capsys, "--model", folder / "model", "--data", folder / "gap.jsonl", "--num_samples", "2")
    assert "6 completions (3 prompts x 2)" in gap


def test_the_temperature_is_the_options_before_the_recipes(folder, capsys):
    (folder / "warm.yaml").write_text((folder / "recipe.yaml").read_text() + "temperature: 2\n")
    odds = math.sqrt(3)
    for words, likelier in (([], odds / (1 + odds)), (["--temperature", "1"], 0.75)):
        printed = inspect(capsys, "--config", "warm.yaml", "--num_samples", "8", *words)
        assert rows_of(printed)[0][4] == f"{likelier:.3f}"


def test_a_lora_adapter_is_loaded_over_its_base(tmp_path, capsys):
    model = bigram_model()
    model.save_pretrained(tmp_path / "base")
    adapted = get_peft_model(
        type(model).from_pretrained(tmp_path / "base"), LoraConfig(target_modules=["lm_head"], r=2)
    )
    with torch.no_grad():
        # adds log 9 to the logit of "y" after "a", so that 3 to 1 becomes 1 to 3
        tokenizer = tiny_tokenizer()
        a, y = tokenizer.convert_tokens_to_ids(["a", "y"])
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.zero_()
            if "lora_A" in name:
                weight[0, a] = 1.0
            if "lora_B" in name:
                weight[y, 0] = math.log(9) / (8 / 2)  # lora_alpha / r
    adapted.save_pretrained(tmp_path / "adapter")
    tokenizer.save_pretrained(tmp_path / "adapter")
    printed = inspect(capsys, "--model", tmp_path / "adapter", "--prompt", "a")
    (cells,) = rows_of(printed)
    assert (cells[3], cells[4], cells[7], cells[8]) == ("'y'", "0.750", "'x'", "0.250")


def test_only_the_top_forks_are_printed_and_all_are_written(tmp_path, capsys):
    save_tiny(tmp_path / "model")
    words = ["--model", tmp_path / "model", "--prompt", "1+1=", "--max_new_tokens", "12", "--tau", "0.5", "--top", "3"]
    printed = inspect(capsys, *words, "--output_dir", tmp_path / "out")
    forks = json.loads((tmp_path / "out" / "forks.json").read_text())["forks"]
    assert len(forks) > 4
    lines = printed.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("---"))
    assert lines[start + 4].startswith(f"{len(forks) - 3} more pairs are not shown (--top)")
    weights = [fork["count"] * fork["entropy"] for fork in forks]
    assert weights == sorted(weights, reverse=True)
    shown = 100 * sum(weights[:3]) / sum(weights)
    assert f"those shown hold {shown:.1f} % of count x entropy" in printed


def test_auto_is_the_share_that_training_would_take_from_answers_of_this_length(tmp_path, capsys):
    save_tiny(tmp_path / "model")
    words = ["--model", tmp_path / "model", "--prompt", "1+1=", "--max_new_tokens", "12"]
    printed = inspect(capsys, *words, "--tau", "auto", "--output_dir", tmp_path / "out")
    whole = json.loads((tmp_path / "out" / "forks.json").read_text())
    assert 4 < whole["mean_length"] < 12
    assert whole["tau"] == round(4 / whole["mean_length"], 4)
    assert inspect(capsys, *words, "--ces_tau", "auto") == inspect(capsys, *words, "--tau", whole["tau"])
    assert printed.startswith(inspect(capsys, *words, "--ces_tau", "auto").rstrip())


def test_the_widest_table_fits_into_119_columns_and_its_numbers_stand_under_each_other():
    class Tokenizer:
        def convert_ids_to_tokens(self, token):
            return self.decode([token])

        def decode(self, ids, **options):
            return {5: " a_very_long_identifier", 6: "b"}[ids[0]]

    pair = {"count": 12345, "share": 1.0, "entropy": 12.345, "leads": 1.0}
    for side, values in {"likelier": (5, 0.7, 1.0, 12345.6, 1.0), "other": (6, 0.3, 0.0, math.nan, math.nan)}.items():
        names = ("token", "probability", "sampled", "tokens_left", "correct")
        pair |= {f"{side}_{name}": value for name, value in zip(names, values, strict=True)}
    lines = pairs_table(pd.DataFrame([pair]), Tokenizer(), with_correct=True).splitlines()
    assert {len(line) for line in lines[3:4]} == {119}
    assert lines[-1].startswith("12345  100.0   12.345  ' a_ver")
    assert lines[1].index("mean P") + 6 == lines[-1].index("0.700") + 5


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--prompt", "a"], ["No model is named", "`--model`", "`--config`"]),
        (["--model", "MODEL"], ["There are no prompts", "`--prompt`, `--data`"]),
        (["--model", "./nowhere", "--prompt", "a"], ["'./nowhere' holds no config.json", "`--model`"]),
        (["--model", "no-one/nothing", "--prompt", "a"], ["'no-one/nothing' cannot be loaded", "huggingface.co"]),
        (["--model", "MODEL", "--data", "no-one/nothing"], ["'no-one/nothing'", "the Hub"]),
        (["--model", "MODEL", "--data", "nowhere.jsonl"], ["nowhere.jsonl does not exist"]),
        (["--model", "MODEL", "--data", "FOLDER/broken.jsonl"], ["broken.jsonl", "not valid JSON"]),
        (["--model", "MODEL", "--data", "FOLDER/data.jsonl", "--prompt", "a"], ["both given", "remove the other"]),
        (["--model", "MODEL", "--data", "FOLDER/data.jsonl", "--num_prompts", "9"], ["lower `--num_prompts`"]),
        (["--model", "MODEL", "--prompt", ""], ["`--prompt` is empty"]),
        (["--model", "MODEL", "--prompt", "a", "--tau", "1.5"], ["`--tau` is 1.5", "[0, 1]"]),
        (["--model", "MODEL", "--prompt", "a", "--ces_tau", "-0.1"], ["`--tau` is -0.1", "[0, 1]"]),
        (["--model", "MODEL", "--prompt", "a", "--tau", "much"], ["--tau: invalid tau value: 'much'"]),
        (["--model", "MODEL", "--prompt", "a", "--temperature", "0"], ["temperature is 0.0", "above 0"]),
        (["--model", "MODEL", "--prompt", "a", "--num_samples", "0"], ["--num_samples: '0'", "at least 1"]),
        (["--model", "MODEL", "--prompt", "a", "--ces_tua", "1"], ["`ces_tua`", "`ces_tau`"]),
        (["--model", "MODEL", "--prompt", "a", "--num_promts", "1"], ["`num_promts`", "`num_prompts`"]),
        (["--model", "MODEL", "--prompt", "a", "--num_processes", "2"], ["`--num_processes` is for training"]),
        (
            ["--model", "MODEL", "--prompt", "a", "--output_dir", "FOLDER/data.jsonl"],
            ["`--output_dir`", "name another"],
        ),
        (["--config", "FOLDER/recipe.yaml", "--reward_funcs", "acuracy_reward"], ["'acuracy_reward'", "Did you mean"]),
    ],
)
def test_what_cannot_be_inspected_is_refused_in_one_sentence(folder, capsys, words, parts):
    (folder / "broken.jsonl").write_text('{"question": ')
    words = [word.replace("MODEL", str(folder / "model")).replace("FOLDER", str(folder)) for word in words]
    capsys.readouterr()
    assert main(["inspect", *words]) == 2
    said = capsys.readouterr()
    refusal = [line for line in said.err.splitlines() if line.startswith("trl-ces inspect: error: ")]
    assert len(refusal) == 1
    assert said.out == ""
    for part in parts:
        assert part in refusal[0]


def test_a_recipes_builder_does_not_touch_a_model_that_was_named(tmp_path, capsys, monkeypatch):
    """The builder of recipes/arithmetic would make its own model in a directory that holds none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert main(["inspect", "--config", "arithmetic", "--model", "./empty"]) == 2
    assert "'./empty' holds no config.json" in capsys.readouterr().err
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_stopped_trainings_folder_names_its_checkpoint(tmp_path, capsys):
    saved = tmp_path / "checkpoint-8"
    saved.mkdir()
    (saved / "trainer_state.json").write_text('{"global_step": 8}', encoding="utf-8")
    assert main(["inspect", "--model", str(tmp_path), "--prompt", "a"]) == 2
    assert f"name its checkpoint, {saved}, with `--model`" in capsys.readouterr().err


def test_a_recipes_builder_is_asked_only_for_the_recipes_own_model(folder, capsys):
    words = ["--config", "recipe.yaml", "--num_samples", "2", "--model_builder", "inspect_test_rewards.build"]
    assert main(["inspect", *words, "--model_builder_kwargs", "{seed: 1}"]) == 2
    said = capsys.readouterr().err
    assert f"`model_builder` inspect_test_rewards.build with {{'seed': 1}}: asked to build {folder / 'model'}" in said
    assert "8 completions" in inspect(capsys, *words, "--model", folder / "model")


def test_a_recipe_with_flash_attention_is_inspected_on_a_cpu_too(capsys):
    words = ["--config", "recipe.yaml", "--num_samples", "2", "--prompt", "a", "--attn_implementation"]
    assert inspect(capsys, *words, "flash_attention_2") == inspect(capsys, *words, "sdpa")


def test_data_as_chat_messages_need_a_chat_template(folder, tmp_path, capsys):
    bigram_model().save_pretrained(tmp_path)
    tiny_tokenizer(chat_template=None).save_pretrained(tmp_path)
    assert main(["inspect", "--model", str(tmp_path), "--data", str(folder / "data.jsonl")]) == 2
    assert "the tokenizer has no chat template" in capsys.readouterr().err
    printed = inspect(capsys, "--model", tmp_path, "--prompt", "a", "--num_samples", "40")
    assert rows_of(printed)[0][3] == "'x'"
