"""The front of accuracy against tokens, gaps to it and dominance by paired differences, against values by hand."""

import math

import pytest
from matplotlib import image
from matplotlib.figure import Figure
from pandas import DataFrame, concat

from trl_ces.lab.study import front
from trl_ces.lab.study.comparison import VARIANTS_NOTE
from trl_ces.lab.study.pictures import draw_front, plot_front
from trl_ces.lab.study.results import comparison

# t(0.975) with 1 and 2 degrees of freedom, from any table
T1, T2 = 12.706205, 4.302653


def setting(name, *places, line=None):
    """A setting whose seeds are 0, 1, ..."""
    return front.Setting(name, line or name, dict(enumerate(places)))


#   accuracy            C (30, 0.9)
#   0.8        B (20)  E (25)
#   0.7        D (20)
#   0.5  A (10)
FIVE = [
    setting("D", (20.0, 0.7)),
    setting("C", (30.0, 0.9)),
    setting("A", (10.0, 0.5)),
    setting("E", (25.0, 0.8)),
    setting("B", (20.0, 0.8)),
]


def test_the_front_of_five_points():
    assert [found.name for found in front.find_front(FIVE)] == ["A", "B", "C"]


def test_settings_with_equal_means_share_the_front_and_a_tie_in_one_measure_does_not():
    twin, as_long = setting("twin", (20.0, 0.8)), setting("as long", (30.0, 0.85))
    assert [found.name for found in front.find_front([*FIVE, twin, as_long])] == ["A", "B", "twin", "C"]
    assert [found.name for found in front.find_front([twin])] == ["twin"]


def test_a_setting_below_a_mix_of_two_is_not_on_the_front():
    below = [
        setting("A", (10.0, 0.5)),
        setting("B", (20.0, 0.55)),
        setting("C", (30.0, 0.9)),
        setting("D", (20.0, 0.5)),
    ]
    line = front.find_front(below)
    assert [found.name for found in line] == ["A", "C"]
    assert [front.gap(below[place], line).mean for place in (1, 3)] == pytest.approx([0.15, 0.2])  # halfway: 0.7
    # three in a row below one line, the middle one above its neighbours' line
    points = [setting("1", (0.0, 0.0)), setting("2", (1.0, 0.1)), setting("3", (2.0, 0.3)), setting("4", (3.0, 0.9))]
    assert [found.name for found in front.find_front(points)] == ["1", "4"]
    twins = [*below, setting("B's twin", (20.0, 0.55))]
    assert [found.name for found in front.find_front(twins)] == ["A", "C"]


def test_means_are_over_the_seeds_that_every_setting_has():
    table = DataFrame(
        [
            {"variant": "", "method": "A", "seed": seed, "length_tokens": 20.0 + seed, "accuracy": 0.8 + seed / 50}
            for seed in range(5)
        ]
        + [{"variant": "", "method": "C", "seed": 4, "length_tokens": 23.0, "accuracy": 0.85}]
    )
    found = front.read_settings(table)
    assert [setting.point for setting in found] == [(24.0, pytest.approx(0.88)), (23.0, pytest.approx(0.85))]
    unknown = DataFrame([{"method": name, "seed": 4, "length_tokens": 23.0, "accuracy": math.nan} for name in "AD"])
    assert [len(each.runs) for each in front.read_settings(concat([table[table["seed"] < 4], unknown]))] == [4]
    none_shared = front.read_settings(table[(table["method"] == "C") | (table["seed"] < 4)])
    assert [len(setting.runs) for setting in none_shared] == [4, 1]
    table["train/steps"] = [8.0] * 5 + [math.nan]  # C is the model before training, the same for all seeds
    found = front.read_settings(table)
    assert [setting.point for setting in found] == [(22.0, pytest.approx(0.84)), (23.0, 0.85)]
    assert found[1].accuracy.text(100, 1) == "85.0"  # no interval of one measurement


def test_the_area_has_a_column_where_it_was_measured():
    table = DataFrame(
        [
            {
                "variant": "",
                "method": "A",
                "seed": seed,
                "length_tokens": 20.0,
                "accuracy": 0.8,
                "area": 0.6 + seed / 10,
            }
            for seed in range(3)
        ]
        + [{"variant": "", "method": "C", "seed": seed, "length_tokens": 23.0, "accuracy": 0.85} for seed in (0, 2)]
    )
    gaps, _ = front.front_tables(front.read_settings(table))
    (one, other), place = gaps.rows, gaps.header.index("Area ↑, %")
    assert one[place].startswith("70.0")  # seeds 0 and 2
    assert other[place] == ""
    without, _ = front.front_tables(front.read_settings(table.drop(columns="area")))
    assert [cell for cell in gaps.header if cell != "Area ↑, %"] == without.header


