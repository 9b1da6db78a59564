"""
Writes docs/config.md, every key of a recipe that is not TRL's, from the dataclasses.

The docstring of `CESConfig` describes its fields, and is their `help`; so is the `help` of a rule's and a recipe's.
"""

import dataclasses
import inspect
import re
from pathlib import Path

from trl import GRPOConfig

from trl_ces.config import CESConfig
from trl_ces.support.yaml import describe_type
from trl_ces.train.arguments import ScriptArguments
from trl_ces.train.recipe import RecipeField, recipe_fields

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


def item(entry: RecipeField, text: str) -> str:
    """A field with its type, its default as Python writes it, and what it does."""
    kind = "one of " + ", ".join(map(str, entry.choices)) if entry.choices else describe_type(entry.hint)
    default = f"`{entry.default!r}`".replace("'", '"')
    return f"- **`{entry.name}`** ({kind.replace('null', 'None')}; default {default}): {readable(text)}"


def readable(text: str) -> str:
    """A docstring's or a help's text as Markdown of one paragraph: no references of TRL's, no accidental HTML."""
    text = re.sub(r"\[`~?([\w.]+)`\]", lambda match: f"`{match[1].rpartition('.')[2]}`", " ".join(text.split()))
    text = re.sub(r"\bdocs/(\w+)\.md", r"[\1.md](\1.md)", text)
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([<*])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def described_errors(doc: str) -> str:
    """The text of the docstring's `ValueError`."""
    found = re.search(r"^Raises:\n    `ValueError`: (.*?)(?=^\S|\Z)", inspect.cleandoc(doc), re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError("the docstring has no ValueError.")
    return found[1]


def page() -> str:
    """docs/config.md"""
    doc = CESConfig.__doc__ or ""
    inherited = {entry.name for entry in dataclasses.fields(GRPOConfig)}
    entries = recipe_fields().values()
    own = [entry for entry in entries if entry.owner is CESConfig and entry.name not in inherited]
    own.sort(key=lambda entry: not entry.name.startswith("shaping"))  # before the settings of the rules
    ours = [item(entry, entry.help) for entry in own]
    script = [item(e, e.help) for e in entries if e.owner is ScriptArguments]
    refused = readable(described_errors(doc))
    return TEXT.format(ours="\n".join(ours), refused=refused, script="\n".join(script))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
