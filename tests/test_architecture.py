"""The rules of docs/architecture.md that a file can break without a test of its own noticing."""

import ast
import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "trl_ces"

# Module or sub-package -> floor. A file imports only from lower floors, and a sub-package's files from each other.
FLOORS = {
    "__init__": 0,
    "strict": 1,
    "field_hints": 1,
    "network": 1,
    "prompts": 1,
    "shaping": 1,
    "rollout_rows": 1,
    "rollout_files": 2,
    "stopping": 1,
    "turns": 2,
    "correctness": 2,
    "arrangement": 1,
    "padding": 1,
    "micro_batches": 2,
    "dynamic_sampling": 2,
    "environment": 1,
    "reward_interface": 1,
    "arithmetic": 1,
    "grading": 2,
    "shaping_metrics": 2,
    "config": 2,
    "script_arguments": 2,
    "arithmetic_model": 2,
    "arithmetic_evaluation": 2,
    "curves": 2,
    "progress_callback": 2,
    "checkpoints": 1,
    "files": 1,
    "tables": 1,
    "study": 4,
    "plan": 4,
    "reasoning_tasks": 2,
    "smollm2": 2,
    "forks": 2,
    "inspection": 3,
    "evaluation": 3,
    "rewards": 3,
    "sources": 3,
    "recipe": 3,
    "trainer": 3,
    "reward_lookup": 4,
    "data": 4,
    "report": 5,
    "hub": 6,
    "cli": 7,
}
SEAM = re.compile(
    r"\b(_compute_loss|_generate_and_score_completions|_get_per_token_logps\w*|_calculate_rewards|_buffered_inputs)\b"
)


def home(file):
    relative = file.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def own_imports(file):
    """The modules of trl_ces that a file imports, by name below the package."""
    depth = len(file.relative_to(PACKAGE).parts)
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            names = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
            yield from (name for name in names if not name.startswith("__"))


def test_every_file_has_a_floor_and_imports_only_from_lower_ones():
    for file in sorted(PACKAGE.rglob("*.py")):
        assert home(file) in FLOORS, f"{file.name}: say in FLOORS and docs/architecture.md where it stands"
        if home(file) == "__init__":
            continue
        for name in own_imports(file):
            if name in FLOORS and name != home(file):
                assert FLOORS[name] < FLOORS[home(file)], f"{file.relative_to(PACKAGE)} imports {name}"


def test_only_the_trainer_names_trls_private_methods():
    named = {file.name for file in PACKAGE.rglob("*.py") if SEAM.search(file.read_text())}
    assert named == {"trainer.py"}


def test_the_package_and_the_grader_load_no_torch():
    code = "import sys, trl_ces, trl_ces.grading, trl_ces.prompts; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_public_names_are_these():
    import trl_ces

    assert trl_ces.__all__ == ["CESConfig", "CESTrainer"]
    assert {"CESConfig", "CESTrainer", "__version__"} <= set(dir(trl_ces))
    assert trl_ces.CESTrainer.__module__ == "trl_ces.trainer"
