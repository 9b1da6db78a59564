"""Check the shipped scripts with bash, shellcheck and uv, and their `trl-ces train` flags."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from docs_blocks import load_script

ROOT = Path(__file__).parents[2]
SHIPPED = [file for folder in ("recipes", "docs") for file in sorted((ROOT / folder).rglob("*"))]
BASH = [file for file in SHIPPED if file.suffix in (".sh", ".slurm")]
UV = [file for file in SHIPPED if file.suffix == ".py" and file.read_text().startswith("# /// script\n")]


def tool(name):
    """Return the path of a tool that the "dev" extra installs next to this Python."""
    return shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


def name_of(file):
    return str(file.relative_to(ROOT))


def test_all_shipped_scripts_are_found():
    assert (BASH, UV) == (
        [ROOT / "recipes/slurm/ces.slurm", ROOT / "recipes/slurm/node.slurm"],
        [ROOT / "docs/examples/ces_jobs.py"],
    )


@pytest.mark.parametrize("file", BASH, ids=name_of)
def test_bash_and_shellcheck_report_no_problems(file):
    assert subprocess.run(["bash", "-n", file], capture_output=True, text=True, check=True).stderr == ""
    command = [tool("shellcheck"), "--severity=style", file]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def write_wheel(folder, extras):
    """Write a wheel of trl_ces that declares only these extras, so that uv needs no network."""
    lines = [
        "Metadata-Version: 2.1",
        "Name: trl_ces",
        "Version: 0.1.0",
        *(f"Provides-Extra: {extra}" for extra in extras),
    ]
    folder.mkdir()
    with zipfile.ZipFile(folder / "trl_ces-0.1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("trl_ces-0.1.0.dist-info/METADATA", "\n".join(lines) + "\n")
        wheel.writestr("trl_ces-0.1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("trl_ces-0.1.0.dist-info/RECORD", "")


@pytest.mark.parametrize("file", UV, ids=name_of)
def test_uv_resolves_the_requirements_of_a_script(file, tmp_path):
    uv = tool("uv")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    write_wheel(tmp_path / "wheels", project["optional-dependencies"])
    script = tmp_path / file.name
    shutil.copy(file, script)
    command = [uv, "lock", "--script", script, "--no-sources", "--no-index", "--find-links", tmp_path / "wheels"]
    environment = {**os.environ, "UV_PYTHON": sys.executable, "UV_CACHE_DIR": str(tmp_path / "cache")}
    locked = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert locked.returncode == 0, locked.stderr
    assert "extra" not in locked.stderr  # uv warns about unknown extras
    lock = tomllib.loads(Path(f"{script}.lock").read_text())
    assert lock["requires-python"] == project["requires-python"]
    (required,) = lock["manifest"]["requirements"]
    assert required["name"] == "trl-ces"
    assert set(required["extras"]) == {"vllm", "flash", "lab"}


def test_the_job_trains_a_shipped_recipe_and_pushes_to_a_private_repository():
    job = load_script(ROOT / "docs/examples/ces_jobs.py")
    command, config, recipe, *flags = job.train_args(["--hub_model_id", "me/ces"])
    assert (command, config) == ("train", "--config")
    assert (ROOT / f"recipes/models/{recipe}.yaml").is_file()
    options = dict(zip(flags[::2], flags[1::2], strict=True))
    assert options.pop("--output_dir")
    assert options == {"--push_to_hub": "true", "--hub_private_repo": "true", "--hub_model_id": "me/ces"}
