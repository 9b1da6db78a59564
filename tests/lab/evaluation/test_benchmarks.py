"""Benchmarks: questions, reference answers, row counts, loading, and error messages."""

import gzip
import json
import math

import pytest
from fixtures_evaluation import REAL_DATA, ROWS, TABLE, rows_of, write_data

from trl_ces.lab.evaluation.benchmarks import (
    BENCHMARKS,
    CHOICE_INSTRUCTION,
    GROUPS,
    choose,
    data_digest,
    find_benchmarks,
    load_benchmark,
    load_own,
)
from trl_ces.lab.evaluation.code.tasks import INSTRUCTION
from trl_ces.support.errors import UserError

EXPECTED = {
    "aime24": [("Find $2+3$.", "005"), ("Find $4+4$.", "8")],
    "amc23": [("What is $6/4$?", "1.5"), ("Half of 14?", "7")],
    "cmath": [("3加4等于多少？", "7")],
    "cn_middle_school": [("最大的数是()\nA.1 B.2 C.3 D.0", "C"), ("2+2=?", "4")],
    "college_math": [("Solve $x+1=3$.", "x=2"), ("Is 7 prime? (Yes or No)", "Yes.")],
    "gaokao_math_cloze": [("若 $x+1=3$, 则 $x=$, $2x=$", "2;4")],
    "gaokao2023en": [("Compute $5^2$.", "25")],
    "gsm8k": [("Ann has 2 pens and buys 3. How many?", "5")],
    "minerva_math": [("Double $\\frac{3}{4}$.", "\\frac{3}{2}")],
    "olympiadbench": [("Find all $k$ with $k^2=4$.", "k=2,-2")],
    "svamp": [
        ("Tom had 9 nuts and ate 2. How many are left?", "7"),
        ("Eva ran 1.5 km twice. How far did she run?", "3"),
    ],
    "tabmwp": [
        (f'Read the following table regarding "Our fruit" and answer a question:\n{TABLE}\nHow many pears?', "12"),
        (
            f"Read the following table and answer a question:\n{TABLE}\nWhich are fewer? Please select from the "
            "following options: ['apples', 'pears']",
            "apples",
        ),
        (
            f"Read the following table and answer a question:\n{TABLE}\nAre there plums? Please select from the "
            "following options: ['yes', 'no'] (Yes or No)",
            "no",
        ),
    ],
    "arc_challenge": [
        (f"What do plants need to grow?\n\nA. plastic\nB. light\nC. noise\n\n{CHOICE_INSTRUCTION}", "B"),
    ],
    "commonsenseqa": [(f"Where is bread baked?\n\nA. river\nB. oven\n\n{CHOICE_INSTRUCTION}", "B")],
    "openbookqa": [(f"Ice that is warmed\n\nA. melts\nB. burns\nC. sings\nD. rusts\n\n{CHOICE_INSTRUCTION}", "A")],
}
for name, prompt in (
    ("humaneval", 'def double(x: int) -> int:\n    """ Twice x. """'),
    ("mbpp", '"""\nWrite a function to halve a number.\nassert halve(3) == 1.5\n"""'),
):
    expected = [(f"{INSTRUCTION}\n\n```python\n{prompt}\n```", {"humaneval": "double", "mbpp": "halve"}[name])]
    EXPECTED |= {name: expected, f"{name}_plus": expected}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("name", BENCHMARKS)
def test_questions_and_reference_answers_follow_the_papers_script(data, name):
    problems = load_benchmark(name, data)
    assert [(problem.question, problem.gold) for problem in problems[: len(ROWS[name])]] == EXPECTED[name]
    assert {problem.benchmark for problem in problems} == {name}


def test_groups_contain_the_papers_benchmarks():
    assert GROUPS["math12"] == list(EXPECTED)[:12]
    assert GROUPS["reasoning"] == list(EXPECTED)[12:15]
    assert GROUPS["code"] == list(EXPECTED)[15:]


def test_two_gaokao_rows_without_a_reference_answer_are_kept(data):
    problems = load_benchmark("gaokao2023en", data)
    assert [problem.id for problem in problems] == list(range(385))
    assert [problem.id for problem in problems if not problem.gold] == [167, 192]
    assert all(len(BENCHMARKS[name].without_gold) == (2 if name == "gaokao2023en" else 0) for name in BENCHMARKS)


def test_names_and_groups_are_resolved_without_duplicates():
    assert find_benchmarks(["gsm8k", "aime24", "gsm8k"]) == ["gsm8k", "aime24"]
    assert find_benchmarks(["amc23", "math12"]) == ["amc23", *(name for name in GROUPS["math12"] if name != "amc23")]
    with pytest.raises(
        UserError, match=r"unknown name: 'gsm8'. Did you mean `gsm8k`\? Available groups: math12, reasoning, code"
    ):
        find_benchmarks(["gsm8"])
    with pytest.raises(UserError, match="`benchmarks` is empty"):
        find_benchmarks([])


