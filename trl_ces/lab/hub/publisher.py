"""Pushes during and after training. No push ever ends a run."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from huggingface_hub import HfApi
from transformers import TrainerCallback
from transformers.trainer_utils import HubStrategy

from ...support.errors import hub_errors
from ...support.hub import HubError
from ...train.recipe import RECIPE, Recipe
from .push import Push, address, failure, open_repo, publish, push, reason
from .staging import find_weights, place_checkpoint, place_run, secrets_in, stage

if TYPE_CHECKING:
    from ...config import CESConfig


class Publisher(TrainerCallback):
    """
    Pushes the model of each saved checkpoint in the background.

    Replaces the Trainer's own pushes, which create a public repository by default, end the run if the Hub does not
    answer at its start, later fail silently, and upload a pickle of all arguments.
    """

    def __init__(self, args: CESConfig):
        output_dir = Path(str(args.output_dir))
        name, private = args.hub_model_id or output_dir.resolve().name, args.hub_private_repo is not False
        self.job = Push(output_dir, output_dir, name, private, args.hub_revision)
        self.strategy = HubStrategy(args.hub_strategy)
        self.always = bool(args.hub_always_push)
        args.push_to_hub = False
        self._api = HfApi()  # one background thread, which keeps the order
        self._last: Future[None] | None = None

    def check(self, recipe: Recipe) -> None:
        """Creates the repository before hours are spent. On the main process only."""
        secret = next(iter(secrets_in(recipe.env).values()), None)
        if secret is not None:
            raise HubError(
                f"{recipe.source}: `env` holds {secret}, and {RECIPE} is pushed with the model: set it in the "
                "environment instead, or train without `push_to_hub`."
            )
        try:
            print(f"Checkpoints are pushed to {address(self.job, open_repo(self.job))}.", flush=True)
        except HubError as error:
            raise HubError(f"{error} Or train without `push_to_hub`.") from error
        except hub_errors() as error:  # the Hub can be back when there is something to push
            print(f"The Hub does not answer now ({reason(error)}). Training goes on.", flush=True)

    def on_save(self, args, state, control, **kwargs):
        """Starts the push of the checkpoint just written."""
        if not state.is_world_process_zero or self.strategy == HubStrategy.END:
            return
        if self._last is not None and not self._last.done() and not self.always:
            return
        checkpoint = self.job.run / f"checkpoint-{state.global_step}"
        staged = None
        try:  # here, because the Trainer may delete the checkpoint after its next save
            staged = stage(self.job.run)
            folder = Path(staged.name)
            place_run(find_weights(checkpoint), self.job.run, folder)
            if self.strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
                last = self.strategy == HubStrategy.CHECKPOINT
                place_checkpoint(checkpoint, folder / ("last-checkpoint" if last else checkpoint.name))
        except Exception as error:  # a full disk, a damaged checkpoint
            if staged is not None:
                staged.cleanup()
            print(f"Step {state.global_step} is not pushed: {reason(error)}. Training goes on.", flush=True)
            return
        self._last = self._api.run_as_future(self._push, staged, checkpoint, state.global_step)

    def _push(self, staged: TemporaryDirectory[str], checkpoint: Path, step: int) -> None:
        try:
            with staged as folder:
                job = replace(self.job, weights=checkpoint)
                place = publish(Path(folder), job, f"Training in progress, step {step}")
            print(f"Step {step} is on {place}.", flush=True)
        except Exception as error:  # nothing that happens here may end the training
            print(f"The push of step {step} failed: {reason(error)}. Training goes on.", flush=True)

    def wait(self) -> None:
        """Waits for the running push. Not called inside `train()`, where the other processes would time out."""
        if self._last is not None:
            self._last.result()

    def finish(self) -> None:
        """Pushes the saved run. On the main process only."""
        self.wait()
        try:
            print(f"Pushed to {push(self.job, 'Trained with trl_ces')}", flush=True)
        except Exception as error:  # whatever it is, the training has ended well
            print(failure(self.job, error), flush=True)
