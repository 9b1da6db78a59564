"""Make resumed runs match uninterrupted runs, even if resumed within a rollout (bitwise identical on a CPU).

TRL keeps three things in memory only: the current rollout, metrics that are not yet logged, and the sampler's
random state. This layer saves the rollout, the metrics and the state of the other layers in the checkpoint, and
repeats the sampler's random draws.

Overrides of TRL and transformers: `_save_checkpoint`, `_load_optimizer_and_scheduler`, `_get_train_sampler`, `log`.
Reads and writes `_step`, `_buffered_inputs`, `_metrics` and `log_completions`; reads `_logs`.
"""

import logging
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import broadcast_object_list, gather_object

from .files import load_micro_batches, save_micro_batches
from .layer import Layer

logger = logging.getLogger(__name__)

# A saved rollout is reused only if these settings are unchanged.
SETTINGS = (
    "shaping",
    "beta",
    "num_generations",
    "num_iterations",
    "steps_per_generation",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "max_tokens_per_micro_batch",
    "normalize_each_step",
    "use_vllm",
    "vllm_importance_sampling_correction",
)


class ExactResume(Layer):
    """Save TRL's in-memory training state with each checkpoint, and restore it."""

    _train_sampler: Any = None

    def _get_train_sampler(self, dataset=None):
        self._train_sampler = super()._get_train_sampler(dataset)
        return self._train_sampler

    def _save_checkpoint(self, model, trial):
        if not self.args.save_only_model:  # every complete checkpoint must contain the rollout
            self._save_rollout(self._checkpoint_folder(trial))
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        if self._train_sampler is not None and self.shuffle_dataset:
            # TRL's sampler draws the order of every epoch from one generator: repeat the draws of the finished epochs.
            for _ in range(int(cast(float, self.state.epoch))):
                torch.randperm(self._train_sampler.num_samples, generator=self._train_sampler.generator)
        self._load_rollout(Path(checkpoint))

    def log(self, logs, start_time=None):
        log_completions = self.log_completions
        # A resumed rollout does not contain the texts for TRL's table of completions.
        self.log_completions = log_completions and len(self._logs["prompt"]) > 0
        super().log(logs, start_time)
        self.log_completions = log_completions

    def _rollout_settings(self):
        settings = {name: getattr(self.args, name) for name in SETTINGS}
        return {**super()._rollout_settings(), **settings, "num_processes": self.accelerator.num_processes}

    def state_dict(self):
        state = {"step": self._step, "metrics": self._metrics["train"], "settings": self._rollout_settings()}
        return {**super().state_dict(), **state}

    def load_state_dict(self, state: dict[str, Any]):
        super().load_state_dict(state)
        self._step = state["step"]
        self._metrics["train"].update(state["metrics"])

    def _save_rollout(self, folder: Path):
        inside_rollout = self._step % self._micro_steps_per_rollout() != 0
        rollout = cast(list[dict], self._buffered_inputs) if inside_rollout else []
        for micro_batches in (rollout, []):
            try:
                return save_micro_batches(folder / self._rollout_file(), micro_batches, self.state_dict())
            except TypeError as error:  # lists of images: save only the layers' state
                logger.warning("The rollout could not be saved (%s). A resumed run will regenerate it.", error)

    def _load_rollout(self, checkpoint: Path):
        """Restore the saved rollout if it is valid on every process, else only the layer state of process 0."""
        saved = load_micro_batches(checkpoint / self._rollout_file(), self.accelerator.device)
        rollout, state = saved or ([], {})
        is_valid = state.get("settings") == self._rollout_settings()
        # Rollouts with images are not saved.
        is_valid = is_valid and bool(rollout) == (state["step"] % self._micro_steps_per_rollout() != 0)
        if not all(gather_object([is_valid])):
            [state] = broadcast_object_list([state])
            if state:
                self.load_state_dict({**state, "step": 0})
            inside_rollout = (
                self.state.global_step * self.args.gradient_accumulation_steps % self._micro_steps_per_rollout()
            )
            if (inside_rollout or not state) and self.accelerator.is_main_process:
                logger.warning(
                    "The rollout file of %s is missing or damaged, or was saved with other settings or a different "
                    "number of processes. An unfinished rollout is generated again. Without the file, values that the "
                    "first rollout determined are lost. Results will differ from those of an uninterrupted run.",
                    checkpoint,
                )
            return
        self.load_state_dict(state)
        if rollout:
            self._buffered_inputs = cast(Any, rollout)

    def _rollout_file(self) -> str:
        return f"rollout-{self.accelerator.process_index}.safetensors"
