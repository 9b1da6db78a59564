"""
Draws front.png beside a results.csv: `python experiments/arena/picture.py [RESULTS.csv]`.

Accuracy over length of every method, a world a panel; names where there is room.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas

from trl_ces.lab.study.front import find_front, read_settings

RESULTS = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).with_name("results.csv")
NAMED = {
    "Before training": ("black", "*"),
    "DAPO": ("black", "s"),
    "CES": ("tab:red", "X"),
    "CES, correct answers only": ("tab:blue", "o"),
    "CES and MAI, correct answers only": ("tab:cyan", "o"),
}


def main() -> None:
    rows = pandas.read_csv(RESULTS)
    figure, panels = plt.subplots(1, 3, figsize=(15, 5.5), layout="constrained")
    for panel, (world, runs) in zip(panels, rows.groupby("variant", sort=False), strict=True):
        settings = read_settings(runs)
        front = find_front(settings)
        panel.plot(*zip(*(each.point for each in front), strict=True), color="0.8", linewidth=5, zorder=0)
        places, heights = zip(*(each.point for each in settings), strict=True)
        wide, high = max(places) - min(places), max(heights) - min(heights)
        written: list[tuple[float, float]] = []
        for each in sorted(settings, key=lambda each: each not in front):
            length, accuracy = each.point
            color, marker = NAMED.get(each.name, ("0.45", "."))
            label = each.name if each.name in NAMED else None
            bars = {"yerr": each.accuracy.half_width, "xerr": each.length.half_width} if label else {}
            style = {"color": color, "marker": marker, "markersize": 8, "elinewidth": 0.6}
            panel.errorbar(length, accuracy, **bars, **style, linestyle="none", label=label)
            crowded = any(abs(length - x) < wide / 6 and abs(accuracy - y) < high / 30 for x, y in written)
            if not label and not crowded:
                written.append((length, accuracy))
                panel.annotate(each.name, (length, accuracy), fontsize=7, xytext=(3, 3), textcoords="offset points")
        panel.set_xlim(min(places) - 0.05 * wide, max(places) + 0.12 * wide)
        panel.set_ylim(min(heights) - 0.02, max(heights) + 0.02)
        panel.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
        panel.set(title=world, xlabel="completion length, tokens", ylabel="correct completions")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    figure.savefig(RESULTS.with_name("front.png"), dpi=110)


if __name__ == "__main__":
    main()
