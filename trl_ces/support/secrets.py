"""Refuse secrets in settings, which are saved with a run and its model."""

import re
from typing import Any

from .errors import UserError

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # of `api_key`, `API_KEY`, `x-api-key` and `apiKey`
_SECRET = re.compile(
    r"(^|_)(password|passwd|passphrase|secret|credential|authorization|bearer)s?(_|$)|(^|_)pass$|_pwd$"
    r"|(api|access|secret|private|auth|account|encryption|signing|ssh|wandb|hf|openai)_?keys?(_|$)"
    r"|(access|auth|api|bearer|secret|refresh|session|hf|hub)_?tokens?$|(^|_)token$"
)
# Names of tokens of text: `eos_token`, `think_end_token`, `image_token`, `reward_per_token`.
_TEXT = re.compile(
    r"(^|_)([be]o[a-z]{1,2}|pad|unk|unique|sep[a-z]*|cls|class|mask|image|img|audio|video|vision|speech|start|end|stop"
    r"|begin|think[a-z]*|reason[a-z]*|special|extra|delim[a-z]*|suffix|prefix|middle|first|last|next|new|newline|line"
    r"|answer|question|prompt|response|assistant|system|tool|call|python|lang|language|patch|fill|placeholder|blank"
    r"|dummy|decoder|empty|per|to|space|word|sub|step|max|min|num|n)_token$"
)
_NO_VALUE = re.compile(r"_(file|path|dir|env|name|column|length)$")  # `api_key_env` only names a secret
_IN_TEXT = re.compile(
    r"https?://[^/\s@?#]+@|[a-z][a-z+.-]{0,20}://[^/\s:@?#]*:[^/\s@?#]+@"
    r"|[?&]([\w-]{0,40}token|[\w-]{0,40}api[_-]?key|key|[\w-]{0,40}secret|password|sig|[\w-]{0,40}signature)="
    r"|\b(hf_[a-z0-9]{16}|gh[oprsu]_[a-z0-9]{20}|github_pat_\w{20}|sk-(\w+-)?[a-z0-9]{20}|glpat-[\w-]{20}|AKIA[0-9A-Z]{16}\b)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Return whether a key is a secret's name, such as `hf_token` or `WANDB_API_KEY`, unlike `eos_token`."""
    words = "_".join(_WORD.findall(name)).lower()
    return bool(_SECRET.search(words)) and not (_TEXT.search(words) or _NO_VALUE.search(words))


def refuse_secrets(value: Any, source: str, key: str = "") -> None:
    """Raise `UserError` if a mapping or a list has, at any depth, a key or a text that looks like a secret."""
    number = type(value) is int and not key.lower().endswith("token")  # the id of a token is no secret
    has_value = number or (isinstance(value, str | list | dict) and value)
    if (has_value and is_secret(key.rpartition(".")[2])) or (isinstance(value, str) and _IN_TEXT.search(value)):
        raise UserError(
            f"{source}: `{key}` holds what looks like a secret, which would be saved with the run: remove it here and "
            "set it in the environment, such as HF_TOKEN or WANDB_API_KEY."
        )
    items = [("", item) for item in value] if isinstance(value, list) else []
    for name, inner in value.items() if isinstance(value, dict) else items:
        refuse_secrets(inner, source, f"{key}.{name}".strip("."))
