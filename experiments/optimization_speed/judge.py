"""Print the table in README.md from results.csv: `python experiments/optimization_speed/judge.py`."""

from pathlib import Path

import pandas

from trl_ces.lab.study.comparison import estimate

DAPO, SFT, RATE, STEPS = "DAPO", "On-policy SFT", ", twice the learning rate", ", twice the steps"
PAIRS = [
    (SFT, DAPO),
    (DAPO + STEPS, DAPO),
    (SFT + STEPS, SFT),
    (DAPO + RATE, DAPO),
    (SFT + RATE, SFT),
    (SFT, DAPO + STEPS),
    (SFT + STEPS, DAPO + STEPS),
]


def main() -> None:
    rows = pandas.read_csv(Path(__file__).with_name("results.csv"))
    means = rows.pivot(index="variant", columns="method", values=["accuracy", "length_tokens"])
    print("| method | compared with | points | tokens | more accurate on |\n|---|---|--:|--:|--:|")
    for method, other in PAIRS:
        points, tokens = (means[measure][method] - means[measure][other] for measure in ("accuracy", "length_tokens"))
        cells = estimate(points).text(100, 1, signed=True), estimate(tokens).text(1, 1, signed=True)
        print(f"| {method} | {other} | {cells[0]} | {cells[1]} | {(points > 0).sum()} of {len(points)} |")


if __name__ == "__main__":
    main()
