"""Callbacks of a training: a checkpoint on SIGTERM, and a progress bar with accuracy, length and entropy."""

import math
import signal
import threading
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ProgressCallback

from ..support.reward_names import accuracy_reward_index


class SaveOnSigterm(TrainerCallback):
    """Save a checkpoint and end training after the current step once any process receives SIGTERM."""

    def __init__(self, accelerator: Any):
        self.accelerator = accelerator
        self.signalled = False  # this process
        self.stopped = False  # all processes, after the same step
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.signalled = True

    def on_step_end(self, args, state, control, **kwargs):
        flag = self.signalled
        if self.accelerator.num_processes > 1:
            ours = torch.tensor(float(flag), device=self.accelerator.device)
            flag = bool(self.accelerator.reduce(ours, reduction="sum") > 0)
        if flag:
            self.stopped = control.should_save = control.should_training_stop = True
            control.should_evaluate = False  # there is no time for it

    def on_epoch_end(self, args, state, control, **kwargs):
        if self.stopped:
            control.should_evaluate = False


class AnswerProgress(ProgressCallback):
    """The Trainer's progress bar, followed by accuracy, length and entropy of the last logged completions."""

    def __init__(self, accuracy_reward: str | None):
        super().__init__()
        self.accuracy_reward = accuracy_reward
        self.last: dict[str, Any] = {}

    def on_log(self, args, state, control, logs=None, **kwargs):
        super().on_log(args, state, control, logs=logs, **kwargs)
        # Between two rollouts only the entropy is logged; the last completions' figures are still valid.
        self.last |= {name: value for name, value in (logs or {}).items() if value is not None}
        text = bar_text(self.last, self.accuracy_reward)
        if self.training_bar is not None and text:
            self.training_bar.set_postfix_str(text)


def bar_text(logs: dict[str, Any], accuracy_reward: str | None) -> str:
    """Return `84.4 % correct, 20.5 tokens, 0.108 bits per token`, or the part of it that TRL logged."""
    parts = []
    accuracy, length = logs.get(f"rewards/{accuracy_reward}/mean"), logs.get("completions/mean_length")
    if accuracy is not None:
        parts.append(f"{100 * accuracy:.1f} % correct")
    elif accuracy_reward is None and logs.get("reward") is not None:
        parts.append(f"reward {logs['reward']:.3g}")
    if length is not None:
        parts.append(f"{length:.1f} tokens")
    if logs.get("entropy") is not None:
        parts.append(f"{logs['entropy'] / math.log(2):.3f} bits per token")  # TRL logs nats
    return ", ".join(parts)


def show_answers_in_progress_bar(trainer: Any) -> None:
    """Replace a [`CESTrainer`]'s progress bar, if it has one, by [`AnswerProgress`]; call it before `train()`."""
    if trainer.args.disable_tqdm:
        return
    try:
        names = trainer.reward_func_names
        name = names[accuracy_reward_index(names, trainer.args.ces_accuracy_reward)]
    except ValueError:  # without CES, rewards may have any name
        name = None
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(AnswerProgress(name))
