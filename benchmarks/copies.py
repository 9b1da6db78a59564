"""
Count how many copied formulas the reward accepts, with and without the question as an argument.

    python benchmarks/copies.py --data FOLDER            # contains train/math/math.json and math/NAME/test.jsonl

Each policy boxes one formula: the longest, last or first formula of the question, or a modified version of the longest
formula (in brackets, with `+ 0`, with spaces, or with swapped sides). A copy that equals the gold, ignoring spaces and
dollar signs, is correct and is not counted.
"""

import argparse
import json
import re
from pathlib import Path
from typing import NamedTuple

FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)
DATASETS = ("college_math", "olympiadbench", "gaokao2023en")


class Row(NamedTuple):
    question: str
    gold: str
    copy: str


def read_questions(data: Path) -> dict[str, list[tuple[str, str]]]:
    """Read the (question, gold) pairs of each dataset."""
    rows = json.loads((data / "train/math/math.json").read_text(encoding="utf-8"))
    questions = {"MATH, training": [(row["problem"], row["answer"] or "") for row in rows]}
    for name in DATASETS:
        with (data / "math" / name / "test.jsonl").open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        golds = [row.get("answer", row.get("final_answer")) for row in rows]
        golds = [gold[0] if isinstance(gold, list) else gold for gold in golds]
        questions[name] = [(row["question"], str(gold).strip("$")) for row, gold in zip(rows, golds, strict=True)]
    return questions


def formulas(question: str) -> list[str]:
    """Return the formulas of a question without the delimiters."""
    matches = ["".join(parts).strip() for parts in FORMULA.findall(question)]
    return [formula for formula in matches if formula]


def swap_sides(formula: str) -> str:
    left_side, equals, right_side = formula.partition("=")
    return f"{right_side.strip()} = {left_side.strip()}" if equals else formula


VERBATIM = {
    "longest": lambda candidates: max(candidates, key=len),
    "last": lambda candidates: candidates[-1],
    "first": lambda candidates: candidates[0],
}
MODIFIED = {
    "longest, in brackets": lambda candidates: f"({candidates[0]})",
    "longest, + 0": lambda candidates: f"{candidates[0]} + 0",
    "longest, with spaces": lambda candidates: re.sub(r"(?<=[-+=])", r"\\, ", candidates[0]),
    "longest, sides swapped": lambda candidates: swap_sides(candidates[0]),
}
POLICIES = VERBATIM | MODIFIED


def normalize(text: str) -> str:
    return re.sub(r"[\s$]", "", text)


def compute_rewards(rows: list[Row], *, with_questions: bool) -> list[float | None]:
    from trl_ces.rewards import accuracy_reward

    columns = {"prompts": [row.question for row in rows]} if with_questions else {}
    return accuracy_reward([rf"\boxed{{{row.copy}}}" for row in rows], [row.gold for row in rows], **columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that contains train/ and math/")
    parser.add_argument("--first", type=int, default=3000, help="number of questions per dataset (default 3000)")
    text = "number of accepted copies to print per dataset and policy (default 0)"
    parser.add_argument("--show", type=int, default=0, help=text)
    options = parser.parse_args()
    print("| dataset | questions | copied formula | accepted without question | with question | share | equals gold |")
    print("|---|--:|---|--:|--:|--:|--:|")
    for name, pairs in read_questions(options.data).items():
        questions = [(question, gold, formulas(question)) for question, gold in pairs[: options.first]]
        accepted_longest: list[Row] = []  # rows whose longest formula is accepted without the question
        for policy, choose in POLICIES.items():
            if policy in MODIFIED:
                rows = [row._replace(copy=choose([row.copy])) for row in accepted_longest]
            else:
                rows = [
                    Row(question, gold, choose(candidates)) for question, gold, candidates in questions if candidates
                ]
            num_gold = sum(normalize(row.copy) == normalize(row.gold) for row in rows)
            rows = [row for row in rows if normalize(row.copy) != normalize(row.gold)]
            rewards = compute_rewards(rows, with_questions=False)
            without_question = [row for row, reward in zip(rows, rewards, strict=True) if reward]
            rewards = compute_rewards(without_question, with_questions=True)
            accepted = [row for row, reward in zip(without_question, rewards, strict=True) if reward]
            accepted_longest = without_question if policy == "longest" else accepted_longest
            share = f"{len(accepted) / len(questions):.1%}"
            counts = f"{len(without_question)} | {len(accepted)} | {share} | {num_gold}"
            print(f"| {name} | {len(questions)} | {policy} | {counts} |", flush=True)
            for row in accepted[: options.show]:
                print(f"    gold {row.gold!r}, copy {row.copy!r}, question {row.question!r:.300}")


if __name__ == "__main__":
    main()
