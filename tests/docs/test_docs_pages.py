"""Settings, functions, tests, files and links named in the docs exist."""

import dataclasses
import re
import tomllib
from itertools import pairwise

import pytest
import torch
import yaml
from docs_blocks import DOCS, EXPERIMENTS, PAGES, ROOT, functions_of, load_script
from packaging.requirements import Requirement
from packaging.version import Version
from rooms import CORE, LAB
from trl import GRPOConfig, GRPOTrainer, ModelConfig

from trl_ces import CESTrainer
from trl_ces.cli.main import COMMANDS
from trl_ces.layers.layer import NEWEST_TESTED_TRL
from trl_ces.methods import ces
from trl_ces.methods.groups import group_counts
from trl_ces.train.recipe import recipe_fields

OURS = [page for page in PAGES if page.name != "config.md"]


def name_of(file):
    return str(file.relative_to(ROOT))


def prose(page):
    """The page without code blocks."""
    return re.sub(r"^( *)```.*?^\1```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


TEST = re.compile(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)(\.\.\.)?`")


def missing_tests(text):
    """Missing tests that a text names: `test_name`, `tests/folder/test_file.py::test_name`, `test_prefix...`."""
    everywhere = [name for file in (ROOT / "tests").rglob("test_*.py") for name in functions_of(file)]
    for file, name, dots in TEST.findall(text):
        known = functions_of(file) if file else everywhere
        if not any(test.startswith(name) if dots else test == name for test in known):
            yield name


# Settings


def test_the_page_of_settings_is_what_the_dataclasses_give():
    builder = load_script(DOCS / "build_config_reference.py")
    assert (DOCS / "config.md").read_text(encoding="utf-8") == builder.page(), f"run {builder.COMMAND}"


def test_every_setting_of_ours_has_its_place_and_its_words():
    text = (DOCS / "config.md").read_text()
    trls = {entry.name for owner in (GRPOConfig, ModelConfig) for entry in dataclasses.fields(owner)}
    for name in {*recipe_fields()} - trls:
        assert len(re.findall(rf"^- \*\*`{name}`\*\* \(.+; default `.*`\): \S.+$", text, flags=re.MULTILINE)) == 1, (
            name
        )


# `ces_tau: 0.05`, `ces_tau=0.05`, `--ces_tau 0.05`
SETTING = re.compile(r"`(?:--)?([a-z]+_\w+)(?:: |=| )[^`]+`")
# Of accelerate and launch files, of TRL's and torch's functions, and of the small world.
OTHERS = {
    "accelerate_config", "machine_rank", "num_processes", "zero3_save_16bit_model", "distributed_type",
    "environment_factory", "weights_only", "guess_first", "forget_probability",
}  # fmt: skip
# Pages about commands with their own options, which test_docs_run.py checks.
WITH_OPTIONS = {"evaluation.md", "report.md", "study.md", "hub.md", "performance.md"}


@pytest.mark.parametrize("page", [page for page in OURS if page.name not in WITH_OPTIONS], ids=name_of)
def test_a_setting_with_a_value_is_a_key_of_a_recipe(page):
    assert set(SETTING.findall(prose(page))) - OTHERS <= set(recipe_fields())


def test_what_the_tutorial_quotes_from_a_message_is_in_one():
    quoted = re.findall(r'^\| "(.+?)"', (DOCS / "tutorial.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(quoted) == 2
    code = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "trl_ces").rglob("*.py"))
    assert [words for words in quoted if words not in re.sub(r'"\s+f?"', "", code)] == []


# Functions and tests


EQUATIONS = re.findall(
    r"\n\n- function: (.*?)\n- test: (.*?)\n\n", (DOCS / "algorithm.md").read_text(encoding="utf-8"), flags=re.DOTALL
)


@pytest.mark.parametrize(("function", "tests"), EQUATIONS, ids=[function for function, _ in EQUATIONS])
def test_an_equation_has_a_function_and_tests_that_exist(function, tests):
    named = re.findall(r"(TRL's )?`(?:(trl_ces/[\w/]+\.py)::)?(\w+)`", function)
    assert named
    for of_trl, file, name in named:
        known = hasattr(GRPOTrainer, name) if of_trl else name in functions_of(file or "trl_ces/methods/ces.py")
        assert known, name
    assert len(TEST.findall(tests)) == tests.count("`") / 2 > 0


def test_every_equation_and_every_function_of_the_equations_is_there():
    text = (DOCS / "algorithm.md").read_text(encoding="utf-8")
    assert [f"## Eq. {number}:" in text for number in range(1, 8)] == [True] * 7
    assert len(EQUATIONS) == text.count("\n- function: ") > 7
    named = set(re.findall(r"`(?:[\w/.]+::)?([a-z]\w+)`", " ".join(function for function, _ in EQUATIONS)))
    assert functions_of("trl_ces/methods/ces.py") <= named


@pytest.mark.parametrize("page", [*PAGES, ROOT / "tests" / "engines" / "README.md"], ids=name_of)
def test_a_test_that_a_page_names_exists(page):
    text = prose(page)
    assert list(missing_tests(text)) == []
    assert not re.findall(r"`(?!tests/)[\w/]*test_\w+\.py(?:::\w+)?`", text), "name it from the root: tests/..."


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_file_that_a_page_names_exists(page):
    named = re.findall(r"`((?:trl_ces|tests|recipes|docs|benchmarks|experiments)/[\w./-]*)(?:::\w+)?`", prose(page))
    missing = [file for file in named if not (ROOT / file.rstrip(".")).exists()]
    assert [file for file in missing if not re.search("MODEL|NAME", file)] == []


def rooms_named(text):
    cells = re.findall(r"^\| (`\w+[./].*?) \|", text, flags=re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)(?:/|\.py)`", cell)]


def test_the_page_of_the_architecture_has_the_rooms_in_their_order():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8").partition("## The trainer")[0]
    core, lab = text.split("| room of `lab/` |")
    assert rooms_named(core) == [room for room in CORE if "." not in room]
    assert set(rooms_named(lab)) == {room.removeprefix("lab.") for room in LAB if room.count(".") == 1}


def test_a_page_that_the_code_names_exists():
    rooms = ("trl_ces", "recipes", "benchmarks", "experiments", "tests")
    files = [file for room in rooms for file in (ROOT / room).rglob("*.*")]
    named = {
        (page, name_of(file))
        for file in files
        if file.suffix in (".py", ".yaml", ".j2")
        for page in re.findall(r"\bdocs/(\w+\.md)\b", file.read_text(encoding="utf-8"))
    }
    assert named
    assert {(page, file) for page, file in named if not (DOCS / page).is_file()} == set()


def test_the_example_of_the_algorithm_adds_up():
    text = " ".join(re.search(r"## An example\n(.*?)\n##", (DOCS / "algorithm.md").read_text(), re.DOTALL)[1].split())
    assert "four completions of 300 tokens, three of them correct" in text
    assert "floor(300 * 0.01 * 3/4) = 2 " in text
    assert "floor(300 * 0.01 * 1/4) = 0." in text
    sizes = {}
    for right in (3, 1):
        correct = torch.tensor([True] * right + [False] * (4 - right))
        counts = group_counts(correct, torch.ones(4, dtype=torch.bool), 4)
        b = ces.multiplier(correct, *counts)
        sizes[right] = ces.selection_size(torch.full((4,), 300), 0.01, b).tolist()
    assert sizes == {3: [2, 2, 2, 0], 1: [0, 2, 2, 2]}
    assert "the correct one gets 0 shaped tokens, each wrong one 2." in text


# Pages and links


def test_every_page_is_in_the_navigation_once():
    def files(entry):
        if isinstance(entry, str):
            return [entry]
        return [file for value in (entry.values() if isinstance(entry, dict) else entry) for file in files(value)]

    navigation = files(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(navigation) == sorted(file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md"))


def test_the_first_page_names_every_command_and_leads_to_every_page():
    text = (DOCS / "index.md").read_text()
    assert set(re.findall(r"^\| `trl-ces (\w+)`", text, flags=re.MULTILINE)) == set(COMMANDS)
    linked = set(re.findall(r"\]\((\w+\.md)", text))
    assert {file.name for file in DOCS.glob("*.md")} - linked == {"index.md"}


def test_the_page_of_studies_leads_to_every_experiment():
    text = (DOCS / "study.md").read_text()
    linked = set(re.findall(r"\]\(\.\./experiments/([^/]+)/README\.md", text))
    assert linked == {file.parent.name for file in EXPERIMENTS}
    assert all(f"`{file.parent.name}`" in text for file in (ROOT / "experiments").glob("*/*"))


def anchors(page):
    """Heading anchors, as GitHub and the site build them."""
    found = []
    for heading in re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE):
        words = re.sub(r"[^\w\s-]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower())
        found.append(re.sub(r"\s", "-", words.strip()))
    return found


LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page):
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
def test_lists_and_tables_stand_apart_from_the_text_above(page):
    """The site would render them as part of the paragraph; GitHub would not."""
    lines = prose(page).splitlines()
    for above, line in pairwise(lines):
        starts = re.match(r"(?:[-*+]|1\.) \S", line) or (line.startswith("|") and not above.startswith("|"))
        assert not (starts and above.strip() and not re.match(r" *(?:[-*+]|\d+\.) |  +\S", above)), line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_table_begins_with_its_header(page):
    """A blank line inside a table leaves rows that no renderer takes for a table."""
    lines = ["", *prose(page).splitlines(), ""]
    for above, line, below in zip(lines, lines[1:], lines[2:], strict=False):
        if line.startswith("|") and not above.startswith("|"):
            assert re.fullmatch(r"\|(?: ?:?-+:? ?\|)+", below), line


def test_the_table_of_versions_is_what_is_required_and_what_the_tests_ran_with():
    page = (DOCS / "architecture.md").read_text()
    shown = re.findall(r"^\| (\w+) \| ([\d.]+)(?: \(not run\))? \| ([\d.]+) \|", page, re.M)
    assert [name for name, _, _ in shown] == ["trl", "transformers", "datasets", "accelerate", "peft", "torch"]
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    required = {
        one.name: {bound.operator: bound.version for bound in one.specifier} for one in map(Requirement, lines)
    }
    assert [Version(oldest) for _, oldest, _ in shown] == [Version(required[name][">="]) for name, _, _ in shown]
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    assert [newest for _, _, newest in shown] == [pins[name] for name, _, _ in shown]
    assert Version(shown[0][2]).release[:2] == Version(NEWEST_TESTED_TRL).release


def test_the_table_of_a_rollout_is_the_trainers_order():
    rows = re.findall(r"^\| `(_\w+)` \| ([\w, ]+) \|$", (DOCS / "architecture.md").read_text(), flags=re.MULTILINE)
    assert len(rows) == 6
    order = CESTrainer.__mro__[: CESTrainer.__mro__.index(GRPOTrainer)]
    for method, layers in rows:
        assert layers.split(", ") == [layer.__name__ for layer in order if method in vars(layer)]
