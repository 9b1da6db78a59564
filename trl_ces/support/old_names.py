"""Dotted paths in recipes and studies that were saved before their modules moved."""

from typing import Any

MOVED = {
    f"trl_ces.{module}.{function}": f"trl_ces.toy.{module}.{function}"
    for module, function in (
        ("arithmetic", "arithmetic_accuracy_reward"),
        ("arithmetic_evaluation", "evaluate"),
        ("arithmetic_model", "make_base_model"),
        ("reasoning_tasks", "last_number_accuracy_reward"),
        ("smollm2", "fetch"),
    )
}


def current_names(value: Any) -> Any:
    """`value` (text, or lists and mappings of it) with each old path replaced by today's; nothing else changes."""
    if isinstance(value, dict):
        return {name: current_names(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [current_names(entry) for entry in value]
    return MOVED.get(value, value) if isinstance(value, str) else value
