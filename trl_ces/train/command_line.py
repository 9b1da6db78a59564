"""The arguments of `trl-ces train`: the recipe, fields that override it, accelerate's flags."""

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache

from ..support.errors import UserError
from .recipe import check_key, recipe_fields

# Set by the launcher.
TAKEN_FLAGS = {
    "cpu": "give `--use_cpu true`",
    "env": "write `env: {NAME: value}` into the recipe",
    "config_file": "name the accelerate file with `--accelerate_config`",
    "module": "`trl-ces train` starts its own module",
    "no_python": "`trl-ces train` starts its own module",
}


@dataclass
class CommandLine:
    """The sorted words: recipe and overlays, accelerate file, overrides of the recipe, accelerate's flags."""

    config: list[str] = field(default_factory=list)
    accelerate_config: str | None = None
    overrides: dict[str, list[str]] = field(default_factory=dict)
    accelerate_flags: dict[str, list[str]] = field(default_factory=dict)


@cache
def accelerate_flags() -> dict[str, bool]:
    """Flags of `accelerate launch` by name -> whether they take a value."""
    from accelerate.commands.launch import launch_command_parser

    return {
        option[2:]: action.nargs != 0
        for action in launch_command_parser()._actions
        for option in action.option_strings
        if option.startswith("--") and "-" not in option[2:] and option != "--help"
    }


def read_words(words: list[str], others: Collection[str] = ()) -> CommandLine:
    """Sorts the words; `others` are options of the command itself. What accelerate has, too, is the recipe's."""
    line = CommandLine()
    for name, values in _group(words):
        if name == "config":
            if not values:
                raise UserError("command line: `--config` names a recipe, or a recipe and overlays.")
            line.config = values
        elif name == "accelerate_config":
            if len(values) != 1:
                raise UserError(f"command line: `--{name}` takes one name or file, got {len(values)}.")
            line.accelerate_config = values[0]
        elif name in recipe_fields():
            line.overrides[name] = values
        elif name in TAKEN_FLAGS:
            raise UserError(f"command line: `--{name}` cannot be given: {TAKEN_FLAGS[name]}.")
        elif name in accelerate_flags():
            expected = int(accelerate_flags()[name])
            if len(values) != expected:
                raise UserError(f"command line: `--{name}` (accelerate's) takes {expected} value, got {len(values)}.")
            line.accelerate_flags[name] = values
        else:
            check_key(name, "command line", [*others, *accelerate_flags(), "config", "accelerate_config"])
    return line


def _group(words: list[str]) -> list[tuple[str, list[str]]]:
    """`["--a", "1", "2", "--b=3"]` -> `[("a", ["1", "2"]), ("b", ["3"])]`; dashes in names become underscores."""
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            groups.append((name.replace("-", "_"), [value] if equals else []))
        elif not groups:
            raise UserError(
                f"command line: {word!r} comes before any `--field`: name the recipe with `--config {word}`."
            )
        else:
            groups[-1][1].append(word)
    return groups
