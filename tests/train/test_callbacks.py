"""Test the training callbacks: metrics in the progress bar and checkpoint manifests."""

import math
from types import SimpleNamespace

from trainers import tiny_trainer, vowel_accuracy_reward
from transformers.trainer_callback import ProgressCallback

from trl_ces.train.callbacks import ProgressWithMetrics, RunFiles
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


def test_every_machine_that_saves_a_checkpoint_writes_a_manifest(tmp_path):
    (tmp_path / "checkpoint-3").mkdir()
    accelerator = SimpleNamespace(wait_for_everyone=lambda: None, is_main_process=False)
    for saves in (False, True):
        args = SimpleNamespace(output_dir=str(tmp_path), should_save=saves)
        state = SimpleNamespace(global_step=3, best_model_checkpoint=None)
        RunFiles(accelerator, lambda folder: None, overwrite=False).on_save(args, state, None)
        assert (tmp_path / "checkpoint-3" / "manifest.json").exists() is saves
