"""Warn when training diverges, i.e. when entropy rises while accuracy falls, and optionally stop training."""

import logging
import math
from statistics import fmean

from transformers import TrainerCallback

logger = logging.getLogger(__name__)

# Number of log entries per mean. The mean of the first entries is compared with the mean of the last entries. An entry
# covers at least one rollout.
WINDOW = 5
ENTROPY_RISE, ACCURACY_FALL = 1.5, 0.8


class DivergenceWatch(TrainerCallback):
    """
    Compare the first and the last entropies and accuracies of the log entries that contain `reward`, i.e. that cover
    a rollout. Warn once if training diverges, with `advice` on settings to change. If `stop` is set, also
    save a checkpoint and stop training.
    """

    def __init__(self, reward: str, stop: bool, advice: str):
        self.reward, self.stop, self.advice = f"rewards/{reward}/mean", stop, advice
        self.has_warned = False

    def on_log(self, args, state, control, **kwargs):
        """Check the complete log history, which is restored when a run is resumed."""
        rows = [
            # The mean of the reward is not the accuracy if rewards are graded or negative.
            (entry["ces/group_accuracy"], entry["entropy"] / math.log(2))
            for entry in state.log_history
            if None not in map(entry.get, (self.reward, "ces/group_accuracy", "entropy"))
        ]
        if self.has_warned or len(rows) < 2 * WINDOW:
            return
        (accuracy, entropy), (last_accuracy, last_entropy) = (
            map(fmean, zip(*part, strict=True)) for part in (rows[:WINDOW], rows[-WINDOW:])
        )
        if last_entropy > ENTROPY_RISE * entropy and last_accuracy < ACCURACY_FALL * accuracy:
            self.has_warned = True
            if self.stop:
                control.should_save = control.should_training_stop = True
            if state.is_world_process_zero:
                action = "Training stops" if self.stop else "Stop the run (`stop_on_divergence: true` automates this)"
                logger.warning(
                    f"Training diverges: entropy rose from {entropy:.2f} to {last_entropy:.2f} bits per token, and "
                    f"accuracy fell from {100 * accuracy:.0f} to {100 * last_accuracy:.0f} %. {action}; "
                    f"start a new run with {self.advice}."
                )
