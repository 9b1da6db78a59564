"""Read and write YAML. Imports no torch."""

import re
from pathlib import Path
from typing import Any

import yaml

from .errors import UserError, first_line, kind

FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z|[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")


MAX_BYTES, MAX_DEPTH, MAX_NODES, MAX_DIGITS = 2**20, 50, 100_000, 30
UNSAVABLE = re.compile("[\0\ud800-\udfff]")  # characters that no path, environment variable or UTF-8 file can hold


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, except that `2e-7` is a number, `no` and similar words are text, and keys are unique.

    Documents that later code could not handle are refused: deep or, with aliases written out, large ones, integers of
    more than 64 bits and unsavable characters.
    """

    depth = 0

    def compose_node(self, parent, index):
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _problem(f"more than {MAX_DEPTH} nested levels", self.peek_event())
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def compose_scalar_node(self, anchor):
        node = super().compose_scalar_node(anchor)
        if found := UNSAVABLE.search(node.value):
            raise _problem(f"the character {found[0]!a} cannot be saved", node)
        return node

    def compose_mapping_node(self, anchor):
        node, keys = super().compose_mapping_node(anchor), set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:  # PyYAML would silently keep the last value
                    raise _problem(f"duplicate key {key.value!r}", key)
                keys.add(key.value)
        return node

    def construct_document(self, node):
        _count_nodes(node, {})
        return super().construct_document(node)

    def construct_yaml_int(self, node):
        if len(node.value) > MAX_DIGITS or abs(number := super().construct_yaml_int(node)) >= 2**64:
            raise _problem(f"an integer of {len(node.value)} digits", node)
        return number


def _problem(text: str, place: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=text, problem_mark=place.start_mark)


def _count_nodes(node: yaml.Node, counts: dict[int, int]) -> int:
    """Count a node and its descendants with aliases written out; `counts` holds 0 for those that are being counted."""
    if id(node) not in counts:
        counts[id(node)] = 0
        inner = [] if isinstance(node, yaml.ScalarNode) else node.value
        if isinstance(node, yaml.MappingNode):
            inner = [child for pair in inner for child in pair]
        counts[id(node)] = 1 + sum(_count_nodes(child, counts) for child in inner)
    if not 0 < counts[id(node)] <= MAX_NODES:
        raise _problem(f"an alias inside its own anchor, or more than {MAX_NODES} values", node)
    return counts[id(node)]


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper, except that it quotes text such as `1e5`, which `_Loader` would read as a number."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":float"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), None)
for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))


def parse_yaml(text: str) -> Any:
    """Parse one YAML document."""
    try:
        return yaml.load(text, _Loader)
    except Exception as error:  # PyYAML's constructors raise any error, such as IndexError for `!!int ""`
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
