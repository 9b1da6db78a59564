"""The warning before CES ruins a model."""

import logging
import math
from types import SimpleNamespace

import pytest
from trainers import tiny_trainer

from trl_ces.layers.divergence import DivergenceWatch


def watched(rows, stop=False):
    """What becomes of the control, after these (accuracy, bits) have been logged one by one."""
    watch, control = DivergenceWatch("acc", stop), SimpleNamespace(should_save=False, should_training_stop=False)
    history = []
    for accuracy, bits in rows:
        history.append({"rewards/acc/mean": accuracy, "entropy": bits and bits * math.log(2)})
        watch.on_log(None, SimpleNamespace(log_history=history, is_world_process_zero=True), control)
    return control


START = [(0.5, 0.1)] * 5


@pytest.mark.parametrize(
    ("later", "told"),
    [
        ([(0.3, 0.2)] * 5, True),
        ([(0.3, 0.14)] * 9, False),
        ([(0.41, 0.9)] * 9, False),
        ([(None, None)] * 9, False),
    ],
)
def test_it_takes_a_rise_of_entropy_and_a_fall_of_accuracy(later, told, caplog):
    with caplog.at_level(logging.WARNING):
        control = watched(START + later[:4])  # too early to say
        assert caplog.records == []
        control = watched(START + later + later)
    messages = [record.message for record in caplog.records]
    assert len(messages) == told
    assert not control.should_training_stop
    if told:
        assert "entropy rose from 0.10 to 0.20 bits a token, and accuracy fell from 50 to 30 %" in messages[0]


def test_it_can_stop_with_a_checkpoint():
    control = watched(START + [(0.3, 0.2)] * 5, stop=True)
    assert control.should_save
    assert control.should_training_stop


@pytest.mark.parametrize(
    ("changes", "watches"), [({}, True), ({"ces_beta_incorrect": 0.0}, False), ({"shaping": "none"}, False)]
)
def test_a_trainer_watches_where_incorrect_answers_are_shaped(tmp_path, changes, watches):
    trainer = tiny_trainer(tmp_path, **changes)
    found = [one for one in trainer.callback_handler.callbacks if isinstance(one, DivergenceWatch)]
    assert [one.accuracy for one in found] == (["rewards/vowel_accuracy_reward/mean"] if watches else [])
