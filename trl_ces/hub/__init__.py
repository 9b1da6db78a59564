"""Hugging Face Hub: what of a training is pushed, with which model card, and when.

- `facts.py`: what a run's files say about it
- `method.py`, `card.py`, `card.md.j2`: the model card
- `pages.py`: card, curves and report of a folder
- `staging.py`: the folder that is uploaded
- `upload.py`: the Hub's client
- `push.py`: one push, as `trl-ces push` makes it
- `training.py`: pushes during and after training
"""

from typing import TYPE_CHECKING

__all__ = ["Publisher", "save_and_publish"]

if TYPE_CHECKING:
    from .training import Publisher, save_and_publish


def __getattr__(name: str):
    # transformers takes seconds to load, and `trl-ces push` refuses a wrong folder first
    if name in __all__:
        from . import training

        return getattr(training, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
