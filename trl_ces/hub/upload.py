"""Hub client: pre-flight checks, private repositories, retried uploads."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError

from ..support.errors import first_line
from ..support.hub import HubError, check_repo

Result = TypeVar("Result")
# Seconds before each retry. The client itself retries parts of an upload, but neither the commit nor the creation of a
# repository. Files that arrived are not sent again.
PAUSES = (1.0, 2.0)
# Statuses that no retry mends: bad request, token, payment, rights, name, size.
REFUSALS = {
    400: "the Hub refuses it (400)",
    401: "the Hub does not know who you are (401): run `hf auth login`, or set HF_TOKEN to a valid token",
    402: "the Hub asks for a payment (402)",
    403: "your token may not write there (403): use one with write access, or another `--repo_id`",
    404: "the Hub finds no such repository (404), or your token may not see it",
    413: "the Hub finds it too large (413)",
}
REASONS = {**REFUSALS, 409: "somebody else changed the repository meanwhile (409)"}


class PushFailed(Exception):
    """
    A call to the Hub failed, retries included. The message is a clause without full stop and never contains the token.

    Args:
        error (`Exception`): From `huggingface_hub`, or the library below it.

    Attributes:
        refused (`bool`): Whether a retry is of no use.
    """

    def __init__(self, error: Exception):
        # A failed LFS upload is a RuntimeError raised from the HTTP error
        cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        status = cause.response.status_code if isinstance(cause, HfHubHTTPError) else None
        self.refused = status in REFUSALS or isinstance(error, ValueError)
        super().__init__(REASONS.get(status or 0) or reason(cause))


@dataclass(frozen=True)
class Target:
    """
    Where a push goes.

    Args:
        repo_id (`str`): `NAMESPACE/NAME`, or a name in the namespace of the token's user.
        private (`bool`): Create the repository private, and refuse an existing public one.
        revision (`str`, *optional*): Branch, created if missing. Default: main.
    """

    repo_id: str
    private: bool = True
    revision: str | None = None


def open_repo(target: Target) -> str:
    """
    Creates the repository and its branch, or finds them.

    Returns:
        `str`: The full id.

    Raises:
        HubError: if the Hub refuses, or the repository is public and the push is private.
        PushFailed: if the Hub does not answer.
    """
    check_repo(target.repo_id)
    api = HfApi()
    try:
        repo = retried(lambda: api.create_repo(target.repo_id, private=target.private, exist_ok=True).repo_id)
        if target.private and not retried(lambda: api.model_info(repo).private):
            raise HubError(
                f"{repo} is public, and pushes are private by default: add `--public` (in a recipe "
                "`hub_private_repo: false`), or name another repository."
            )
        branch = target.revision
        if branch is not None:
            retried(lambda: api.create_branch(repo, branch=branch, exist_ok=True))
    except PushFailed as failure:
        if failure.refused:
            raise HubError(f"{target.repo_id} cannot be opened: {failure}.") from failure
        raise
    return repo


def upload(folder: Path, repo: str, revision: str | None, message: str) -> None:
    """
    Uploads a folder. Files that the repository already has are not sent again.

    Raises:
        PushFailed: if it did not arrive.
    """
    retried(lambda: HfApi().upload_folder(repo_id=repo, folder_path=folder, revision=revision, commit_message=message))


def retried(call: Callable[[], Result]) -> Result:
    """
    Makes a call to the Hub, and again after each of [`PAUSES`] if it fails.

    Raises:
        PushFailed: from the last error, or the first that no retry mends.
    """
    pauses = list(PAUSES)
    while True:
        try:
            return call()
        except Exception as error:  # of huggingface_hub, its HTTP library, S3 or xet: they share no class
            failure = PushFailed(error)
            if failure.refused or not pauses:
                raise failure from error
        print(f"The Hub: {failure}. Trying again.", flush=True)
        time.sleep(pauses.pop(0))


def reason(error: BaseException) -> str:
    """What went wrong, as a clause without full stop."""
    return first_line(error).rstrip(".")


def url_of(repo: str, revision: str | None = None) -> str:
    """The address of a repository's page."""
    return f"{constants.ENDPOINT}/{repo}" + (f"/tree/{revision}" if revision else "")
