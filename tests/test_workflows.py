"""Check that the workflows in .github/workflows run existing commands, and that releases check the version."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from trl_ces import __version__
from trl_ces.support.yaml import read_yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = {file.stem: read_yaml(file) for file in sorted((ROOT / ".github/workflows").glob("*.yml"))}
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]


def steps(workflow):
    return [step for job in WORKFLOWS[workflow]["jobs"].values() for step in job["steps"]]


def test_workflows_run_existing_ci_scripts_and_make_targets():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    commands = [
        line for name in ("tests", "weekly") for step in steps(name) for line in step.get("run", "").splitlines()
    ]
    assert commands == [
        ".ci/run",
        "make test-upgrades UPGRADES=latest",
        "make vllm-signatures VLLM=vllm",
        ".venv/bin/python -m pytest tests/engines/test_vllm_signatures.py -k stand_ins",
    ]
    assert {"test-upgrades", "vllm-signatures"} <= set(targets)
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_changes_are_tested_with_every_supported_python():
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    versions = [line.rpartition(" ")[2] for line in classifiers if re.search(r":: Python :: \d\.\d+$", line)]
    assert WORKFLOWS["tests"]["jobs"]["tests"]["strategy"]["matrix"]["python"] == versions


@pytest.mark.parametrize(
    ("tag", "repository", "code"),
    [
        (f"v{__version__}", REPOSITORY.removeprefix("https://github.com/"), 0),
        ("v99.0", REPOSITORY.removeprefix("https://github.com/"), 1),
        (f"v{__version__}", "somebody/trl_ces", 1),
    ],
)
def test_a_release_must_match_the_version_and_the_repository(tag, repository, code):
    [check] = [step["run"] for step in steps("release") if "GITHUB_REF_NAME" in step.get("run", "")]
    variables = {"GITHUB_REF_NAME": tag, "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": repository}
    result = subprocess.run(["bash", "-e", "-c", check], cwd=ROOT, env={**os.environ, **variables}, check=False)
    assert result.returncode == code


def test_only_the_publish_job_may_request_an_id_token():
    jobs = WORKFLOWS["release"]["jobs"]
    assert {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})} == {"publish"}
    assert jobs["publish"]["needs"] == "build"


def test_the_owner_placeholder_occurs_only_in_pyproject():
    result = subprocess.run(["git", "grep", "-lw", "OWNER"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(result.stdout.split()) == {"pyproject.toml", "CONTRIBUTING.md", "tests/test_workflows.py"}
