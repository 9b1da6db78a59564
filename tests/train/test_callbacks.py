"""The progress bar shows accuracy, length and entropy."""

import math

from trainers import tiny_trainer, vowel_accuracy_reward
from transformers.trainer_callback import ProgressCallback

from trl_ces.train.callbacks import ProgressWithMetrics
from trl_ces.train.run import accuracy_reward_name


def length_reward(completions, **kwargs):
    return [len(text) / 12 for text in completions]


def test_the_progress_bar_shows_accuracy_length_and_entropy_in_bits(tmp_path, capsys):
    changes = {"max_steps": 2, "disable_tqdm": False, "ces_tau": 0.3}
    trainer = tiny_trainer(tmp_path, [length_reward, vowel_accuracy_reward], **changes)
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(ProgressWithMetrics(accuracy_reward_name(trainer)))
    trainer.train()
    last = trainer.state.log_history[-2]
    accuracy, bits = last["rewards/vowel_accuracy_reward/mean"], last["entropy"] / math.log(2)
    tokens = last["completions/mean_length"]
    assert f"{100 * accuracy:.1f} % correct, {tokens:.1f} tokens, {bits:.3f} bits per token" in capsys.readouterr().err