def test_a_data_file_uses_the_same_columns_as_a_recipe(tmp_path):
    file, chat = tmp_path / "test.jsonl", [{"role": "system", "content": "Add."}, {"role": "user", "content": "1+1="}]

    def load(*rows):
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return load_own(str(file))

    problems = load({"question": "1+1=", "answer": 2}, {"question": "2+2=", "answer": "4"})
    assert [(problem.benchmark, problem.id, problem.text, problem.gold) for problem in problems] == [
        ("data", 0, "1+1=", "2"),
        ("data", 1, "2+2=", "4"),
    ]
    parts = [chat[0], {"role": "user", "content": [{"type": "text", "text": "1+"}, {"type": "text", "text": "1="}]}]
    for question in (chat, parts):
        [problem] = load({"prompt": question, "solution": "2"})
        assert (problem.question, problem.text, problem.gold) == (chat, "1+1=", "2")
    with pytest.raises(UserError, match="row 1 has no reference answer: add an answer, or remove the row"):
        load({"question": "1+1=", "answer": "2"}, {"question": "2+2=", "answer": None})
    with pytest.raises(UserError, match=r"2 of them match `solution_column` .*\): rename columns\."):
        load({"problem": "1+1=", "solution": "It is 2.", "answer": "2"})
    with pytest.raises(UserError, match=r"row 0: reference answer \[2\] .*: rename columns\."):
        load({"question": "1+1=", "answer": [2]})
    with pytest.raises(UserError, match=r"row 0: the question is 2, not .*; rename columns\."):
        load({"question": 2, "answer": "2"})


def test_the_error_for_an_unreadable_data_file_names_evaluation_options(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="check `--data`"):
        load_own(str(tmp_path / "nowhere.jsonl"))
    (tmp_path / "train.jsonl").touch()
    with pytest.raises(UserError, match=r"train\.jsonl, .*: use a file instead of the folder\.$"):
        load_own(str(tmp_path))

    def load_dataset(*_, **__):
        raise ValueError("Config name is missing.")

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    with pytest.raises(UserError, match=r"\(Config name is missing\.\): check the name, the split and the network"):
        load_own("org/set")


def test_selected_problems_are_evenly_spaced(data):
    problems = load_benchmark("aime24", data)
    assert [problem.id for problem in choose(problems, 4)] == [0, 7, 15, 22]
    assert [problem.id for problem in choose(problems, 30)] == list(range(30))
    assert choose(problems, None) == choose(problems, 99) == problems


def test_digest_depends_on_questions_reference_answers_and_row_numbers(data):
    problems = load_benchmark("aime24", data)
    digests = {data_digest(problems), data_digest(problems[1:]), data_digest(problems[::-1])}
    digests.add(data_digest([problems[2], *problems[1:]]))
    assert len(digests) == 4
    assert data_digest(load_benchmark("aime24", data)) == data_digest(problems)


def test_wrong_number_of_rows_is_rejected(tmp_path):
    file = write_data(tmp_path, ["amc23"]) / "math" / "amc23" / "test.jsonl"
    file.write_text("\n".join(file.read_text().splitlines()[:-1]))
    with pytest.raises(UserError, match=r"amc23: .*test.jsonl has 39 rows instead of 40"):
        load_benchmark("amc23", tmp_path)


@pytest.mark.parametrize(("name", "changes"), [("gsm8k", {"answer": "2 + 3\n####  "}), ("amc23", {"question": " "})])
def test_error_names_a_row_with_an_empty_question_or_reference_answer(tmp_path, name, changes):
    rows = rows_of(name)
    rows[3] |= changes
    file = write_data(tmp_path, [name]) / BENCHMARKS[name].file
    file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match=r"row 3 of .* has an empty question or reference answer"):
        load_benchmark(name, tmp_path)


def test_missing_data_error_names_the_source(tmp_path):
    with pytest.raises(UserError, match=r"gsm8k: .*gsm8k/test.jsonl does not exist.*from the Hub \(openai/gsm8k\)"):
        load_benchmark("gsm8k", tmp_path)
    with pytest.raises(UserError, match=r"svamp cannot be read from the Hub: pass the folder .*--data_dir"):
        load_benchmark("svamp")
    with pytest.raises(UserError, match=r"gsm8k: openai/gsm8k could not be loaded from the Hub .*--data_dir"):
        load_benchmark("gsm8k")


