"""Check the rules in docs/architecture.md for imports between parts and for names that only some parts may use."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "trl_ces"

# A part is a folder or a file of the package, and may import only from parts that come earlier in this list.
# Training uses only the core.
CORE = ("support", "grading.qwen", "grading", "methods", "config", "layers", "trainer", "rewards", "train")
LAB = tuple(
    f"lab.{name}" for name in ("evaluation.code", "evaluation", "tasks", "inspect", "plan", "study", "testing")
)
PARTS = (*CORE, *LAB, "cli")
PRIVATE_METHODS = re.compile(
    r"\b(_compute_loss|_generate_and_score_completions|_get_per_token_logps\w*|_calculate_rewards|_buffered_inputs)\b"
)


def part_of(module):
    """Return the innermost part that contains a module such as `lab.evaluation.code.judge`."""
    parts = [part for part in PARTS if module == part or module.startswith(f"{part}.")]
    return max(parts, key=len, default=None)


def files_of_modules():
    """Map the name of each module, relative to the package, to its file."""
    files = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        files[module.removesuffix(".__init__")] = file
    return files


def import_graph():
    """Map each module to the modules of the package that it imports, at the top level or in a function."""
    files = files_of_modules()
    graph = {module: set() for module in files}
    for module, file in files.items():
        package = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.level == 0:
                continue
            base = package[: len(package) - node.level + 1] + (node.module.split(".") if node.module else [])
            for alias in node.names:
                name = ".".join([*base, alias.name])
                while name and name not in files:
                    name = name.rpartition(".")[0]
                graph[module] |= {name} - {"", module}
    return graph


def reachable_modules(module, graph):
    """Return all modules that importing `module` may load, including itself and all parent packages."""
    modules, remaining = set(), {module}
    while remaining:
        name = remaining.pop()
        modules.add(name)
        packages = {name[:index] for index, character in enumerate(name) if character == "."}
        remaining |= (graph[name] | packages) - modules
    return modules


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_every_module_is_in_a_part():
    assert [module for module in files_of_modules() if part_of(module) is None] == ["__init__", "lab"]


def test_parts_import_only_from_earlier_parts():
    violations = [
        f"{module} imports {name}"
        for module, names in import_graph().items()
        for name in names
        if module not in ("__init__", "lab") and PARTS.index(part_of(name)) > PARTS.index(part_of(module))
    ]
    assert violations == []


def test_training_imports_neither_the_lab_nor_packages_for_vllm_servers():
    graph = import_graph()
    core = {module for module in graph if part_of(module) in CORE}
    assert {
        name for module in core for name in reachable_modules(module, graph) if name.startswith(("lab", "cli"))
    } == set()
    hide_packages = "sys.modules |= dict.fromkeys(['requests', 'urllib3', 'vllm'])"
    loaded = run_python(f"import sys; {hide_packages}; import trl_ces.train.worker; print(*sys.modules)")
    assert {"trl_ces.trainer", "trl_ces.train.run"} <= set(loaded)
    assert [name for name in loaded if name.startswith("trl_ces.lab")] == []


def test_a_training_process_imports_at_most_78_modules_and_10880_lines():
    files, modules = files_of_modules(), reachable_modules("train.worker", import_graph())
    assert "grading.judge" in modules
    assert not {"grading.grader", "grading.qwen.extract"} & modules  # rewards do not use the Qwen2.5-Math grader
    assert len(modules) <= 78
    # The grader accounts for 3,494 of these lines.
    assert sum(len(files[module].read_text().splitlines()) for module in modules) <= 10_880


def test_import_chains_have_at_most_17_modules():
    graph, longest = import_graph(), {}
    for module in TopologicalSorter(graph).static_order():  # imported modules come first; a cycle raises an error
        deepest = max((longest[name] for name in graph[module]), key=len, default=())
        longest[module] = (module, *deepest)
    chain = max(longest.values(), key=len)
    assert len(chain) <= 17, chain


def test_layers_do_not_depend_on_ces():
    graph, files = import_graph(), files_of_modules()
    layers = [module for module in files if part_of(module) == "layers"]
    assert len(layers) > 10
    assert [module for module in layers if "methods.ces" in graph[module]] == []
    assert [module for module in layers if "ces_tau" in files[module].read_text()] == []


def test_the_trainer_has_at_most_12_base_classes():
    from trl_ces import CESTrainer

    assert len(CESTrainer.__bases__) <= 12


def test_only_the_trainer_and_its_layers_use_trls_private_methods():
    parts = {
        part_of(module) for module, file in files_of_modules().items() if PRIVATE_METHODS.search(file.read_text())
    }
    assert parts == {"trainer", "layers"}


def test_importing_the_package_or_the_grader_loads_neither_torch_nor_trl():
    loaded = run_python("import sys, trl_ces, trl_ces.grading, trl_ces.support.prompts; print(*sys.modules)")
    assert {"torch", "trl", "transformers"}.isdisjoint(loaded)


def test_public_names():
    import trl_ces

    assert trl_ces.__all__ == ["CESConfig", "CESTrainer"]
    assert {"CESConfig", "CESTrainer", "__version__"} <= set(dir(trl_ces))
    assert trl_ces.CESTrainer.__module__ == "trl_ces.trainer"


def test_no_test_file_imports_another_test_file():
    tests = Path(__file__).parent
    files = list(tests.rglob("test_*.py"))
    test_modules = {file.stem for file in files}
    assert len(files) > 50
    for file in [*files, *tests.glob("helpers/*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                assert node.module.rpartition(".")[2] not in test_modules, f"{file.name} imports {node.module}"
