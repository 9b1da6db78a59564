"""The package's names do not clash with TRL's; a clash with a name that a new TRL adds is detected."""

import dataclasses
import re
from importlib import import_module

import pytest
from trl import GRPOConfig, GRPOTrainer

from trl_ces import CESConfig, CESTrainer

CHANGED_DEFAULTS = {"epsilon_high"}
SETTINGS_OF_A_CLASS = {"__init__", "__doc__", "__module__", "__annotations__", "_tag_names", "_name", "_paper"}


def clashes(upstream):
    """Return the fields that `CESConfig` defines and `upstream` has too, except the intended ones."""
    return set(vars(CESConfig)["__annotations__"]) & {field.name for field in dataclasses.fields(upstream)} - (
        CHANGED_DEFAULTS
    )


def overridden(layer, upstream):
    """Return the methods and class attributes of a layer that replace those of `upstream`."""
    return {name for name in vars(layer) if hasattr(upstream, name)} - SETTINGS_OF_A_CLASS


def listed(layer):
    """Return the names in the line `Overrides of ...` at the top of a layer's file."""
    [line] = re.findall(r"^Overrides of .*?: (.+?)\.(?:\s|$)", import_module(layer.__module__).__doc__, re.M | re.S)
    return set(re.findall(r"`(\w+)`", line))


LAYERS = [base for base in CESTrainer.__mro__[1:] if base.__module__.startswith("trl_ces")]


def test_the_config_redefines_no_field_of_trl_except_the_clip_range():
    assert clashes(GRPOConfig) == set()


@pytest.mark.parametrize("name", ["packing", "trim_padding"])
def test_a_field_that_trl_adds_is_a_clash(name):
    added = [("padding_free", bool, False), (name, bool, False)]
    newer = dataclasses.make_dataclass("Newer", added, bases=(GRPOConfig,))
    assert clashes(newer) == {name}


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
def test_layers_override_exactly_the_methods_that_they_list(layer):
    assert overridden(layer, GRPOTrainer) == listed(layer)


def test_a_clash_with_a_method_that_trl_adds_is_detected():
    newer = type("Newer", (GRPOTrainer,), {"_save_rollout": lambda self: None})
    assert [layer.__name__ for layer in LAYERS if overridden(layer, newer) != listed(layer)] == ["ExactResume"]
