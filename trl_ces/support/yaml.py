"""Read and write YAML. Imports no torch."""

import re
from pathlib import Path
from typing import Any

import yaml

from .errors import UserError, first_line, kind

FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z|[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, except that `2e-7` is a number, `no` and similar words are text, and keys are unique."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for index, key in enumerate(keys):
            if key in keys[:index]:  # PyYAML would silently keep the last value
                problem = f"duplicate key {key!r}"
                raise yaml.constructor.ConstructorError(None, None, problem, node.value[index][0].start_mark)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper, except that it quotes text such as `1e5`, which `_Loader` would read as a number."""


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
    """Serialize `content` without sorting its keys; [`parse_yaml`] reads it back unchanged."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a mapping from a YAML file; an empty file gives an empty mapping."""
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}).") from None
    if not isinstance(content, dict | None):
        raise UserError(f"{path}: expected `key: value` lines, got a {kind(content)}.")
    return content or {}
