"""User-facing errors, and parts of their messages."""

import difflib
import warnings
from collections.abc import Iterable
from typing import Any


class UserError(ValueError):
    """Invalid input. The message is one sentence with a way out, printed without a traceback by the command line."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `" Did you mean ...?"` with the nearest of `known`, or an empty string."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean `{near[0]}`?" if near else ""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def kind(value: Any) -> str:
    """Return the YAML name of the type of `value`."""
    names = {type(None): "null", dict: "mapping"}
    return names.get(type(value), type(value).__name__)


def hub_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of a call to the Hub: no connection, a refusal, a missing repository."""
    from huggingface_hub import errors

    # The HTTP library's base class: httpx in huggingface_hub 1, httpx2 in 2.
    return (errors.HfHubHTTPError, errors.HTTPError, OSError)


def quiet_others() -> None:
    """Ignore deprecation warnings about names that TRL, transformers and this package still use."""
    # `generate` accepts `cache` from transformers 5.24 on, and the older name until 6.
    for name in (r"(is_)?gradient_checkpointing(_\w+)?", r"torch\.distributed\.\w+", "past_key_values"):
        warnings.filterwarnings("ignore", message=f"`{name}` is deprecated", category=FutureWarning)
