"""
The contract with TRL, the reference and the recipes, against the oldest and the newest TRL and transformers that
pyproject.toml admits, and against those of constraints-gpu.txt, with which the install lines of the docs are resolved,
too.

    python tests/upgrades/run.py                     # all three
    python tests/upgrades/run.py oldest              # or newest, or gpu: one of them
    python tests/upgrades/run.py --folder FOLDER     # where the environments are made; default .venv-upgrades

Each environment gets the torch of constraints.txt first, then the package. Says for each what held and, in the words
of the tests' names, what broke; exit code 1 if anything did. Standard library only. TORCH_INDEX is pip's index for
torch.
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
TESTS = ("tests/test_trl_contract.py", "tests/test_trainer_reference.py", "tests/train/test_recipes.py")
INSTALL = "tests/upgrades/install_lines.py"
# What the seam leans on, and what these pull in by version; the rest is as pip chooses.
UPSTREAM = ("trl", "transformers", "datasets", "accelerate", "peft")
KINDS = ("oldest", "newest", "gpu")


def admitted():
    """Name -> (lowest version, specifier) of what pyproject.toml admits."""
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    found = {}
    for line in lines:
        name, specifier = re.fullmatch(r"([A-Za-z0-9_-]+)(.*)", line).groups()
        if name in UPSTREAM:
            found[name] = re.search(r">=([0-9.]+)", specifier).group(1), specifier
    assert found.keys() == set(UPSTREAM), found
    return found


def torch_requirement():
    return next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))


def make_environment(folder, requirements):
    """A virtual environment with torch, the given requirements and this checkout; returns its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    index = ["--index-url", os.environ["TORCH_INDEX"]] if os.environ.get("TORCH_INDEX") else []
    subprocess.run([*pip, *index, torch_requirement()], check=True)
    subprocess.run([*pip, "--upgrade", *requirements, torch_requirement()], check=True)
    tools = ["pytest", "pytest-timeout", "uv", "requests"]  # the last: of TRL's client of a server, which vLLM brings
    subprocess.run([*pip, "-e", str(ROOT), *tools, *requirements, torch_requirement()], check=True)
    return python


def versions(python):
    code = f"from importlib.metadata import version as v; print(', '.join(f'{{n}} {{v(n)}}' for n in {UPSTREAM}))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def in_words(name):
    """`test_the_loss_is_ours[dapo]` -> `the loss is ours (dapo)`"""
    words, _, case = name.removeprefix("test_").partition("[")
    return words.replace("_", " ") + (f" ({case.rstrip(']')})" if case else "")


def run_tests(python, report, tests):
    """How many tests held, and (claim, first line of the error) of each that did not."""
    subprocess.run(
        [python, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", f"--junit-xml={report}", *tests],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    if not report.exists():
        return 0, [("pytest ran", "it ended before its report: run it by hand")]
    held, broken = 0, []
    for case in ElementTree.parse(report).iter("testcase"):
        problems = [*case.findall("failure"), *case.findall("error")]
        if problems:
            broken.append((in_words(case.get("name")), problems[0].get("message", "").splitlines()[0]))
        elif case.find("skipped") is None:
            held += 1
    return held, broken


def by_reason(broken):
    """Reason -> the claims that it breaks, each with its cases: one change upstream breaks many tests alike."""
    found = {}
    for claim, reason in broken:
        words, _, case = claim.removesuffix(")").partition(" (")
        found.setdefault(reason, {}).setdefault(words, []).append(case)
    return {
        reason: [words + (f" ({', '.join(cases)})" if any(cases) else "") for words, cases in claims.items()]
        for reason, claims in found.items()
    }


def requirements_of(kind):
    """What pip is asked for in an environment of this kind."""
    if kind == "gpu":
        lines = (ROOT / "constraints-gpu.txt").read_text().splitlines()
        return [line for line in lines if line.partition("==")[0] in (*UPSTREAM, "numpy")]
    pins = admitted()
    if kind == "oldest":
        return [f"{name}=={lowest}" for name, (lowest, _) in pins.items()]
    return [f"{name}{specifier}" for name, (_, specifier) in pins.items()]


def check(kind, folder):
    """Whether every fact holds in that environment; prints which and which not."""
    python = make_environment(folder / kind, requirements_of(kind))
    report = folder / f"{kind}.xml"
    report.unlink(missing_ok=True)
    held, broken = run_tests(python, report, (*TESTS, INSTALL) if kind == "gpu" else TESTS)
    print(f"{kind} ({versions(python)}): {held} facts hold, {len(broken)} broke", flush=True)
    for reason, claims in by_reason(broken).items():
        print(*(f"  no longer true: {claim}" for claim in claims), f"    {reason}", sep="\n", flush=True)
    return held > 0 and not broken


def main(arguments):
    parser = argparse.ArgumentParser(description="The contract with TRL, against what pyproject.toml admits.")
    parser.add_argument("kinds", nargs="*", metavar="|".join(KINDS), help="default: all")
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv-upgrades")
    options = parser.parse_args(arguments)
    if unknown := set(options.kinds) - {*KINDS}:
        parser.error(f"{', '.join(unknown)}: name {', '.join(KINDS)} or none")
    held = [check(kind, options.folder.resolve()) for kind in options.kinds or KINDS]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
