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
    """Log each (accuracy, bits) pair, and return the `TrainerControl`."""
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
    ("later", "expects_warning"),
    [
        (DIVERGED + DIVERGED, True),
        (DIVERGED[:4], False),  # fewer than ten log entries
        ([(0.3, 0.14)] * 9, False),
        ([(0.41, 0.9)] * 9, False),
        ([(None, None)] * 9, False),
    ],
)
def test_divergence_causes_one_warning(later, expects_warning, caplog):
    with caplog.at_level(logging.WARNING):
        control = log_all(START + later)
    assert [record.message for record in caplog.records] == expects_warning * [
        "Training diverges: entropy rose from 0.10 to 0.20 bits per token, and accuracy fell from 50 to 30 %. Stop "
        "the run (`stop_on_divergence: true` automates this); start a new run with the `ces_mai` overlay."
    ]
    assert not control.should_training_stop


def test_a_constant_accuracy_causes_no_divergence_warning(caplog):
    with caplog.at_level(logging.WARNING):
        log_all([(0.2, 0.1)] * 5 + [(0.2, 0.9)] * 9)
    assert not caplog.records


def test_divergence_stops_training_with_a_checkpoint_if_requested():
    control = log_all(START + DIVERGED, stop=True)
    assert control.should_save
    assert control.should_training_stop


@pytest.mark.parametrize(
    ("changes", "is_watched"), [({}, True), ({"ces_beta_incorrect": 0.0}, False), ({"shaping": "none"}, False)]
)
def test_divergence_is_watched_if_ces_shapes_incorrect_completions(tmp_path, changes, is_watched):
    trainer = tiny_trainer(tmp_path, **changes)
    callbacks = [callback for callback in trainer.callback_handler.callbacks if isinstance(callback, DivergenceWatch)]
    assert [callback.reward for callback in callbacks] == is_watched * ["rewards/vowel_accuracy_reward/mean"]
