"""What the layers share: the TRL that they build on, where a rollout stands, and what must survive a restart."""

import warnings
from typing import Any, cast

import torch
import trl
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from trl import GRPOTrainer

from ..config import CESConfig

SUPPORTED_TRL = ">=1.16,<2"
NEWEST_TESTED_TRL = "1.16"


class Layer(GRPOTrainer):
    """
    One concern, as a subclass of [`~trl.GRPOTrainer`] that calls `super()` and can be left out.

    `class Plain(RealTokens, GRPOTrainer)` is a trainer. A layer takes a [`CESConfig`] as `args`.

    Raises:
        `ImportError`: TRL's version is outside `SUPPORTED_TRL`.
    """

    args: CESConfig
    model: torch.nn.Module
    num_generations: int
    num_generations_eval: int

    def __init__(self, *args, **kwargs):
        check_trl_version(trl.__version__)
        super().__init__(*args, **kwargs)

    def _remembered(self) -> dict[str, Any]:
        """What a checkpoint must hold beyond TRL's state, as JSON. Each layer adds its keys."""
        return {}

    def _recall(self, state: dict[str, Any]) -> None:
        """Takes up what [`_remembered`] returned before the restart."""

    def _steps_of_a_rollout(self) -> int:
        """Forward and backward passes for which TRL uses a rollout."""
        return cast(int, self.args.steps_per_generation) * self.num_iterations


def check_trl_version(version: str) -> None:
    """
    Refuses a TRL outside `SUPPORTED_TRL`; warns of a minor version newer than `NEWEST_TESTED_TRL`.

    Raises:
        `ImportError`: Another TRL could train something else.
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
