"""List the TRL functions that the package overrides or calls. If run as a script, record their fingerprints.

python tests/helpers/trl_fingerprints.py    # make trl-fingerprints
"""

import ast
import inspect
import json
import pkgutil
from pathlib import Path

import trl
from trl import GRPOConfig, GRPOTrainer

import trl_ces
from trl_ces.support.tested_trl import FILE, fingerprint

PACKAGE = Path(trl_ces.__file__).parent


def used_functions():
    """
    Return the names of the TRL functions that the package uses, in the format of tested_trl.json.

    These are methods of `GRPOTrainer` and `GRPOConfig` whose names occur as attributes or definitions in trainer.py,
    config.py, layers and methods, and functions that these files import from TRL. Methods of transformers'
    `Trainer` are omitted, because several versions of transformers are allowed.
    """
    methods, functions = set(), set()
    folders = [PACKAGE / "layers", PACKAGE / "methods"]
    files = [file for folder in folders for file in sorted(folder.glob("*.py"))]
    for file in (PACKAGE / "trainer.py", PACKAGE / "config.py", *files):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute):
                methods.add(node.attr)
            elif isinstance(node, ast.FunctionDef):
                methods.add(node.name)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trl."):
                functions |= {f"{node.module}:{alias.name}" for alias in node.names}
    for method in [getattr(GRPOTrainer, name, None) for name in methods] + [GRPOConfig.__post_init__]:
        if inspect.isfunction(method) and method.__module__.startswith("trl."):
            functions.add(f"{method.__module__}:{method.__qualname__}")
    return sorted(functions)


def main():
    fingerprints = json.loads(FILE.read_text()) if FILE.exists() else {}
    fingerprints[trl.__version__] = {name: fingerprint(pkgutil.resolve_name(name)) for name in used_functions()}
    FILE.write_text(json.dumps(fingerprints, indent=2) + "\n")
    print(f"{FILE} contains {len(fingerprints[trl.__version__])} functions of trl {trl.__version__}.")


if __name__ == "__main__":
    main()
