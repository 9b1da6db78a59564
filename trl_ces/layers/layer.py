"""
Base class of the layers. It checks the TRL version and ignores the model's sampling defaults.

Overrides of TRL: `_generate_single_turn`.
"""

from pathlib import Path
from typing import Any, cast

import torch
import trl
from transformers import GenerationConfig
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer

from ..config import CESConfig
from ..support.settings import replace_generation_config
from ..support.tested_trl import check_trl_version


class Layer(GRPOTrainer):
    """
    Base class of the layers, each of which adds one feature to [`~trl.GRPOTrainer`] and can be omitted.

    Raises:
        `ImportError`: The installed TRL is older than all tested versions.
    """

    args: CESConfig
    model: torch.nn.Module
    num_generations: int
    num_generations_eval: int

    def __init__(self, *args, **kwargs):
        check_trl_version(trl.__version__)
        super().__init__(*args, **kwargs)

    def _generate_single_turn(self, *args, **kwargs):
        # Ignore the sampling defaults in the model's generation config. TRL passes the model's end tokens itself, and
        # passes all sampling parameters to vLLM.
        neutral = GenerationConfig(do_sample=True, top_k=0)  # transformers warns about top_k without do_sample
        with replace_generation_config(self.accelerator.unwrap_model(self.model), neutral):
            return super()._generate_single_turn(*args, **kwargs)

    def state_dict(self) -> dict[str, Any]:
        """Return JSON state to save in a checkpoint in addition to TRL's state. Each layer adds its keys."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state saved by [`state_dict`]."""

    def _rollout_settings(self) -> dict[str, Any]:
        """Return the settings that a saved rollout depends on, as JSON; if they change, the rollout is regenerated."""
        return {}

    def _checkpoint_folder(self, trial: Any) -> Path:
        return Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"

    @property
    def _group_size(self) -> int:
        """Number of completions per prompt (G) in training or evaluation, whichever is running."""
        return self.num_generations if self.model.training else self.num_generations_eval

    def _micro_steps_per_rollout(self) -> int:
        """Return the number of micro-steps for which TRL uses one rollout."""
        return cast(int, self.args.steps_per_generation) * self.num_iterations
