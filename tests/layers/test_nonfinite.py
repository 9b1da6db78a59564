"""Check that steps with non-finite gradients are skipped, their rows are saved, and several in a row stop training."""

import logging
import math

import pytest
import torch
from accelerate.utils import DistributedType
from resume_runs import make_trainer
from transformers import Trainer, TrainerCallback
from trl import GRPOTrainer

from trl_ces.layers.files import load_micro_batches


def poison_gradients(trainer, steps, value=math.nan):
    """Write `value` into the gradients of the given optimizer steps."""

    def poison(gradient):
        if trainer.state.global_step + 1 in steps:
            gradient = gradient.clone()
            gradient.view(-1)[0] = value
        return gradient

    trainer.model.lm_head.weight.register_hook(poison)
    return trainer


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_nonfinite_step_is_skipped_and_its_rows_are_saved(tmp_path, caplog, value):
    before, after, expected = [], [], []
    trainer = poison_gradients(make_trainer(tmp_path, save_strategy="no", gradient_accumulation_steps=2), {2}, value)

    class Weights(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, **kwargs):
            if state.global_step == 1:
                expected.extend(batch["completion_ids"].clone() for batch in trainer._buffered_inputs[2:4])
            before.append(trainer.model.model.norm.weight.detach().clone())

        def on_optimizer_step(self, args, state, control, **kwargs):
            after.append(trainer.model.model.norm.weight.detach().clone())

    trainer.add_callback(Weights())
    with caplog.at_level(logging.WARNING, logger="trl_ces"):
        trainer.train()
    changed = [not torch.equal(old, new) for old, new in zip(before, after, strict=True)]
    assert changed == [True, False] + [True] * 6
    assert all(parameter.isfinite().all() for parameter in trainer.model.parameters())
    logged = [entry.get("nonfinite_steps") for entry in trainer.state.log_history if "loss" in entry]
    assert logged == [None] + [1.0] * 7
    file = tmp_path / "_nonfinite" / "step-2-process-0.safetensors"
    message = f"gradient of step 2 is not finite (NaN or infinite). The step's rows are in {file}; the step is skipped"
    assert message in caplog.text
    rows, more = load_micro_batches(file)
    assert more == {"global_step": 2}
    assert [batch["completion_ids"].tolist() for batch in rows] == [ids.tolist() for ids in expected]
    assert {"advantages", "correct", "prompt_ids"} <= rows[0].keys()


@pytest.mark.parametrize("accumulation", [2, 4])
def test_only_the_rows_of_the_step_are_saved(tmp_path, accumulation):
    sizes = {"gradient_accumulation_steps": accumulation, "steps_per_generation": 8 // accumulation, "max_steps": 1}
    trainer = poison_gradients(make_trainer(tmp_path, save_strategy="no", **sizes), {1})
    trainer.train()
    rows, _ = load_micro_batches(tmp_path / "_nonfinite" / "step-1-process-0.safetensors")
    # The rows are the first half of a rollout with 4 micro-batches, or the second rollout with 2 micro-batches.
    expected = trainer._buffered_inputs[:2]
    saved, buffered = ([batch["completion_ids"].tolist() for batch in batches] for batches in (rows, expected))
    assert saved == buffered


def test_max_nonfinite_steps_in_a_row_stop_training(tmp_path):
    trainer = poison_gradients(make_trainer(tmp_path, save_strategy="no", max_nonfinite_steps=2), {2, 4, 5, 6})
    with pytest.raises(RuntimeError, match=r"step 5 is not finite.*`max_nonfinite_steps` is 2.*`learning_rate`"):
        trainer.train()
    assert trainer.state.global_step == 4


@pytest.mark.parametrize("skipped", [True, False])
def test_training_stops_unless_deepspeed_has_skipped_the_step(tmp_path, monkeypatch, skipped):
    trainer = poison_gradients(make_trainer(tmp_path, save_strategy="no"), {2})
    assert not trainer._uses_deepspeed()
    monkeypatch.setattr(type(trainer.accelerator), "distributed_type", DistributedType.DEEPSPEED)
    assert trainer._uses_deepspeed()
    monkeypatch.setattr(
        type(trainer.accelerator), "distributed_type", DistributedType.NO
    )  # accelerate has no DeepSpeed engine in this test
    monkeypatch.setattr(trainer, "_uses_deepspeed", lambda: True)
    monkeypatch.setattr(type(trainer.accelerator), "optimizer_step_was_skipped", skipped)
    if skipped:
        trainer.train()
        assert trainer._nonfinite_steps == 1
        return
    with pytest.raises(
        RuntimeError, match=r"step 2 is not finite.*DeepSpeed has already taken the step; .*grad_overflow"
    ):
        trainer.train()


@pytest.mark.parametrize(
    ("norm", "fp16", "counted"),
    [(1.0, False, 0), (math.inf, False, 1), (math.nan, False, 1), (None, False, 0), (math.nan, True, 0)],
)
def test_missing_norms_and_fp16_gradients_are_not_counted(tmp_path, monkeypatch, norm, fp16, counted):
    trainer = make_trainer(tmp_path, save_strategy="no")
    trainer._buffered_inputs, trainer._step, trainer.args.fp16 = [{}], 1, fp16
    monkeypatch.setattr(Trainer, "_get_grad_norm", lambda self, model, grad_norm=None: norm)
    assert trainer._get_grad_norm(trainer.model) is norm
    assert trainer._nonfinite_steps == counted


def test_counts_are_restored_after_a_restart_and_logged_only_in_training(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path, save_strategy="no")
    trainer.load_state_dict({**trainer.state_dict(), "nonfinite": [5, 2]})
    assert (trainer._nonfinite_steps, trainer._nonfinite_in_a_row) == (5, 2)
    assert trainer.state_dict()["nonfinite"] == [5, 2]
    monkeypatch.setattr(
        GRPOTrainer, "log", lambda self, logs, start_time=None: None
    )  # TRL's method would average and clear the metrics
    for training, logged in ((False, []), (True, [5])):
        trainer.model.train(training)
        trainer.log({})
        assert trainer._metrics["train"]["nonfinite_steps"] == logged
