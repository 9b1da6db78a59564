"""Warns, or stops, when CES ruins a model: entropy rises while accuracy falls (experiments/thirty_worlds)."""

import logging
import math
from statistics import fmean

from transformers import TrainerCallback

logger = logging.getLogger(__name__)

# The last logs against the first: means over so many, each of at least a rollout.
WINDOW = 5
RISE, FALL = 1.5, 0.8


class RunawayWatch(TrainerCallback):
    """
    Compares the last logged entropies and accuracies with the first, and warns once.

    Args:
        reward (`str`): Name of the accuracy reward, as TRL logs it.
        stop (`bool`): Whether training ends with the warning, after a checkpoint.
    """

    def __init__(self, reward: str, stop: bool):
        self.accuracy, self.stop, self.told = f"rewards/{reward}/mean", stop, False

    def on_log(self, args, state, control, **kwargs):
        """Reads the whole history, which a resumed run has too."""
        rows = [
            (entry[self.accuracy], entry["entropy"] / math.log(2))
            for entry in state.log_history
            if entry.get(self.accuracy) is not None and entry.get("entropy") is not None
        ]
        if self.told or len(rows) < 2 * WINDOW:
            return
        (accuracy, entropy), (now, grown) = (
            map(fmean, zip(*part, strict=True)) for part in (rows[:WINDOW], rows[-WINDOW:])
        )
        if grown > RISE * entropy and now < FALL * accuracy:
            self.told = True
            if self.stop:
                control.should_save = control.should_training_stop = True
            if state.is_world_process_zero:
                end = "Training stops here" if self.stop else "Stop it (`stop_on_runaway: true` would)"
                logger.warning(
                    f"CES is ruining this model: entropy rose from {entropy:.2f} to {grown:.2f} bits a token, and "
                    f"accuracy fell from {100 * accuracy:.0f} to {100 * now:.0f} %. {end}, and start again with "
                    "the overlay `ces_mai` or `ces_correct_only`, or a smaller `ces_tau`."
                )
