"""Test the wheel: its PyPI page, its files, and its commands outside a checkout."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from trl_ces import __version__

ROOT = Path(__file__).parents[1]
PYTHON = [sys.executable, "-m"]
LINK = re.compile(r"\]\(([^)\s]+)")


def run(command, cwd, timeout=280, **variables):
    """Run a command without the checkout on the path, and return its output."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": "", "COLUMNS": "120", **variables}
    result = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    assert result.returncode == 0, f"{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result.stdout


@pytest.fixture(scope="module")
def dists(tmp_path_factory):
    """Build the sdist, and the wheel from the sdist, as `python -m build` does by default."""
    folder = tmp_path_factory.mktemp("dist")
    run([*PYTHON, "build", "--no-isolation", "--outdir", str(folder), str(ROOT)], folder)
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def site(dists, tmp_path_factory):
    """Install only the wheel into a folder; the dependencies come from the current environment."""
    folder = tmp_path_factory.mktemp("installed")
    run([*PYTHON, "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(dists[0])], folder)
    return folder


def test_twine_accepts_the_wheel_and_the_sdist(dists):
    output = run([*PYTHON, "twine", "check", "--strict", *map(str, dists)], ROOT)
    assert output.count("PASSED") == 2
    assert [file.name for file in dists] == [
        f"trl_ces-{__version__}-py3-none-any.whl",
        f"trl_ces-{__version__}.tar.gz",
    ]


def test_links_on_the_pypi_page_point_to_files_of_the_release(dists):
    with zipfile.ZipFile(dists[0]) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(wheel.read(name).decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL"))
    pages, images = f"{urls['Repository']}/blob/v{__version__}/", "https://raw.githubusercontent.com/"
    readme_links, pypi_links = LINK.findall((ROOT / "README.md").read_text()), LINK.findall(metadata.get_payload())
    links = [(link, target) for link, target in zip(readme_links, pypi_links, strict=True) if link != target]
    assert [link for link in readme_links if not link.startswith(("https://", "#"))] == [link for link, _ in links]
    for link, target in links:
        start = images if link.endswith(".png") else pages
        assert target.startswith(start), target
        assert target.endswith(f"/v{__version__}/{link}")
        assert (ROOT / link.split("#")[0]).is_file()


def test_the_wheel_contains_only_the_package_recipes_and_studies(dists):
    with zipfile.ZipFile(dists[0]) as wheel:
        files = {name for name in wheel.namelist() if ".dist-info/" not in name}
    tracked_files = run(["git", "ls-files", "trl_ces", "recipes", "experiments/*/study.yaml"], ROOT).split()
    assert files == {name if name.startswith("trl_ces/") else f"trl_ces/{name}" for name in tracked_files}
    assert "trl_ces/py.typed" in files
    with tarfile.open(dists[1]) as sdist:
        assert not [name for name in sdist.getnames() if "/runs/" in name or "/.venv" in name]


@pytest.mark.slow
def test_commands_find_recipes_and_studies_without_a_checkout(site, tmp_path):
    def trl_ces(*args):
        return run([*PYTHON, "trl_ces.cli.main", *args], tmp_path, PYTHONPATH=str(site))

    file = run([sys.executable, "-c", "import trl_ces; print(trl_ces.__file__)"], tmp_path, PYTHONPATH=str(site))
    assert Path(file.strip()).parent == site / "trl_ces"
    assert "--data_dir" in trl_ces("eval", "--help")
    assert "smollm2_135m" in trl_ces("study", "--help")
    args = ["--config", "R1-1.5B", "--accelerate_config", "zero3", "--gpus", "2"]
    assert "ZeRO-3 on 2 processes" in trl_ces("plan", *args)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_wheel_trains_in_a_new_environment(dists, tmp_path):
    """Install torch and the wheel as in the README, then run the commands. The downloads take several minutes."""
    run([*PYTHON, "venv", "new"], tmp_path)
    python, trl_ces = str(tmp_path / "new/bin/python"), str(tmp_path / "new/bin/trl-ces")
    pip = [python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    [torch] = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch==")]
    run([*pip, torch], tmp_path, timeout=1500)
    run([*pip, f"{dists[0]}[quickstart]"], tmp_path, timeout=1500)
    assert "| accuracy, %" in run([trl_ces, "quickstart"], tmp_path, timeout=1500)
    assert (tmp_path / "runs/quickstart/quickstart.png").is_file()
    output = run([trl_ces, "train", "--config", "smollm2_135m", "--max_steps", "1"], tmp_path, timeout=900)
    assert "Load the model:" in output
    assert "--data_dir" in run([trl_ces, "eval", "--help"], tmp_path)
