"""Pushing during and after a training, which no push can end."""

from __future__ import annotations

import shlex
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, cast

from transformers import TrainerCallback
from transformers.trainer_utils import HubStrategy

from ..support.errors import UserError
from ..support.files import write_text
from ..train.recipe import RECIPE, Recipe
from .facts import ADAPTER, write_facts
from .pages import describe
from .staging import check_secrets, find_weights, open_stage, place_checkpoint, place_run, secrets_in, stage
from .upload import Target, explain, open_repo, upload, url_of

if TYPE_CHECKING:
    from ..config import CESConfig
    from ..trainer import CESTrainer


class Publisher(TrainerCallback):
    """
    Pushes each saved checkpoint's model in the background, in the Trainer's place.

    The Trainer's own pushes make a public repository if nobody forbids it, end the run if the Hub does not answer at
    its beginning, fail without a word later, and take a pickle of all arguments along.

    Args:
        args ([`CESConfig`]):
            The run's. `hub_model_id`, `hub_private_repo` (here true if not given), `hub_revision`, `hub_strategy` and
            `hub_always_push` mean what they mean to the Trainer; `push_to_hub` is switched off in it.
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
        Makes the repository before hours are spent. For the first process alone.

        Args:
            recipe ([`Recipe`]):
                The run's, which is pushed too.

        Raises:
            UserError: if the Hub refuses, or the recipe holds a secret. A Hub that does not answer is told, and
                asked again later.
        """
        secrets = secrets_in(recipe.env)
        if secrets:
            name = next(iter(secrets.values()))
            raise UserError(
                f"{recipe.source}: `env` holds {name}, and {RECIPE} is pushed with the model: set it in the "
                "environment instead, or train without `push_to_hub`."
            )
        try:
            print(f"Checkpoints are pushed to {url_of(open_repo(self.target), self.target.revision)}.", flush=True)
        except UserError as error:
            raise UserError(f"{error} Or train without `push_to_hub`.") from error
        except Exception as error:  # the Hub can be back when there is something to push
            print(f"The Hub does not answer now ({explain(error)}). Training goes on.", flush=True)

    def on_train_begin(self, args, state, control, **kwargs):
        """Records what the card says of settings and packages."""
        if state.is_world_process_zero:
            write_facts(self.output_dir, args)

    def on_save(self, args, state, control, **kwargs):
        """Starts the push of the checkpoint that was just written."""
        if not state.is_world_process_zero or self.strategy == HubStrategy.END:
            return
        if self._last is not None and not self._last.done() and not self.always:
            return
        checkpoint = self.output_dir / f"checkpoint-{state.global_step}"
        folder = None
        try:
            folder = open_stage(self.output_dir)
            place_run(find_weights(checkpoint), self.output_dir, folder)
            if self.strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
                last = self.strategy == HubStrategy.CHECKPOINT
                place_checkpoint(checkpoint, folder / ("last-checkpoint" if last else checkpoint.name))
        except Exception as error:  # a full disk, sharded weights
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            print(f"Step {state.global_step} is not pushed: {explain(error)}. Training goes on.", flush=True)
            return
        self._last = self._queue.submit(self._push, folder, state.global_step)

    def wait(self) -> None:
        """Waits for the running push. Not at the end of `train()`: the others would wait too, and time out."""
        if self._last is not None:  # the queue keeps its order
            self._last.result()

    def _push(self, folder: Path, step: int) -> None:
        try:
            repo = publish(folder, self.target, f"Training in progress, step {step}")
            print(f"Step {step} is on {url_of(repo, self.target.revision)}.", flush=True)
        except Exception as error:  # nothing that happens here may end the training
            print(f"The push of step {step} failed: {explain(error)}. Training goes on.", flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, target: Target, message: str) -> str:
    """Opens the repository, completes a staged folder with a run in it, uploads it; returns the repository's id."""
    repo = open_repo(target)
    describe(folder, repo, say=lambda text: print(text, flush=True))
    check_secrets(folder)
    upload(folder, repo, target.revision, message)
    return repo


def save_and_publish(trainer: CESTrainer, recipe: Recipe, publisher: Publisher | None = None) -> None:
    """
    Saves model, tokenizer, training state and model card in `output_dir`, and pushes them if the recipe asks for it.

    Called on every process: gathering a sharded model takes all of them. A push that fails leaves the saved model as
    it is and prints the command that repeats the push.

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
        publisher = Publisher(args)  # before save_model, which would push, and end the run where that fails
    trainer.save_model(str(output_dir))
    trainer.save_state()
    if not trainer.is_world_process_zero():
        return
    write_facts(output_dir, args)
    if not (output_dir / RECIPE).is_file():
        write_text(output_dir / RECIPE, recipe.to_yaml())
    try:
        describe(output_dir, output_dir.resolve().name, say=lambda text: None, online=False, report=False)
    except UserError as error:  # the model is what counts
        print(f"No model card: {error}", flush=True)
    saved = sorted(file.name for file in output_dir.iterdir() if file.is_file())
    print(f"\nSaved in {output_dir}: {', '.join(saved)}.")
    print(f"Load it:\n{load_code(output_dir)}", flush=True)
    if publisher is not None:
        publisher.wait()
        push(output_dir, publisher.target)


def load_code(folder: Path) -> str:
    """Lines that load a saved model. `transformers` loads an adapter's directory together with its base."""
    note = "  # an adapter: needs peft" if (folder / ADAPTER).is_file() else ""
    return (
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        f'model = AutoModelForCausalLM.from_pretrained("{folder}"){note}\n'
        f'tokenizer = AutoTokenizer.from_pretrained("{folder}")'
    )


def push(output_dir: Path, target: Target) -> bool:
    """
    Uploads the run that has just ended.

    Args:
        output_dir (`Path`):
            Its directory.
        target ([`Target`]):
            Where to.

    Returns:
        `bool`: Whether it arrived. If not, the reason and the command to retry have been printed.
    """
    try:
        with stage(output_dir) as folder:
            place_run(output_dir, output_dir, folder)
            repo = publish(folder, target, "Trained with trl_ces")
    except Exception as error:  # whatever it is, the training has ended well
        print(
            f"The push to the Hub failed: {explain(error)}.\nThe model is saved. Push it again:\n"
            f"  {retry_command(output_dir, target)}",
            flush=True,
        )
        return False
    print(f"Pushed to {url_of(repo, target.revision)}", flush=True)
    return True


def retry_command(run: Path, target: Target, merged: bool = False) -> str:
    """The line that pushes a run again."""
    words = ["trl-ces", "push", str(run), "--repo_id", target.repo_id]
    words += ["--merge"] if merged else []
    words += [] if target.private else ["--public"]
    words += ["--revision", target.revision] if target.revision else []
    return shlex.join(words)
