"""User-facing errors and helpers for their messages."""

import difflib
import warnings
from collections.abc import Iterable
from typing import Any


class UserError(ValueError):
    """Invalid input. The message says how to fix it, and the command line prints it without a traceback."""


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return `" Did you mean ...?"` with the most similar known word, or an empty string if no word is similar."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f" Did you mean `{matches[0]}`?" if matches else ""


def first_line(error: BaseException) -> str:
    """Return the first line of the error's message, or the error's class name if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def kind(value: Any) -> str:
    """Return the YAML type name of `value`."""
    names = {type(None): "null", dict: "mapping"}
    return names.get(type(value), type(value).__name__)


def hub_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that Hub calls raise if the connection, authorization or repository is missing."""
    from huggingface_hub import errors

    # `HTTPError` is the base class of HTTP errors: from httpx in huggingface_hub 1, from httpx2 in huggingface_hub 2.
    return (errors.HfHubHTTPError, errors.HTTPError, OSError)


def ignore_deprecations() -> None:
    """Ignore deprecation warnings about names that TRL and transformers still use."""
    for name in (r"(is_)?gradient_checkpointing(_\w+)?", r"torch\.distributed\.\w+"):
        warnings.filterwarnings("ignore", message=f"`{name}` is deprecated", category=FutureWarning)
