"""Test that training curves are read from TRL's log and plotted."""

import json
import math

import pytest

from trl_ces.train.curves import plot_curves, read_curves, running_mean, styles_of


def test_curves_are_read_from_trls_log_with_the_entropy_in_bits(tmp_path):
    def entry(step, accuracy, length, nats):
        return {
            "step": step,
            "rewards/arithmetic_accuracy_reward/mean": accuracy,
            "completions/mean_length": length,
            "entropy": nats,
        }

    history = [
        entry(4, 0.5, 20.0, math.log(2)),
        entry(8, 0.75, 18.5, 0.5 * math.log(2)),
        entry(12, 0.75, 18.5, None),  # the entropy was not finite
        {"step": 12, "train_runtime": 3.0},
    ]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    curves = read_curves(tmp_path, "arithmetic_accuracy_reward")
    assert curves["step"] == [4, 8]
    assert curves["accuracy"] == [0.5, 0.75]
    assert curves["length"] == [20.0, 18.5]
    assert curves["entropy"] == pytest.approx([1.0, 0.5])


def test_the_running_mean_uses_only_full_windows():
    steps, values = [4, 8, 12, 16, 20, 24], [1.0, 2.0, 6.0, 2.0, 4.0, 11.0]
    assert running_mean(steps, values) == ([12, 16], [3.0, 5.0])
    assert running_mean(steps[:4], values[:4]) == (steps[:4], values[:4])


def test_the_bold_curve_shows_only_full_windows_in_percent(tmp_path, monkeypatch):
    """A single low point at the end must not look like a drop in the mean."""
    lines = []
    monkeypatch.setattr(
        "matplotlib.axes.Axes.plot", lambda axis, steps, values, **style: lines.append((steps, values))
    )
    monkeypatch.setattr("matplotlib.axes.Axes.legend", lambda axis, **style: None)
    steps = list(range(4, 32, 4))
    curve = {"step": steps, "accuracy": [0.9] * 6 + [0.5], "length": [20.0] * 7, "entropy": [0.1] * 7}
    plot_curves({"CES": [curve]}, tmp_path / "picture.png")
    (all_steps, faint), (bold_steps, bold), *_ = lines
    assert (all_steps, bold_steps) == (steps, [12, 16, 20])
    assert faint == pytest.approx([90.0] * 6 + [50.0])
    assert bold == pytest.approx([90.0, 90.0, 82.0])


def test_plot_curves_writes_an_image(tmp_path):
    from matplotlib import image

    curves = {
        "step": [4, 8, 12],
        "accuracy": [0.8, 0.9, 0.9],
        "length": [23.0, 20.0, 18.0],
        "entropy": [0.1, 0.08, 0.05],
    }
    file = plot_curves({"DAPO": [curves], "CES": [curves, curves]}, tmp_path / "picture.png")
    assert image.imread(file).shape[:2] == (540, 1650)


def test_method_styles_are_distinct_and_fixed_for_dapo_and_ces():
    styles = styles_of(["DAPO", *"abcdefgh", "CES"])
    assert (styles["DAPO"], styles["CES"]) == (styles_of(["CES", "DAPO"])["DAPO"], styles_of(["CES"])["CES"])
    for attribute in ("color", "linestyle", "marker"):
        assert len({str(style[attribute]) for style in styles.values()}) == 10
