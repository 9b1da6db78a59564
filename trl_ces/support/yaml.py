"""Read and write YAML. Imports no torch."""

import re
from pathlib import Path
from typing import Any, NoReturn

import yaml

from .errors import UserError, first_line, kind

FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z|[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")


MAX_BYTES, MAX_DEPTH, MAX_NODES, MAX_DIGITS = 2**20, 50, 100_000, 20
UNSAVABLE = re.compile("[\0\ud800-\udfff]")  # no path, environment variable or UTF-8 file can hold them


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, except that `2e-7` is a number, `no` and similar words are text, and keys are unique."""

    def construct_document(self, node):
        _check_node(node, {})
        return super().construct_document(node)


def _check_node(node: yaml.Node, sizes: dict[int, int], depth: int = 1) -> int:
    """Refuse content that later code cannot handle, and return the number of values with aliases written out."""
    if id(node) not in sizes:
        sizes[id(node)], inner = 0, node.value
        if isinstance(node, yaml.ScalarNode):
            inner = []
            if UNSAVABLE.search(node.value):
                _refuse(f"{node.value!a:.40} holds a character that cannot be saved", node)
            if node.tag.endswith(":int") and len(node.value) > MAX_DIGITS:
                _refuse(f"an integer of {len(node.value)} digits", node)
        elif isinstance(node, yaml.MappingNode):
            inner, keys = [child for pair in node.value for child in pair], set()
            for key in (key for key in inner[::2] if isinstance(key, yaml.ScalarNode)):
                if key.value in keys:  # PyYAML would silently keep the last value
                    _refuse(f"duplicate key {key.value!r}", key)
                keys.add(key.value)
        if depth > MAX_DEPTH:
            _refuse(f"more than {MAX_DEPTH} nested levels", node)
        sizes[id(node)] = 1 + sum(_check_node(child, sizes, depth + 1) for child in inner)
    if not 0 < sizes[id(node)] <= MAX_NODES:  # 0: this node is an ancestor of itself
        _refuse(f"an alias inside its own anchor, or more than {MAX_NODES} values", node)
    return sizes[id(node)]


def _refuse(problem: str, node: yaml.Node) -> NoReturn:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


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
    except Exception as error:  # PyYAML raises IndexError for `!!int ""`, and RecursionError for thousands of levels
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or first_line(error)
        raise UserError(f"{f'line {mark.line + 1}: ' if mark else ''}not valid YAML ({problem:.200}).") from None


def dump_yaml(content: dict[str, Any]) -> str:
    """Serialize `content` without sorting its keys; [`parse_yaml`] reads it back unchanged."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a mapping from a YAML file; an empty file gives an empty mapping."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path.stat().st_size} bytes are too many for settings (limit {MAX_BYTES}).")
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}).") from None
    if not isinstance(content, dict | None):
        raise UserError(f"{path}: expected `key: value` lines, got a {kind(content)}.")
    return content or {}
