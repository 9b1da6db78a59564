"""SIGTERM, the way in which clusters ask for a machine back: training saves and ends, and can go on later."""

import signal
import threading
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback


class SaveOnSigterm(TrainerCallback):
    """
    Ends training after the running step, with a checkpoint, once any of its processes got SIGTERM.

    Args:
        accelerator (`Accelerator`): Lets the processes agree on the step, since the signal reaches them at different
            times.
    """

    def __init__(self, accelerator: Any):
        self.accelerator = accelerator
        self.signalled = False  # this process
        self.stopped = False  # all of them, after the same step
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.signalled = True

    def on_step_end(self, args, state, control, **kwargs):
        """Tells the Trainer, on all processes after the same step."""
        flag = self.signalled
        if self.accelerator.num_processes > 1:
            ours = torch.tensor(float(flag), device=self.accelerator.device)
            flag = bool(self.accelerator.reduce(ours, reduction="sum") > 0)
        if flag:
            self.stopped = control.should_save = control.should_training_stop = True
            control.should_evaluate = False  # there is no time for that

    def on_epoch_end(self, args, state, control, **kwargs):
        """The step may have been an epoch's last."""
        if self.stopped:
            control.should_evaluate = False
