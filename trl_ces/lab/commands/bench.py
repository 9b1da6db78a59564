"""`trl-ces bench`: runs a script of benchmarks/, in a checkout or in the installed package."""

import runpy
import sys
from pathlib import Path

from ...support.errors import UserError, nearest
from ...train.shipped import shipped_folders

USAGE = """usage: trl-ces bench NAME [options]

Measure this machine; docs/performance.md explains the figures. `trl-ces bench NAME --help` lists options.

benchmarks:"""


def benchmarks() -> dict[str, Path]:
    """Name -> script, whose first line says what it measures."""
    scripts = [file for folder in shipped_folders("benchmarks") for file in sorted(folder.glob("*.py"))]
    return {file.stem: file for file in scripts if "def main(" in file.read_text(encoding="utf-8")}


def run(argv: list[str]) -> int:
    known = benchmarks()
    if not argv or argv[0] in ("-h", "--help"):
        first_lines = {name: file.read_text(encoding="utf-8").splitlines()[0] for name, file in known.items()}
        width = max(map(len, known)) + 2
        lines = [f"  {name:<{width}}{line.lstrip(chr(34)).rstrip()}" for name, line in first_lines.items()]
        print("\n".join([USAGE, *lines]))
        return 0
    if argv[0] not in known:
        hint = nearest(argv[0], known) or f" There are: {', '.join(known)}."
        raise UserError(f"There is no benchmark {argv[0]!r}.{hint}")
    script = known[argv[0]]
    given, sys.argv = sys.argv, [str(script), *argv[1:]]
    sys.path.insert(0, str(script.parent))  # some share a module
    try:
        return runpy.run_path(str(script))["main"]() or 0
    finally:
        sys.argv = given
        sys.path.remove(str(script.parent))
