"""The report in a real browser: no errors, nothing fetched, no sideways scrolling, both colour schemes, keyboard."""

import json

import pytest
from browsers import DESK, PHONE, luminance, pytestmark, show  # noqa: F401


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
    assert len(pictures) == 5
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
