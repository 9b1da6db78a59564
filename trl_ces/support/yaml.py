"""Strict YAML and strict types: a surprise is an error that names the key. Imports no torch."""

import enum
import math
import re
import types
import typing
from pathlib import Path
from typing import Any, Literal

import yaml

from .errors import UserError, first_line, kind, shown

# `bf16: yes` can only mean true; to YAML 1.2 it is a word, as in `eval_strategy: no`.
BOOL_WORDS = {"yes": True, "on": True, "no": False, "off": False}
# Plain values of YAML 1.2. PyYAML's own are 1.1's, where `2e-7` is text, `no` false, `010` eight and `1:30` ninety.
PLAIN = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    "merge": "<<",
}


class _Loader(yaml.SafeLoader):
    """Reads YAML 1.2 and refuses a key given twice."""

    yaml_implicit_resolvers = {}  # noqa: RUF012

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                problem = f"the key `{key.value}` stands twice"
                raise yaml.constructor.ConstructorError(problem=problem, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: Any) -> int:
        return int(node.value)


for _tag, _pattern in PLAIN.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), None)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def parse_yaml(text: str) -> Any:
    """The value of one YAML 1.2 document. Refuses what is not YAML, builds Python objects or repeats a key."""
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or first_line(error)
        raise UserError(f"{f'line {mark.line + 1}: ' if mark else ''}not valid YAML ({problem:.200}).") from None


class _Dumper(yaml.SafeDumper):
    """Writes what YAML 1.1 and 1.2 read alike."""


# Quotes the text `1e5`, which is a number only in YAML 1.2.
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+\Z"), list("-+0123456789")
)


def dump_yaml(content: dict[str, Any]) -> str:
    """`content` in its own order, such that [`parse_yaml`] gives it back."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in the file `path`; an empty file is an empty mapping."""
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}).") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected `key: value` lines, got a {kind(content)}.")
    for name in content:
        if not isinstance(name, str):
            raise UserError(f"{path}: the key {name!r} must be text.")
    return content


def alternatives(hint: Any) -> list[Any]:
    """The members of a union, or the one type that `hint` is."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [member for arg in typing.get_args(hint) for member in alternatives(arg)]
    return [hint]


def _is_enum(member: Any) -> bool:
    return isinstance(member, type) and issubclass(member, enum.Enum)


def describe_type(hint: Any) -> str:
    """The type `hint` in a user's words: `int or null`, `list of str`, `one of no, steps, epoch`."""
    words = []
    members = alternatives(hint)
    for member in members:
        if member is type(None):
            continue
        origin, args = typing.get_origin(member), typing.get_args(member)
        if _is_enum(member):
            words.append("one of " + ", ".join(str(option.value) for option in member))
        elif member is str and any(map(_is_enum, members)):
            continue  # TrainingArguments makes the enum: only its values are valid
        elif origin is Literal:
            words.append("one of " + ", ".join(map(str, args)))
        elif origin is list or member is list:
            words.append(f"list of {describe_type(args[0])}" if args else "list")
        elif origin is dict or member is dict:
            words.append("mapping")
        else:
            words.append(getattr(member, "__name__", str(member)))
    return " or ".join([*words, "null"] if type(None) in members else words)


_NO_FIT = object()


def _fit(value: Any, member: Any) -> Any:
    """`value` as the single type `member`, or `_NO_FIT`."""
    origin, args = typing.get_origin(member), typing.get_args(member)
    if member is Any:
        return value
    if member is type(None):
        return None if value is None else _NO_FIT
    if origin is Literal:
        return next((value for option in args if type(option) is type(value) and option == value), _NO_FIT)
    if origin is list or member is list:
        return [fit(item, args[0] if args else Any) for item in value] if isinstance(value, list) else _NO_FIT
    if origin is dict or member is dict:
        inner = args[1] if args else Any
        return {key: fit(item, inner) for key, item in value.items()} if isinstance(value, dict) else _NO_FIT
    if member is bool:
        return value if isinstance(value, bool) else BOOL_WORDS.get(value, _NO_FIT) if type(value) is str else _NO_FIT
    if member is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number and not math.isnan(value) else _NO_FIT
    if member is str and isinstance(value, str) and "\0" in value:
        return _NO_FIT  # the system refuses it in a path, late
    if _is_enum(member):
        return value if value in [option.value for option in member] else _NO_FIT
    return value if type(value) is member else _NO_FIT


def fit(value: Any, hint: Any) -> Any:
    """`value`, as read from YAML, as the type `hint` of a dataclass field. Only an int is converted, to a float, and
    YAML 1.1's on, off, yes and no to a bool.
    """
    members = alternatives(hint)
    if any(map(_is_enum, members)):
        members = [member for member in members if member is not str]
    # The exact type first: `str | bool` given true is a bool.
    for member in sorted(members, key=lambda member: type(value) is not member):
        fitted = _fit(value, member)
        if fitted is not _NO_FIT:
            return fitted
    raise TypeError(f"expected {describe_type(hint)}, got {kind(value)} {shown(value)}")


def fit_text(texts: list[str], hint: Any) -> Any:
    """The values of `--field` on the command line, as the type `hint`.

    A string field takes its word literally, except `null` where it may be null, and `{...}` or `[...]` where it may be
    a mapping or a list. Other types read the word as YAML. No word means true.
    """
    members = alternatives(hint)
    lists = [member for member in members if typing.get_origin(member) is list or member is list]
    mappings = [member for member in members if typing.get_origin(member) is dict or member is dict]
    if not texts:
        if bool in members:
            return True
        raise TypeError(f"expected {describe_type(hint)}, got no value")
    if len(texts) > 1 or (lists and str not in members and texts[0] != "null" and not texts[0].startswith("[")):
        if not lists:
            raise TypeError(f"expected {describe_type(hint)}, got {len(texts)} values: {' '.join(texts)}")
        return [fit_text([text], (typing.get_args(lists[0]) or (str,))[0]) for text in texts]
    text = texts[0]
    is_plain = not (text == "null" and type(None) in members)
    is_plain = is_plain and not ((mappings and text.startswith("{")) or (lists and text.startswith("[")))
    other = float in members or (bool in members and text.lower() in ("true", "false"))
    if str in members and is_plain and not other:
        return fit(text, hint)
    try:
        value = parse_yaml(text)
    except UserError as error:
        raise TypeError(f"expected {describe_type(hint)}, got {text!r}: {error}") from None
    return fit(value, hint)
