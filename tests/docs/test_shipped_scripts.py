"""Every shipped script is read by what will run it: bash and shellcheck, uv, `trl-ces train`."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import httpx
import pytest
from docs_blocks import load_script
from huggingface_hub.errors import RepositoryNotFoundError

from trl_ces.train.arguments import read_words
from trl_ces.train.recipe import load_recipe

ROOT = Path(__file__).parents[2]
SHIPPED = [file for room in ("recipes", "docs") for file in sorted((ROOT / room).rglob("*"))]
BASH = [file for file in SHIPPED if file.suffix in (".sh", ".slurm")]
UV = [file for file in SHIPPED if file.suffix == ".py" and file.read_text().startswith("# /// script\n")]


def tool(name):
    """The path of a tool of the extra "dev", which lies beside this Python."""
    return shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


def name_of(file):
    return str(file.relative_to(ROOT))


def test_there_is_one_of_each():
    assert (BASH, UV) == (
        [ROOT / "recipes/slurm/ces.slurm", ROOT / "recipes/slurm/node.slurm"],
        [ROOT / "docs/examples/ces_jobs.py"],
    )


@pytest.mark.parametrize("file", BASH, ids=name_of)
def test_bash_and_shellcheck_take_a_script(file):
    assert subprocess.run(["bash", "-n", file], capture_output=True, text=True, check=True).stderr == ""
    command = [tool("shellcheck"), "--severity=style", file]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def write_wheel(folder, extras):
    """An empty trl_ces with these extras, for a uv without network."""
    lines = ["Metadata-Version: 2.1", "Name: trl_ces", "Version: 0.1.0", *(f"Provides-Extra: {one}" for one in extras)]
    folder.mkdir()
    with zipfile.ZipFile(folder / "trl_ces-0.1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("trl_ces-0.1.0.dist-info/METADATA", "\n".join(lines) + "\n")
        wheel.writestr("trl_ces-0.1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("trl_ces-0.1.0.dist-info/RECORD", "")


@pytest.mark.parametrize("file", UV, ids=name_of)
def test_uv_reads_a_scripts_metadata(file, tmp_path):
    uv = tool("uv")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    write_wheel(tmp_path / "wheels", project["optional-dependencies"])
    script = tmp_path / file.name
    shutil.copy(file, script)
    command = [uv, "lock", "--script", script, "--no-sources", "--no-index", "--find-links", tmp_path / "wheels"]
    environment = {**os.environ, "UV_PYTHON": sys.executable, "UV_CACHE_DIR": str(tmp_path / "cache")}
    locked = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert locked.returncode == 0, locked.stderr
    assert "extra" not in locked.stderr  # uv warns of an extra that there is not
    lock = tomllib.loads(Path(f"{script}.lock").read_text())
    assert lock["requires-python"] == project["requires-python"]
    (required,) = lock["manifest"]["requirements"]
    assert required["name"] == "trl-ces"
    assert set(required["extras"]) == {"vllm", "flash", "lab"}


@pytest.fixture
def jobs():
    return load_script(ROOT / "docs/examples/ces_jobs.py")


def test_a_job_trains_a_shipped_recipe_and_pushes_it_to_a_private_repository(jobs, monkeypatch, tmp_path):
    def missing(*_, **__):
        raise RepositoryNotFoundError("404", response=httpx.Response(404, request=httpx.Request("GET", "http://hub")))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "snapshot_download", missing)
    line = read_words(jobs.words(["--hub_model_id", "me/ces", "--seed", "7"]))
    recipe = load_recipe(line.config, line.overrides)
    recipe.check_training(1)
    names = ("push_to_hub", "hub_private_repo", "hub_strategy", "hub_model_id", "seed", "resume_from_checkpoint")
    assert [recipe.setting(name) for name in names] == [True, True, "checkpoint", "me/ces", 7, None]
    assert recipe.setting("save_steps") % 12 == 0
    usage = jobs.__doc__
    assert " --timeout " in usage
    assert " --secrets HF_TOKEN " in usage


def test_a_job_that_is_started_again_goes_on_from_the_pushed_checkpoint(jobs, monkeypatch, tmp_path):
    def pushed(repository, allow_patterns, local_dir):
        assert (repository, allow_patterns) == ("me/ces", "last-checkpoint/*")
        (Path(local_dir) / "last-checkpoint").mkdir(parents=True)
        (Path(local_dir) / "last-checkpoint" / "trainer_state.json").touch()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "snapshot_download", pushed)
    given = jobs.words(["--hub_model_id", "me/ces"])
    assert given[-2:] == ["--resume_from_checkpoint", "outputs/ces/last-checkpoint"]
