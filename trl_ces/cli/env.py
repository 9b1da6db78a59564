"""`trl-ces env`: print versions and devices for a bug report."""

from ..support.environment import environment
from .parser import Parser


def run(argv: list[str]) -> int:
    """Print one line per version or device."""
    Parser("env", description="Print versions and devices for a bug report.").parse_args(argv)
    print("\n".join(f"- {name}: {value}" for name, value in environment().items()))
    return 0
