"""Trainer callbacks: save a checkpoint on SIGTERM, write the run's files, and show metrics in the progress bar."""

import math
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ProgressCallback
from transformers.trainer_utils import rotate_checkpoints

from .checkpoints import delete_checkpoints, write_manifest


class SaveOnSigterm(TrainerCallback):
    """Save a checkpoint and stop training after the current step when any process receives one of `signals`."""

    def __init__(self, accelerator: Any, signals: tuple[int, ...] = (signal.SIGTERM,)):
        self.accelerator, self.signals = accelerator, signals
        self.signalled = 0  # the first signal that this process received
        self.stopped = False  # whether to stop training; identical on all processes
        self.on_step_begin(None, None, None)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.signalled = self.signalled or number

    def on_step_begin(self, args, state, control, **kwargs):
        if threading.current_thread() is threading.main_thread():
            for number in self.signals:  # before every step, because a reward function may replace the handlers
                signal.signal(number, self._on_signal)

    def on_step_end(self, args, state, control, **kwargs):
        flag = bool(self.signalled)
        if self.accelerator.num_processes > 1:
            own_flag = torch.tensor(float(flag), device=self.accelerator.device)
            flag = bool(self.accelerator.reduce(own_flag, reduction="sum") > 0)
        if flag:
            self.stopped = control.should_save = control.should_training_stop = True
            control.should_evaluate = False  # the process may soon be killed

    def on_epoch_end(self, args, state, control, **kwargs):
        if self.stopped:
            control.should_evaluate = False


class RunFiles(TrainerCallback):
    """
    Write a run's files after its first optimizer step, so that a failed start changes nothing. Also write these files
    and a manifest to each checkpoint. `write` takes the folder; `overwrite` deletes the checkpoints of earlier runs.
    """

    def __init__(self, accelerator: Any, write: Callable[[Path], None], overwrite: bool):
        self.accelerator, self.write, self.overwrite, self.is_first = accelerator, write, overwrite, True
        self.limit: int | None = None  # `save_total_limit`

    def on_train_begin(self, args, state, control, **kwargs):
        # The Trainer would delete the old checkpoint before the new checkpoint has a manifest and can be resumed.
        self.limit, args.save_total_limit = args.save_total_limit, None

    def on_step_end(self, args, state, control, **kwargs):
        if self.is_first and self.overwrite:
            if self.accelerator.is_local_main_process:
                delete_checkpoints(Path(args.output_dir))
            self.accelerator.wait_for_everyone()
        if self.is_first and self.accelerator.is_main_process:
            self.write(Path(args.output_dir))
        self.is_first = False

    def on_save(self, args, state, control, **kwargs):
        self.accelerator.wait_for_everyone()  # each process writes its own files
        if args.should_save:  # true on every machine with `save_on_each_node`
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            self.write(checkpoint)
            write_manifest(checkpoint)
            rotate_checkpoints(args.output_dir, self.limit, state.best_model_checkpoint, use_mtime=True)


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
        # Only the entropy is logged at every step; for the other metrics, keep the values of the last rollout.
        self.last |= {name: value for name, value in (logs or {}).items() if value is not None}
        if self.training_bar is not None:
            entries = [(self.last[name], *style) for name, style in self.metrics.items() if name in self.last]
            self.training_bar.set_postfix_str(", ".join(text.format(value * scale) for value, scale, text in entries))
