"""`trl-ces inspect` from the outside: its report on a model known by hand, its file, and what it refuses."""

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

async def y_is_correct_later(completions, **kwargs):
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
LATER = ("--reward_funcs", "inspect_test_rewards.y_is_correct_later")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, data, rewards and a recipe. The chat template ends in "a", after which two tokens are likely."""
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


def inspect(capsys, *words, code=0):
    """The printed text, on one line, and the rows of its table without units."""
    found = main(["inspect", *map(str, words)])
    out, err = capsys.readouterr()
    assert found == code, err
    assert all(len(line) <= 119 for line in out.splitlines() if "/" not in line)  # a path is not broken
    lines = out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("---"))
    return " ".join(out.split()), [line.split() for line in lines[start + 1 : lines.index("", start)]]


def test_a_recipes_model_is_sampled_and_graded_by_its_reward(folder, capsys):
    words = ["--config", "recipe.yaml", "--num_samples", "50", "--output_dir", folder / "out"]
    text, (cells,) = inspect(capsys, *words)
    sampled = float(cells[5])
    assert cells[:5] == ["200", "100.0", f"{ENTROPY_OF_A:.3f}", "'x'", "0.750"]
    assert cells[6:10] == ["2.0", "0.0", "'y'", "0.250"]
    assert [float(cell) for cell in cells[10:]] == [100 - sampled, 4.0, 100.0]
    assert f"{folder / 'model'}: 200 completions (4 prompts x 50) at temperature 1, at most 8 tokens, seed 0" in text
    assert "it is the shorter one at 100.0 % of positions" in text

    numbers = json.loads((folder / "out" / "inspect.json").read_text())
    assert (numbers["tau"], numbers["temperature"], numbers["completions"]) == (0.25, 1.0, 200)
    scored = numbers["accuracy"] * 150  # three prompts of four: the reward cannot score the fourth
    assert scored == pytest.approx(round(scored), abs=1e-6)
    assert numbers["accuracy"] == pytest.approx(0.25, abs=0.12)
    (row,) = numbers["pairs"]
    assert row["entropy"] == pytest.approx(ENTROPY_OF_A, abs=1e-5)
    assert (row["likelier_text"], row["other_tokens_left"], row["other_correct"]) == ("'x'", 4.0, 1.0)
    assert not (folder / "never").exists()


def test_groups_and_shaped_tokens_are_those_of_the_recipes_group_size(folder, capsys):
    """All completions are correct, so b is 1: none of 2 tokens is shaped at tau 1/4, and one of 4."""
    words = ["--config", "recipe.yaml", *LATER, "--ces_correct_threshold", "0", "--output_dir", folder / "groups"]
    words += ["--num_generations", "9"]
    text, _ = inspect(capsys, *words)
    numbers = json.loads((folder / "groups" / "inspect.json").read_text())
    assert numbers["num_samples"] == 9  # a whole group
    long_share = (numbers["mean_length"] - 2) / 2  # share of completions of 4 tokens
    assert 0 < long_share < 1
    assert numbers["shaped_share"] == pytest.approx(long_share / numbers["mean_length"])
    assert (numbers["groups_all_incorrect"], numbers["groups_all_correct"]) == (0.0, 1.0)
    assert "all-incorrect groups of 9 0.0 % all-correct groups of 9 100.0 %" in text
    assert f"tokens that CES shapes (Eq. 5) {100 * numbers['shaped_share']:.1f} %" in text

    text, _ = inspect(capsys, *words, "--num_samples", "5")
    assert "need 9 scored completions of some prompt: --num_samples 9." in text
    assert "groups of 9" not in text
    assert json.loads((folder / "groups" / "inspect.json").read_text())["shaped_share"] is None


@pytest.mark.parametrize(
    ("words", "part", "code"),
    [
        (["--reward_funcs", "inspect_test_rewards.broken"], "The reward function 'broken' raised KeyError", 1),
        (["--reward_funcs", "think_format_reward", "inspect_test_rewards.broken"], "`ces_accuracy_reward`", 0),
        (["--reward_funcs", "[]", "--reward_model_name_or_path", "x/judge"], "the reward model x/judge", 0),
    ],
)
def test_without_a_usable_reward_the_rest_is_printed_with_the_reason(capsys, words, part, code):
    text, rows = inspect(capsys, "--config", "recipe.yaml", "--num_samples", "4", *words, code=code)
    assert part in text.split("The completions are not graded: ")[1]
    assert len(rows[0]) == 11


def test_where_no_completion_is_correct_one_is_shown_as_the_reward_got_it(capsys):
    words = ["--config", "recipe.yaml", "--num_samples", "2", "--reward_funcs"]
    text, _ = inspect(capsys, *words, "inspect_test_rewards.nothing_is_correct")
    assert re.search(r"nothing_is_correct finds no completion correct. For example, it received '(x|yzw)'", text)
    assert "Use easier problems or a stronger model first" in text


def test_the_advice_depends_on_accuracy_and_length(capsys):
    words = ["--config", "recipe.yaml", "--num_samples", "40", *LATER]
    text, ((*_, accuracy_of_y),) = inspect(capsys, *words)
    share = re.search(r"correct (\d+\.\d) %", text)[1]
    assert (10 < float(share) < 40, accuracy_of_y) == (True, "100.0")
    assert f"Only {share} % of the completions are correct: below half, CES's bonus on incorrect" in text
    text, _ = inspect(capsys, *words, "--ces_correct_threshold", "0")
    assert "below half" not in text
    mean = float(re.search(r"end token included (\d+\.\d) tokens", text)[1])
    limit = int(re.search(r"`ces_mai`, for accuracy `on_policy_sft` with `--max_completion_length (\d+)`", text)[1])
    assert 2 * mean - 0.1 <= limit <= 2 * mean + 1.1
    text, _ = inspect(capsys, *words, "--ces_correct_threshold", "0", "--max_new_tokens", "3")
    assert "`--max_completion_length 3`" in text


def test_prompts_of_the_command_line_need_no_data(folder, capsys):
    words = ["--model", folder / "model", "--num_samples", "50", "--max_new_tokens", "3", "--tau", "0.5"]
    text, (cells,) = inspect(capsys, *words, "--prompt", "1+1=", "--prompt", "2+2=")
    assert "100 completions (2 prompts x 50)" in text
    assert (cells[3], cells[6], cells[7], cells[10]) == ("'x'", "2.0", "'y'", "-")  # completions with y are truncated
    assert "so alternatives that lead to long completions look shorter than they are" in text
    assert "Whether it leads to shorter completions is unknown" in text
    assert "below half" not in text


def test_a_file_alone_gives_prompts_and_no_grades(folder, capsys):
    words = ["--model", folder / "model", "--data", folder / "data.jsonl"]
    text, (cells,) = inspect(capsys, *words, "--num_samples", "30")
    assert "120 completions (4 prompts x 30)" in text  # of 16 that would be taken
    assert len(cells) == 11
    assert "groups of" not in text
    assert "100.0 % of the completions are so short that floor(length x tau) is 0" in text
    assert "16 completions (2 prompts x 8)" in inspect(capsys, *words, "--num_prompts", "2")[0]


def test_a_lora_adapter_is_loaded_over_its_base(tmp_path, capsys):
    bigram_model().save_pretrained(tmp_path / "base")
    model = type(bigram_model()).from_pretrained(tmp_path / "base")
    adapted = get_peft_model(model, LoraConfig(target_modules=["lm_head"], r=1, lora_alpha=1))
    layer = adapted.base_model.model.lm_head
    for weight in (layer.lora_A["default"].weight, layer.lora_B["default"].weight):
        torch.nn.init.zeros_(weight)
    # Adds log 9 to the logit of "y" after "a", so that 3 to 1 becomes 1 to 3.
    layer.lora_A["default"].weight.data[0, token_of("a")] = 1.0
    layer.lora_B["default"].weight.data[token_of("y"), 0] = math.log(9)
    adapted.save_pretrained(tmp_path / "adapter")
    tiny_tokenizer().save_pretrained(tmp_path / "adapter")
    _, (cells,) = inspect(capsys, "--model", tmp_path / "adapter", "--prompt", "a")
    assert (cells[3], cells[4], cells[7], cells[8]) == ("'y'", "0.750", "'x'", "0.250")


def test_the_top_pairs_are_printed_and_tau_auto_follows_from_the_length(tmp_path, capsys):
    save_tiny(tmp_path / "model")
    words = ["--model", tmp_path / "model", "--prompt", "1+1=", "--max_new_tokens", "12", "--top", "3", "--ces_tau"]
    text, rows = inspect(capsys, *words, "auto", "--output_dir", tmp_path / "out")
    numbers = json.loads((tmp_path / "out" / "inspect.json").read_text())
    assert 4 < numbers["mean_length"] < 12
    assert numbers["tau"] == automatic_tau(numbers["mean_length"])
    weights = [pair["count"] * pair["entropy"] for pair in numbers["pairs"]]
    assert weights == sorted(weights, reverse=True)
    share = 100 * sum(weights[:3]) / sum(weights)
    assert f"{len(weights) - 3} more pairs not shown (--top); those shown make up {share:.1f} % of count x" in text
    assert inspect(capsys, *words, numbers["tau"])[1] == rows


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--prompt", "a"], ["No model is named", "`--model`", "`--config`"]),
        (["--model", "MODEL"], ["There are no prompts", "`--prompt`, `--data`"]),
        (["--model", "no-one/nothing", "--prompt", "a"], ["'no-one/nothing' cannot be loaded", "huggingface.co"]),
        (["--config", "arithmetic", "--model", "./empty"], ["'./empty' holds no config.json"]),
        (["--model", "MODEL", "--data", "nowhere.jsonl"], ["nowhere.jsonl does not exist"]),
        (["--model", "MODEL", "--data", "broken.jsonl"], ["'broken.jsonl'", "cannot be read"]),
        (["--model", "MODEL", "--data", "data.jsonl", "--prompt", "a"], ["both given", "remove one of them"]),
        (["--model", "MODEL", "--data", "data.jsonl", "--num_prompts", "9"], ["lower `--num_prompts`"]),
        (["--model", "MODEL", "--prompt", ""], ["`--prompt` is empty"]),
        (["--model", "MODEL", "--prompt", "a", "--ces_tau", "-0.1"], ["`--tau` is -0.1", "[0, 1]"]),
        (["--model", "MODEL", "--prompt", "a", "--temperature", "0"], ["temperature is 0.0", "above 0"]),
        (["--model", "MODEL", "--prompt", "a", "--ces_tua", "1"], ["`ces_tua`", "`ces_tau`"]),
        (["--model", "MODEL", "--prompt", "a", "--num_processes", "2"], ["runs in one process"]),
        (["--config", "recipe.yaml", "--model_builder", "inspect_test_rewards.build"], ["cannot build MODEL with"]),
    ],
)
def test_bad_input_is_refused_in_one_sentence(folder, capsys, words, parts):
    (folder / "broken.jsonl").write_text('{"question": ')
    (folder / "empty").mkdir(exist_ok=True)
    assert main(["inspect", *(word.replace("MODEL", str(folder / "model")) for word in words)]) == 2
    out, err = capsys.readouterr()
    (refusal,) = (line for line in err.splitlines() if line.startswith("trl-ces inspect: error: "))
    assert out == ""
    for part in parts:
        assert part.replace("MODEL", str(folder / "model")) in refusal
    assert not list((folder / "empty").iterdir())  # the builder of recipes/arithmetic would have made a model there


def test_a_named_model_is_not_built_and_flash_attention_is_left_out_on_a_cpu(folder, capsys):
    words = ["--config", "recipe.yaml", "--num_samples", "2", "--model_builder", "inspect_test_rewards.build"]
    words += ["--model", folder / "model", "--attn_implementation"]
    assert inspect(capsys, *words, "flash_attention_2") == inspect(capsys, *words, "sdpa")
