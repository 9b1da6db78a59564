"""Check that names in the package do not clash with names in TRL, and that clashes with a newer TRL are detected."""

import ast
import dataclasses
import inspect
import re
import textwrap
from importlib import import_module

import pytest
from trl import GRPOConfig, GRPOTrainer

from trl_ces import CESConfig, CESTrainer

CHANGED_DEFAULTS = {"epsilon_high"}
CLASS_ATTRIBUTES = {"__init__", "__doc__", "__module__", "__annotations__", "_tag_names", "_name", "_paper"}
# Attributes of TRL that the layers and the trainer set on purpose.
OVERWRITTEN_ATTRIBUTES = {
    "args",
    "environment_factories",
    "environments",
    "log_completions",
    "reward_funcs",
    "vllm_importance_sampling_correction",
    "_buffered_inputs",
    "_logs",
    "_metrics",
    "_step",
}


def clashing_names(upstream):
    """Return the names in `CESConfig` that `upstream` also has, except the intentionally changed defaults."""
    names = {name for name in (*vars(CESConfig), *CESConfig.__annotations__) if not name.startswith("__")}
    return names & {*dir(upstream), *(field.name for field in dataclasses.fields(upstream))} - CHANGED_DEFAULTS


def assigned_attributes(cls):
    """Return the attributes that the methods of a class set on `self`."""
    nodes = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls))))
    stores = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    return {node.attr for node in stores if ast.unparse(node.value) == "self"}


def shared_attributes(upstream):
    """Return the attributes that the methods of `upstream` set and that the layers or the trainer also define."""
    names = set().union(*(assigned_attributes(base) for base in upstream.__mro__[:-1]))
    return names & set().union(*(assigned_attributes(layer) | vars(layer).keys() for layer in (CESTrainer, *LAYERS)))


def overridden_names(layer, upstream):
    """Return the methods and class attributes of a layer that replace those of `upstream`."""
    return {name for name in vars(layer) if hasattr(upstream, name)} - CLASS_ATTRIBUTES


def listed_overrides(layer):
    """Return the names in the `Overrides of ...` line of a layer's module docstring."""
    [line] = re.findall(r"^Overrides of .*?: (.+?)\.(?:\s|$)", import_module(layer.__module__).__doc__, re.M | re.S)
    return set(re.findall(r"`(\w+)`", line))


LAYERS = [base for base in CESTrainer.__mro__[1:] if base.__module__.startswith("trl_ces")]


def test_the_config_redefines_no_field_of_trl_except_the_clip_range():
    assert clashing_names(GRPOConfig) == set()


@pytest.mark.parametrize("name", ["packing", "trim_padding", "needs_accuracy"])
def test_a_field_that_trl_adds_is_a_clash(name):
    new_fields = [("padding_free", bool, False), (name, bool, False)]
    newer = dataclasses.make_dataclass("Newer", new_fields, bases=(GRPOConfig,))
    assert clashing_names(newer) == {name}


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
def test_layers_override_exactly_the_methods_that_they_list(layer):
    assert overridden_names(layer, GRPOTrainer) == listed_overrides(layer)


def test_a_clash_with_a_method_that_trl_adds_is_detected():
    newer = type("Newer", (GRPOTrainer,), {"_save_rollout": lambda self: None})
    assert [layer.__name__ for layer in LAYERS if overridden_names(layer, newer) != listed_overrides(layer)] == [
        "ExactResume"
    ]


def test_only_the_listed_attributes_of_trl_are_set():
    assert shared_attributes(GRPOTrainer) == OVERWRITTEN_ATTRIBUTES


def test_a_clash_with_an_attribute_that_trl_adds_is_detected():
    class Newer(GRPOTrainer):
        def __init__(self):
            self._groups, self._had_correct = [], False

    assert shared_attributes(Newer) - OVERWRITTEN_ATTRIBUTES == {"_groups", "_had_correct"}
