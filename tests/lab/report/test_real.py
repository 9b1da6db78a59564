"""The report of a real study, small: trained here, shown in a real browser, its numbers those of results.csv."""

import csv
import re

import pytest
import yaml
from browsers import DESK, PHONE, luminance, pytestmark, show  # noqa: F401
from docs_study import STUDY

from trl_ces.cli.main import main
from trl_ces.lab.worlds.arithmetic_model import build_base_model


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Two methods, one seed, four steps with a checkpoint between; the report with the tokens of three models."""
    folder = tmp_path_factory.mktemp("real")
    build_base_model(folder / "base", steps=60)
    overrides = {"model_name_or_path": str(folder / "base"), "max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    content = {
        **STUDY,
        "output_dir": str(folder / "study"),
        "overrides": {**STUDY["overrides"], **overrides},
        "keep_checkpoints": True,
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(content))
    assert main(["study", "--config", str(folder / "study.yaml")]) == 0
    assert main(["report", str(folder / "study"), "--tokens", "4", "--out", str(folder / "report.html")]) == 0
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_the_report_of_a_real_study_fits_the_screen(browser, study, tmp_path, size, scheme):
    show(browser, study / "report.html", size, scheme)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    assert browser.execute_script("return [...document.images].every(image => image.complete && image.naturalWidth)")
    brightness = luminance(browser, tmp_path / "shot.png")
    assert brightness > 0.85 if scheme == "light" else brightness < 0.25
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    over = """return [...document.querySelectorAll('h1, h2, h3, h4, p, figure, table, summary')].filter(
        e => !e.closest('.box, .prompt') && e.getBoundingClientRect().right > innerWidth).map(e => e.outerHTML)"""
    assert browser.execute_script(over) == []


def test_what_is_read_there_is_what_the_study_measured(browser, study):
    show(browser, study / "report.html", DESK, "light")
    text = browser.find_element("tag name", "main").text
    rows = list(csv.DictReader((study / "study" / "results.csv").open(encoding="utf-8")))
    assert {row["method"] for row in rows} == {"DAPO", "CES"}
    for row in rows:
        accuracy, length = 100 * float(row["accuracy"]), float(row["length_tokens"])
        cells = re.search(rf"^{row['method']} 1 ([\d.]+)(?: [+-][\d.]+)? ([\d.]+)", text, re.MULTILINE)
        assert (float(cells[1]), float(cells[2])) == (
            pytest.approx(accuracy, abs=0.051),
            pytest.approx(length, abs=0.051),
        )
    curves = list(csv.DictReader((study / "study" / "curves.csv").open(encoding="utf-8")))
    told = browser.find_element("css selector", "#training ~ * img, section img").get_attribute("alt")
    for method in ("DAPO", "CES"):
        lengths = [float(point["length_tokens"]) for point in curves if point["method"] == method]
        ends = re.search(
            rf"{method} from ([\d.]+) to ([\d.]+) tokens", told
        )  # a running mean keeps the first and last
        assert float(ends[1]) == pytest.approx(lengths[0], abs=0.051)
        assert float(ends[2]) == pytest.approx(lengths[-1], abs=0.051)


def test_the_tokens_of_a_real_study_are_there_for_each_model(browser, study):
    show(browser, study / "report.html", DESK, "light")
    assert len(browser.find_elements("css selector", ".answer mark")) > 4
    text = browser.find_element("tag name", "main").text
    assert "What the shaped tokens turn into" in text
    assert {file.name for file in (study / "study" / "ces" / "seed-0").glob("tokens-*")} == {
        f"tokens-{step}.jsonl" for step in (0, 2, 4)
    }
