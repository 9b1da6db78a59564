"""Write docs/config.md, all keys of a recipe that are not TRL's, from the dataclasses' fields and their help."""

import dataclasses
import inspect
import re
import typing
from pathlib import Path
from types import UnionType

from trl import GRPOConfig

from trl_ces.config import CESConfig
from trl_ces.train.arguments import ScriptArguments

PAGE = Path(__file__).parent / "config.md"
COMMAND = "python docs/build_config_reference.py"

TEXT = f"""<!-- Made by `{COMMAND}`: change the dataclasses, not this page. -->

# Every setting

A recipe and the command line take all of these, and every field of TRL's `ModelConfig` and
[`GRPOConfig`](https://huggingface.co/docs/trl/grpo_trainer#trl.GRPOConfig). `CESConfig(...)` in Python takes the
first list below and all of `GRPOConfig`. Values are written as in Python; in a recipe `True` is `true` and `None` is
`null`. `trl-ces train --help` prints every key, TRL's included.

## CES: `CESConfig`

One default differs from `GRPOConfig`: `epsilon_high` is DAPO's 0.28.

{{ours}}

## What is refused

A wrong value is a `ValueError` in Python, and one sentence and exit code 2 on the command line.

{{refused}}

## Data, rewards, batches

Keys of recipes only. [Recipes](recipes.md) explains how they work together. A recipe may also hold `env`, a mapping
of environment variables for the training processes.

{{script}}
"""


def items(owner: type) -> str:
    """List the fields of a dataclass that `GRPOConfig` lacks: type, default as Python writes it, help."""
    inherited, hints = {entry.name for entry in dataclasses.fields(GRPOConfig)}, typing.get_type_hints(owner)
    lines = []
    for entry in dataclasses.fields(owner):
        if entry.name not in inherited:
            default = entry.default
            if default is dataclasses.MISSING:
                default = entry.default_factory() if callable(entry.default_factory) else None
            kind = describe_type(hints[entry.name], entry.metadata.get("choices"))
            text = readable(entry.metadata["help"])
            shown = f"`{default!r}`".replace("'", '"')
            lines.append(f"- **`{entry.name}`** ({kind}; default {shown}): {text}")
    return "\n".join(lines)


def describe_type(hint: typing.Any, choices: typing.Sequence[str] | None) -> str:
    """Write a type hint in words."""
    if choices:
        return "one of " + ", ".join(choices)
    if typing.get_origin(hint) in (UnionType, typing.Union):
        return " or ".join(describe_type(part, None) for part in typing.get_args(hint))
    if hint is type(None):
        return "None"
    return str(hint).replace("typing.", "") if typing.get_origin(hint) else getattr(hint, "__name__", str(hint))


def readable(text: str) -> str:
    """Write help as Markdown of one paragraph: no references of TRL's, no accidental HTML."""
    text = re.sub(r"\[`~?([\w.]+)`\]", lambda match: f"`{match[1].rpartition('.')[2]}`", " ".join(text.split()))
    text = re.sub(r"\bdocs/(\w+)\.md", r"[\1.md](\1.md)", text)
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([<*])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def described_errors(doc: str) -> str:
    """Return the text of the docstring's `ValueError`."""
    found = re.search(r"^Raises:\n    `ValueError`: (.*?)(?=^\S|\Z)", inspect.cleandoc(doc), re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError("the docstring has no ValueError.")
    return found[1]


def page() -> str:
    """Return the text of docs/config.md."""
    refused = readable(described_errors(CESConfig.__doc__ or ""))
    return TEXT.format(ours=items(CESConfig), refused=refused, script=items(ScriptArguments))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
