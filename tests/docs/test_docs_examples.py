"""Check that the unmodified scripts in docs/examples train a tiny model on a CPU."""

import runpy
import sys
from pathlib import Path

import pytest
import torch
from docs_blocks import load_script
from fixtures_evaluation import write_model
from objectives import watch_shaping
from tiny import settings
from tool_turns import QWEN_END as END
from tool_turns import QWEN_MARKERS, call, script_turns
from trainers import prepare_trainer
from trl.chat_template_utils import qwen3_chat_template

from trl_ces.methods.group_reward import accuracy_reward_index
from trl_ces.methods.groups import Groups

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
# test_shipped_scripts.py tests ces_jobs.py, and tests/methods/test_own_rules.py tests my_rule.py.
SCRIPTS = [file for file in sorted(EXAMPLES.glob("*.py")) if file.stem not in ("ces_jobs", "my_rule")]


def save_tiny(folder, name):
    """Save a random model with the chat template that the example needs."""
    tool_settings = {"chat_template": qwen3_chat_template, "markers": QWEN_MARKERS, "eos_token": END}
    return str(write_model(folder, context=4096, **(tool_settings if name == "tools" else {})))


def run_script(script, tmp_path, monkeypatch):
    """Run the script for two steps, with the options in its docstring, and return its global variables."""
    model = save_tiny(tmp_path / "tiny", script.stem)
    args = ["--model", model, "--output_dir", str(tmp_path / "out"), "--max_steps", "2", "--use_cpu"]
    monkeypatch.setattr(sys, "argv", [str(script), *args])
    return runpy.run_path(str(script), run_name="__main__")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: file.stem)
def test_an_example_trains_and_saves_from_the_command_line(script, tmp_path, monkeypatch):
    trainer = run_script(script, tmp_path, monkeypatch)["trainer"]
    assert trainer.state.global_step == 2
    assert (tmp_path / "out" / "model.safetensors").is_file()
    assert all("ces/group_accuracy" in entry for entry in trainer.state.log_history if "loss" in entry)


def test_the_group_reward_is_1_up_to_the_mean_correct_length(tmp_path, monkeypatch):
    brief = run_script(EXAMPLES / "group_reward.py", tmp_path, monkeypatch)["brief_reward"]
    correct = torch.tensor([[True, True, False, True], [False] * 4])
    scored = torch.tensor([[True, True, True, False], [True] * 4])
    lengths = torch.tensor([[10, 20, 3, 12], [5, 6, 7, 8]])
    groups = Groups(correct, scored, torch.zeros(2, 4, dtype=torch.bool), lengths, correct.float(), 64)
    assert brief.group_rule(groups).tolist() == [[1, 0, 0, 0], [0] * 4]  # the mean length of correct completions is 15


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: file.stem)
def test_the_docstring_of_an_example_contains_its_command(script):
    assert f"    python docs/examples/{script.name} --model " in script.read_text().split('"""')[1]


def test_the_estimate_reward_accepts_errors_up_to_1_percent():
    reward = load_script(EXAMPLES / "custom_reward.py").estimate_accuracy_reward
    completions = ["about 3,200 metres", [{"role": "assistant", "content": "3 miles: 3300"}], "no idea", "3218.7"]
    assert reward(completions, [3218.688, 3218.688, 3218.688, None]) == [1.0, 0.0, 0.0, None]


def test_the_custom_reward_example_uses_the_estimate_reward_for_correctness(tmp_path):
    module = load_script(EXAMPLES / "custom_reward.py")
    model = save_tiny(tmp_path / "tiny", "custom_reward")
    trainer = module.make_trainer(model, str(tmp_path / "out"), **cpu_settings(tmp_path))
    names = trainer.reward_func_names
    assert names[accuracy_reward_index(names, trainer.args.ces_accuracy_reward)] == "estimate_accuracy_reward"
    assert trainer.args.reward_weights == [1.0, 0.1]


def cpu_settings(folder):
    names = ("use_cpu", "bf16", "gradient_checkpointing", "report_to", "save_strategy", "disable_tqdm")
    return {name: value for name, value in settings(folder).items() if name in names}


def test_tool_output_is_excluded_from_loss_and_shaping(tmp_path):
    module = load_script(EXAMPLES / "tools.py")
    model = save_tiny(tmp_path / "tiny", "tools")
    trainer = prepare_trainer(module.make_trainer(model, str(tmp_path / "out"), ces_tau=0.3, **cpu_settings(tmp_path)))
    row = module.problems()[0]
    a, b = 23, 117
    assert row["product"] == a * b
    dialogues = [
        [call("multiply", a=a, b=b), str(a * b), f"It is {a * b}{END}"],
        [f"It is {a * b + 1}{END}"],
        [call("multiply", a=a, b=a), str(a * a), f"It is {a * a}{END}"],
        [f"no idea{END}"],
    ]
    script_turns(trainer, dialogues)
    shaping = watch_shaping(trainer)
    batch = trainer._generate_and_score_completions([row] * 4)
    trainer._compute_loss(trainer.model, batch)
    assert batch["correct"].tolist() == [True, False, False, False]
    completion = trainer.processing_class.decode(batch["completion_ids"][0])
    assert f"<tool_response>\n{a * b}\n</tool_response>" in completion
    is_tool_output = batch["tool_mask"] == 0
    assert is_tool_output[0].any()
    assert shaping[0][is_tool_output].count_nonzero() == 0
    assert shaping[0][1].count_nonzero() > 0
