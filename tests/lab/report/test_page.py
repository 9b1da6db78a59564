"""The report's numbers by hand, its tables, its pictures, and that the page is one inert file that anyone can read."""

import itertools
import json
import re
from html.parser import HTMLParser

import pytest
from report_pages import BASE, EVIL, OURS, F, T, answer, page_of
from report_runs import FIELDS, POINTS, STUDY, write_evaluation, write_study, write_training

from trl_ces.cli.main import main
from trl_ces.lab.evaluation.statistics import Interval
from trl_ces.lab.report.figures import Measured, front_figure, training_figures
from trl_ces.lab.report.page import render
from trl_ces.lab.report.picture import DARK, LIGHT, save_figures
from trl_ces.lab.report.runs import read_runs
from trl_ces.lab.report.tokens import TokenFile, write_tokens
from trl_ces.support.errors import UserError


def test_the_picture_of_evaluations_has_bars_of_their_intervals_and_names_the_front():
    from matplotlib import pyplot

    points = {"short": (10.0, 0.5), "below": (15.0, 0.4), "best": (20.0, 0.9), "long": (30.0, 0.9)}
    evaluations = [
        Measured(name, Interval(length, length - 1, length + 4), Interval(accuracy, None, None))
        for name, (length, accuracy) in points.items()
    ]
    figure = front_figure(evaluations, list(points), "", "")
    assert figure.caption.endswith("a mix of two beats: short, best.")
    assert "the front is this one point" in front_figure(evaluations[2:], list(points), "", "").caption
    _, axis = pyplot.subplots()
    figure.draw(axis, LIGHT)
    bars = [bar for collection in axis.collections for bar in collection.get_segments()]
    assert [bar.tolist() for bar in bars] == [[[x - 1, y], [x + 4, y]] for x, y in points.values()]
    assert axis.get_xlim()[1] > 34  # whole, also where they reach beyond the marks
    pyplot.close()


def test_training_is_drawn_over_problems_where_all_runs_say_how_many(tmp_path):
    recipe = "max_train_samples: 64\nseed: {}\n"
    paced = [write_training(tmp_path / f"ces{seed}", POINTS, recipe.format(seed)) for seed in (0, 1)]
    page = page_of(*paced, names=["CES", "CES"])
    length = page.training[0].figures[0]
    assert length.alt.startswith(
        "Line chart of completion length over training problems: CES from 20.0 to 12.0 tokens"
    )
    assert "over 2 seeds, the band the range of the seeds" in length.caption
    page = page_of(*paced, write_training(tmp_path / "plain", POINTS))
    assert "over optimizer steps: ces0 from" in page.training[0].figures[0].alt
    other = write_training(tmp_path / "other", [(3, 0.5, 20.0, 0.8)], recipe.format(2))  # no step in common
    assert "from" not in page_of(paced[0], other, names=["CES", "CES"]).training[0].figures[0].alt


def test_the_band_is_the_range_of_the_seeds_and_the_line_their_mean(tmp_path):
    from matplotlib import pyplot

    higher = [(step, accuracy, length + 4, bits) for step, accuracy, length, bits in POINTS]
    recipe = "max_train_samples: 64\n"
    runs = [write_training(tmp_path / name, points, recipe) for name, points in (("a", POINTS), ("b", higher))]
    trainings = read_runs(runs, ["CES", "CES"]).trainings
    _, axis = pyplot.subplots()
    training_figures(trainings, ["CES"])[0].draw(axis, LIGHT)
    (line,) = axis.get_lines()
    assert line.get_xdata().tolist() == [16.0, 32.0, 48.0, 64.0]  # 8 problems a step
    assert line.get_ydata().tolist() == pytest.approx([22.0, 59 / 3, 17.0, 14.0])  # running means, plus 2
    band = axis.collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == (12.0, 24.0)
    pyplot.close()


