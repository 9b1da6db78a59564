"""Check the shipped scripts with bash, shellcheck and uv, and check their `trl-ces train` flags."""

import os
import shutil
import signal
import subprocess
import sys
import time
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
    """Return the path of a tool that is installed with the "dev" extra."""
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
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


# Stubs for the commands on a cluster with two nodes.
COMMANDS = {
    "scontrol": 'if [[ $1 == show ]]; then printf "a\\nb\\n"; else echo "$@" > requeued; fi',
    "curl": "exit 0",
    "sleep": "exec /bin/sleep 0.1",
    "vllm": "exec /bin/sleep 60",
    "srun": 'while [[ $1 != bash && $1 != env ]]; do shift; done; exec "$@"',
    "trl-ces": "trap 'exit $CODE' TERM; echo \"$@\" > new; mv new started; while :; do /bin/sleep 0.05; done",
}


@pytest.mark.parametrize("code", [0, 1, 143])
@pytest.mark.parametrize("checkpoint_file", ["trainer_state.json", "manifest.json"])
@pytest.mark.parametrize("file", BASH, ids=name_of)
def test_a_job_resumes_complete_checkpoints_and_is_requeued_when_stopped(file, checkpoint_file, code, tmp_path):
    (tmp_path / "bin").mkdir()
    for name, text in COMMANDS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    for output in ("R1-7B-server", "R1-7B-colocate"):
        (tmp_path / "outputs" / output / "checkpoint-1").mkdir(parents=True)
        (tmp_path / "outputs" / output / "checkpoint-1" / checkpoint_file).touch()
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "CODE": str(code), "SLURM_NODEID": "0"}
    env |= {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "a,b", "SLURM_GPUS_ON_NODE": "8"}
    with subprocess.Popen(["bash", file], cwd=tmp_path, env=env) as job:
        end = time.monotonic() + 30
        while not (tmp_path / "started").exists() and time.monotonic() < end:
            time.sleep(0.05)
        job.send_signal(signal.SIGTERM)
        job.wait(30)
    option = "--resume_from_checkpoint" if checkpoint_file == "manifest.json" else "--overwrite_output_dir"
    assert f"{option} true" in (tmp_path / "started").read_text()
    assert (tmp_path / "requeued").exists() == (code != 1)


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
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "extra" not in result.stderr  # uv warns about unknown extras
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
