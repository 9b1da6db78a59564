"""Pushing during and after training. No push ever ends a run."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

from transformers import TrainerCallback
from transformers.trainer_utils import HubStrategy

from ..support.errors import UserError
from ..support.files import write_text
from ..support.hub import HubError
from ..train.recipe import RECIPE, Recipe
from .facts import ADAPTER, write_facts
from .pages import describe
from .push import Push, failure, publish, push
from .staging import find_weights, place_checkpoint, place_run, secrets_in, stage
from .upload import PushFailed, Target, open_repo, reason, url_of

if TYPE_CHECKING:
    from ..config import CESConfig
    from ..trainer import CESTrainer


class Publisher(TrainerCallback):
    """
    Pushes the model of each saved checkpoint in the background.

    Replaces the Trainer's own pushes, which create a public repository by default, end the run if the Hub does not
    answer at its start, later fail silently, and upload a pickle of all arguments.

    Args:
        args ([`CESConfig`]):
            The run's. `hub_model_id`, `hub_private_repo` (default here: true), `hub_revision`, `hub_strategy` and
            `hub_always_push` mean what they mean to the Trainer; its `push_to_hub` is switched off.
    """

    def __init__(self, args: CESConfig):
        self.output_dir = Path(str(args.output_dir))
        name = args.hub_model_id or self.output_dir.resolve().name
        self.target = Target(name, args.hub_private_repo is not False, args.hub_revision)
        self.strategy = HubStrategy(args.hub_strategy)
        self.always = bool(args.hub_always_push)
        args.push_to_hub = False
        self._queue = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def check(self, recipe: Recipe) -> None:
        """
        Creates the repository before hours are spent. On the main process only.

        Args:
            recipe ([`Recipe`]):
                The run's, which is pushed too.

        Raises:
            HubError: if the Hub refuses, or the recipe holds a secret. A Hub that does not answer is reported, and
                tried again at the first save.
        """
        secrets = secrets_in(recipe.env)
        if secrets:
            name = next(iter(secrets.values()))
            raise HubError(
                f"{recipe.source}: `env` holds {name}, and {RECIPE} is pushed with the model: set it in the "
                "environment instead, or train without `push_to_hub`."
            )
        try:
            print(f"Checkpoints are pushed to {url_of(open_repo(self.target), self.target.revision)}.", flush=True)
        except HubError as error:
            raise HubError(f"{error} Or train without `push_to_hub`.") from error
        except PushFailed as error:  # the Hub can be back when there is something to push
            print(f"The Hub does not answer now ({error}). Training goes on.", flush=True)

    def on_train_begin(self, args, state, control, **kwargs):
        """Records the settings and packages that the card shows."""
        if state.is_world_process_zero:
            write_facts(self.output_dir, args)

    def on_save(self, args, state, control, **kwargs):
        """Starts the push of the checkpoint just written."""
        if not state.is_world_process_zero or self.strategy == HubStrategy.END:
            return
        if self._last is not None and not self._last.done() and not self.always:
            return
        checkpoint = self.output_dir / f"checkpoint-{state.global_step}"
        staged = None
        try:
            staged = stage(self.output_dir)
            folder = Path(staged.name)
            place_run(find_weights(checkpoint), self.output_dir, folder)
            if self.strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
                last = self.strategy == HubStrategy.CHECKPOINT
                place_checkpoint(checkpoint, folder / ("last-checkpoint" if last else checkpoint.name))
        except Exception as error:  # a full disk, a damaged checkpoint
            if staged is not None:
                staged.cleanup()
            print(
                f"Step {state.global_step} is not pushed: {reason(error)}. Training goes on.",
                flush=True,
            )
            return
        self._last = self._queue.submit(self._push, staged, checkpoint, state.global_step)

    def wait(self) -> None:
        """Waits for the running push. Not called inside `train()`, where the other processes would time out."""
        if self._last is not None:  # the queue keeps its order
            self._last.result()

    def _push(self, staged: TemporaryDirectory[str], checkpoint: Path, step: int) -> None:
        job = Push(self.output_dir, checkpoint, self.target)
        try:
            with staged as folder:
                address = publish(Path(folder), job, f"Training in progress, step {step}", say=lambda text: None)
            print(f"Step {step} is on {address}.", flush=True)
        except Exception as error:  # nothing that happens here may end the training
            print(f"The push of step {step} failed: {reason(error)}. Training goes on.", flush=True)


def save_and_publish(trainer: CESTrainer, recipe: Recipe, publisher: Publisher | None = None) -> None:
    """
    Saves model, tokenizer, training state and model card in `output_dir`, and pushes them if the recipe asks for it.

    Call it on every process: gathering a sharded model takes all of them. If the push fails, the model stays saved and
    the command that repeats the push is printed.

    Args:
        trainer ([`CESTrainer`]):
            After `train()`.
        recipe ([`Recipe`]):
            What was trained.
        publisher ([`Publisher`], *optional*):
            That of the training.
    """
    args = cast("CESConfig", trainer.args)
    output_dir = Path(str(args.output_dir))
    if publisher is None and args.push_to_hub:
        publisher = Publisher(args)  # before save_model, which would push, and end the run if that fails
    trainer.save_model(str(output_dir))
    trainer.save_state()
    if not trainer.is_world_process_zero():
        return
    write_facts(output_dir, args)
    if not (output_dir / RECIPE).is_file():
        write_text(output_dir / RECIPE, recipe.to_yaml())
    try:
        describe(output_dir, output_dir.resolve().name, local=True)
    except UserError as error:  # the model is what counts
        print(f"No model card: {error}", flush=True)
    saved = sorted(file.name for file in output_dir.iterdir() if file.is_file())
    print(f"\nSaved in {output_dir}: {', '.join(saved)}.")
    print(f"Load it:\n{load_code(output_dir)}", flush=True)
    if publisher is not None:
        publisher.wait()
        job = Push(output_dir, output_dir, publisher.target)
        try:
            print(f"Pushed to {push(job, 'Trained with trl_ces', lambda text: print(text, flush=True))}", flush=True)
        except Exception as error:  # whatever it is, the training has ended well
            print(failure(job, error), flush=True)


def load_code(folder: Path) -> str:
    """Lines that load a saved model. `transformers` loads an adapter's directory together with its base."""
    note = "  # an adapter: needs peft" if (folder / ADAPTER).is_file() else ""
    return (
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        f'model = AutoModelForCausalLM.from_pretrained("{folder}"){note}\n'
        f'tokenizer = AutoTokenizer.from_pretrained("{folder}")'
    )
