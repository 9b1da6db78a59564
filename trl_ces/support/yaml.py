"""Read and write YAML, and reject secrets in settings, because runs save their settings. Does not import torch."""

import re
from pathlib import Path
from typing import Any, NoReturn

import yaml

from .errors import UserError, first_line, kind

FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z|[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")


MAX_BYTES, MAX_DEPTH, MAX_NODES, MAX_DIGITS = 2**20, 50, 100_000, 20
UNSAVABLE = re.compile("[\0\ud800-\udfff]")  # no path, environment variable or UTF-8 file can contain them
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # words of `api_key`, `API_KEY`, `x-api-key` and `apiKey`
_SECRET = re.compile(
    r"(^|_)(password|passwd|passphrase|secret|credential|authorization|bearer)s?(_|$)|(^|_)pass$|_pwd$"
    r"|(api|access|secret|private|auth|account|encryption|signing|ssh|wandb|hf|openai)_?keys?(_|$)"
    r"|(access|auth|api|bearer|secret|refresh|session|hf|hub)_?tokens?$|(^|_)token$"
)
# Names of text tokens, such as `eos_token`, `think_end_token`, `image_token` and `reward_per_token`.
_TEXT_TOKEN = re.compile(
    r"(^|_)([be]o[a-z]{1,2}|pad|unk|unique|sep[a-z]*|cls|class|mask|image|img|audio|video|vision|speech|start|end|stop"
    r"|begin|think[a-z]*|reason[a-z]*|special|extra|delim[a-z]*|suffix|prefix|middle|first|last|next|new|newline|line"
    r"|answer|question|prompt|response|assistant|system|tool|call|python|lang|language|patch|fill|placeholder|blank"
    r"|dummy|decoder|empty|per|to|space|word|sub|step|max|min|num|n)_token$"
)
_NO_VALUE = re.compile(r"_(file|path|dir|env|name|column|length)$")  # `api_key_env` only names a secret
_SECRET_TEXT = re.compile(
    r"https?://[^/\s@?#]+@|[a-z][a-z+.-]{0,20}://[^/\s:@?#]*:[^/\s@?#]+@"
    r"|[?&]([\w-]{0,40}token|[\w-]{0,40}api[_-]?key|key|[\w-]{0,40}secret|password|sig|[\w-]{0,40}signature)="
    r"|\b(hf_[a-z0-9]{16}|gh[oprsu]_[a-z0-9]{20}|github_pat_\w{20}|sk-(\w+-)?[a-z0-9]{20}|glpat-[\w-]{20}|AKIA[0-9A-Z]{16}\b)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY",
    re.IGNORECASE,
)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, but `2e-7` is a number, words such as `no` are text, and duplicate keys are rejected."""

    def construct_document(self, node):
        _check_node(node, {})
        return super().construct_document(node)


def _check_node(node: yaml.Node, sizes: dict[int, int], depth: int = 1) -> int:
    """Reject content that later code cannot handle, and return the number of values after expanding aliases."""
    if id(node) not in sizes:
        sizes[id(node)], inner = 0, node.value
        if isinstance(node, yaml.ScalarNode):
            inner = []
            if UNSAVABLE.search(node.value):
                _reject(f"{node.value!a:.40} contains a character that cannot be saved", node)
            if node.tag.endswith(":int") and len(node.value) > MAX_DIGITS:
                _reject(f"an integer with {len(node.value)} digits", node)
        elif isinstance(node, yaml.MappingNode):
            inner, keys = [child for pair in node.value for child in pair], set()
            for key in (key for key in inner[::2] if isinstance(key, yaml.ScalarNode)):
                if key.value in keys:  # PyYAML would silently keep the last value
                    _reject(f"duplicate key {key.value!r}", key)
                keys.add(key.value)
        if depth > MAX_DEPTH:
            _reject(f"more than {MAX_DEPTH} nested levels", node)
        sizes[id(node)] = 1 + sum(_check_node(child, sizes, depth + 1) for child in inner)
    if not 0 < sizes[id(node)] <= MAX_NODES:  # 0 means that this node is its own ancestor
        _reject(f"an alias inside its own anchor, or more than {MAX_NODES} values", node)
    return sizes[id(node)]


def _reject(problem: str, node: yaml.Node) -> NoReturn:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper, but text such as `1e5` is quoted, because `_Loader` would read it as a number."""


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
            raise UserError(f"the file has {path.stat().st_size} bytes, but the limit is {MAX_BYTES}.")
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}).") from None
    if not isinstance(content, dict | None):
        raise UserError(f"{path}: expected `key: value` lines, got a {kind(content)}.")
    return content or {}


def is_secret(name: str) -> bool:
    """Return whether a key such as `hf_token` or `WANDB_API_KEY`, but not `eos_token`, names a secret."""
    words = "_".join(_WORD.findall(name)).lower()
    return bool(_SECRET.search(words)) and not (_TEXT_TOKEN.search(words) or _NO_VALUE.search(words))


def reject_secrets(value: Any, source: str, key: str = "") -> None:
    """Raise `UserError` if a mapping or a list contains, at any depth, a key or a string that looks like a secret."""
    is_number = type(value) is int and not key.lower().endswith("token")  # a token id is not a secret
    has_value = is_number or (isinstance(value, str | list | dict) and value)
    if (has_value and is_secret(key.rpartition(".")[2])) or (isinstance(value, str) and _SECRET_TEXT.search(value)):
        raise UserError(
            f"{source}: `{key}` contains what looks like a secret, which would be saved with the run: remove the "
            "secret and set an environment variable such as HF_TOKEN or WANDB_API_KEY instead."
        )
    items = [("", item) for item in value] if isinstance(value, list) else []
    for name, inner in value.items() if isinstance(value, dict) else items:
        reject_secrets(inner, source, f"{key}.{name}".strip("."))
