"""
Run tests with several versions of TRL and transformers.

The tests cover the TRL contract, name clashes, the reference implementation and the recipes. `oldest` and `newest` use
the oldest and newest versions that pyproject.toml allows, and `gpu` uses the versions in constraints-gpu.txt. `latest`
uses the newest releases of TRL and transformers, even if pyproject.toml does not allow them.

    python tests/upgrades/run.py                     # oldest, newest and gpu
    python tests/upgrades/run.py oldest              # only `oldest`; several names are allowed
    python tests/upgrades/run.py --folder FOLDER     # parent folder of the environments (default: .venv-upgrades)

In each environment, the script installs the torch version pinned in constraints.txt, then the package. In the `gpu`
environment, it also resolves the install commands in the docs. It prints the number of passed tests, the names of
failed tests as sentences, and the TRL functions that differ from all tested versions (as a warning in GitHub Actions).
The exit code is 1 if a test failed. The script uses only the standard library. Set TORCH_INDEX to install torch from
another package index.
"""

import argparse
import os
import re
import subprocess
import sys
import tomllib
import venv
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = (
    "tests/test_trl_contract.py",
    "tests/test_upstream_names.py",
    "tests/test_trainer_reference.py",
    "tests/train/test_recipes.py",
)
INSTALL = "tests/upgrades/install_lines.py"
# The versions of these packages vary between environments. pip chooses all other versions.
UPSTREAM = ("trl", "transformers", "datasets", "accelerate", "peft")
KINDS = ("oldest", "newest", "gpu")
LATEST = "latest"


def allowed_versions():
    """Map each package in UPSTREAM to its lowest allowed version and its specifier in pyproject.toml."""
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    versions = {}
    for line in lines:
        name, specifier = re.fullmatch(r"([A-Za-z0-9_-]+)(.*)", line).groups()
        if name in UPSTREAM:
            versions[name] = re.search(r">=([0-9.]+)", specifier).group(1), specifier
    assert versions.keys() == set(UPSTREAM), versions
    return versions


def torch_requirement():
    return next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))


def make_environment(folder, requirements, latest=False):
    """Create a virtual environment with torch, the requirements and this checkout; return its Python executable."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    index = ["--index-url", os.environ["TORCH_INDEX"]] if os.environ.get("TORCH_INDEX") else []
    subprocess.run([*pip, *index, torch_requirement()], check=True)
    subprocess.run([*pip, "--upgrade", *requirements, torch_requirement()], check=True)
    tools = ["pytest", "pytest-timeout", "uv", "requests"]  # TRL's client for vLLM servers imports requests
    subprocess.run([*pip, "-e", str(ROOT), *tools, *requirements, torch_requirement()], check=True)
    if latest:  # pip reports a conflict with trl_ces but installs them anyway
        subprocess.run([*pip, "--upgrade", "trl", "transformers", torch_requirement()], check=True)
    return python


def installed_versions(python):
    code = f"from importlib.metadata import version as v; print(', '.join(f'{{n}} {{v(n)}}' for n in {UPSTREAM}))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def changed_functions(python):
    """Return the names of the TRL functions that differ from all tested versions, separated by commas."""
    code = "from trl_ces.support.tested_trl import changed_functions; print(', '.join(changed_functions()))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def as_sentence(name):
    """Convert `test_the_loss_is_correct[dapo]` to `the loss is correct (dapo)`."""
    words, _, case = name.removeprefix("test_").partition("[")
    return words.replace("_", " ") + (f" ({case.rstrip(']')})" if case else "")


def run_tests(python, report, tests):
    """Run tests; return the number of passed tests, and the name and first error line of each failed test."""
    subprocess.run(
        [python, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", f"--junit-xml={report}", *tests],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    if not report.exists():
        return 0, [("pytest writes a report", "pytest exited before writing a report; run pytest manually")]
    passed, failures = 0, []
    for case in ElementTree.parse(report).iter("testcase"):
        problems = [*case.findall("failure"), *case.findall("error")]
        if problems:
            failures.append((as_sentence(case.get("name")), problems[0].get("message", "").splitlines()[0]))
        elif case.find("skipped") is None:
            passed += 1
    return passed, failures


def group_by_error(failures):
    """Map each error to the failed tests, because one change in TRL often breaks many tests."""
    tests_by_error = {}
    for name, error in failures:
        words, _, case = name.removesuffix(")").partition(" (")
        tests_by_error.setdefault(error, {}).setdefault(words, []).append(case)
    return {
        error: [words + (f" ({', '.join(cases)})" if any(cases) else "") for words, cases in tests.items()]
        for error, tests in tests_by_error.items()
    }


def requirements_of(kind):
    """Return the requirements that pip installs in an environment of this kind."""
    if kind == "gpu":
        lines = (ROOT / "constraints-gpu.txt").read_text().splitlines()
        return [line for line in lines if line.partition("==")[0] in (*UPSTREAM, "numpy")]
    versions = allowed_versions()
    if kind == "oldest":
        return [f"{name}=={lowest}" for name, (lowest, _) in versions.items()]
    return [f"{name}{specifier}" for name, (_, specifier) in versions.items()]


def check(kind, folder):
    """Run the tests in one environment and print the results; return whether all tests passed."""
    python = make_environment(folder / kind, requirements_of(kind), latest=kind == LATEST)
    report = folder / f"{kind}.xml"
    report.unlink(missing_ok=True)
    passed, failures = run_tests(python, report, (*TESTS, INSTALL) if kind == "gpu" else TESTS)
    print(f"{kind} ({installed_versions(python)}): {passed} tests passed, {len(failures)} failed", flush=True)
    if changed := changed_functions(python):
        prefix = "::warning::" if "GITHUB_ACTIONS" in os.environ else "  "
        print(f"{prefix}changed since the tested TRL versions: {changed}", flush=True)
    for error, names in group_by_error(failures).items():
        print(*(f"  no longer true: {name}" for name in names), f"    {error}", sep="\n", flush=True)
    return passed > 0 and not failures


def main(arguments):
    parser = argparse.ArgumentParser(description="Test the package with several TRL versions.")
    parser.add_argument("kinds", nargs="*", metavar="|".join((*KINDS, LATEST)), help=f"default: {' '.join(KINDS)}")
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv-upgrades")
    options = parser.parse_args(arguments)
    if unknown := set(options.kinds) - {*KINDS, LATEST}:
        parser.error(f"{', '.join(unknown)}: choose from {', '.join((*KINDS, LATEST))}")
    passed = [check(kind, options.folder.resolve()) for kind in options.kinds or KINDS]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
