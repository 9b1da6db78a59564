"""One push: gather a run's files, describe them, upload them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..evaluation.settings import default_folder
from ..report.trainings import read_recipe
from ..support.errors import UserError
from ..support.hub import check_repo
from ..train.recipe import RECIPE
from .facts import ADAPTER
from .pages import check_measured_weights, describe
from .staging import check_secrets, find_weights, home_of, merge, place_run, stage
from .upload import Target, open_repo, reason, upload, url_of

Say = Callable[[str], None]


@dataclass(frozen=True)
class Push:
    """
    What to push, and where to.

    Args:
        run (`Path`): An output directory of `trl-ces train`, or one of its checkpoints.
        weights (`Path`): The run, or the checkpoint whose weights are pushed.
        target ([`Target`]): The repository.
        merge (`bool`): Merge a LoRA adapter into its base.
        evaluations (`Sequence[Path]`): Folders of `trl-ces eval` that measured these weights.
        license (`str`, *optional*): Of the base model, if its own card does not say.
        card (`Path`, *optional*): A model card to upload instead of the generated one.
    """

    run: Path
    weights: Path
    target: Target
    merge: bool = False
    evaluations: Sequence[Path] = ()
    license: str | None = None
    card: Path | None = None

    @property
    def home(self) -> Path:
        """Where recipe.yaml and run.json are."""
        return home_of(self.run)

    def command(self) -> str:
        """The `trl-ces push` line that repeats it."""
        words = ["trl-ces", "push", str(self.run), "--repo_id", self.target.repo_id]
        words += ["--merge"] if self.merge else []
        words += [] if self.target.private else ["--public"]
        words += ["--revision", self.target.revision] if self.target.revision else []
        words += ["--evaluation", *map(str, self.evaluations)] if self.evaluations else []
        words += ["--license", self.license] if self.license else []
        words += ["--card", str(self.card)] if self.card else []
        return shlex.join(words)


def plan_push(
    run: Path,
    *,
    repo_id: str | None,
    public: bool,
    revision: str | None,
    merge: bool,
    evaluation: Sequence[Path] | None,
    license: str | None,
    card: Path | None,
    say: Say,
) -> Push:
    """
    A [`Push`] from the options of `trl-ces push`.

    What is `None` comes from the recipe's `hub_*` fields; the evaluation, from where `trl-ces eval` writes by default,
    if it measured these weights.

    Raises:
        UserError: if there is nothing to push, or a file that was named is missing or belongs to other weights.
    """
    weights = find_weights(run)
    recipe = read_recipe(home_of(run))
    if not recipe:
        raise UserError(f"{home_of(run)} holds no {RECIPE}: name an output directory of `trl-ces train`.")
    if merge and not (weights / ADAPTER).is_file():
        raise UserError(f"{weights} holds a full model, not an adapter: push it without `--merge`.")
    if card is not None and not card.is_file():
        raise UserError(f"`--card` {card} does not exist.")
    for place in evaluation or ():
        check_measured_weights(place, weights)
    usual = default_folder(str(run))
    if evaluation is None and usual.is_dir():
        try:
            check_measured_weights(usual, weights)
            evaluation = [usual]
        except UserError as error:
            say(f"Not in the card: {error}")
    target = Target(
        repo_id or recipe.get("hub_model_id") or run.resolve().name,
        private=not public and recipe.get("hub_private_repo") is not False,
        revision=revision or recipe.get("hub_revision"),
    )
    return Push(run, weights, target, merge, evaluation or (), license, card)


def push(job: Push, message: str, say: Say) -> str:
    """
    Uploads a run in a commit with `message`; returns the address of its page. `say` is told what is left out.

    Raises:
        UserError: if it is refused before the upload.
        PushFailed: if the Hub did not take it.
    """
    check_repo(job.target.repo_id)
    with stage(job.home) as name:
        folder = Path(name)
        place_run(job.weights, job.home, folder)
        return publish(folder, job, message, say)


def publish(folder: Path, job: Push, message: str, say: Say) -> str:
    """Like [`push`], from a staged `folder` in which the run is already placed."""
    repo = open_repo(job.target)
    complete(folder, job, repo, say)
    address = url_of(repo, job.target.revision)
    say(f"Uploading {listed(folder)} to {address}.")
    upload(folder, repo, job.target.revision, message)
    return address


def write_folder(job: Push, folder: Path, say: Say) -> None:
    """Writes what a push would upload into the new `folder`."""
    folder.mkdir(parents=True)
    place_run(job.weights, job.home, folder)
    complete(folder, job, job.target.repo_id, say)
    say(f"{listed(folder)} in {folder}. Nothing was uploaded.")


def complete(folder: Path, job: Push, repo: str, say: Say) -> None:
    """Merges and describes the run in `folder`, and scans it for secrets."""
    if job.merge:
        say(f"Merging the adapter in {job.weights} into its base.")
        merge(job.weights, folder)
    for note in describe(folder, repo, job.card, job.evaluations, job.license, job.merge):
        say(note)
    check_secrets(folder)


def listed(folder: Path) -> str:
    """`12 files, 3.4 MB,`"""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return f"{len(files)} files, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB,"


def failure(job: Push, error: Exception) -> str:
    """What went wrong, and the line that tries again."""
    return (
        f"The push to the Hub failed: {reason(error)}.\nThe run is saved. Push it again; what has "
        f"arrived is not sent twice:\n  {job.command()}"
    )