def test_a_method_named_as_a_line_belongs_to_it():
    table = DataFrame(
        [
            {"variant": "", "method": "CES", "line": None, "seed": 0, "length_tokens": 20.0, "accuracy": 0.8},
            {"variant": "", "method": "CES 1.0", "line": "CES", "seed": 0, "length_tokens": 18.0, "accuracy": 0.7},
        ]
    )
    assert front.has_lines(table)
    assert [setting.line for setting in front.read_settings(table)] == ["CES", "CES"]


def test_gaps_are_vertical_distances_to_the_line_between_neighbours():
    line = front.find_front(FIVE)
    gaps = {found.name: front.gap(found, line).mean for found in FIVE}
    assert gaps["D"] == pytest.approx(0.8 - 0.7)
    assert gaps["E"] == pytest.approx((0.8 + 0.9) / 2 - 0.8)  # halfway between B and C
    assert [gaps[name] for name in "ABC"] == pytest.approx([0.0, 0.0, 0.0])
    # a quarter of the way from A to B: 0.5 + 0.3 / 4; beyond the longest: its accuracy
    assert front.gap(setting("x", (12.5, 0.1)), line).mean == pytest.approx(0.575 - 0.1)
    assert front.gap(setting("y", (99.0, 0.4)), line).mean == pytest.approx(0.9 - 0.4)


def test_the_gap_of_settings_that_share_a_length_on_the_front_is_finite():
    twins = [setting("B", (20.0, 0.8)), setting("twin", (20.0, 0.8)), setting("C", (30.0, 0.9))]
    found = front.gap(setting("x", (20.0, 0.5)), front.find_front(twins))
    assert found.mean == pytest.approx(0.3)


def test_the_interval_of_a_gap_is_that_of_the_differences_by_seed():
    left, right = setting("left", (10.0, 0.4), (10.0, 0.6)), setting("right", (20.0, 0.9), (20.0, 0.7))
    found = front.gap(setting("x", (14.0, 0.1), (16.0, 0.5)), [left, right])
    # halfway: seed 0: (0.4 + 0.9) / 2 - 0.1 = 0.55; seed 1: (0.6 + 0.7) / 2 - 0.5 = 0.15
    assert found.mean == pytest.approx(0.35)
    assert found.half_width == pytest.approx(T1 * 0.2)  # sd 0.4 / sqrt 2, over sqrt 2
    assert front.gap(front.Setting("other seeds", "", {7: (15.0, 0.5)}), [left, right]) is None


def test_dominance_needs_one_clear_gain_and_no_loss_in_the_mean():
    base = setting("base", (20.0, 0.80), (22.0, 0.84), (24.0, 0.88))
    clear = setting("one token less on every seed", (19.0, 0.80), (21.0, 0.84), (23.0, 0.88))
    assert front.dominates(clear, base)
    assert not front.dominates(base, clear)
    # gains of 0, 1 and 2 tokens: mean 1, half width 4.30 * 1 / sqrt 3 = 2.48
    unclear = setting("unclear", (20.0, 0.80), (21.0, 0.84), (22.0, 0.88))
    assert not front.dominates(unclear, base)
    shorter_but_worse = setting("worse", (19.0, 0.80), (21.0, 0.84), (23.0, 0.87))
    assert not front.dominates(shorter_but_worse, base)
    more_accurate = setting("more accurate, as long in the mean", (24.0, 0.82), (22.0, 0.86), (20.0, 0.90))
    assert front.dominates(more_accurate, base)
    # As accurate in the mean, in floats 1e-16 less: differences of 0.01, -0.03 and 0.02.
    assert front.dominates(
        setting("a tie", (19.0, 0.57), (20.0, 0.7), (21.0, 0.9)), setting("", (20.0, 0.56), (21.0, 0.73), (22.0, 0.88))
    )
    assert not front.dominates(setting("same", (20.0, 0.80), (22.0, 0.84), (24.0, 0.88)), base)


def test_dominance_is_paired_by_seed():
    base = front.Setting("base", "", {0: (20.0, 0.5), 1: (30.0, 0.5), 2: (40.0, 0.5)})
    paired = front.Setting("paired", "", {2: (39.0, 0.5), 0: (19.0, 0.5), 1: (29.0, 0.5)})
    assert front.dominates(paired, base)
    assert not front.dominates(front.Setting("one shared seed", "", {0: (1.0, 0.9), 7: (1.0, 0.9)}), base)
    assert not front.dominates(front.Setting("no shared seed", "", {7: (1.0, 0.9), 8: (1.0, 0.9)}), base)


