"""Errors for a user, and what their messages are made of."""

import difflib
import reprlib
import warnings
from collections.abc import Iterable
from typing import Any


class UserError(ValueError):
    """Bad input. The message is one sentence with the way out, which the command line prints without a traceback."""


def nearest(word: str, known: Iterable[str]) -> str:
    """`" Did you mean ...?"` with the nearest of `known` (an empty string if none is near)."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean `{near[0]}`?" if near else ""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class where there is none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def kind(value: Any) -> str:
    """What a YAML author calls the type of `value`."""
    names = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str", list: "list", dict: "mapping"}
    return names.get(type(value), type(value).__name__)


_short = reprlib.Repr()
_short.maxlevel = 2
_short.maxlist = _short.maxdict = 4
_short.maxstring = _short.maxother = _short.maxlong = 40


def shown(value: Any) -> str:
    """`repr(value)`, cut where it is long: a message must not print a megabyte."""
    return _short.repr(value)


def hub_errors() -> tuple[type[Exception], ...]:
    """Error classes to catch around a call to the Hub: no connection, a refusal, no right to the repository."""
    from huggingface_hub import errors

    # The HTTP library's base class, for connections without an answer: httpx in huggingface_hub 1, httpx2 in 2.
    return (errors.HfHubHTTPError, errors.HTTPError, OSError)


def quiet_others() -> None:
    """Drops warnings, of calls by TRL, transformers and us, about names that torch and transformers will retire."""
    # `generate` takes `cache` from transformers 5.24 on, and the older name until 6.
    for name in (r"(is_)?gradient_checkpointing(_\w+)?", r"torch\.distributed\.\w+", "past_key_values"):
        warnings.filterwarnings("ignore", message=f"`{name}` is deprecated", category=FutureWarning)
