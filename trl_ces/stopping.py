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
        self.asked = False
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True

    def on_step_end(self, args, state, control, **kwargs):
        """Tells the Trainer."""
        if self.accelerator.num_processes > 1:
            flag = torch.tensor(float(self.asked), device=self.accelerator.device)
            self.asked = bool(self.accelerator.reduce(flag, reduction="sum") > 0)
        if self.asked:
            control.should_save = control.should_training_stop = True
