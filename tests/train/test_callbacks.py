"""The progress bar says how the completions are."""

import math
import re

from trainers import tiny_trainer, vowel_accuracy_reward
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from trl_ces.train.callbacks import AnswerProgress, bar_text, show_answers_in_progress_bar


def length_reward(completions, **kwargs):
    return [len(text) / 12 for text in completions]


def trainer_with_bar(folder, **changes):
    """Two steps of real sampling, with two rewards."""
    changes = {"max_steps": 2, "disable_tqdm": False, "ces_tau": 0.3, **changes}
    return tiny_trainer(folder, [length_reward, vowel_accuracy_reward], **changes)


def test_the_bar_shows_accuracy_length_and_entropy_in_bits():
    logs = {
        "rewards/right/mean": 0.8437,
        "completions/mean_length": 20.47,
        "entropy": 0.1 * math.log(2),
        "reward": 2.0,
    }
    assert bar_text(logs, "right") == "84.4 % correct, 20.5 tokens, 0.100 bits per token"
    assert bar_text(logs, None) == "reward 2, 20.5 tokens, 0.100 bits per token"
    assert bar_text({**logs, "rewards/right/mean": None}, "right") == "20.5 tokens, 0.100 bits per token"
    assert bar_text({"train_runtime": 3.0}, "right") == ""


def test_a_training_shows_it_in_place_of_the_trainers_bar(tmp_path, capsys):
    trainer = trainer_with_bar(tmp_path)
    show_answers_in_progress_bar(trainer)
    bars = [entry for entry in trainer.callback_handler.callbacks if isinstance(entry, ProgressCallback)]
    assert [type(bar) for bar in bars] == [AnswerProgress]
    assert bars[0].accuracy_reward == "vowel_accuracy_reward"
    trainer.train()
    message = capsys.readouterr().err
    last = trainer.state.log_history[-2]
    accuracy, bits = last["rewards/vowel_accuracy_reward/mean"], last["entropy"] / math.log(2)
    tokens = last["completions/mean_length"]
    assert f"{100 * accuracy:.1f} % correct, {tokens:.1f} tokens, {bits:.3f} bits per token" in message
    assert re.search(r"2/2 .* bits per token", message)


def test_a_training_without_a_bar_gets_none(tmp_path):
    trainer = trainer_with_bar(tmp_path, disable_tqdm=True)
    show_answers_in_progress_bar(trainer)
    kinds = [type(entry) for entry in trainer.callback_handler.callbacks]
    assert AnswerProgress not in kinds
    assert PrinterCallback in kinds
