"""The install lines of README.md and docs/ resolve, over the network. By uv, because pip would download gigabytes.

Part of `make test-upgrades UPGRADES=gpu`. Alone: `python -m pytest tests/upgrades/install_lines.py`.
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
def test_an_install_line_of_the_docs_resolves(line, tmp_path):
    # Into an empty folder, so that nothing counts as installed.
    asked = [sys.executable, "-m", "uv", "pip", "install", "--dry-run", "--quiet", "--target", tmp_path]
    done = subprocess.run([*asked, *shlex.split(line)], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
