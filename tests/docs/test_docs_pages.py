"""Check that links in the docs work, that mentioned files and tests exist, and that config.md is up to date."""

import re
from itertools import pairwise

import pytest
import yaml
from docs_blocks import DOCS, EXPERIMENTS, PAGES, ROOT, functions_of, load_script
from trl import GRPOTrainer

from trl_ces.cli.main import COMMANDS


def name_of(file):
    return str(file.relative_to(ROOT))


def prose(page):
    """Return the text of a page without its code blocks."""
    return re.sub(r"^( *)```.*?^\1```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_the_settings_page_is_up_to_date():
    builder = load_script(DOCS / "build_config_reference.py")
    assert (DOCS / "config.md").read_text(encoding="utf-8") == builder.page(), f"run {builder.COMMAND}"


# Functions, tests, files


TEST = re.compile(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)(\.\.\.)?`")
EQUATIONS = re.findall(
    r"\n\n- function: (.*?)\n- test: (.*?)\n\n", (DOCS / "algorithm.md").read_text(encoding="utf-8"), flags=re.DOTALL
)


def missing_tests(text):
    """Return the mentioned tests that do not exist. A mention may include a file name or end in `...`."""
    all_tests = [name for file in (ROOT / "tests").rglob("test_*.py") for name in functions_of(file)]
    missing = []
    for file, name, dots in TEST.findall(text):
        existing = functions_of(file) if file else all_tests
        if not any(test.startswith(name) if dots else test == name for test in existing):
            missing.append(name)
    return missing


@pytest.mark.parametrize(("function", "tests"), EQUATIONS, ids=[function for function, _ in EQUATIONS])
def test_the_functions_and_tests_listed_for_an_equation_exist(function, tests):
    mentions = re.findall(r"(TRL's )?`(?:(trl_ces/[\w/]+\.py)::)?(\w+)`", function)
    assert mentions
    for in_trl, file, name in mentions:
        exists = hasattr(GRPOTrainer, name) if in_trl else name in functions_of(file or "trl_ces/methods/ces.py")
        assert exists, name
    assert TEST.findall(tests)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tests_and_files_mentioned_on_a_page_exist(page):
    if page.name == "results.md":  # this page names removed files
        return
    text = prose(page)
    assert missing_tests(text) == []
    mentions = re.findall(r"`((?:trl_ces|tests|recipes|docs|benchmarks|experiments)/[\w./-]*)(?:::\w+)?`", text)
    missing = [file for file in mentions if not (ROOT / file.rstrip(".")).exists()]
    assert [file for file in missing if not re.search("MODEL|NAME", file)] == []


def test_pages_mentioned_in_the_code_exist():
    folders = ("trl_ces", "recipes", "benchmarks", "experiments", "tests")
    files = [file for name in folders for file in (ROOT / name).rglob("*.*") if file.suffix in (".py", ".yaml", ".j2")]
    missing = [
        (page, name_of(file))
        for file in files
        for page in re.findall(r"\bdocs/(\w+\.md)\b", file.read_text(encoding="utf-8"))
        if not (DOCS / page).is_file()
    ]
    assert missing == []


# Pages and links


def test_the_navigation_contains_every_page_once():
    def files(entry):
        if isinstance(entry, str):
            return [entry]
        return [file for value in (entry.values() if isinstance(entry, dict) else entry) for file in files(value)]

    navigation = files(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(navigation) == sorted(file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md"))


def test_the_first_page_names_every_command():
    text = (DOCS / "index.md").read_text()
    assert set(re.findall(r"^\| `trl-ces (\w+)`", text, flags=re.MULTILINE)) == set(COMMANDS)


def test_every_experiment_and_every_method_overlay_is_documented():
    results, methods = ((DOCS / name).read_text(encoding="utf-8") for name in ("results.md", "methods.md"))
    assert [
        file.parent.name for file in EXPERIMENTS if f"](../experiments/{file.parent.name}/README.md)" not in results
    ] == []
    assert [file.stem for file in (ROOT / "recipes/methods").glob("*.yaml") if f"`{file.stem}`" not in methods] == []


def anchors(page):
    """Return the heading anchors that GitHub and the site generate for a page."""
    names = []
    for heading in re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE):
        words = re.sub(r"[^\w\s-]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower())
        names.append(re.sub(r"\s", "-", words.strip()))
    return names


LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_is_valid(page):
    for link in LINK.findall(prose(page)):
        target, _, anchor = link.partition("#")
        if link.startswith(("http://", "https://")):
            assert re.fullmatch(r"https://[\w.-]+\.[a-z]{2,}(/[\w./%~#?=&+-]*)?", link), link
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.is_file(), link
        if anchor:
            assert anchor in anchors(file), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lists_and_tables_follow_a_blank_line(page):
    """The site, unlike GitHub, needs a blank line before a list. Otherwise, the list becomes part of a paragraph."""
    for above, line in pairwise(prose(page).splitlines()):
        starts_block = re.match(r"(?:[-*+]|1\.) \S", line) or (line.startswith("|") and not above.startswith("|"))
        assert not (starts_block and above.strip() and not re.match(r" *(?:[-*+]|\d+\.) |  +\S", above)), line
