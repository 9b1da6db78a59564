"""Read documentation pages, their code blocks and their commands."""

import ast
import importlib.util
import re
import shlex
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXPERIMENTS = sorted((ROOT / "experiments").glob("*/README.md"))
PAGES = [*sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]), *EXPERIMENTS]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", flags=re.MULTILINE | re.DOTALL)


def blocks(page, *languages):
    matches = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [re.sub(f"^{indent}", "", body, flags=re.MULTILINE) for indent, name, body in matches if name in languages]


def load_script(file):
    """Import a file that is not part of a package."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def functions_of(file):
    """Return the names of a file's top-level functions."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def write_tutorial(folder):
    """Write the files shown in docs/tutorial.md and docs/recipes.md; a comment in the first line names each file."""
    for block in (block for page in ("tutorial.md", "recipes.md") for block in blocks(DOCS / page, "python", "yaml")):
        name = re.match(r"# (\w+\.(?:py|yaml))\n", block)
        if name:
            (folder / name[1]).write_text(block, encoding="utf-8")


def commands(script):
    """Yield the words of each command, which may continue on the next line after a backslash or inside quotes."""
    open_line = ""
    for line in script.splitlines():
        open_line += line
        if open_line.endswith("\\"):
            open_line = open_line[:-1]
            continue
        try:
            args = shlex.split(open_line, comments=True)
        except ValueError:
            open_line += "\n"
            continue
        open_line = ""
        if args:
            yield args
    assert not open_line, f"{open_line!r} is incomplete"


def check_python(code):
    """Check that the code is valid Python and that its imports exist."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
