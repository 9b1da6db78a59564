"""Conditional Entropy Shaping (arXiv 2605.19358) for TRL. The public names are imported on first use."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["CESConfig", "CESTrainer"]

if TYPE_CHECKING:
    from .config import CESConfig
    from .trainer import CESTrainer

# The command line and the grading workers import this package many times per run. Importing torch and TRL takes four
# seconds, so the modules below are imported on first use.
_MODULES = {"CESConfig": "config", "CESTrainer": "trainer"}


def __getattr__(name: str):
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
