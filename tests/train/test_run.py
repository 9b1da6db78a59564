"""Test that known failures of a training run are explained in one sentence."""

import errno
import os
import re
from pathlib import Path

import pytest
from accelerate import PartialState
from colocated_vllm import patch_colocated_vllm
from jinja2 import TemplateError
from safetensors import SafetensorError
from saved_checkpoints import checkpoint
from tiny import save_tiny, tiny_model, tiny_tokenizer
from trainers import tiny_trainer

from trl_ces.layers.reward_calls import RewardError
from trl_ces.support.errors import UserError
from trl_ces.support.locks import TRAINING_LOCK
from trl_ces.train.data import make_prompt
from trl_ces.train.recipe import make_recipe
from trl_ces.train.run import _check_prompts, _known_problem, make_trainer, train_to_end

DISK_FULL = "Error while serializing: I/O error: No space left on device (os error 28)"

# This template rejects system messages, like the templates of Gemma 2 and early Mistral models.
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"


def test_the_error_explains_that_the_chat_template_rejects_system_messages():
    recipe = make_recipe({"model_name_or_path": "gemma", "output_dir": "out", "dataset_name": "d"}, "my.yaml")
    tokenizer, prompt = tiny_tokenizer(chat_template=NO_SYSTEM), make_prompt("1+2=", "Think.", "here")
    with pytest.raises(TemplateError) as caught:
        tokenizer.apply_chat_template(prompt)
    message = r"The chat template of gemma rejects the prompts \(System role not supported\): .*`--system_prompt null`"
    assert re.search(message, str(_known_problem(caught.value, recipe)))


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), SafetensorError(DISK_FULL)])
def test_the_error_for_a_full_disk_names_the_output_directory(error):
    recipe = make_recipe({"model_name_or_path": "m", "output_dir": "out", "dataset_name": "d"}, "my.yaml")
    assert _known_problem(error, recipe) == f"The disk that holds {Path('out').absolute()} is full ({error})."
    assert _known_problem(OSError(errno.EACCES, "Permission denied"), recipe) is None


def test_too_few_rows_are_rejected_before_the_model_is_loaded(tmp_path):
    (tmp_path / "data.jsonl").write_text('{"question": "1+1=", "answer": 2}\n' * 3)
    fields = {"model_name_or_path": "m", "dataset_name": str(tmp_path / "data.jsonl"), "output_dir": str(tmp_path)}
    sizes = {"use_cpu": True, "bf16": False, "num_generations": 2, "per_device_train_batch_size": 8}
    recipe = make_recipe(fields | sizes | {"reward_funcs": ["think_format_reward"]}, "my.yaml")
    with pytest.raises(UserError, match=r"fewer training rows \(3\) than prompts per rollout \(4\): add rows"):
        make_trainer(recipe, recipe.training_config(1), PartialState())


@pytest.mark.parametrize(
    ("resume_from", "saves", "message"),
    [(None, False, "`--overwrite_output_dir true`."), ("{new}", False, "{new}`."), (None, True, "{new}`.")],
)
def test_the_resume_hint_does_not_name_a_checkpoint_of_another_run(tmp_path, monkeypatch, resume_from, saves, message):
    names = {"new": checkpoint(tmp_path, 4), "old": checkpoint(tmp_path, 60)}
    for file in names.values():
        os.utime(file / "trainer_state.json", (1, 1))
    (tmp_path / TRAINING_LOCK).touch()
    os.utime(tmp_path / TRAINING_LOCK, (2, 2))  # simulate a file system whose clock is behind
    trainer = tiny_trainer(tmp_path, resume_from_checkpoint=resume_from and resume_from.format(**names), max_steps=90)
    fields = {"model_name_or_path": "m", "dataset_name": "d", "output_dir": str(tmp_path)}

    def fail(**_):
        if saves:
            os.utime(names["new"] / "trainer_state.json", (3, 3))
        raise RewardError("The reward failed.")

    monkeypatch.setattr(trainer, "train", fail)
    with pytest.raises(UserError) as caught:
        train_to_end(trainer, make_recipe(fields, "my.yaml"))
    assert str(caught.value).endswith(message.format(**names))


