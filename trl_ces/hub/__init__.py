"""The Hugging Face Hub: what of a training goes there, with which model card, and when.

`facts.py` reads what is known of a run from its files, `card.py` makes the model card of it, `pages.py` writes what a
reader gets, `staging.py` puts together the folder that is uploaded, `upload.py` speaks with the Hub, `training.py`
does all that during and after a training.
"""

from typing import TYPE_CHECKING

__all__ = ["Publisher", "save_and_publish"]

if TYPE_CHECKING:
    from .training import Publisher, save_and_publish


def __getattr__(name: str):
    # transformers takes seconds to load: `trl-ces push` refuses a wrong folder before that
    if name in __all__:
        from . import training

        return getattr(training, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
