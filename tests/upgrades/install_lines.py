"""Resolve the `pip install` commands in README.md and docs/ with uv, because pip would download gigabytes.

These tests need the network. `make test-upgrades UPGRADES=gpu` includes them; to run only these tests, use
`python -m pytest tests/upgrades/install_lines.py`.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
LINES = {line.strip() for page in PAGES for line in re.findall(r"pip install ([^#\n]+)", page.read_text("utf-8"))}


@pytest.mark.parametrize("line", sorted(LINES))
def test_an_install_command_in_the_docs_resolves(line, tmp_path):
    # Use an empty target folder, so that uv resolves all packages.
    command = [sys.executable, "-m", "uv", "pip", "install", "--dry-run", "--quiet", "--target", tmp_path]
    result = subprocess.run([*command, *shlex.split(line)], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 0, result.stderr
