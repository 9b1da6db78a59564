"""One push: place a run's files, describe them, upload them into a private repository."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, HfApi, ModelCard
from huggingface_hub.errors import HfHubHTTPError

from ...support.errors import UserError, first_line, hub_errors
from ...support.files import write_text
from ...support.hub import HubError, check_repo, is_local
from ...support.imports import install_line
from ...train.card import ADAPTER, CARD, FACTS, write_card
from ...train.recipe import RECIPE
from ..evaluation.benchmarks import BENCHMARKS
from ..evaluation.models import fingerprint
from ..evaluation.settings import default_folder
from ..evaluation.summary import SUMMARY, forced_mark, results_table
from ..report.trainings import read_recipe
from .staging import REPLACED, REPORT, check_secrets, find_weights, home_of, merge, place_run, stage


@dataclass(frozen=True)
class Push:
    """What to push, and where to."""

    run: Path  # an output directory of `trl-ces train`, or one of its checkpoints
    weights: Path  # the run, or the checkpoint whose weights are pushed
    repo_id: str  # `NAMESPACE/NAME`, or a name in the namespace of the token's user
    private: bool = True  # create the repository private, and refuse an existing public one
    revision: str | None = None  # branch, created if missing. Default: main
    merge: bool = False  # merge a LoRA adapter into its base
    evaluations: Sequence[Path] = ()  # folders of `trl-ces eval` that measured these weights

    @property
    def home(self) -> Path:
        """Where recipe.yaml and run.json are."""
        return home_of(self.run)

    def command(self) -> str:
        """The `trl-ces push` line that repeats it."""
        words = ["trl-ces", "push", str(self.run), "--repo_id", self.repo_id]
        words += ["--merge"] if self.merge else []
        words += [] if self.private else ["--public"]
        words += ["--revision", self.revision] if self.revision else []
        words += ["--evaluation", *map(str, self.evaluations)] if self.evaluations else []
        return shlex.join(words)


def plan_push(
    run: Path, repo_id: str | None, public: bool, revision: str | None, merge: bool, evaluation: Sequence[Path] | None
) -> Push:
    """A [`Push`]; what is `None` comes from the recipe, or from where `trl-ces eval` writes by default."""
    weights, home = find_weights(run), home_of(run)
    missing = [name for name in (RECIPE, FACTS) if not (home / name).is_file()]
    if missing:
        raise UserError(f"{home} holds no {missing[0]}: name an output directory of `trl-ces train`.")
    recipe = read_recipe(home)
    if merge and not (weights / ADAPTER).is_file():
        raise UserError(f"{weights} holds a full model, not an adapter: push it without `--merge`.")
    for place in evaluation or ():
        check_measured_weights(place, weights)
    usual = default_folder(str(weights))
    if evaluation is None and usual.is_dir():
        try:
            check_measured_weights(usual, weights)
            evaluation = [usual]
        except UserError as error:
            print(f"Not in the card: {error}", flush=True)
    repo_id = repo_id or recipe.get("hub_model_id") or run.resolve().name
    private = not public and recipe.get("hub_private_repo") is not False
    revision = revision or recipe.get("hub_revision")
    return Push(run, weights, repo_id, private, revision, merge, evaluation or ())


def push(job: Push, message: str) -> str:
    """Uploads a run in a commit with `message`; returns the address of its page."""
    with stage(job.home) as folder:
        place_run(job.weights, job.home, Path(folder))
        return publish(Path(folder), job, message)


def publish(folder: Path, job: Push, message: str) -> str:
    """Like [`push`], from a staged `folder` in which the run is already placed."""
    repo = open_repo(job)
    complete(folder, job, repo)
    old = old_weights(repo, job.revision)
    HfApi().upload_folder(
        repo_id=repo, folder_path=folder, revision=job.revision, commit_message=message, delete_patterns=old
    )
    return address(job, repo)


def old_weights(repo: str, revision: str | None) -> list[str]:
    """The files that an earlier push left and this one replaces; raises `HubError` if they are not a push's."""
    names = HfApi().list_repo_files(repo, revision=revision)
    weights = [name for name in names if "/" not in name and any(fnmatch(name, pattern) for pattern in REPLACED)]
    if weights and RECIPE not in names:
        raise HubError(
            f"{repo} holds {weights[0]} and no {RECIPE}, so it is no earlier push, and a push would replace it: name "
            "another repository."
        )
    return weights


def complete(folder: Path, job: Push, repo: str) -> None:
    """Merges the run in `folder`, adds card, curves and report, and scans it all for secrets."""
    if job.merge:
        merge(job.weights, folder)
    name, summaries = repo.split("/")[-1], [read_summary(place) for place in job.evaluations]
    base = read_recipe(folder)["model_name_or_path"]
    missing = _write_report(folder, name, job.evaluations)
    notes = write_card(
        folder,
        repo,
        results=[result for summary in summaries for result in eval_results(summary)],
        tables=[results_table({**each, "settings": {**each["settings"], "model": name}}) for each in summaries],
        licence=find_licence(base),
        merged=job.merge,
        has_report=not missing,
    )
    for note in missing + notes:
        print(note, flush=True)
    check_secrets(folder)


