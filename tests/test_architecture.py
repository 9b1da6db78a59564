"""The rooms of docs/architecture.md: which may import which, and what only one of them may name."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

from rooms import CORE, LAB

PACKAGE = Path(__file__).parents[1] / "trl_ces"

ROOMS = CORE + LAB
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
        if module in ("__init__", "lab"):
            continue
        for name in imported(file, module, is_package):
            room = room_of(name)
            if room not in (None, room_of(module)):
                found.setdefault((room_of(module), room), set()).add(module)
    return found


def imports():
    """Module -> the modules of the package that it imports, at its top or in a function."""
    found = {module: set() for _, module, _ in modules()}
    for file, module, is_package in modules():
        for name in imported(file, module, is_package):
            while name and name not in found:
                name = name.rpartition(".")[0]
            found[module] |= {name} - {"", module}
    return found


def reached(module, graph):
    """The modules that may be loaded with `module`, itself and their packages included."""
    found, left = set(), {module}
    while left:
        name = left.pop()
        found.add(name)
        packages = {name[:place] for place, letter in enumerate(name) if letter == "."}
        left |= (graph[name] | packages) - found
    return found


def test_every_file_lies_in_a_room():
    homeless = [module for _, module, _ in modules() if room_of(module) is None]
    assert homeless == ["__init__", "lab"]


def test_rooms_import_only_from_rooms_below_them():
    upward = {
        f"{above} -> {below}": sorted(files)
        for (above, below), files in arrows().items()
        if ROOMS.index(below) > ROOMS.index(above)
    }
    assert upward == {}


def test_a_training_process_reaches_few_files():
    files = {module: file for file, module, _ in modules()}
    found = reached("cli.train_worker", imports())
    assert len(found) <= 90
    assert sum(len(files[module].read_text().splitlines()) for module in found) <= 10_500
    assert "grading.judge" in found
    assert not {"grading.grader", "grading.qwen.extract"} & found  # a reward has no second verdict


def test_no_chain_of_imports_is_longer_than_17():
    graph, longest = imports(), {}
    for module in TopologicalSorter(graph).static_order():  # what it imports comes first; a cycle is an error
        below = max((longest[name] for name in graph[module]), key=len, default=())
        longest[module] = (module, *below)
    chain = max(longest.values(), key=len)
    assert len(chain) <= 17, chain


def test_a_training_process_loads_nothing_of_the_lab():
    code = "import sys, trl_ces.cli.train_worker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"trl_ces.trainer", "trl_ces.train.run", "trl_ces.train.card"} <= set(loaded)
    assert [name for name in loaded if name.startswith("trl_ces.lab")] == []


def test_the_trainer_needs_no_package_that_a_server_alone_brings():
    code = "import sys; sys.modules |= dict.fromkeys(['requests', 'urllib3', 'vllm']); import trl_ces.trainer"
    subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_the_command_line_stays_thin():
    folders = (PACKAGE / "cli", PACKAGE / "lab" / "commands")
    assert sum(len(file.read_text().splitlines()) for folder in folders for file in folder.glob("*.py")) <= 900


def test_only_the_trainer_and_its_layers_name_trls_private_methods():
    named = {file.relative_to(PACKAGE).parts[0] for file in PACKAGE.rglob("*.py") if SEAM.search(file.read_text())}
    assert named <= {"trainer.py", "layers"}


def test_the_package_and_the_grader_load_no_torch():
    code = "import sys, trl_ces, trl_ces.grading, trl_ces.support.prompts; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_public_names_are_these():
    import trl_ces

    assert trl_ces.__all__ == ["CESConfig", "CESTrainer"]
    assert {"CESConfig", "CESTrainer", "__version__"} <= set(dir(trl_ces))
    assert trl_ces.CESTrainer.__module__ == "trl_ces.trainer"


def test_no_test_file_imports_from_another():
    tests = Path(__file__).parent
    files = list(tests.rglob("test_*.py"))
    named = {".".join(file.relative_to(tests).with_suffix("").parts) for file in files}
    borrowed = {
        f"{file.name}: {node.module}"
        for file in [*files, *tests.glob("helpers/*.py")]
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module in named
    }
    assert len(files) > 100
    assert borrowed == set()
