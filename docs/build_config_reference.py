"""
Writes docs/config.md and docs/config_trl.md, every key of a recipe, from the dataclasses.

The fields of CES are described by the docstring of `CESConfig`, those of a recipe alone by the `help` of their fields.
Of TRL's the page has names, types and defaults; `trl-ces train --help` prints TRL's own words.
"""

import dataclasses
import importlib.metadata
import inspect
import re
from pathlib import Path

from trl import ModelConfig

from trl_ces.config import CESConfig
from trl_ces.support.tables import markdown
from trl_ces.support.yaml import describe
from trl_ces.train.arguments import ScriptArguments
from trl_ces.train.recipe import RecipeField, recipe_fields

DOCS = Path(__file__).parent
COMMAND = "python docs/build_config_reference.py"
NOTE = f"<!-- Made by `{COMMAND}`: change the dataclasses, not this page. -->\n"
PACKAGES = ("trl", "transformers")
# Some types of transformers' list forty words.
LONGEST_TYPE = 100

OURS = f"""{NOTE}
# Every setting of this package

A recipe and the command line take all of these; `CESConfig(...)` in Python takes the first part and
[all that TRL's `GRPOConfig` takes](config_trl.md). Values are written as in Python: in a recipe `True` is `true` and
`None` is `null`. `trl-ces train --help` lists the same keys.

## CES: `CESConfig`

Beside these, `CESConfig` differs from `GRPOConfig` in one default: `epsilon_high` is DAPO's 0.28.
"""
REFUSED = """## What is refused

A wrong value is a `ValueError` in Python, and one sentence and exit code 2 on the command line.

"""
OF_A_RECIPE = """## Data, rewards, batches

Keys of a recipe alone. [Recipes](recipes.md) explains how they work together. A recipe may also hold `env`, a mapping
of environment variables for the training processes.
"""
TRLS = f"""{NOTE}
# Settings of TRL and transformers

What a recipe takes beside [this package's own](config.md): names, types and defaults in {{versions}}.
Of the defaults, that of `epsilon_high` is this package's.
`trl-ces train --help` prints what each one does, in the words of the installed version;
[TRL's documentation](https://huggingface.co/docs/trl/grpo_trainer#trl.GRPOConfig) explains them at length.
"""


def kind(entry: RecipeField) -> str:
    """A field's type in words."""
    words = "one of " + ", ".join(map(str, entry.choices)) if entry.choices else describe(entry.hint)
    if len(words) > LONGEST_TYPE:
        words = f"one of {len(words.split(','))} words"
    return words.replace("null", "None")


def default(entry: RecipeField) -> str:
    """A field's default as Python writes it."""
    return f"`{entry.default!r}`".replace("'", '"')


def section(entry: RecipeField, text: str) -> str:
    """A field as a heading that can be linked to, its type and default, and what it does."""
    return f"### `{entry.name}`\n\n{kind(entry)}; default {default(entry)}\n\n{readable(text)}\n"


def readable(text: str) -> str:
    """A docstring's or a help's text as Markdown of one paragraph: no references of TRL's, no accidental HTML."""
    text = re.sub(r"\[`~?([\w.]+)`\]", lambda match: f"`{match[1].rpartition('.')[2]}`", " ".join(text.split()))
    text = re.sub(r"\bdocs/(\w+)\.md", r"[\1.md](\1.md)", text)
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([<*])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def described_arguments(doc: str) -> dict[str, str]:
    """Argument -> its text, from the `Args` of a docstring in TRL's grammar."""
    block = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", inspect.cleandoc(doc), flags=re.MULTILINE | re.DOTALL)
    if block is None:
        raise ValueError("the docstring has no Args.")
    parts = re.split(r"^    (\w+) \([^\n]*\):\n", block[1], flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def described_errors(doc: str) -> str:
    """The text of the docstring's `ValueError`."""
    found = re.search(r"^Raises:\n    `ValueError`: (.*?)(?=^\S|\Z)", inspect.cleandoc(doc), re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError("the docstring has no ValueError.")
    return found[1]


def own_fields() -> list[RecipeField]:
    """The fields that `CESConfig` adds to TRL's, as it orders them."""
    inherited = {entry.name for parent in CESConfig.__mro__[1:-1] for entry in dataclasses.fields(parent)}
    return [entry for entry in recipe_fields().values() if entry.owner is CESConfig and entry.name not in inherited]


def our_page() -> str:
    """docs/config.md"""
    texts = described_arguments(CESConfig.__doc__ or "")
    own = [section(entry, texts[entry.name]) for entry in own_fields()]
    refused = f"{REFUSED}{readable(described_errors(CESConfig.__doc__ or ''))}\n"
    script = [section(entry, entry.help) for entry in recipe_fields().values() if entry.owner is ScriptArguments]
    return "\n".join([OURS, *own, refused, OF_A_RECIPE, *script])


def trl_page() -> str:
    """docs/config_trl.md, by the installed TRL and transformers."""
    versions = " and ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    ours = own_fields()
    lines = [TRLS.format(versions=versions)]
    for owner, title in ((ModelConfig, "The model: `ModelConfig`"), (CESConfig, "Training: `GRPOConfig`")):
        entries = [entry for entry in recipe_fields().values() if entry.owner is owner and entry not in ours]
        rows = [[f"`{entry.name}`", kind(entry), default(entry)] for entry in entries]
        lines.append(f"## {title}\n\n{markdown(['key', 'type', 'default'], rows)}\n")
    return "\n".join(lines)


if __name__ == "__main__":
    for name, page in (("config.md", our_page()), ("config_trl.md", trl_page())):
        (DOCS / name).write_text(page, encoding="utf-8")
        print(DOCS / name)