def test_hub_and_local_rows_yield_the_same_problems(data, monkeypatch):
    rows = {
        "allenai/ai2_arc": {
            "question": "What do plants need to grow?",
            "choices": {"text": ["plastic", "light", "noise"], "label": ["1", "2", "3"]},
            "answerKey": "2",
        },
        "tau/commonsense_qa": {
            "question": "Where is bread baked?",
            "choices": {"text": ["river", "oven"], "label": ["A", "B"]},
            "answerKey": "B",
        },
        "allenai/openbookqa": {
            "question_stem": "Ice that is warmed",
            "choices": {"text": ["melts", "burns", "sings", "rusts"], "label": ["A", "B", "C", "D"]},
            "answerKey": "A",
        },
        "openai/gsm8k": ROWS["gsm8k"][0],
    }
    load_calls = []

    def load_dataset(repository, configuration, split):
        load_calls.append((repository, configuration, split))
        count = next(b.count for b in BENCHMARKS.values() if b.hub and b.hub.repository == repository)
        return [rows[repository]] * count

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    for name in ("arc_challenge", "commonsenseqa", "openbookqa", "gsm8k"):
        assert load_benchmark(name) == load_benchmark(name, data)
    assert load_calls == [
        ("allenai/ai2_arc", "ARC-Challenge", "test"),
        ("tau/commonsense_qa", None, "validation"),
        ("allenai/openbookqa", "main", "test"),
        ("openai/gsm8k", "main", "test"),
    ]


def test_a_line_separator_inside_a_question_does_not_end_the_row(tmp_path):
    rows = rows_of("amc23")
    rows[0]["question"] = "One\u2028two?"
    file = tmp_path / BENCHMARKS["amc23"].file
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    assert load_benchmark("amc23", tmp_path)[0].question == "One\u2028two?"


needs_real_data = pytest.mark.skipif(not REAL_DATA.is_dir(), reason=f"no benchmarks in {REAL_DATA} (TRL_CES_DATA)")


@needs_real_data
@pytest.mark.parametrize("name", BENCHMARKS)
def test_real_files_have_the_expected_rows_and_reference_answers(name):
    problems = load_benchmark(name, REAL_DATA)
    assert len(problems) == BENCHMARKS[name].count
    assert tuple(problem.id for problem in problems if not problem.gold) == BENCHMARKS[name].without_gold
    if name in GROUPS["reasoning"]:  # the reference answer is the letter of an option
        assert all(f"\n{problem.gold}. " in problem.question for problem in problems)


@needs_real_data
def test_reference_answers_match_the_papers_script():
    golds = {
        (name, problem.id): problem.gold for name in GROUPS["math12"] for problem in load_benchmark(name, REAL_DATA)
    }
    with gzip.open(REAL_DATA / "oracle" / "qwen_math_verdicts.jsonl.gz", "rt", encoding="utf-8") as stream:
        oracle_golds = {(row["benchmark"], row["idx"]): row["gold_raw"] for row in map(json.loads, stream)}
    differences = {key: gold for key, gold in oracle_golds.items() if golds.get(key) != gold}
    # The oracle's file contains this number rounded to four digits.
    assert differences == {("svamp", 399): "1.055e+06"}
    assert golds["svamp", 399] == "1054997"
    assert len(oracle_golds) == 1150


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "q", "answer": math.nan}, "empty question or reference answer"),
        ({"question": "q", "answer": math.inf}, "empty question or reference answer"),
        ({"question": "q", "answer": None}, "empty question or reference answer"),
        ({"question": "q"}, r"has an unexpected format \(KeyError: 'answer'\)"),
        ({"question": 5, "answer": "1"}, r"has an unexpected format \(AttributeError"),
    ],
)
def test_error_names_the_row_with_an_invalid_format(tmp_path, row, message):
    write_data(tmp_path, ["aime24"])
    file = tmp_path / BENCHMARKS["aime24"].file
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:-1], json.dumps(row)]))
    with pytest.raises(UserError, match=rf"aime24: row 29 of .* {message}"):
        load_benchmark("aime24", tmp_path)


def test_a_byte_order_mark_is_skipped_and_errors_name_the_broken_line(tmp_path):
    write_data(tmp_path, ["aime24"])
    file = tmp_path / BENCHMARKS["aime24"].file
    text = file.read_text(encoding="utf-8")
    file.write_text(text, encoding="utf-8-sig")
    assert len(load_benchmark("aime24", tmp_path)) == 30
    file.write_text(text[:-9], encoding="utf-8")
    with pytest.raises(UserError, match=r"test\.jsonl, line 30 cannot be read"):
        load_benchmark("aime24", tmp_path)
