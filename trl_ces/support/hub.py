"""Names of the Hugging Face Hub, whether it answers, and the check before a push."""

import os
import sys
from pathlib import Path

from .errors import UserError, first_line, hub_errors

DATA_SUFFIXES = (".json", ".jsonl", ".parquet")


class HubError(UserError):
    """The Hub cannot take a push as it was asked for; nothing was uploaded."""


def is_local(name: str) -> bool:
    """Whether the name of a model or data set is a path: it exists, or cannot be an id (`name` or `owner/name`)."""
    path = Path(name).expanduser()
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or path.suffix in DATA_SUFFIXES or path.exists()


def try_hub_once(*names: str) -> None:
    """Where a name is the Hub's and the Hub does not answer: says so, and takes what is cached, here and in children.

    Its client tries each file five times, for half a minute.
    """
    from huggingface_hub import constants, get_session

    if constants.is_offline_mode() or all(is_local(name) for name in names):
        return
    try:
        get_session().head(constants.ENDPOINT, timeout=10)
    except hub_errors() as error:
        print(
            f"{constants.ENDPOINT} does not answer ({first_line(error)}): only what is cached is used.",
            file=sys.stderr,
        )
        os.environ["HF_HUB_OFFLINE"] = "1"
        constants.HF_HUB_OFFLINE = True


def check_repo(repo_id: str) -> None:
    """Checks a push as far as possible without the network."""
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise HubError(f"{repo_id!r} is not a repository name: {first_line(error)}") from None
    if constants.is_offline_mode():
        raise HubError("HF_HUB_OFFLINE is set, so nothing can be pushed: unset it.")
    if get_token() is None:
        raise HubError("There is no token for the Hub: run `hf auth login`, or set HF_TOKEN.")