def test_a_study_fills_the_tables_that_it_can_and_no_others(tmp_path):
    methods, benchmarks = page_of(write_study(tmp_path / "study", name="mine")).tables["study"]
    assert (methods.title, benchmarks.title) == ("Methods, measured on easy + hard", "By benchmark")
    assert methods.header[:4] == ["Method", "Runs", "Acc ↑, %", "Δ"]
    # By seed: 0.75 - 0.6 and 0.65 - 0.4; half the interval is t(0.975, 1) = 12.706 times 0.05. Tokens: -7 and -9.
    assert methods.rows[2] == ["CES", "2", "70.0 ± 63.5", "+20.0 ± 63.5", "24.0 ± 12.7", "-8.0 ± 12.7"]
    assert [row[0] for row in benchmarks.rows] == ["easy", "hard", "Average"]
    assert benchmarks.rows[0][benchmarks.header.index("CES Len")] == "17.0 ± 12.7"
    html = render(page_of(tmp_path / "study"))
    assert html.index('<h2 id="tables"') < html.index("+20.0 <small>± 63.5") < html.index('<h2 id="training"')


def test_a_model_that_was_measured_once_takes_no_seed_from_the_others(tmp_path):
    study = {"Before": STUDY["DAPO"][:1], "CES": STUDY["CES"]}
    page = page_of(write_study(tmp_path / "study", study, {"Before": {}, "CES": {}}))
    assert "CES: 70.0 % at 24.0 tokens" in page.planes[0].figures[0].alt


def test_trainings_differ_by_the_last_five_points_of_their_logs(tmp_path):
    write_training(tmp_path / "a", [(step, 0.5, 20.0, 0.8) for step in range(1, 7)])
    write_training(tmp_path / "b", [(step, 0.1 * step, 2.0 * step, 0.8) for step in range(1, 7)])
    runs = tmp_path / "a", tmp_path / "b"
    (table,) = page_of(*runs).tables["At the end of training"]
    # Steps 2 to 6: means of 0.4 and 8.
    assert table.rows == [["a", "6", "50.0", "20.0"], ["b", "6", "40.0 (−10.0)", "8.0 (−12.0)"]]
    (table,) = page_of(*runs, baseline="b").tables["At the end of training"]
    assert table.rows[0] == ["a", "6", "50.0 (+10.0)", "20.0 (+12.0)"]
    assert table.note.endswith("; in brackets, minus b.")
    (alone,) = page_of(runs[0]).tables["At the end of training"]
    assert "brackets" not in alone.note


def test_a_study_with_strengths_of_which_one_has_ended_is_drawn(tmp_path):
    study = {"DAPO": STUDY["DAPO"], "ALP 1": STUDY["CES"]}
    folder = write_study(tmp_path / "study", study, {name: {} for name in study}, lines={"ALP 1": "ALP"})
    assert 'id="plane"' in render(page_of(folder))


def test_trainings_of_several_seeds_are_paired_by_seed(tmp_path):
    runs = []
    for name, seed, accuracy in (
        ("DAPO", 0, 0.5),
        ("DAPO", 1, 0.7),
        ("CES", 1, 0.71),
        ("CES", 0, 0.52),
        ("CES", 2, 0.9),
    ):
        runs.append(tmp_path / f"{name}-{seed}")
        write_training(runs[-1], [(step, accuracy, 20.0, 0.8) for step in range(1, 7)], f"seed: {seed}\n")
    names = ["DAPO", "DAPO", "CES", "CES", "CES"]
    (table,) = page_of(*runs, names=names).tables["At the end of training"]
    assert [row[2] for row in table.rows] == ["50.0", "70.0", "71.0 (+1.0)", "52.0 (+2.0)", "90.0"]
    assert table.note.endswith("minus DAPO of the same seed.")


