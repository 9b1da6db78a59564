"""`trl-ces push`: a training's model, card, log and report on the Hub, private if not told otherwise."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..support.errors import UserError

if TYPE_CHECKING:
    from ..hub.upload import Target

EPILOG = """  trl-ces push runs/ces                                   into your namespace, private
  trl-ces push runs/ces --repo_id me/r1-ces --public
  trl-ces push runs/lora --merge --evaluation runs/evaluation/runs_lora
  trl-ces push runs/ces --out to-push                     look at it first; nothing is uploaded

The token is that of `hf auth login`, or HF_TOKEN. Exit code 2: refused, 1: the Hub did not take it. See docs/hub.md.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UserError(f"{message[:1].upper()}{message[1:]}. `trl-ces push --help` lists the options.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="trl-ces push",
        usage="trl-ces push RUN [--repo_id NAMESPACE/NAME] [--merge] [--public] [--evaluation DIR ...] [options]",
        description="Upload a trained model to the Hub: weights, tokenizer, recipe, log, report and model card.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="an output directory of trl-ces train, or one of its checkpoints")
    add("--repo_id", metavar="NAME", help="default: `hub_model_id` of the recipe, or the directory's name")
    add("--merge", action="store_true", help="of a LoRA adapter: upload it merged into its base")
    add("--public", action="store_true", help="make a new repository public, and push into one that is")
    add("--revision", metavar="BRANCH", help="default: `hub_revision` of the recipe, or main")
    add("--evaluation", nargs="+", type=Path, metavar="DIR", help="of trl-ces eval; default: its own place for RUN")
    add("--license", metavar="ID", help="of the base model, where its own card does not say: apache-2.0, mit, ...")
    add("--card", type=Path, metavar="FILE", help="a model card to upload instead of the one made here")
    add("--out", type=Path, metavar="DIR", help="put everything there, to be looked at, and upload nothing")
    return parser


def run(argv: list[str]) -> int:
    """
    Gathers what belongs to a run and uploads it.

    Args:
        argv (`list[str]`):
            The words behind `trl-ces push`.

    Returns:
        `int`: 0; 1 if the Hub did not take it.

    Raises:
        UserError: if there is nothing to push, or the Hub refuses; the run is as it was.
    """
    options = _parser().parse_args(argv or ["--help"])
    place = options.run.expanduser()
    from ..hub.facts import ADAPTER
    from ..hub.staging import find_weights, home_of
    from ..report.runs import RECIPE, read_recipe

    weights = find_weights(place)
    home = home_of(place)
    recipe = read_recipe(home)
    if not recipe:
        raise UserError(f"{home} holds no {RECIPE}: name an output directory of `trl-ces train`.")
    if options.merge and not (weights / ADAPTER).is_file():
        raise UserError(f"{weights} holds a whole model and no adapter: push it without `--merge`.")
    if options.card is not None and not options.card.expanduser().is_file():
        raise UserError(f"`--card` {options.card} does not exist.")
    if options.out is not None and options.out.exists():
        raise UserError(f"`--out` {options.out} is there already: name a new folder.")
    evaluations = _evaluations(options.evaluation, place, weights)

    from ..hub.upload import Target
    from ..support.hub import check_repo

    name = options.repo_id or recipe.get("hub_model_id") or place.resolve().name
    revision = options.revision or recipe.get("hub_revision")
    target = Target(name, not (options.public or recipe.get("hub_private_repo") is False), revision)
    if options.out is None:
        check_repo(target.repo_id)
    return _push(options, target, weights, home, evaluations)


def _evaluations(given: list[Path] | None, run: Path, weights: Path) -> list[Path]:
    """The evaluations of these weights: those that are named, or the one in the place that `trl-ces eval` chooses."""
    from ..hub.pages import check_evaluation
    from .eval import default_folder

    if given is not None:
        for place in given:
            check_evaluation(place.expanduser(), weights)
        return [place.expanduser() for place in given]
    place = default_folder(str(run))
    if not place.is_dir():
        return []
    try:
        check_evaluation(place, weights)
    except UserError as error:
        print(f"Not in the card: {error}")
        return []
    return [place]


def _push(options: argparse.Namespace, target: Target, weights: Path, home: Path, evaluations: list[Path]) -> int:
    from ..hub.pages import describe
    from ..hub.staging import check_secrets, merge, place_run, stage
    from ..hub.training import retry_command
    from ..hub.upload import explain, open_repo, upload, url_of

    def complete(folder: Path, repo: str) -> None:
        if options.merge:
            print(f"Merging the adapter in {weights} into its base.", flush=True)
            merge(weights, folder)
        describe(
            folder,
            repo,
            say=lambda text: print(text, flush=True),
            card=options.card and options.card.expanduser(),
            evaluations=evaluations,
            licence=options.license,
            merged=options.merge,
        )
        check_secrets(folder)

    if options.out is not None:
        options.out.mkdir(parents=True)
        place_run(weights, home, options.out)
        complete(options.out, target.repo_id)
        print(f"{_listed(options.out)} in {options.out}. Nothing was uploaded.")
        return 0
    try:
        with stage(home) as folder:
            place_run(weights, home, folder)
            repo = open_repo(target)
            complete(folder, repo)
            print(f"Uploading {_listed(folder)} to {url_of(repo, target.revision)}.", flush=True)
            upload(folder, repo, target.revision, "Pushed by trl-ces")
    except UserError:
        raise
    except Exception as error:  # the network, the Hub: the run is as it was
        print(
            f"The push to the Hub failed: {explain(error)}.\nPush it again; what has arrived is not sent twice:\n"
            f"  {retry_command(options.run, target, options.merge)}",
            flush=True,
        )
        return 1
    print(f"Pushed to {url_of(repo, target.revision)}")
    return 0


def _listed(folder: Path) -> str:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return f"{len(files)} files, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB,"