def _write_report(folder: Path, name: str, evaluations: Sequence[Path]) -> list[str]:
    """Writes the page of `trl-ces report` into `folder`; returns why not."""
    missing = [package for package in ("scipy", "matplotlib", "jinja2") if find_spec(package) is None]
    if missing:
        return [f"No {REPORT}: it needs {' and '.join(missing)} ({install_line('lab')})."]
    from ..report.page import make_page, render
    from ..report.runs import read_runs

    names = [name, *(f"{name}, evaluation {number}" for number in range(1, len(evaluations) + 1))]
    try:
        found = read_runs([folder, *evaluations], names)
        page = make_page(found, "trl-ces report RUN --out report.html")
    except UserError as error:
        return [f"No {REPORT}: {error}"]
    write_text(folder / REPORT, render(page).replace(str(folder), name))
    return []


def open_repo(job: Push) -> str:
    """Creates the repository and its branch, or finds them; returns `NAMESPACE/NAME`."""
    check_repo(job.repo_id)
    api = HfApi()
    try:
        repo = api.create_repo(job.repo_id, private=job.private, exist_ok=True).repo_id
        if job.private and not api.model_info(repo).private:
            raise HubError(
                f"{repo} is public, and pushes are private by default: add `--public` (in a recipe "
                "`hub_private_repo: false`), or name another repository."
            )
        if job.revision is not None:
            api.create_branch(repo, branch=job.revision, exist_ok=True)
        old_weights(repo, job.revision)  # before anything is merged or trained
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in (408, 409, 429) or status >= 500:  # may work later
            raise
        raise HubError(
            f"{job.repo_id} cannot be opened: {reason(error)}. Check its name, and that your token (`hf auth login`, "
            "or HF_TOKEN) may write there."
        ) from error
    return repo


def address(job: Push, repo: str) -> str:
    """Where the pushed files can be seen."""
    return f"{HfApi().endpoint}/{repo}" + (f"/tree/{job.revision}" if job.revision else "")


def failure(job: Push, error: Exception) -> str:
    """What went wrong, and the line that tries again."""
    return (
        f"The push to the Hub failed: {reason(error)}.\nThe run is saved. Push it again; files that have arrived are "
        f"not sent twice:\n  {job.command()}"
    )


def reason(error: BaseException) -> str:
    """What went wrong, as a clause without full stop, in the Hub's own words if it answered."""
    # A failed LFS upload is a RuntimeError raised from the HTTP error
    cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
    if isinstance(cause, HfHubHTTPError) and cause.server_message:
        return f"{cause.server_message.rstrip('.')} ({cause.response.status_code})"
    return first_line(cause).rstrip(".")


def read_summary(place: Path) -> dict[str, Any]:
    """The summary.json of an evaluation; raises `UserError` if it is missing or damaged."""
    try:
        summary = json.loads((place / SUMMARY).read_text(encoding="utf-8"))
        if summary["settings"] and summary["benchmarks"]:
            return summary
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise UserError(
        f"{place} holds no intact {SUMMARY}: name an output directory of `trl-ces eval`. An interrupted one resumes "
        "when started again."
    )


def check_measured_weights(place: Path, weights: Path) -> None:
    """Raises `UserError` if the evaluation in `place` measured other weights than those in `weights`."""
    if read_summary(place)["settings"].get("fingerprint") != fingerprint(weights):
        raise UserError(
            f"{place} measured other weights than those in {weights}: run `trl-ces eval --model {weights}`."
        )


def eval_results(summary: dict[str, Any]) -> list[EvalResult]:
    """Accuracy and completion length of an evaluation on each benchmark, for the card's model-index."""
    settings, found = summary["settings"], []
    how = {key: settings[key] for key in ("num_samples", "temperature", "top_p", "max_new_tokens") if key in settings}
    for name, entry in summary["benchmarks"].items():
        benchmark, accuracy = BENCHMARKS[name], entry["correct"]["accuracy"]
        if accuracy is None:
            continue
        where: dict[str, Any] = {
            "task_type": "text-generation",
            "dataset_name": benchmark.title,
            "dataset_type": benchmark.hub.repository if benchmark.hub else name,
            "dataset_config": benchmark.hub.configuration if benchmark.hub else None,
            "dataset_split": benchmark.hub.split if benchmark.hub else None,
            "metric_args": how,
        }
        length = round(entry["length_tokens"]["mean"], 1)
        for kind, title, value, count in (
            ("accuracy", "accuracy, %", round(100 * accuracy, 2), entry["correct"]["problems"]),
            ("completion_length", "mean completion length, tokens", length, entry["problems"]),
        ):
            metric = f"{title}, of {count} problems{forced_mark(settings)}"
            found.append(EvalResult(metric_type=kind, metric_name=metric, metric_value=value, **where))
    return found


def find_licence(base: str) -> dict[str, str]:
    """`license`, `license_name` and `license_link` as the card of the base model states them."""
    card = Path(base).expanduser() / CARD
    refusals: tuple[type[Exception], ...] = (*hub_errors(), ValueError)  # no metadata, a model that is gone
    try:
        if card.is_file():
            data: Any = ModelCard.load(card, ignore_metadata_errors=True).data
        else:
            data = None if is_local(base) else HfApi().model_info(base).card_data
    except refusals:
        return {}
    stated = {name: getattr(data, name, None) for name in ("license", "license_name", "license_link")}
    return {name: value for name, value in stated.items() if isinstance(value, str)}
