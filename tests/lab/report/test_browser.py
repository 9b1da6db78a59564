"""The report in a real browser: no errors, nothing fetched, no sideways scrolling, both colour schemes, keyboard."""

import base64
import importlib.util
import json
import shutil

import pytest
from lab.report.test_page import BASE, OURS, answer
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_the_page_shows_its_pictures_and_never_scrolls_sideways(browser, page, tmp_path, size, scheme):
    show(browser, page, size, scheme)
    widths = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert widths[0] <= widths[1] == size[0]
    pictures = browser.execute_script(
        "return [...document.images].map(i => [i.complete, i.naturalWidth, i.currentSrc.length, "
        "i.getBoundingClientRect().width])"
    )
    assert len(pictures) > 5
    assert all(complete and natural > 200 and shown <= size[0] for complete, natural, _, shown in pictures)
    brightness = luminance(browser, tmp_path / "shot.png")
    assert brightness > 0.85 if scheme == "light" else brightness < 0.25
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def test_pictures_follow_the_colour_scheme(browser, page):
    sources = []
    for scheme in ("light", "dark"):
        show(browser, page, DESK, scheme)
        sources.append(browser.execute_script("return [...document.images].map(i => i.currentSrc)"))
    assert all(light != dark for light, dark in zip(*sources, strict=True))


def test_wide_tables_scroll_in_their_own_box(browser, page):
    show(browser, page, PHONE, "light")
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('.box')].map(b => [b.scrollWidth, b.clientWidth, "
        "getComputedStyle(b).overflowX])"
    )
    assert any(inner > outer for inner, outer, _ in boxes)
    assert {overflow for _, _, overflow in boxes} == {"auto"}


def test_nothing_is_asked_of_the_network(browser, page):
    browser.get_log("performance")
    show(browser, page, DESK, "light")
    asked = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [event["params"]["request"]["url"] for event in asked if event["method"] == "Network.requestWillBeSent"]
    assert page.as_uri() in urls
    assert [url for url in urls if not url.startswith(("data:", page.as_uri()))] == []


def test_what_a_token_says_is_shown_and_not_run(browser, page):
    show(browser, page, DESK, "light")
    assert browser.execute_script("return document.scripts.length") == 0
    marks = browser.find_elements("css selector", "mark")
    assert any(mark.text.startswith("1") for mark in marks)
    assert {mark.find_element("css selector", ".v").text for mark in marks} == {"−0.40", "+0.40", "−0.30", "+0.30"}


def test_a_shaped_token_is_told_apart_without_colour(browser, page):
    show(browser, page, DESK, "light")
    style = "const s = getComputedStyle(document.querySelector(arguments[0])); return [s.outlineStyle, s.outlineWidth]"
    assert browser.execute_script(style, ".answer mark.down") == ["solid", "2px"]
    assert browser.execute_script(style, ".answer mark.up") == ["dashed", "2px"]
    lines = "return getComputedStyle(document.querySelector('.legend .e' + arguments[0])).textDecorationStyle"
    assert len({browser.execute_script(lines, level) for level in range(1, 6)}) == 5


def test_the_keyboard_reaches_the_sections_and_the_boxes(browser, page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    show(browser, page, DESK, "light")
    reached = []
    for _ in range(40):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        reached.append(
            browser.execute_script("const e = document.activeElement; return e.tagName + '.' + e.className")
        )
    assert reached[0] == "A.skip"
    assert {"A.", "SUMMARY.", "DIV.prompt"} <= set(reached)


def test_text_has_enough_contrast_in_both_schemes(browser, page):
    script = """
    const numbers = text => text.match(/[\\d.]+/g).map(Number);
    return [...document.querySelectorAll('p, figcaption, caption, td, th, summary, a, code, h4, .t, .v')].map(e => {
      const layers = [];
      for (let at = e; at; at = at.parentElement) layers.push(numbers(getComputedStyle(at).backgroundColor));
      return [numbers(getComputedStyle(e).color), layers, e.className + ' ' + e.tagName]; })"""

    def composed(layers):
        """What is seen through the layers, the uppermost first."""
        seen = (255, 255, 255)
        for red, green, blue, *alpha in reversed(layers):
            share = alpha[0] if alpha else 1.0
            seen = tuple(share * new + (1 - share) * old for new, old in zip((red, green, blue), seen, strict=True))
        return seen

    def brightness(color):
        parts = [part / 255 for part in color]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for scheme in ("light", "dark"):
        show(browser, page, DESK, scheme)
        found = browser.execute_script(script)
        assert len(found) > 100
        for ink, layers, where in found:
            paper = composed(layers)
            high, low = sorted((brightness(ink), brightness(paper)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (scheme, where, ink, paper)  # WCAG AA
