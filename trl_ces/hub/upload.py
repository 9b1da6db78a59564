"""Speaking with the Hub: whether it can take a push, a private repository, an upload that is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..support.errors import UserError, first_line
from ..support.hub import check_repo

# The client itself tries parts of an upload again, but neither the commit nor what a conflict asks for. What has
# arrived is not sent a second time.
ATTEMPTS = 3
# What the Hub answers if trying again is of no use: the request, the token, a payment, the rights, the name, the size.
FINAL = {
    400: "the Hub refuses it (400)",
    401: "the Hub does not know who you are (401): run `hf auth login`, or set HF_TOKEN to a valid token",
    402: "the Hub asks for a payment (402)",
    403: "your token may not write there (403): use one with write access, or another `--repo_id`",
    404: "the Hub finds no such repository (404), or your token may not see it",
    413: "the Hub finds it too large (413)",
}


@dataclass(frozen=True)
class Target:
    """
    Where a push goes.

    Args:
        repo_id (`str`): `NAMESPACE/NAME`; a name alone is in the namespace of the token's user.
        private (`bool`): Whether a new repository is private, and an old one has to be.
        revision (`str`, *optional*): A branch, made if it is not there. Default: main.
    """

    repo_id: str
    private: bool = True
    revision: str | None = None


def open_repo(target: Target) -> str:
    """
    Makes the repository, or finds it. Tries again where the Hub does not answer.

    Returns:
        `str`: Its whole id.

    Raises:
        UserError: if the Hub refuses, or the repository is public and the push is not meant to be.
        Exception: whatever else went wrong on the way; see [`explain`].
    """
    from huggingface_hub import HfApi

    check_repo(target.repo_id)
    api = HfApi()

    def find() -> tuple[str, bool]:
        repo = api.create_repo(target.repo_id, private=target.private, exist_ok=True).repo_id
        return repo, bool(api.model_info(repo).private)

    try:
        repo, is_private = try_again(find)
    except Exception as error:
        if is_final(error):
            raise UserError(f"{target.repo_id} cannot be opened: {explain(error)}.") from error
        raise
    if target.private and not is_private:
        raise UserError(
            f"{repo} is there and public, and a push is private if not told otherwise: add `--public` (in a recipe "
            "`hub_private_repo: false`), or name another repository."
        )
    if target.revision is not None:
        try_again(lambda: api.create_branch(repo, branch=str(target.revision), exist_ok=True))
    return repo


def upload(folder: Path, repo: str, revision: str | None, message: str) -> None:
    """
    Uploads everything in a folder. What the repository has already is not sent again.

    Raises:
        Exception: whatever the last attempt met; see [`explain`].
    """
    from huggingface_hub import HfApi

    try_again(
        lambda: HfApi().upload_folder(
            repo_id=repo, folder_path=folder, revision=revision, commit_message=message, ignore_patterns=[]
        )
    )


def try_again(action: Callable[[], Any], wait: float = 1.0) -> Any:
    """Calls `action` up to [`ATTEMPTS`] times, `wait` seconds apart and then twice that."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return action()
        except Exception as error:  # the client raises what its HTTP library, S3's and xet's raise
            if attempt == ATTEMPTS or is_final(error):
                raise
            print(f"The Hub: {explain(error)}. Trying again.", flush=True)
        time.sleep(wait * 2 ** (attempt - 1))
    return None


def is_final(error: BaseException) -> bool:
    """Whether trying again is of no use."""
    return isinstance(error, ValueError) or _status(error) in FINAL


def explain(error: BaseException) -> str:
    """What went wrong, in a line without full stop. Tokens do not stand in it: no client writes its headers there."""
    status = _status(error)
    if status in FINAL:
        return FINAL[status]
    cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ is not None else error
    if _status(cause) == 409:
        return "somebody else has changed the repository meanwhile (409)"
    return first_line(cause).rstrip(".")


def _status(error: BaseException) -> int:
    """The HTTP status behind an error, 0 without one. A failed LFS upload is a `RuntimeError` from the HTTP error."""
    for of in (error, error.__cause__):
        status = getattr(getattr(of, "response", None), "status_code", None)
        if status is not None:
            return int(status)
    return 0


def url_of(repo: str, revision: str | None = None) -> str:
    """The address of a repository's page."""
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/{repo}" + (f"/tree/{revision}" if revision else "")
