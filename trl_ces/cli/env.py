"""`trl-ces env`: what a bug report needs."""

from ..environment import environment
from ..strict import RecipeError


def run(argv: list[str]) -> int:
    """Prints one line for each fact."""
    if argv and argv[0] in ("-h", "--help"):
        print("usage: trl-ces env\n\nPrint versions and devices, for a bug report.")
        return 0
    if argv:
        raise RecipeError(f"`trl-ces env` takes no arguments, got {' '.join(argv)}.")
    for name, value in environment().items():
        print(f"- {name}: {value}")
    return 0
