"""`trl-ces env`: what a bug report needs."""

from ..support.environment import environment
from .parser import Parser


def run(argv: list[str]) -> int:
    """Prints one line for each fact."""
    Parser("env", description="Print versions and devices, for a bug report.").parse_args(argv)
    for name, value in environment().items():
        print(f"- {name}: {value}")
    return 0
