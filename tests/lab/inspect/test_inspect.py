"""`trl-ces inspect`: report and JSON file for a model with known statistics, and error messages."""

import json
import math
import re

import pytest
import torch
from bigram import ENTROPY_OF_A, bigram_model, token_of
from peft import LoraConfig, get_peft_model
from tiny import save_tiny, tiny_tokenizer

from trl_ces.cli.main import main
from trl_ces.methods.ces import automatic_tau

REWARDS = """
def y_is_correct(completions, prompts, solution, completion_ids, thinking_prefilled, last_turns, **kwargs):
    assert len(prompts) == len(solution) == len(completion_ids) == len(thinking_prefilled) == len(completions)
    texts = [completion[0]["content"] for completion in completions]
    assert texts == last_turns and set(texts) == {"x", "yzw"}
    return [float(text == "yzw") if gold != "?" else None for text, gold in zip(texts, solution)]

async def y_is_correct_async(completions, **kwargs):
    return [float(completion[0]["content"] == "yzw") for completion in completions]

def build(name, **settings):
    raise ValueError(f"cannot build {name} with {settings}")

def broken(**kwargs):
    raise KeyError("environment")

def nothing_is_correct(completions, level, **kwargs):
    return [float(completion[0]["content"] == level) for completion in completions]
"""
RECIPE = """model_name_or_path: {model}
output_dir: {folder}/never
dataset_name: {folder}/data.jsonl
system_prompt: null
use_cpu: true
dtype: float32
reward_funcs: [inspect_test_rewards.y_is_correct]
max_completion_length: 8
ces_tau: 0.25
"""
ASYNC = ("--reward_funcs", "inspect_test_rewards.y_is_correct_async")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write a model, data, rewards and a recipe. The chat template ends with "a", so the first token is "x" or "y"."""
    folder = tmp_path_factory.mktemp("inspect")
    bigram_model().save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    rows = [{"question": f"{n}+{n}=", "answer": "?" if n == 0 else "1", "level": n} for n in range(4)]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "inspect_test_rewards.py").write_text(REWARDS)
    (folder / "recipe.yaml").write_text(RECIPE.format(model=folder / "model", folder=folder))
    return folder


@pytest.fixture(autouse=True)
def working_directory(folder, monkeypatch):
    monkeypatch.chdir(folder)


def inspect(capsys, *args, code=0):
    """Run the command, and return the printed text as one line and the cells of each table row."""
    exit_code = main(["inspect", *map(str, args)])
    out, err = capsys.readouterr()
    assert exit_code == code, err
    assert all(len(line) <= 119 for line in out.splitlines() if "/" not in line)  # paths are not wrapped
    lines = out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("---"))
    return " ".join(out.split()), [line.split() for line in lines[start + 1 : lines.index("", start)]]


def test_model_of_a_recipe_is_sampled_and_graded(folder, capsys):
    args = ["--config", "recipe.yaml", "--num_samples", "50", "--output_dir", folder / "out"]
    text, (cells,) = inspect(capsys, *args)
    sampled_percent = float(cells[5])
    assert cells[:5] == ["200", "100.0", f"{ENTROPY_OF_A:.3f}", "'x'", "0.750"]
    assert cells[6:10] == ["2.0", "0.0", "'y'", "0.250"]
    assert [float(cell) for cell in cells[10:]] == [100 - sampled_percent, 4.0, 100.0]
    assert f"{folder / 'model'}: 200 completions (4 prompts x 50) at temperature 1, at most 8 tokens, seed 0" in text
    assert "This shortens completions at 100.0 % of positions" in text

    numbers = json.loads((folder / "out" / "inspect.json").read_text())
    assert (numbers["tau"], numbers["temperature"], numbers["completions"]) == (0.25, 1.0, 200)
    correct = numbers["accuracy"] * 150  # the reward scores three of the four prompts
    assert correct == pytest.approx(round(correct), abs=1e-6)
    assert numbers["accuracy"] == pytest.approx(0.25, abs=0.12)
    (row,) = numbers["pairs"]
    assert row["entropy"] == pytest.approx(ENTROPY_OF_A, abs=1e-5)
    assert (row["likelier_text"], row["other_tokens_left"], row["other_correct"]) == ("'x'", 4.0, 1.0)
    assert not (folder / "never").exists()


def test_group_statistics_use_the_group_size_of_the_recipe(folder, capsys):
    """All completions are correct, so b = 1. With tau = 1/4, CES shapes 0 of 2 tokens and 1 of 4 tokens."""
    args = ["--config", "recipe.yaml", *ASYNC, "--ces_correct_threshold", "0", "--num_generations", "9"]
    args += ["--output_dir", folder / "groups"]
    text, _ = inspect(capsys, *args)
    numbers = json.loads((folder / "groups" / "inspect.json").read_text())
    assert numbers["num_samples"] == 9  # one group
    long_share = (numbers["mean_length"] - 2) / 2  # share of four-token completions
    assert 0 < long_share < 1
    assert numbers["shaped_share"] == pytest.approx(long_share / numbers["mean_length"])
    assert (numbers["groups_all_incorrect"], numbers["groups_all_correct"]) == (0.0, 1.0)
    assert "all-incorrect groups of 9 0.0 % all-correct groups of 9 100.0 %" in text
    assert f"tokens that CES shapes (Eq. 5) {100 * numbers['shaped_share']:.1f} %" in text

    text, _ = inspect(capsys, *args, "--num_samples", "5")
    assert "require a prompt with 9 scored completions: use --num_samples 9." in text
    assert "groups of 9" not in text
    assert json.loads((folder / "groups" / "inspect.json").read_text())["shaped_share"] is None


@pytest.mark.parametrize(
    ("args", "part", "code"),
    [
        (["--reward_funcs", "inspect_test_rewards.broken"], "The reward function 'broken' raised KeyError", 1),
        (["--reward_funcs", "think_format_reward", "inspect_test_rewards.broken"], "`ces_accuracy_reward`", 0),
        (["--reward_funcs", "[]", "--reward_model_name_or_path", "x/judge"], "the reward model x/judge", 0),
    ],
)
def test_report_without_a_usable_reward_states_the_reason(capsys, args, part, code):
    text, rows = inspect(capsys, "--config", "recipe.yaml", "--num_samples", "4", *args, code=code)
    assert part in text.split("The completions are not graded: ")[1]
    assert len(rows[0]) == 11


def test_report_shows_an_example_if_no_completion_is_correct(capsys):
    args = ["--config", "recipe.yaml", "--num_samples", "2", "--reward_funcs"]
    text, _ = inspect(capsys, *args, "inspect_test_rewards.nothing_is_correct")
    hint = "nothing_is_correct scored no completion as correct. For example, the accuracy reward received "
    hint += "messages that end with '(x|yzw)'"
    assert re.search(hint, text)
    assert "Start with easier problems or a stronger model" in text


def test_advice_depends_on_accuracy_and_length(capsys):
    args = ["--config", "recipe.yaml", "--num_samples", "40", *ASYNC]
    text, ((*_, accuracy_of_y),) = inspect(capsys, *args)
    share = re.search(r"correct (\d+\.\d) %", text)[1]
    assert (10 < float(share) < 40, accuracy_of_y) == (True, "100.0")
    assert f"Only {share} % of the completions are correct. Below 50 %, CES's bonus for incorrect" in text
    text, _ = inspect(capsys, *args, "--ces_correct_threshold", "0")
    assert "Below 50 %" not in text
    mean = float(re.search(r"including end token (\d+\.\d) tokens", text)[1])
    limit = int(re.search(r"`ces_mai` overlay; .* `on_policy_sft` with `--max_completion_length (\d+)`", text)[1])
    assert 2 * mean - 0.1 <= limit <= 2 * mean + 1.1
    text, _ = inspect(capsys, *args, "--ces_correct_threshold", "0", "--max_new_tokens", "3")
    assert "`--max_completion_length 3`" in text


def test_command_line_prompts_need_no_data(folder, capsys):
    args = ["--model", folder / "model", "--num_samples", "50", "--max_new_tokens", "3", "--tau", "0.5"]
    text, (cells,) = inspect(capsys, *args, "--prompt", "1+1=", "--prompt", "2+2=")
    assert "100 completions (2 prompts x 50)" in text
    assert (cells[3], cells[6], cells[7], cells[10]) == ("'x'", "2.0", "'y'", "-")  # completions with y are truncated
    assert "which is therefore too low for alternatives that lead to long completions" in text
    assert "Whether this shortens completions is unknown" in text
    assert "Below 50 %" not in text


def test_prompt_template_applies_to_data_and_to_command_line_prompts(folder, tmp_path, capsys):
    args = ["--config", "recipe.yaml", "--num_samples", "1", "--prompt_template", "{question} is "]
    args += ["--reward_funcs", "[]", "--html", tmp_path / "page.html"]
    for prompt_args, expected in (([], "3+3= is"), (["--prompt", "0"], "0 is")):
        inspect(capsys, *args, *prompt_args)
        assert expected in (tmp_path / "page.html").read_text()
        assert "[u" not in (tmp_path / "page.html").read_text()


def test_data_without_a_reward_is_not_graded(folder, capsys):
    args = ["--model", folder / "model", "--data", folder / "data.jsonl"]
    text, (cells,) = inspect(capsys, *args, "--num_samples", "30")
    assert "120 completions (4 prompts x 30)" in text  # all four prompts, because the default limit is 16
    assert len(cells) == 11
    assert "groups of" not in text
    assert "100.0 % of the completions are so short that floor(length x tau) is 0" in text
    assert "16 completions (2 prompts x 8)" in inspect(capsys, *args, "--num_prompts", "2")[0]


def test_lora_adapter_is_loaded_with_its_base_model(tmp_path, capsys):
    bigram_model().save_pretrained(tmp_path / "base")
    model = type(bigram_model()).from_pretrained(tmp_path / "base")
    adapted = get_peft_model(model, LoraConfig(target_modules=["lm_head"], r=1, lora_alpha=1))
    layer = adapted.base_model.model.lm_head
    for weight in (layer.lora_A["default"].weight, layer.lora_B["default"].weight):
        torch.nn.init.zeros_(weight)
    # Adding log 9 to the logit of "y" after "a" changes the odds of "x" to "y" from 3:1 to 1:3.
    layer.lora_A["default"].weight.data[0, token_of("a")] = 1.0
    layer.lora_B["default"].weight.data[token_of("y"), 0] = math.log(9)
    adapted.save_pretrained(tmp_path / "adapter")
    tiny_tokenizer().save_pretrained(tmp_path / "adapter")
    _, (cells,) = inspect(capsys, "--model", tmp_path / "adapter", "--prompt", "a")
    assert (cells[3], cells[4], cells[7], cells[8]) == ("'y'", "0.750", "'x'", "0.250")


def test_top_limits_pairs_and_auto_tau_depends_on_length(tmp_path, capsys):
    save_tiny(tmp_path / "model")
    args = ["--model", tmp_path / "model", "--prompt", "1+1=", "--max_new_tokens", "12", "--top", "3", "--ces_tau"]
    text, rows = inspect(capsys, *args, "auto", "--output_dir", tmp_path / "out")
    numbers = json.loads((tmp_path / "out" / "inspect.json").read_text())
    assert 4 < numbers["mean_length"] < 12
    assert numbers["tau"] == automatic_tau(numbers["mean_length"])
    weights = [pair["count"] * pair["entropy"] for pair in numbers["pairs"]]
    assert weights == sorted(weights, reverse=True)
    share = 100 * sum(weights[:3]) / sum(weights)
    assert (
        f"{len(weights) - 3} more pairs are not shown (--top). The rows above account for {share:.1f} % of count x"
        in text
    )
    assert inspect(capsys, *args, numbers["tau"])[1] == rows


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--prompt", "a"], ["No model is specified", "`--model`", "`--config`"]),
        (["--model", "MODEL"], ["There are no prompts", "`--prompt TEXT`, `--data FILE`"]),
        (["--model", "no-one/nothing", "--prompt", "a"], ["'no-one/nothing' cannot be loaded", "huggingface.co"]),
        (["--model", "models/cse", "--prompt", "a"], ["'models/cse' cannot be loaded", "mean `models/ces`?"]),
        (["--config", "arithmetic", "--model", "./empty"], ["'./empty' has no config.json"]),
        (["--model", "MODEL", "--data", "nowhere.jsonl"], ["nowhere.jsonl does not exist"]),
        (["--model", "MODEL", "--data", "broken.jsonl"], ["broken.jsonl, line 1 cannot be read"]),
        (["--model", "MODEL", "--data", "data.jsonl", "--prompt", "a"], ["both given", "remove one of them"]),
        (["--model", "MODEL", "--data", "data.jsonl", "--num_prompts", "9"], ["lower `--num_prompts`"]),
        (["--model", "MODEL", "--prompt", ""], ["`--prompt` is empty"]),
        (["--model", "MODEL", "--prompt", "a", "--ces_tau", "-0.1"], ["`--tau` is -0.1", "[0, 1]"]),
        (["--model", "MODEL", "--prompt", "a", "--tau", "atuo"], ["`--tau` is 'atuo': it must be a number", "`auto`"]),
        (["--model", "MODEL", "--prompt", "a", "--tau", "["], ["`--tau` is '[': it must be a number"]),
        (["--config", "recipe.yaml", "--ces_tau", "atuo"], ["is 'atuo': it must be a number", "`auto`"]),
        (["--model", "MODEL", "--prompt", "a", "--temperature", "0"], ["`--temperature` is 0.0", "above 0"]),
        (["--model", "MODEL", "--prompt", "a", "--ces_tua", "1"], ["`ces_tua`", "`ces_tau`"]),
        (["--model", "MODEL", "--prompt", "a", "--num_processes", "2"], ["runs in one process"]),
        (["--config", "recipe.yaml", "--model_builder", "inspect_test_rewards.build"], ["cannot build MODEL with"]),
    ],
)
def test_errors_are_one_line(folder, capsys, args, parts):
    (folder / "broken.jsonl").write_text('{"question": ')
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "models" / "ces").mkdir(parents=True, exist_ok=True)
    (folder / "models" / "ces" / "config.json").touch()
    assert main(["inspect", *(word.replace("MODEL", str(folder / "model")) for word in args)]) == 2
    out, err = capsys.readouterr()
    (error,) = (line for line in err.splitlines() if line.startswith("trl-ces inspect: error: "))
    assert out == ""
    for part in parts:
        assert part.replace("MODEL", str(folder / "model")) in error
    assert not list((folder / "empty").iterdir())  # the recipe's model builder was not called


def test_model_option_skips_the_builder_and_flash_attention_is_ignored(folder, capsys):
    args = ["--config", "recipe.yaml", "--num_samples", "2", "--model_builder", "inspect_test_rewards.build"]
    args += ["--model", folder / "model", "--attn_implementation"]
    assert inspect(capsys, *args, "flash_attention_2") == inspect(capsys, *args, "sdpa")
