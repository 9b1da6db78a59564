"""Several recipe files as one: a whole recipe, then overlays, left to right.

A key of a later file replaces the earlier one; with a `+` behind its name it adds to a list or to a mapping. Where
overlays end with another token rule, the settings of the first one go. A whole recipe may say under `overlays` what an
overlay sets otherwise for its model. Each overlay's name is added to `output_dir` and `run_name`, so that runs do not
meet.
"""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..support.errors import UserError, kind
from ..support.yaml import read_yaml
from .arguments import ScriptArguments
from .shipped import find_config, is_overlay

# Keys of a whole recipe that get an overlay's name.
NAMED = ("output_dir", "run_name")
OVERLAYS = "overlays"
# With it go the size of a rollout and, in recipes/cluster, the learning rate.
BATCHES = "responses_per_step"
RULE = "shaping"
# To these lists an overlay adds where the recipe leaves them out.
DEFAULTS = {
    entry.name: entry.default_factory() for entry in fields(ScriptArguments) if callable(entry.default_factory)
}


def compose(names: Sequence[str | Path]) -> dict[str, Any]:
    """The content of one flat recipe from paths, or names of shipped files."""
    files = [find_config(str(name)) for name in names]
    if is_overlay(files[0]):
        raise UserError(
            f"{files[0]} changes a recipe and is none: name one before it, such as `--config R1-7B {files[0].stem}`."
        )
    given = dict(read_yaml(files[0]))
    own = given.pop(OVERLAYS, None) or {}
    if not isinstance(own, dict) or not all(isinstance(changes, dict) for changes in own.values()):
        raise UserError(f"{files[0]}: `{OVERLAYS}`: expected a mapping from an overlay's name to fields.")
    sized = ruled = None  # the overlay that has set the batches, and a token rule
    for file in files[1:]:
        changes = read_yaml(file)
        if sized is not None and BATCHES in own.get(file.stem, {}):
            raise UserError(
                f"{files[0]} sets `{BATCHES}` for the overlay `{file.stem}`, in place of that of `{sized}` before it: "
                f"name `{sized}` after `{file.stem}`."
            )
        sized = file.stem if BATCHES in changes else sized
        if ruled is not None and changes.get(RULE, given[RULE]) != given[RULE]:
            raise UserError(
                f"`{file.stem}` sets `{RULE}` to {changes[RULE]}, and the {given[RULE]} of `{ruled}` before it would "
                f"be lost: name `{ruled}` after `{file.stem}`, or leave one out."
            )
        ruled = file.stem if changes.get(RULE, "none") != "none" else ruled
        for name in NAMED:
            if isinstance(given.get(name), str) and name not in changes:
                given[name] = f"{given[name].rstrip('/')}-{file.stem}"
        if changes.get(RULE, given.get(RULE)) != given.get(RULE):
            given.pop("shaping_kwargs", None)  # of the rule that goes
        _lay(given, changes, file)
        _lay(given, own.get(file.stem, {}), files[0])
    return _without_other_rules(given) if files[1:] else given


def _lay(given: dict[str, Any], changes: dict[str, Any], file: Path) -> None:
    for key, value in changes.items():
        name = str(key).removesuffix("+")
        present = given.get(name, DEFAULTS.get(name))
        given[name] = _added(present, value, f"{file}: `{key}`") if str(key).endswith("+") else value


def _added(present: Any, value: Any, where: str) -> Any:
    """A list with more entries, or a mapping with more keys, to any depth."""
    if present is None:
        return value
    if isinstance(present, list) and isinstance(value, list):
        return [*present, *(entry for entry in value if entry not in present)]
    if isinstance(present, dict) and isinstance(value, dict):
        deeper = {
            name: _added(present[name], value[name], where)
            for name in present.keys() & value.keys()
            if isinstance(present[name], dict)
        }
        return present | value | deeper
    raise UserError(f"{where} adds a {kind(value)} to a {kind(present)}: both must be lists or both mappings.")


def _without_other_rules(given: dict[str, Any]) -> dict[str, Any]:
    """Without the settings of built-in rules that `shaping` no longer names."""
    from ..methods import BUILT_IN  # imports torch, which `--help` does without

    others = {
        f"{rule.name}_{setting}"
        for rule in BUILT_IN.values()
        if rule.name != given.get("shaping", "ces")
        for setting in rule.config_fields
    }
    return {name: value for name, value in given.items() if name not in others}
