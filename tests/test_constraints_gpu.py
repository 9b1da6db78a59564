"""Check that constraints-gpu.txt pins every requirement to a version that the extras and TRL allow."""

import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LINES = (ROOT / "constraints-gpu.txt").read_text().splitlines()
PINS = dict(line.split("==") for line in LINES if not line.startswith("#"))
EXTRAS = ("vllm", "deepspeed", "flash", "lab")


def pinned_version(requirement):
    return PINS[canonicalize_name(requirement.name)]


def test_every_requirement_is_pinned_to_an_allowed_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in EXTRAS for line in project["optional-dependencies"][extra])]
    for requirement in map(Requirement, lines):
        assert requirement.specifier.contains(pinned_version(requirement)), requirement


def test_trl_is_the_tested_version_and_supports_the_pinned_vllm():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert f"trl=={PINS['trl']}" in lines
    requirements = [Requirement(line) for line in requires("trl")]
    [vllm] = [item for item in requirements if item.name == "vllm" and item.marker.evaluate({"extra": "vllm"})]
    assert vllm.specifier.contains(PINS["vllm"])
