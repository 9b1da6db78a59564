"""Test the warning about diverging CES runs, in which entropy rises while accuracy falls."""

import logging
import math
from types import SimpleNamespace

import pytest
from trainers import tiny_trainer

from trl_ces.layers.divergence import DivergenceWatch

START = [(0.5, 0.1)] * 5  # accuracy, bits per token
DIVERGED = [(0.3, 0.2)] * 5


def log_all(rows, stop=False):
    """Log each (accuracy, bits) pair, and return the trainer's control."""
    watch = DivergenceWatch("acc", stop, "the `ces_mai` overlay")
    control = SimpleNamespace(should_save=False, should_training_stop=False)
    history = []
    for accuracy, bits in rows:
        reward = None if accuracy is None else 2 * accuracy - 1  # rewards of -1 and 1
        entry = {"rewards/acc/mean": reward, "ces/group_accuracy": accuracy, "entropy": bits and bits * math.log(2)}
        history.append(entry)
        watch.on_log(None, SimpleNamespace(log_history=history, is_world_process_zero=True), control)
    return control


@pytest.mark.parametrize(
    ("later", "warns"),
    [
        (DIVERGED + DIVERGED, True),
        (DIVERGED[:4], False),  # fewer than ten log entries
        ([(0.3, 0.14)] * 9, False),
        ([(0.41, 0.9)] * 9, False),
        ([(None, None)] * 9, False),
    ],
)
def test_divergence_causes_one_warning(later, warns, caplog):
    with caplog.at_level(logging.WARNING):
        control = log_all(START + later)
    assert [record.message for record in caplog.records] == warns * [
        "Training diverges: entropy rose from 0.10 to 0.20 bits per token, and accuracy fell from 50 to 30 %. Stop "
        "the run (`stop_on_divergence: true` automates this); start a new run with the `ces_mai` overlay."
    ]
    assert not control.should_training_stop


def test_an_accuracy_that_does_not_fall_is_no_divergence_with_negative_rewards(caplog):
    with caplog.at_level(logging.WARNING):
        log_all([(0.2, 0.1)] * 5 + [(0.2, 0.9)] * 9)
    assert not caplog.records


def test_divergence_stops_training_with_a_checkpoint_if_requested():
    control = log_all(START + DIVERGED, stop=True)
    assert control.should_save
    assert control.should_training_stop


@pytest.mark.parametrize(
    ("changes", "watches"), [({}, True), ({"ces_beta_incorrect": 0.0}, False), ({"shaping": "none"}, False)]
)
def test_the_trainer_watches_for_divergence_if_ces_shapes_incorrect_completions(tmp_path, changes, watches):
    trainer = tiny_trainer(tmp_path, **changes)
    callbacks = [callback for callback in trainer.callback_handler.callbacks if isinstance(callback, DivergenceWatch)]
    assert [callback.reward for callback in callbacks] == watches * ["rewards/vowel_accuracy_reward/mean"]
