"""Test that a letter equals the value of its option in every notation, position and template."""

import itertools
import json
import os
import random
import re
from pathlib import Path

import pytest
from rows import rows

from trl_ces.grading import answers, grade_many, options
from trl_ces.grading.options import options_of

DATA = Path(os.environ.get("TRL_CES_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
MARKERS = ["({}) {}", "{}. {}", "{}) {}", "{}: {}"]
SUFFIXES = [
    "",
    "\nPlease reason step by step, and put your final answer within \\boxed{}.",
    " Please reason step by step, and put your final answer within \\boxed{}.",
    "\n请通过逐步推理来解答问题，并把最终答案放置于\\boxed{}中。",
    "请逐步推理，并将最终答案放在 \\boxed{} 中。",
]
TEMPLATES = [
    ("", ""),
    ("<|im_start|>system\nYou are Qwen.<|im_end|>\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"),
    ("<｜begin▁of▁sentence｜><｜User｜>", "<｜Assistant｜><think>\n"),
    (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n",
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
]


def real_options():
    """Return questions with options: words from CommonsenseQA and TabMWP, numbers from TabMWP."""
    if not (DATA / "reasoning").is_dir():
        pytest.skip(f"{DATA / 'reasoning'} is missing: set TRL_CES_DATA to the folder that contains reasoning/")
    paths = [DATA / "reasoning/commonsenseqa/dev_rand_split.jsonl", DATA / "math/tabmwp/test.jsonl"]
    words, tables = ([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in paths)
    chosen = [(row["question"]["stem"], [option["text"] for option in row["question"]["choices"]]) for row in words]
    chosen += [(row["question"], row["choices"]) for row in tables if row["choices"]]
    values = list(dict.fromkeys(row["answer"] for row in tables if row["ans_type"].endswith("number")))
    numbers = [(row["question"], [row["answer"], *values]) for row in tables if row["answer"] in values]
    return [
        [(stem, unique) for stem, options in questions if len(unique := list(dict.fromkeys(options))[:6]) > 1]
        for questions in (chosen, numbers)
    ]


def test_letters_and_values_are_interchangeable():
    rng, kinds, cases = random.Random(0), real_options(), []
    for marker, suffix, template, count, separator in itertools.product(
        MARKERS, SUFFIXES, TEMPLATES, range(2, 7), "\n "
    ):
        stem, options = rng.choice([row for row in rng.choice(kinds) if len(row[1]) >= count] or kinds[1])
        letters, options = "ABCDEF"[:count], options[:count]
        place, other = rng.sample(range(count), 2)
        option_list = separator.join(marker.format(*option) for option in zip(letters, options, strict=True))
        question = f"{template[0]}{stem}\n{option_list}{suffix}{template[1]}"
        gold = rng.choice([letters, options])[place]
        for chosen in (place, other):
            pair = letters[chosen], rf"\text{{{options[chosen]}}}"
            cases += [(question, gold, answer, chosen == place) for answer in (*pair, "{}. {}".format(*pair))]
    cases = rng.sample(cases, 1000)
    questions, golds, answers, _ = zip(*cases, strict=True)
    grades = grade_many([rf"\boxed{{{answer}}}" for answer in answers], golds, questions=questions, with_qwen=False)
    assert [case for case, grade in zip(cases, grades, strict=True) if grade.correct is not case[-1]] == []


@rows("options/lists")
def test_options_are_read_from_a_question(question, options):
    assert list(options_of(question).values()) == options


def test_at_most_20_starts_of_an_option_list_are_tried(monkeypatch):
    pairs = []
    monkeypatch.setattr(options, "pairwise", lambda matches: pairs.append(matches) or [])
    options.options_of("A. B. " * 500)
    assert len(pairs) == 20  # each attempt scans the whole question


def test_at_most_12_letters_are_compared_with_the_options(monkeypatch):
    letters = []
    monkeypatch.setattr(answers, "letter_and_text", lambda letter, text: letters.append(letter) or re.compile("(?!)"))
    assert answers.find_statement("A B " * 500, "Which? A. tea B. milk C. water") is None
    assert 0 < len(letters) <= 12
