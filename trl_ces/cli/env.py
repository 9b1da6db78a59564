"""`trl-ces env`: what a bug report needs."""

from ..support.environment import environment
from ..support.errors import UserError


def run(argv: list[str]) -> int:
    """Prints one line for each fact."""
    if argv and argv[0] in ("-h", "--help"):
        print("usage: trl-ces env\n\nPrint versions and devices, for a bug report.")
        return 0
    if argv:
        raise UserError(f"`trl-ces env` takes no arguments, got {' '.join(argv)}.")
    for name, value in environment().items():
        print(f"- {name}: {value}")
    return 0
