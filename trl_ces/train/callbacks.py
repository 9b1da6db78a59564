"""A checkpoint on SIGTERM."""

import signal
import threading
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback


class SaveOnSigterm(TrainerCallback):
    """
    Saves a checkpoint and ends training after the running step once any process receives SIGTERM, by which clusters
    announce that they take a machine back.
    """

    def __init__(self, accelerator: Any):
        self.accelerator = accelerator
        self.signalled = False  # this process
        self.stopped = False  # all processes, after the same step
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.signalled = True

    def on_step_end(self, args, state, control, **kwargs):
        """Stops all processes after the same step."""
        flag = self.signalled
        if self.accelerator.num_processes > 1:
            ours = torch.tensor(float(flag), device=self.accelerator.device)
            flag = bool(self.accelerator.reduce(ours, reduction="sum") > 0)
        if flag:
            self.stopped = control.should_save = control.should_training_stop = True
            control.should_evaluate = False  # there is no time for it

    def on_epoch_end(self, args, state, control, **kwargs):
        """Skips the evaluation of an epoch that ended with the step."""
        if self.stopped:
            control.should_evaluate = False
