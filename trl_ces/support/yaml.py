"""Read and write YAML, and check values against the type hints of dataclass fields. Imports no torch."""

import inspect
import re
import typing
from pathlib import Path
from typing import Any

import yaml

from .errors import UserError, first_line, kind, shown

BOOL_WORDS = {"yes": True, "on": True, "no": False, "off": False}
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z|[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, except that `2e-7` is a number and `yes`, `no`, `on` and `off` are words."""


class _Dumper(yaml.SafeDumper):
    """Quotes the text `1e5`, which `_Loader` would read as a number."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":float"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), None)
for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))


def parse_yaml(text: str) -> Any:
    """Parse one YAML document."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or first_line(error)
        raise UserError(f"{f'line {mark.line + 1}: ' if mark else ''}not valid YAML ({problem:.200}).") from None


def dump_yaml(content: dict[str, Any]) -> str:
    """Serialize `content` in its own order, so that [`parse_yaml`] returns it."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read the mapping in the file `path`; an empty file is an empty mapping."""
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}).") from None
    if not isinstance(content, dict | None):
        raise UserError(f"{path}: expected `key: value` lines, got a {kind(content)}.")
    return content or {}


def fit(value: Any, hint: Any) -> Any:
    """Return `value` if it has the type `hint`; convert an int to a float, and `yes` or `no` to a bool.

    Raises:
        `TypeError`: `value` has another type.
    """
    from huggingface_hub.dataclasses import type_validator

    members = typing.get_args(hint) or (hint,)
    if type(value) is int and float in members and int not in members:
        value = float(value)
    elif isinstance(value, list) and list[float] in members:
        value = [fit(item, float) for item in value]
    elif isinstance(value, str) and bool in members and str not in members:
        value = BOOL_WORDS.get(value, value)
    try:
        type_validator("value", value, hint)
    except TypeError:
        raise TypeError(f"expected {inspect.formatannotation(hint)}, got {kind(value)} {shown(value)}") from None
    return value


def fit_text(words: list[str], hint: Any) -> Any:
    """Parse the words behind a command-line flag as the type `hint`: no word is true, `null` is `None`."""
    members = typing.get_args(hint) if typing.get_origin(hint) is not list else (hint,)
    members = members or (hint,)
    item = next((member for member in members if typing.get_origin(member) is list), None)
    if not words and bool in members:
        return True
    is_list = len(words) > 1 or (item is not None and str not in members and words[:1] != ["null"])
    if is_list and item is not None and not words[0].startswith("["):
        return [fit_text([word], typing.get_args(item)[0]) for word in words]
    if len(words) != 1:
        raise TypeError(f"expected {inspect.formatannotation(hint)}, got {len(words)} values")
    word = words[0]
    is_text = str in members and float not in members and not (word == "null" and type(None) in members)
    is_mapping = word.startswith("{") and any(dict in (member, typing.get_origin(member)) for member in members)
    is_bool = bool in members and word.lower() in ("true", "false")
    return fit(word if is_text and not is_mapping and not is_bool else parse_yaml(word), hint)
