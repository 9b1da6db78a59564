"""`trl-ces bench`: runs a script of benchmarks/, in a checkout or in the installed package."""

import runpy
import sys
from pathlib import Path

from ...support.errors import UserError, nearest

USAGE = """usage: trl-ces bench NAME [options]

Measure this machine; docs/performance.md explains the figures. `trl-ces bench NAME --help` lists options.

benchmarks:"""


def benchmarks() -> dict[str, Path]:
    """Name -> script, whose first line says what it measures."""
    package = Path(__file__).resolve().parents[2]
    folders = [folder for folder in (package / "benchmarks", package.parent / "benchmarks") if folder.is_dir()]
    scripts = [file for folder in folders for file in sorted(folder.glob("*.py"))]
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
    before = sys.argv
    sys.argv = [str(known[argv[0]]), *argv[1:]]
    try:
        runpy.run_path(str(known[argv[0]]), run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    finally:
        sys.argv = before
    return 0