def test_training_fails_if_machines_have_different_newest_checkpoints(tmp_path, monkeypatch):
    (tmp_path / TRAINING_LOCK).touch()
    trainer = tiny_trainer(tmp_path, resume_from_checkpoint=str(checkpoint(tmp_path, 4)), max_steps=90)
    monkeypatch.setattr("trl_ces.train.run.gather_object", lambda names: [*names, "checkpoint-2"])
    recipe = make_recipe({"model_name_or_path": "m", "dataset_name": "d", "output_dir": str(tmp_path)}, "my.yaml")
    with pytest.raises(UserError, match=r"different checkpoints .*checkpoint-[24].*checkpoint-[24].*copy the newest"):
        train_to_end(trainer, recipe)


def test_the_error_for_a_missing_model_suggests_a_similar_saved_model(tmp_path, monkeypatch):
    (tmp_path / "no-one" / "nothin").mkdir(parents=True)
    (tmp_path / "no-one" / "nothin" / "config.json").touch()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.jsonl").write_text('{"question": "1+1=", "answer": 2}\n' * 3)
    fields = {"model_name_or_path": "no-one/nothing", "dataset_name": str(tmp_path / "data.jsonl")}
    sizes = {"use_cpu": True, "bf16": False, "num_generations": 2, "per_device_train_batch_size": 2}
    more = {"output_dir": str(tmp_path), "reward_funcs": ["accuracy_reward"]}
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    recipe = make_recipe(fields | sizes | more, "my.yaml")
    with pytest.raises(UserError, match=r"(?s)^`model_name_or_path` 'no-one/nothing': .* mean `no-one/nothin`\?$"):
        make_trainer(recipe, recipe.training_config(1), PartialState())
    save_tiny(tmp_path / "policy")
    fields |= {"model_name_or_path": str(tmp_path / "policy"), "reward_model_name_or_path": "me/typo"}
    recipe = make_recipe(fields | sizes | more, "my.yaml")
    with pytest.raises(UserError, match=r"^`model_name_or_path` '.*' or `reward_model_name_or_path` 'me/typo': "):
        make_trainer(recipe, recipe.training_config(1), PartialState())


COMPLETION_LIMIT, LENGTH_LIMIT = 12, 20  # eight tokens are left for the prompt
TEXTS = {"prompt": ["1+2=", "1+2+3+4=", "1+2+3+4+5=", "6+7+8+9+10="], "_row": [11, 22, 33, 44]}
# The chat template adds five tokens.
CHATS = {"prompt": [[{"role": "user", "content": text}] for text in ("1", "12", "3+4=", "1234567")]}


def vllm_trainer(folder, columns, **changes):
    settings = {"use_vllm": True, "max_completion_length": COMPLETION_LIMIT, **changes}
    model = str(folder / "model")
    tiny_model().save_pretrained(model)
    return tiny_trainer(folder, prompts=columns, more={"model": model, "eval_dataset": None}, **settings)


@pytest.mark.parametrize(("columns", "row", "tokens"), [(TEXTS, 33, 10), (CHATS, 2, 9)], ids=["text", "chat"])
def test_the_error_for_long_prompts_states_their_number_and_the_first_row(tmp_path, monkeypatch, columns, row, tokens):
    patch_colocated_vllm(monkeypatch)
    colocate = {"vllm_mode": "colocate", "vllm_max_model_length": LENGTH_LIMIT}
    trainer = vllm_trainer(tmp_path, columns, **colocate)
    message = (
        rf"2 of 4 prompts.* first is row {row}, where {tokens} prompt tokens plus .* \(12\) exceed .* 20 tokens\. "
    )
    with pytest.raises(UserError, match=message):
        _check_prompts(trainer)
    trainer.train_dataset = trainer.train_dataset.select(range(2))
    _check_prompts(trainer)
