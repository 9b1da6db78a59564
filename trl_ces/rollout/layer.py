"""Base class of the layers: supported TRL versions, and state that survives a restart."""

import logging
import warnings
from typing import Any, cast

import torch
import trl
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from trl import GRPOTrainer

from ..config import CESConfig
from ..methods.group_reward import is_group_reward
from ..methods.groups import odd_reward

logger = logging.getLogger(__name__)

SUPPORTED_TRL = ">=1.16,<2"
NEWEST_TESTED_TRL = "1.16"


class Layer(GRPOTrainer):
    """
    One concern over [`~trl.GRPOTrainer`]; calls `super()` and can be left out.

    `class Plain(RealTokens, GRPOTrainer)` is a trainer whose `args` is a [`CESConfig`].

    Raises:
        `ImportError`: The installed TRL is outside `SUPPORTED_TRL`.
    """

    args: CESConfig
    model: torch.nn.Module
    num_generations: int
    num_generations_eval: int
    _accuracy_index: int  # set by the layers that need it
    _warned_of_graded = False

    def __init__(self, *args, **kwargs):
        check_trl_version(trl.__version__)
        super().__init__(*args, **kwargs)

    def _remembered(self) -> dict[str, Any]:
        """State to save beyond TRL's, as JSON. Each layer adds its keys."""
        return {}

    def _recall(self, state: dict[str, Any]) -> None:
        """Restores the state that [`_remembered`] returned before the restart."""

    @property
    def _group_size(self) -> int:
        """G, completions per prompt, in training or in evaluation."""
        return self.num_generations if self.model.training else self.num_generations_eval

    def _truncated(self, completion_ids: list[list[int]]) -> torch.Tensor:
        """Which completions do not end by themselves. Shape (len(completion_ids),), bool."""
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        return torch.tensor([not ids or ids[-1] not in ends for ids in completion_ids], device=self.accelerator.device)

    def _warn_unless_binary(self, accuracy: torch.Tensor) -> None:
        """
        Warns once if an accuracy reward, shape (N,), is neither 0 nor 1.

        A reward that is named, or used with a threshold, may be graded.
        """
        chosen = self.args.ces_accuracy_reward is not None or self.args.ces_correct_threshold != 1.0
        odd = None if chosen or self._warned_of_graded else odd_reward(accuracy)
        if odd is not None:
            self._warned_of_graded = True
            if self.accelerator.is_main_process:
                logger.warning(
                    "Correctness is taken from the reward function %s, which returned %g. A completion is correct at "
                    ">= `ces_correct_threshold` (1.0): set that, or name the accuracy reward in "
                    "`ces_accuracy_reward`.",
                    self.reward_func_names[self._accuracy_index],
                    odd,
                )

    def _steps_of_a_rollout(self) -> int:
        """Micro-steps for which TRL uses one rollout."""
        return cast(int, self.args.steps_per_generation) * self.num_iterations


def accuracy_column(args: CESConfig, names: list[str], funcs: list[Any]) -> int:
    """
    The accuracy reward's index.

    Args:
        args ([`CESConfig`]): Its `ces_accuracy_reward` may name it.
        names (`list[str]`): Names of the reward functions, as TRL logs them.
        funcs (`list`): The reward functions.

    Raises:
        `ValueError`: There is none, it is ambiguous, or it is a reward of whole groups.
    """
    index = args.accuracy_reward_index(names)
    if is_group_reward(funcs[index]):
        raise ValueError(
            f"{names[index]} rewards whole groups by the verdicts of an accuracy reward, so it cannot be that reward: "
            "add one to `reward_funcs`, and name it in `ces_accuracy_reward`."
        )
    return index


def check_trl_version(version: str) -> None:
    """
    Checks the TRL version; warns about a minor version newer than `NEWEST_TESTED_TRL`.

    Raises:
        `ImportError`: `version` is outside `SUPPORTED_TRL`, so training could differ silently.
    """
    if not SpecifierSet(SUPPORTED_TRL).contains(version, prereleases=True):
        raise ImportError(
            f"trl {version} is installed, but CESTrainer builds on the internals of trl{SUPPORTED_TRL}: "
            f"pip install 'trl{SUPPORTED_TRL}'."
        )
    if Version(version).release[:2] > Version(NEWEST_TESTED_TRL).release[:2]:
        warnings.warn(
            f"trl {version} is newer than {NEWEST_TESTED_TRL}, the newest that CESTrainer was tested with "
            f"(`SUPPORTED_TRL` is {SUPPORTED_TRL!r}): install that version, or run tests/test_trl_contract.py.",
            stacklevel=3,
        )
