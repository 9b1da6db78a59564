"""Trainer callbacks: a checkpoint on SIGTERM or Ctrl-C, files of the run, and a progress bar with metrics."""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ProgressCallback

from .checkpoints import write_manifest


class SaveOnSigterm(TrainerCallback):
    """
    Save a checkpoint and stop training after the current step when any process receives one of `signals`.

    A second SIGINT (Ctrl-C), if it is among them, ends the process at once.
    """

    def __init__(self, accelerator: Any, signals: Iterable[int] = (signal.SIGTERM,)):
        self.accelerator, self.signals = accelerator, tuple(signals)
        self.signalled = False  # whether this process received a signal
        self.stopped = False  # whether training stops; the same on all processes
        self.number, self._time = signal.SIGTERM, 0.0  # the first signal, and when it was received
        self.handle()

    def handle(self) -> None:
        """Install the signal handlers, or install them again if other code has replaced them."""
        if threading.current_thread() is threading.main_thread():
            for number in self.signals:
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if not self.signalled:
            self.signalled, self.number, self._time = True, signal.Signals(number), time.monotonic()
        elif number == signal.SIGINT and time.monotonic() - self._time > 1:  # one Ctrl-C may be delivered twice
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def on_step_begin(self, args, state, control, **kwargs):
        self.handle()

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


class RunFiles(TrainerCallback):
    """
    Write the files of a run after its first optimizer step, so that a start that fails changes nothing.

    `begin()` is called then, on every process, and `write(folder)` for each checkpoint, on the main process, which
    completes the checkpoint with a manifest.
    """

    def __init__(self, accelerator: Any, begin: Callable[[], None], write: Callable[[Path], None]):
        self.accelerator, self.begin, self.write = accelerator, begin, write
        self.begun = False

    def on_step_end(self, args, state, control, **kwargs):
        if not self.begun:
            self.begun = True
            self.begin()

    def on_save(self, args, state, control, **kwargs):
        self.accelerator.wait_for_everyone()  # each process writes files of its own
        if self.accelerator.is_main_process:
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            self.write(checkpoint)
            write_manifest(checkpoint)


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