def test_a_study_with_strengths_shows_its_front_and_the_middle_of_each_line_in_training(tmp_path):
    places = {"DAPO": (0.8, 20.0), "ALP 1": (0.7, 16.0), "ALP 2": (0.6, 12.0), "CES": (0.5, 18.0)}
    study = {name: [[(share, length)], [(share, length + 2)]] for name, (share, length) in places.items()}
    lines = {"ALP 1": "ALP", "ALP 2": "ALP"}
    page = page_of(write_study(tmp_path / "study", study, {name: {} for name in study}, ("easy",), lines=lines))
    (group,) = page.planes
    assert group.figures[0].name == "study_front"
    assert group.figures[0].alt.endswith("CES: 50.0 % at 19.0 tokens. On the front: ALP 2, ALP 1, DAPO.")
    *_, gaps, dominance = page.tables["study"]
    assert [row[3:] for row in gaps.rows] == [["on it", ""]] * 3 + [["25.0 ± 0.0", "ALP 2, ALP 1"]]
    assert [row[1:] for row in dominance.rows] == [["", "", ""], ["", "", "2 of 2"], ["", "", ""]]
    told = page.training[0].figures[0].alt
    assert [name in told for name in ("DAPO from", "ALP from", "ALP 1", "ALP 2", "CES from")] == [
        True,
        True,
        False,
        False,
        True,
    ]
    html = render(page)
    assert html.index("Gap to the front") < html.index("Who dominates whom") < html.index('<h2 id="training"')


def test_each_study_has_its_own_tables_with_the_benchmarks_by_their_titles(tmp_path):
    sets = ("arc_challenge", "openbookqa")
    tables = page_of(write_study(tmp_path / "one"), write_study(tmp_path / "two", sets=sets)).tables
    assert list(tables) == ["one", "two"]
    assert [row[0] for row in tables["two"][1].rows] == ["ARC", "OpenBookQA", "Average"]


def test_evaluations_are_compared_and_their_questions_split_by_the_reference(tmp_path):
    base, ours = write_evaluation(tmp_path / "base", BASE), write_evaluation(tmp_path / "ours", OURS)
    page = page_of(base, ours, names=["R1", "CES"])
    levels, differences, parts, _ = page.tables["Average: R1, CES"]
    gsm = dict(zip(levels.header, levels.rows[0], strict=True))
    assert gsm["Dataset"] == "GSM8K"
    assert gsm["R1 Acc ↑"].startswith("50.0 [")  # 1, 0.5, 0
    assert gsm["CES Len ↓"].startswith("29.3 [")  # 8, 30, 50
    assert dict(zip(differences.header, differences.rows[0], strict=True))["CES − R1 Acc ↑"].startswith("+33.3 [")
    assert levels.rows[-1][0] == "Average"
    rows = [dict(zip(parts.header, row, strict=True)) for row in parts.rows]
    # Right in more than half: the first problem alone; in exactly half counts as hard.
    assert [(row["Part"], row["Problems"]) for row in rows[:2]] == [("simple", "1"), ("hard", "2")]
    assert rows[0]["CES Len ↓"] == "8.0"  # of one question there is no interval
    assert rows[1]["R1 Len ↓"].startswith("30.0 [")
    assert rows[1]["CES Acc ↑"].startswith("75.0 [")
    assert page.planes[0].figures[0].alt.count("tokens") == 2
    assert "<td><strong>83.3</strong> <small>[" in render(page)  # the best of the row


def test_evaluations_are_compared_by_kind_and_with_the_baseline_wherever_it_stands(tmp_path):
    sets = ("gsm8k", "svamp", "arc_challenge", "openbookqa", "humaneval", "mbpp")
    names = ["R1", "DAPO", "CES"]
    runs = [write_evaluation(tmp_path / name, {one: [[(T, 10)], [(F, 20)]] for one in sets}) for name in names]
    tables = page_of(*runs, names=names).tables
    assert [*tables] == [f"Average{kind}: R1, DAPO, CES" for kind in ("", " of multiple choice", " of code")]
    kinds = [[row[0] for row in levels.rows] for levels, *_ in tables.values()]
    assert kinds == [
        ["GSM8K", "SVAMP", "Average"],
        ["ARC", "OpenBookQA", "Average of multiple choice"],
        ["HumanEval", "MBPP", "Average of code"],
    ]
    for _, differences, _, budgets in tables.values():
        assert differences.header[1::2] == ["R1 − DAPO Acc ↑", "CES − DAPO Acc ↑"]
        assert budgets.header == ["Tokens", *names, "R1 − DAPO", "CES − DAPO"]