def rows(**lines):
    places = {"DAPO": (20.0, 0.8), "ALP 0.1": (16.0, 0.7), "ALP 0.5": (12.0, 0.6), "Before": (18.0, 0.5)}
    return [
        {
            "variant": variant,
            "method": method,
            "seed": seed,
            "length_tokens": length + seed,
            "accuracy": accuracy,
            **({"line": lines[method[:3]]} if method[:3] in lines else {}),
        }
        for variant in ("a", "b")
        for method, (length, accuracy) in places.items()
        for seed in (0, 1)
    ]


def test_tables_of_a_study_with_lines():
    runs = DataFrame(rows(ALP="ALP"))
    settings = front.read_settings(runs[runs["variant"] == "a"])
    assert [(found.name, found.line) for found in settings] == [
        ("DAPO", "DAPO"),
        ("ALP 0.1", "ALP"),
        ("ALP 0.5", "ALP"),
        ("Before", "Before"),
    ]
    gaps, dominance = front.front_tables(settings)
    assert [gaps.header, *gaps.rows] == [
        ["Setting", "Acc ↑, %", "Len ↓, tokens", "Gap, points", "Dominated on the front by"],
        ["DAPO", "80.0 ± 0.0", "20.5 ± 6.4", "on it", ""],
        ["ALP 0.1", "70.0 ± 0.0", "16.5 ± 6.4", "on it", ""],
        ["ALP 0.5", "60.0 ± 0.0", "12.5 ± 6.4", "on it", ""],
        # halfway between ALP 0.1 and DAPO: 75 %
        ["Before", "50.0 ± 0.0", "18.5 ± 6.4", "25.0 ± 0.0", "ALP 0.5, ALP 0.1"],
    ]
    assert [dominance.header, *dominance.rows] == [
        ["Dominates →", "DAPO", "ALP", "Before"],
        ["DAPO", "", "", ""],
        ["ALP", "", "", "2 of 2"],
        ["Before", "", "", ""],
    ]


def test_a_front_is_for_studies_with_strengths():
    assert not front.has_lines(DataFrame(rows()))
    assert not front.has_lines(DataFrame(rows(DAP="DAPO")))
    assert front.has_lines(DataFrame(rows(ALP="ALP")))
    runs = DataFrame(rows(ALP="ALP")).assign(measured_on="one set", settings="{}")
    text = comparison(runs, "DAPO")
    assert [line for line in text.splitlines() if line.startswith("#")] == ["## a", "## b", "## All variants"]
    assert " ".join(text.split()).count("| 25.0 ± 0.0 | ALP 0.5, ALP 0.1 |") == 2
    assert [text.count(note) for note in (front.HOW_TO_READ, VARIANTS_NOTE)] == [1, 1]


def test_the_middle_of_each_line_is_drawn_where_there_is_no_room_for_all():
    lines = {"DAPO": "DAPO", "A 1": "A", "B 1": "B", "A 2": "A", "A 3": "A", "B 2": "B"}
    assert front.middle_of_lines(lines) == {"DAPO": "DAPO", "A 2": "A", "B 2": "B"}


def test_the_picture_is_drawn_with_and_without_intervals(tmp_path):
    for name, settings in (("five", FIVE), ("seeds", front.read_settings(DataFrame(rows(ALP="ALP"))[:8]))):
        lines = [found.line for found in settings]
        plot_front(settings, lines, "title", tmp_path / f"{name}.png")
        assert image.imread(tmp_path / f"{name}.png").shape[:2] == (780, 1125)


def test_an_interval_wider_than_all_there_is_to_see_does_not_push_the_marks_together():
    axis = Figure().subplots()
    narrow = front.Setting("narrow", "narrow", {0: (10.0, 0.5), 1: (12.0, 0.5)})
    wide = front.Setting("wide", "wide", {0: (10.0, 0.2), 1: (20.0, 1.0)})  # 15 ± 64 tokens
    draw_front(axis, [narrow, wide], {"narrow": {}, "wide": {}}, "black", "grey")
    assert axis.get_xlim() == pytest.approx((11 - 0.24, 15 + 0.24))
    assert axis.get_ylim() == pytest.approx((0.5 - 0.006, 0.6 + 0.006))
