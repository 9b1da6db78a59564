"""
Check that 99 % of incorrect answers that a policy might find, and of unusual correct answers, are graded correctly.

`cases/wrong.txt` and `cases/right.txt` were written by hand before the rules that they test. Each line contains a gold
and its answers, separated by ` :: `. Answers below `# boxed: ...` are put in a box; answers below `# whole: ...` are
complete texts. `<U+2009>` represents the character with that code point, and `⏎` a line break.
"""

import os
import random
import re
from collections import Counter, defaultdict
from itertools import chain, zip_longest
from pathlib import Path

import answer_templates
import pytest

from trl_ces.grading import grade_many, usable_golds
from trl_ces.lab.evaluation.benchmarks import GROUPS, load_benchmark

DATA = Path(os.environ.get("TRL_CES_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
LISTS = Path(__file__).parent / "cases"


def read_cases(name):
    """Yield (class, gold, completion) for each answer of a file."""
    for line in (LISTS / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            kind, _, title = line[2:].partition(": ")
        elif line:
            line = re.sub(r"<U\+(\w{4})>", lambda code: chr(int(code[1], 16)), line).replace("⏎", "\n")
            gold, *answers = line.split(" :: ")
            for answer in answers:
                yield title, gold, answer if kind == "whole" else rf"\boxed{{{answer}}}"


def grade_table(rows, misgraded):
    totals, failures = (Counter(title for title, *_ in cases) for cases in (rows, misgraded))
    lines = [f"{total - failures[title]:4} of {total:3}  {title}" for title, total in totals.items()]
    return "\n".join(["", *lines, f"{len(rows) - len(misgraded)} of {len(rows)} graded correctly"])


@pytest.mark.parametrize("name", ["wrong", "right"])
def test_99_percent_of_the_hand_written_answers_are_graded_correctly(name, capsys):
    rows = list(read_cases(f"{name}.txt"))
    grades = grade_many([completion for *_, completion in rows], [gold for _, gold, _ in rows], with_qwen=False)
    misgraded = [row for row, grade in zip(rows, grades, strict=True) if grade.correct is not (name == "right")]
    with capsys.disabled():
        print(grade_table(rows, misgraded))
    assert len(rows) == len({*rows}) >= {"wrong": 330, "right": 180}[name]
    assert len(misgraded) <= 0.01 * len(rows), misgraded


def sample_golds(name, count=10):
    """Draw golds from a benchmark, alternating between their kinds."""
    golds = sorted({problem.gold.strip() for problem in load_benchmark(name, DATA)})
    random.Random(name).shuffle(golds)
    kinds = defaultdict(list)
    for gold in golds:
        kinds[answer_templates.kind_of(gold)].append(gold)
    kinds.pop(None, None)
    rounds = chain.from_iterable(zip_longest(*kinds.values()))
    return [gold for gold in rounds if gold is not None][:count]


@pytest.mark.parametrize("name", ["wrong", "right"])
def test_99_percent_of_answers_made_from_benchmark_golds_are_graded_correctly(name, capsys):
    if not (DATA / "math").is_dir():
        pytest.skip(f"{DATA / 'math'} is missing: set TRL_CES_DATA to the folder that contains math/")
    golds = [(benchmark, gold) for benchmark in GROUPS["math12"] for gold in sample_golds(benchmark)]
    rows = [  # use every third template per gold, to limit the number of combinations
        (benchmark, gold, completion)
        for number, (benchmark, gold) in enumerate(golds)
        for completion in getattr(answer_templates, name)(gold)[number % 3 :: 3]
    ]
    grades = grade_many([completion for *_, completion in rows], [gold for _, gold, _ in rows], with_qwen=False)
    misgraded = [row for row, grade in zip(rows, grades, strict=True) if grade.correct is not (name == "right")]
    with capsys.disabled():
        print(grade_table(rows, misgraded))
    assert all(usable_golds([gold for _, gold in golds]))
    assert len(misgraded) <= 0.01 * len(rows), misgraded
