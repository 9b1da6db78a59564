"""Check the spelling, and that the documentation site builds without warnings and is self-contained."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODESPELL = importlib.util.find_spec("codespell_lib")
TEXTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "mkdocs.yml", "docs", "experiments", "recipes", "trl_ces"]

needs_mkdocs = pytest.mark.skipif(
    importlib.util.find_spec("material") is None, reason='needs mkdocs-material: pip install "trl_ces[docs]"'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(ROOT / "mkdocs.yml")]
    result = subprocess.run([*command, "--site-dir", str(folder)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return folder


@needs_mkdocs
def test_the_site_contains_all_pages_and_links_to_the_repository(site):
    pages = {file.relative_to(site).with_suffix("") for file in site.rglob("*.html")}
    docs = ROOT / "docs"
    assert {file.relative_to(docs).with_suffix("") for file in docs.rglob("*.md")} <= pages
    assert not (site / "build_config_reference.py").exists()
    assert (site / "examples" / "tools.py").is_file()
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert f'{urls["Repository"]}/blob/main/experiments/arithmetic/README.md"' in (site / "results.html").read_text()


@needs_mkdocs
def test_the_site_does_not_load_files_from_other_sites(site):
    for file in site.rglob("*.html"):
        sources = re.findall(r"<(?:script|img|link)\b[^>]*?(?:src|href)=\"?([^\s\">]+)", file.read_text("utf-8"))
        assert not [source for source in sources if source.startswith(("http", "//"))], file.name


@pytest.mark.skipif(CODESPELL is None, reason='needs codespell: pip install "trl_ces[docs]"')
def test_words_are_spelled_correctly():
    command = [sys.executable, "-m", "codespell_lib", "--skip", "*.png,*.csv,*.txt,*.pyc", *TEXTS]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