def test_a_benchmark_that_not_every_run_has_is_named(tmp_path):
    more = BASE | {"aime24": [[(T, 5), (T, 5)]]}
    runs = [write_evaluation(tmp_path / "a", more), write_evaluation(tmp_path / "b", BASE)]
    (tables,) = page_of(*runs).tables.values()
    assert "Left out, because not every run has it: AIME24." in tables[0].note


def test_evaluations_of_one_name_are_refused(tmp_path):
    runs = [write_evaluation(tmp_path / name, BASE) for name in ("a", "b")]
    with pytest.raises(UserError, match="Two evaluations are called 'DAPO'"):
        page_of(*runs, names=["DAPO", "DAPO"])


def test_evaluations_of_two_backbones_are_not_compared_with_each_other(tmp_path):
    for name, layers in (("big", 4), ("small", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"model_type": "qwen2", "num_hidden_layers": layers}))
    runs = [write_evaluation(tmp_path / f"{name}-run", BASE, tmp_path / name) for name in ("big", "small")]
    assert list(page_of(*runs).tables) == ["Average: big-run", "Average: small-run"]
    reference = write_evaluation(tmp_path / "hub-run", BASE, "deepseek-ai/R1")  # no config.json here
    assert list(page_of(reference, runs[0]).tables) == ["Average: hub-run, big-run"]
    assert len(page_of(reference, *runs).tables) == 3


def test_evaluations_that_cannot_be_compared_are_named(tmp_path):
    other = {"aime24": [[(T, 5), (T, 5)]]}
    runs = [write_evaluation(tmp_path / "a", BASE), write_evaluation(tmp_path / "b", other)]
    assert any("Not compared: a, b. The runs have no benchmark in common" in note for note in page_of(*runs).notes)


def test_pictures_are_written_as_png_and_svg_and_are_the_same_when_made_again(tmp_path):
    figures = page_of(write_study(tmp_path / "study")).figures()
    files = save_figures(figures, tmp_path / "figures")
    assert [figure.name for figure in figures] == [
        f"study_training_{key}" for key in ("length", "entropy", "accuracy")
    ] + ["study_front"]
    assert len(files) == 8
    assert all(file.read_bytes()[:4] == (b"\x89PNG" if file.suffix == ".png" else b"<?xm") for file in files)
    assert figures[0].render(LIGHT, "svg") == figures[0].render(LIGHT, "svg")
    assert figures[0].render(LIGHT, "svg") != figures[0].render(DARK, "svg")


# The page as a whole.


