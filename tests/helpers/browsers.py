"""A page in a real browser."""

import base64
import importlib.util
import shutil

import pytest
from report_pages import BASE, OURS, answer
from report_runs import POINTS, write_evaluation, write_study, write_training

from trl_ces.lab.report.page import make_page, render
from trl_ces.lab.report.runs import read_runs
from trl_ces.lab.report.tokens import TokenFile, write_tokens

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
SELENIUM = importlib.util.find_spec("selenium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (BROWSER and DRIVER and SELENIUM),
        reason="needs a browser: apt install chromium chromium-driver, and pip install selenium",
    ),
]
PHONE, DESK = (390, 844), (1280, 900)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report with all that can be on it, with long names, words and answers."""
    folder = tmp_path_factory.mktemp("browser")
    study = write_study(folder / "a_study_with_a_name_that_is_as_long_as_a_screen_of_a_telephone_is_wide")
    cell = write_training(study / "ces" / "seed-0", POINTS, "max_train_samples: 64\n")
    long = [answer(True, [*["word" * 40, "x" * 90, "\n"] * 50, "y" * 90]), answer(False, ["1"] * 400)]
    write_tokens(cell, TokenFile({"step": 0, "trained_with": "ces", "reference": None}, ["3" * 300], [[3]], long))
    evaluations = [write_evaluation(folder / "R1", BASE), write_evaluation(folder / "CES", OURS)]
    file = folder / "report.html"
    file.write_text(render(make_page(read_runs([study, *evaluations]), "trl-ces report")), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = BROWSER
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def show(browser, page, size, scheme):
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size is PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page.as_uri())
    for box in browser.find_elements("css selector", "details"):
        browser.execute_script("arguments[0].open = true", box)


def shot(browser, file):
    size = browser.execute_script("return [innerWidth, document.documentElement.scrollHeight]")
    clip = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], 6000), "scale": 1}
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    file.write_bytes(base64.b64decode(taken["data"]))
    return file


def luminance(browser, file):
    """Mean brightness of a screenshot, in [0, 1]."""
    from matplotlib import image

    return float(image.imread(shot(browser, file))[..., :3].mean())
