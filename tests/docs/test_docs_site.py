"""The site builds without warnings, fits a phone and fetches nothing; spelling."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import browsers
import pytest

ROOT = Path(__file__).parents[2]
CODESPELL = importlib.util.find_spec("codespell_lib")
WORDS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "mkdocs.yml", "docs", "experiments", "recipes", "trl_ces"]
slow, needs_a_browser = browsers.pytestmark
browser = browsers.browser

needs_mkdocs = pytest.mark.skipif(
    importlib.util.find_spec("material") is None, reason='needs mkdocs-material: pip install "trl_ces[docs]"'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(ROOT / "mkdocs.yml")]
    ended = subprocess.run([*command, "--site-dir", str(folder)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return folder


@needs_mkdocs
def test_the_site_is_built_with_every_link_checked(site):
    pages = {file.relative_to(site).with_suffix("") for file in site.rglob("*.html")}
    docs = ROOT / "docs"
    assert {file.relative_to(docs).with_suffix("") for file in docs.rglob("*.md")} <= pages
    assert not (site / "build_config_reference.py").exists()
    assert (site / "examples" / "tools.py").is_file()
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert f'{urls["Repository"]}/blob/main/experiments/arithmetic/README.md"' in (site / "study.html").read_text()


@needs_mkdocs
def test_the_site_fetches_nothing_from_elsewhere(site):
    for file in site.rglob("*.html"):
        sources = re.findall(r"<(?:script|img|link)\b[^>]*?(?:src|href)=\"?([^\s\">]+)", file.read_text("utf-8"))
        assert not [source for source in sources if source.startswith(("http", "//"))], file.name


@pytest.mark.skipif(CODESPELL is None, reason='needs codespell: pip install "trl_ces[docs]"')
def test_words_are_spelled_right():
    command = [sys.executable, "-m", "codespell_lib", "--skip", "*.png,*.csv,*.txt,*.pyc", *WORDS]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(site):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


@needs_mkdocs
@slow
@needs_a_browser
@pytest.mark.parametrize("size", [browsers.PHONE, browsers.DESK], ids=["telephone", "desk"])
def test_no_page_is_wider_than_the_screen(address, site, browser, size):
    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == browsers.PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    for file in sorted(site.rglob("*.html")):
        browser.get(f"{address}/{file.relative_to(site)}")
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, file.name
        broken = "return [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
        assert browser.execute_script(broken) == [], file.name
