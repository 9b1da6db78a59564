"""Trainer callbacks: a checkpoint on SIGTERM, and a progress bar with accuracy, length and entropy."""

import math
import signal
import threading
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ProgressCallback


class SaveOnSigterm(TrainerCallback):
    """Save a checkpoint and stop training after the current step when any process receives SIGTERM."""

    def __init__(self, accelerator: Any):
        self.accelerator = accelerator
        self.signalled = False  # whether this process received SIGTERM
        self.stopped = False  # whether training stops; the same on all processes
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.signalled = True

    def on_step_end(self, args, state, control, **kwargs):
        flag = self.signalled
        if self.accelerator.num_processes > 1:
            own_flag = torch.tensor(float(flag), device=self.accelerator.device)
            flag = bool(self.accelerator.reduce(own_flag, reduction="sum") > 0)
        if flag:
            self.stopped = control.should_save = control.should_training_stop = True
            control.should_evaluate = False  # the process may be killed soon

    def on_epoch_end(self, args, state, control, **kwargs):
        if self.stopped:
            control.should_evaluate = False


class ProgressWithMetrics(ProgressCallback):
    """The Trainer's progress bar with the last logged accuracy, completion length and entropy."""

    def __init__(self, accuracy_reward: str | None):
        super().__init__()
        self.last: dict[str, float] = {}
        self.metrics = {
            f"rewards/{accuracy_reward}/mean": (100, "{:.1f} % correct"),
            "completions/mean_length": (1, "{:.1f} tokens"),
            "entropy": (1 / math.log(2), "{:.3f} bits per token"),  # TRL logs nats
        }

    def on_log(self, args, state, control, logs=None, **kwargs):
        super().on_log(args, state, control, logs=logs, **kwargs)
        # Only the entropy is logged at every step; keep the other values of the last rollout.
        self.last |= {name: value for name, value in (logs or {}).items() if value is not None}
        if self.training_bar is not None:
            shown = [(self.last[name], *style) for name, style in self.metrics.items() if name in self.last]
            self.training_bar.set_postfix_str(", ".join(text.format(value * scale) for value, scale, text in shown))