class Page(HTMLParser):
    """What a test asks of a page: its elements with their attributes, and whether they are nested well."""

    EMPTY = ("meta", "link", "img", "source", "br")

    def __init__(self, html):
        super().__init__()
        self.elements, self.open, self.ids = [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, *tags):
        return [attributes for tag, attributes in self.elements if tag in tags]


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A page with all that can be on it, and a name, a question and a token that are markup."""
    tmp_path = tmp_path_factory.mktemp("everything")
    study = {EVIL if method == "CES w/o Dynamic b" else method: seeds for method, seeds in STUDY.items()}
    fields = {**FIELDS, EVIL: FIELDS["CES w/o Dynamic b"]}
    folder = write_study(tmp_path / "study", study, fields)
    cell = write_training(folder / "ces" / "seed-0", POINTS, "max_train_samples: 64\n")
    settings = {"step": 0, "trained_with": "ces", "reference": None}
    write_tokens(cell, TokenFile(settings, [EVIL], [[3]], [answer(T), answer(F)]))
    evaluations = [write_evaluation(tmp_path / name, BASE) for name in ("base", "ours")]
    return render(page_of(folder, *evaluations))


def test_nothing_that_a_run_says_is_markup(everything):
    assert "<script" not in everything
    assert (
        everything.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 6
    )  # in a legend's alt, a table, a token, its tip
    assert all(not name.startswith("on") for _, attributes in Page(everything).elements for name in attributes)


def test_a_command_in_a_note_is_set_as_one(tmp_path):
    html = render(page_of(write_study(tmp_path / "study", curves=False)))
    assert "so no curves. <code>trl-ces study --config mine</code> writes it at its end." in html
    assert "`" not in html.split("</style>")[1]


def test_the_page_is_one_file_that_fetches_nothing(everything):
    page = Page(everything)
    places = [a.get("src") or a.get("srcset") for a in page.all("img", "source")] + [
        a["href"] for a in page.all("link")
    ]
    assert len(places) > 8
    assert all(place.startswith("data:") for place in places)
    assert "@import" not in everything
    assert "url(" not in everything
    assert "default-src 'none'" in everything


def test_the_page_can_be_read_without_seeing_it(everything):
    page = Page(everything)
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert all(len(image["alt"]) > 40 for image in page.all("img"))
    assert len(page.all("caption")) == len(page.all("table")) > 4
    assert all(cell.get("scope") in ("row", "col") for cell in page.all("th"))
    boxes = [a for a in page.all("div") if a.get("class") in ("box", "prompt")]
    assert all(box["tabindex"] == "0" and box["role"] == "region" and box["aria-label"] for box in boxes)
    assert len(set(page.ids)) == len(page.ids)
    assert {a["href"][1:] for a in page.all("a")} <= set(page.ids)
    assert page.all("html")[0]["lang"] == "en"


def test_each_part_that_is_empty_says_what_makes_it(tmp_path):
    evaluated = render(page_of(write_evaluation(tmp_path / "one", {"gsm8k": [[(T, 5)]]})))
    for command in ("trl-ces train --config arithmetic --output_dir RUN", "trl-ces report --tokens 32"):
        assert f"To make it: <code>{command}</code>" in evaluated
    assert page_of(tmp_path / "one").missing() == []  # evaluations hold no models to sample
    trained = render(page_of(write_training(tmp_path / "two", POINTS)))
    assert "To make it: <code>trl-ces study --config arithmetic --jobs 2</code>" in trained
    for html in (evaluated, trained):
        Page(html)


# The command.


def report(capsys, *words):
    code = main(["report", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_command_writes_the_page_and_the_pictures_and_says_what_is_missing(tmp_path, capsys, monkeypatch):
    study = write_study(tmp_path / "study")
    monkeypatch.setenv("HOME", str(tmp_path))
    code, out, _ = report(capsys, study, "--out", "~/new/r.html", "--figures", tmp_path / "pictures")
    assert code == 0
    html = (tmp_path / "new" / "r.html").read_text(encoding="utf-8")
    assert f"Made by <code>trl-ces report {study} --out" in html
    assert "+20.0 <small>± 63.5" in html
    assert len(list((tmp_path / "pictures").iterdir())) == 8
    assert "Missing: the shaped tokens." in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["study"], "The following arguments are required: --out"),
        (["study", "--out", "r.html", "--names", "a", "b"], "`--names` has 2 names for 1 runs"),
        (["study", "--out", "r.html", "--tokens", "0"], "--tokens: '0' is not a whole number of at least 1"),
        (["study", "--out", "r.html", "--tokens", "2"], "--tokens` needs the recipe of"),
        (["evaluation", "--out", "r.html", "--tokens", "2"], "evaluations hold no models"),
        (["nothing", "--out", "r.html"], "nothing does not exist"),
        (["study", "--out", "study/results.csv/r.html"], "cannot be made"),
        (["study", "--out", "evaluation"], "cannot be written"),
        (["study", "--out", "."], "cannot be written"),
        (["study", "--out", "r.html", "--baseline", "DAP"], "Did you mean `DAPO`?"),
    ],
)
def test_what_cannot_work_is_refused_with_one_sentence_before_anything_is_made(
    tmp_path, capsys, monkeypatch, words, said
):
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path / "study")
    write_evaluation(tmp_path / "evaluation", BASE)
    code, out, err = report(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith("trl-ces report: error: ")
    assert said in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "r.html").exists()
