"""The rooms of docs/architecture.md: which may import which, and what only one of them may name."""

import ast
import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "trl_ces"

# From the ground up. A room is a folder, or a file at the package's root; it imports only from rooms above it in this
# list. `__init__` hands the two public names on and is no room.
ROOMS = (
    "support",
    "grading.qwen",
    "grading",
    "methods",
    "config",
    "rollout",
    "trainer",
    "rewards",
    "evaluation.code",
    "evaluation",
    "toy",
    "train",
    "forks",
    "plan",
    "study",
    "report",
    "hub",
    "cli",
)
SEAM = re.compile(
    r"\b(_compute_loss|_generate_and_score_completions|_get_per_token_logps\w*|_calculate_rewards|_buffered_inputs)\b"
)


def room_of(module):
    """The room of a module such as `evaluation.code.judge`: the longest of `ROOMS` that it lies in."""
    inside = [room for room in ROOMS if module == room or module.startswith(f"{room}.")]
    return max(inside, key=len, default=None)


def modules():
    for file in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        yield file, module.removesuffix(".__init__"), module.endswith("__init__")


def imported(file, module, is_package):
    """The modules of trl_ces that a file imports, by name below the package."""
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.ImportFrom) or node.level == 0:
            continue
        here = module.split(".") if is_package else module.split(".")[:-1]
        base = here[: len(here) - node.level + 1] + (node.module.split(".") if node.module else [])
        for alias in node.names:
            yield ".".join([*base, alias.name])


def arrows():
    found = {}
    for file, module, is_package in modules():
        if module == "__init__":
            continue
        for name in imported(file, module, is_package):
            room = room_of(name)
            if room not in (None, room_of(module)):
                found.setdefault((room_of(module), room), set()).add(module)
    return found


def test_every_file_lies_in_a_room():
    assert [module for _, module, _ in modules() if module != "__init__" and room_of(module) is None] == []


def test_rooms_import_only_from_rooms_below_them():
    upward = {
        f"{above} -> {below}": sorted(files)
        for (above, below), files in arrows().items()
        if ROOMS.index(below) > ROOMS.index(above)
    }
    assert upward == {}


def test_the_command_line_stays_thin():
    lines = sum(len(file.read_text().splitlines()) for file in (PACKAGE / "cli").glob("*.py"))
    assert lines <= 900


def test_only_the_trainer_and_its_layers_name_trls_private_methods():
    named = {file.relative_to(PACKAGE).parts[0] for file in PACKAGE.rglob("*.py") if SEAM.search(file.read_text())}
    assert named <= {"trainer.py", "rollout"}


def test_the_package_and_the_grader_load_no_torch():
    code = "import sys, trl_ces, trl_ces.grading, trl_ces.support.prompts; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_public_names_are_these():
    import trl_ces

    assert trl_ces.__all__ == ["CESConfig", "CESTrainer"]
    assert {"CESConfig", "CESTrainer", "__version__"} <= set(dir(trl_ces))
    assert trl_ces.CESTrainer.__module__ == "trl_ces.trainer"
