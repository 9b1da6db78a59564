"""The mutants that `make test-mutations` tries, and the list of equivalent ones."""

import importlib.util
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = Path(__file__).parents[2] / "trl_ces"
specification = importlib.util.spec_from_file_location("mutation_operators", HERE / "operators.py")
operators = importlib.util.module_from_spec(specification)
sys.modules["mutation_operators"] = operators  # dataclasses look their module up
specification.loader.exec_module(operators)

SOURCE = '''
LIMIT = 3

def share(numbers, total, whole=True):
    """Not 1 but 2."""
    if not numbers and total > LIMIT:
        raise ValueError(f"{total + 1} is too many")
    logger.info("%d", 5)
    return sum(n for n in numbers[1:] if n) / max(total, 0.5)
'''


def changed(source):
    return {(mutant.before, mutant.after) for mutant in operators.mutants(source)}


def test_a_mutant_is_the_source_with_one_thing_changed():
    condition, result = (
        "if not numbers and total > LIMIT:",
        "return sum((n for n in numbers[1:] if n)) / max(total, 0.5)",
    )
    default = "def share(numbers, total, whole=True):"
    assert changed(SOURCE) == {
        ("LIMIT = 3", "LIMIT = 4"),
        ("LIMIT = 3", "LIMIT = 2"),
        (default, default.replace("True", "False")),
        (condition, "if numbers and total > LIMIT:"),
        (condition, "if not numbers or total > LIMIT:"),
        (condition, "if not numbers:"),
        (condition, "if total > LIMIT:"),
        (condition, "if not numbers and total >= LIMIT:"),
        (condition, "if not numbers and total <= LIMIT:"),
        (condition, "if not (not numbers and total > LIMIT):"),
        (result, "return None"),
        (result, result.replace("/", "*")),
        (result, result.replace("[1:]", "[2:]")),
        (result, result.replace("[1:]", "[0:]")),
        (result, result.replace("[1:]", "[:]")),
        (result, result.replace("if n", "if not n")),
        (result, result.replace("max", "min")),
        (result, result.replace("0.5", "1.5")),
    }
    for mutant in operators.mutants(SOURCE):
        lines = [line for line in mutant.source.splitlines() if line.strip() == mutant.after]
        assert len(lines) == 1
        compile(mutant.source, "mutant", "exec")


def test_each_mutant_in_the_list_is_one_of_todays_source_and_says_why():
    for module, entries in tomllib.loads((HERE / "equivalent.toml").read_text()).items():
        names = {mutant.name for mutant in operators.mutants((PACKAGE / module).read_text(), with_source=False)}
        for entry in entries:
            assert (entry["in"], entry["before"], entry["after"]) in names, f"{module}: {entry}"
            assert entry["why"].endswith(".")
