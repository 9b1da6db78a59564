"""Plot worlds.png, one point per task and method: `python experiments/forty_more_worlds/picture.py [RESULTS.csv]`."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas

RESULTS = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).with_name("results.csv")
STYLES = {"CES": ("tab:red", "x"), "CES and MAI, correct answers only": ("tab:blue", "o")}
NAMES = ("CES at tau 0.2", "ces_mai at tau 0.2")


def main() -> None:
    rows = pandas.read_csv(RESULTS)
    means = rows.groupby(["variant", "method"])[["accuracy", "length_tokens"]].mean().unstack("method")
    base_accuracy = 100 * means["accuracy"]["Before training"]
    plt.rcParams["axes.unicode_minus"] = False  # use the same minus sign as in the tables
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for panel, measure, scale, unit in zip(
        panels, ("accuracy", "length_tokens"), (100, 1), ("accuracy, points", "length, tokens"), strict=True
    ):
        for (method, (color, marker)), name in zip(STYLES.items(), NAMES, strict=True):
            difference = scale * (means[measure][method] - means[measure]["DAPO"])
            panel.scatter(base_accuracy, difference, color=color, marker=marker, s=25, label=name)
        panel.axhline(0, color="black", linewidth=0.8)
        panel.set(xlabel="accuracy of the base model, %", ylabel=f"difference from DAPO: {unit}")
    panels[1].set_yscale("symlog", linthresh=10)
    panels[1].set_yticks([-15, -10, -5, 0, 5, 10, 30, 90], ["-15", "-10", "-5", "0", "5", "10", "30", "90"])
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, ncols=2, loc="outside upper center")
    figure.savefig(RESULTS.with_name("worlds.png"), dpi=120)


if __name__ == "__main__":
    main()
