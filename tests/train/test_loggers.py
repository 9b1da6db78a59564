"""Test that TensorBoard and trackio write every CES metric to their log files."""

import importlib.util
import json
import logging
import sqlite3
import sys

import pytest
import torch
from tiny import random_script, scripted_accuracy_reward
from trainers import scripted_trainer

from trl_ces.methods.metrics import CES_METRICS

STEP = "train/global_step"  # trackio also has its own step counter


def read_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (file,) = folder.rglob("events.out.tfevents.*")
    events = EventAccumulator(str(file)).Reload()
    return {(tag, event.step): event.value for tag in events.Tags()["scalars"] for event in events.Scalars(tag)}


def read_trackio(folder):
    (file,) = folder.rglob("*.db")
    with sqlite3.connect(file) as database:
        rows = [json.loads(text) for (text,) in database.execute("select metrics from metrics")]
    return {(name, row.get(STEP)): value for row in rows for name, value in row.items()}


LOGGERS = {"tensorboard": read_tensorboard, "trackio": read_trackio}


def train(folder, logger, accuracies):
    """Train for two steps, evaluate after the second step, and return the log."""
    script = random_script(["1+1=", "2+2="], accuracies, torch.Generator().manual_seed(1))
    changes = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 8}
    changes |= {"report_to": logger, "run_name": "a-run", "ces_tau": 0.3}
    trainer = scripted_trainer(folder, script, [scripted_accuracy_reward], **changes)
    trainer.train()
    return trainer.state.log_history


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make both loggers write to a temporary folder."""
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "tensorboard"))
    for name, module in list(sys.modules.items()):  # TRL has already imported trackio, which read the environment
        if name.startswith("trackio") and hasattr(module, "TRACKIO_DIR"):
            monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("logger", LOGGERS)
def test_a_logger_writes_the_name_and_value_of_every_metric(logger, folder):
    if importlib.util.find_spec(logger) is None:
        pytest.skip(f'needs {logger}: pip install "trl_ces[dev]"')
    history = train(folder, logger, [[1, 0, 0, 1], [0, 0, 0, 1]])
    values = LOGGERS[logger](folder)
    logs = {
        (name.replace("eval_", "eval/") if name.startswith("eval_") else f"train/{name}", entry["step"]): value
        for entry in history
        for name, value in entry.items()
        if "ces/" in name
    }
    assert {name for name, _ in logs} == {f"{mode}/{name}" for name in CES_METRICS for mode in ("train", "eval")}
    assert {key: values.get(key) for key in logs} == {key: pytest.approx(logs[key], rel=1e-6) for key in logs}


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason='pip install "trl_ces[dev]"')
def test_a_metric_without_a_value_causes_no_warning(folder):
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    log = logging.getLogger("transformers.integrations.integration_utils")
    log.addHandler(handler)
    try:
        history = train(folder, "tensorboard", [[0, 0, 0, 0], [0, 0, 0, 0]])
    finally:
        log.removeHandler(handler)
    assert "ces/selected_entropy_correct" not in history[0]
    assert history[0]["ces/selected_entropy_incorrect"] > 0
    assert messages == []
