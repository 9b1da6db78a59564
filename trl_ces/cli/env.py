"""`trl-ces env`: print versions and devices for a bug report."""

from ..support.environment import environment
from ..support.tested_trl import changed_functions
from .parser import Parser


def run(argv: list[str]) -> int:
    """Print one line per package version or device."""
    Parser("env", description="Print versions and devices for a bug report.").parse_args(argv)
    changed = ", ".join(changed_functions()) or "none"
    versions = environment() | {"TRL functions that differ from all tested versions": changed}
    print("\n".join(f"- {name}: {value}" for name, value in versions.items()))
    return 0
