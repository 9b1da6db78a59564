"""Datasets get `prompt` and `solution` columns, rows are drawn reproducibly, and unusable rows are reported."""

import json
import math
import os
import re

import pytest
from datasets import Dataset

from trl_ces.support.errors import UserError
from trl_ces.support.prompts import PAPER_SYSTEM_PROMPT
from trl_ces.train.arguments import ScriptArguments
from trl_ces.train.data import check_source, clean_gold, find_column, load_datasets, make_prompt, read_rows, shuffled

# The two row formats of DeepMath-103K on the Hub, with made-up problems.
ZWHE99 = [
    {
        "question": f"What is {n} + {n}?",
        "final_answer": str(2 * n),
        "difficulty": 3.0,
        "topic": "Sums",
        "r1_solution_1": "x",
    }
    for n in range(30)
]
TRL_LIB = [
    {"prompt": [{"role": "user", "content": row["question"]}], "solution": row["final_answer"]} for row in ZWHE99
]


def args(path, **fields):
    return ScriptArguments(dataset_name=None if path is None else str(path), **fields)


def write_lines(tmp_path, rows, name="data.jsonl"):
    file = tmp_path / name
    file.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return file


def write_array(tmp_path, rows):
    (tmp_path / "data.json").write_text(json.dumps(rows))
    return tmp_path / "data.json"


def write_parquet(tmp_path, rows):
    Dataset.from_list(rows).to_parquet(str(tmp_path / "part-0.parquet"))
    return tmp_path / "part-0.parquet"


@pytest.mark.parametrize("rows", [ZWHE99, TRL_LIB], ids=["zwhe99", "trl-lib"])
@pytest.mark.parametrize("write", [write_lines, write_array, write_parquet])
def test_both_formats_of_deepmath_become_prompt_and_solution(tmp_path, rows, write):
    train, evaluation = load_datasets(args(write(tmp_path, rows), max_train_samples=5))
    assert evaluation is None
    assert {*train.column_names} == {*rows[0]} - {"question"} | {"prompt", "solution", "_row"}
    for row in train:
        number = row["_row"]
        assert row["prompt"] == [
            {"role": "system", "content": PAPER_SYSTEM_PROMPT},
            {"role": "user", "content": f"What is {number} + {number}?"},
        ]
        assert row["solution"] == str(2 * number)


def test_the_shuffled_order_depends_only_on_the_seed():
    # Rows are sorted by the SHA-256 of "42:<row>". If this order changed, recipes would train on different problems.
    assert shuffled(10, 42) == [1, 0, 6, 4, 7, 9, 5, 8, 3, 2]
    assert shuffled(10, 43) != shuffled(10, 42)
    assert sorted(shuffled(1000, 0)) == list(range(1000))


@pytest.mark.parametrize("reward", ["accuracy_reward", "boxed_accuracy_reward"])
def test_rows_without_a_usable_reference_answer_are_replaced_and_reported(tmp_path, reward):
    order = shuffled(30, 42)
    rows = [dict(row) for row in ZWHE99]
    rows[order[1]]["final_answer"] = None
    rows[order[2]]["final_answer"] = "  "
    rows[order[4]]["final_answer"] = "\\frac{1}{"  # unmatched braces cannot be parsed
    rows[order[20]]["final_answer"] = None  # this row is not drawn, so it is not reported
    arguments = args(write_lines(tmp_path, rows), max_train_samples=5, reward_funcs=[reward])
    printed = []
    train, _ = load_datasets(arguments, report=printed.append)
    assert train["_row"][:] == [order[i] for i in (0, 3, 5, 6, 7)]
    rows_dropped = ", ".join(str(order[i]) for i in (1, 2, 4))
    assert printed[0].endswith("5 training rows and 0 evaluation rows of 30.")
    assert printed[1].endswith(f"dropped 3 rows (no usable reference answer): {rows_dropped}.")


def test_evaluation_rows_are_held_out_from_training(tmp_path):
    train, evaluation = load_datasets(args(write_lines(tmp_path, ZWHE99), max_train_samples=6, num_eval_samples=4))
    order = shuffled(30, 42)
    assert train["_row"][:] == order[:6]
    assert evaluation["_row"][:] == order[6:10]


def test_evaluation_may_use_a_separate_file(tmp_path):
    eval_file = write_lines(tmp_path, [{"question": "other", "final_answer": 7}], "eval.jsonl")
    train_file = write_lines(tmp_path, ZWHE99)
    train, evaluation = load_datasets(args(train_file, eval_dataset_name=str(eval_file)))
    assert (len(train), evaluation["solution"][:]) == (30, ["7"])


@pytest.mark.parametrize(
    ("name", "config", "used"), [("me/other", "main", "main"), ("me/sums", "main", "main"), ("me/sums", None, "easy")]
)
def test_each_dataset_is_loaded_with_its_own_configuration(monkeypatch, name, config, used):
    calls, data = [], Dataset.from_list(ZWHE99)
    monkeypatch.setattr("datasets.load_dataset", lambda *names, split: calls.append((*names, split)) or data)
    settings = {"dataset_config": "easy", "eval_dataset_config": config, "eval_dataset_name": name}
    load_datasets(args("me/sums", **settings))
    assert calls == [("me/sums", "easy", "train"), (name, used, "test")]


def test_too_few_usable_rows_are_rejected(tmp_path):
    file = write_lines(tmp_path, ZWHE99)
    with pytest.raises(UserError, match=r"30 of 30 rows have usable reference answers, but the run needs 31"):
        load_datasets(args(file, max_train_samples=31))
    with pytest.raises(UserError, match=r": 0 of 30 rows have usable reference answers, but the run needs 1"):
        load_datasets(args(file, solution_pattern="####(.+)"))


@pytest.mark.parametrize("write", [write_lines, write_parquet])
def test_other_columns_are_passed_to_rewards_and_renames_are_reported(tmp_path, write):
    reserved = {"completion": "c", "environments": "e", "_row": "r"}
    rows = [{"question": f"q{n}", "answer": n, "row": f"shelf {n}", **reserved} for n in range(3)]
    messages = []
    data, _ = load_datasets(args(write(tmp_path, rows)), report=messages.append)
    for record in data:
        number = record.pop("_row")
        columns = {"answer": number, "row": f"shelf {number}", "_completion": "c", "_environments": "e", "__row": "r"}
        assert record == {**columns, "prompt": record["prompt"], "solution": str(number)}
    assert messages[1].endswith("completion, environments, _row as _completion, _environments, __row.")


@pytest.mark.parametrize(
    "fields", [{"solution_column": "answer"}, {"solution_column": "solution", "solution_pattern": "#(.+)"}]
)
def test_an_unused_solution_column_is_passed_to_rewards(tmp_path, fields):
    rows = [{"question": "q", "answer": "7", "solution": "long #7"}]
    messages = []
    data, _ = load_datasets(args(write_lines(tmp_path, rows), **fields), report=messages.append)
    assert (data[0]["solution"], data[0]["_solution"], data[0]["answer"]) == ("7", "long #7", "7")
    assert messages[1].endswith("solution as _solution.")


@pytest.mark.parametrize("column", ["image", "images", "video", "audio"])
def test_image_video_and_audio_columns_are_rejected(tmp_path, column):
    with pytest.raises(UserError, match=f"has the column `{column}`, but recipes support only text"):
        load_datasets(args(write_lines(tmp_path, [{"question": "q", "answer": "1", column: "x.png"}])))


@pytest.mark.parametrize("write", [write_lines, write_parquet])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nonfinite_numbers_are_rejected_as_reference_answers(tmp_path, write, value):
    rows = [{"question": "q", "answer": value if n % 2 else float(n)} for n in range(6)]
    messages = []
    data, _ = load_datasets(args(write(tmp_path, rows)), report=messages.append)
    assert sorted(data["solution"]) == ["0.0", "2.0", "4.0"]
    assert "dropped 3 rows" in messages[1]


def test_reference_answers_that_look_like_missing_values_are_reported(tmp_path):
    golds = ["1", "None", "2", "NaN", "3", "N/A", "null"]
    rows = [{"question": "q", "answer": gold} for gold in golds]
    messages = []
    data, _ = load_datasets(args(write_lines(tmp_path, rows)), report=messages.append)
    assert sorted(data["solution"]) == sorted(golds)
    numbers = ", ".join(str(row) for row in shuffled(7, 42) if row in (1, 3, 5, 6))
    assert messages[1].endswith(
        f"4 rows have reference answers that look like missing values ('N/A', 'NaN', 'None', 'null'): {numbers}."
    )
    with pytest.raises(UserError, match=r"all reference answers look like missing values \('NaN', 'None'"):
        load_datasets(args(write_lines(tmp_path, [rows[1], rows[3]])))


def test_keys_of_chat_messages_are_preserved(tmp_path):
    call = {"type": "function", "function": {"name": "add", "arguments": {"x": 1}}}
    other = {"type": "function", "function": {"name": "halve", "arguments": {"y": 2}}}
    chats = [
        [{"role": "user", "content": "a"}],
        [
            {"role": "user", "content": "b", "name": "bob"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "1"},
        ],
        [
            {"role": "user", "content": "c", "name": None},
            {"role": "assistant", "tool_calls": [other]},
            {"role": "user", "content": "d"},
        ],
    ]
    rows = [{"prompt": chat, "solution": "1"} for chat in chats]
    data, _ = load_datasets(args(write_lines(tmp_path, rows), system_prompt=None))
    expected = json.loads(json.dumps(chats))
    expected[1][1]["content"] = expected[2][1]["content"] = ""
    del expected[2][0]["name"]
    assert {row["_row"]: row["prompt"] for row in data} == dict(enumerate(expected))


@pytest.mark.parametrize("system_prompt", [None, "Think."])
def test_text_parts_are_joined(system_prompt):
    parts = [{"type": "text", "text": "1+"}, {"type": "text", "text": "1?"}]
    prompt = make_prompt([{"role": "user", "content": parts}], system_prompt, "here")
    assert prompt[-1] == {"role": "user", "content": "1+1?"}


@pytest.mark.parametrize("content", [None, 5, [{"type": "image", "image": "x.png"}], ["text"], {"text": "a"}])
def test_content_that_is_not_text_is_rejected(content):
    with pytest.raises(UserError, match=r"data, row 7: a message's content is .*text parts"):
        make_prompt([{"role": "user", "content": content}], None, "data, row 7")


@pytest.mark.parametrize("question", ["1" * 1_000_001, [{"role": "user", "content": "1" * 1_000_001}]])
def test_a_question_of_over_a_million_characters_is_rejected(question):
    with pytest.raises(UserError, match="data, row 7: the question has 1,000,001 characters") as caught:
        make_prompt(question, None, "data, row 7")
    assert len(str(caught.value)) < 200
    assert make_prompt("1" * 1_000_000, None, "here")


def test_a_prompt_template_creates_text_prompts(tmp_path):
    rows = [{"question": "{question} {x}?", "answer": "1"}]
    data, _ = load_datasets(args(write_lines(tmp_path, rows), prompt_template="{y} Q: {question}\nA:"))
    assert data["prompt"][:] == ["{y} Q: {question} {x}?\nA:"]
    chat = [{"prompt": [{"role": "user", "content": "q"}], "solution": "1"}]
    with pytest.raises(UserError, match=r"row 0: the question is .*, not text for `prompt_template`"):
        load_datasets(args(write_lines(tmp_path, chat), prompt_template="{question}"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt_template": "Q:"}, "`prompt_template` is 'Q:': it must contain {question} once"),
        ({"prompt_template": ""}, "must contain {question} once"),
        ({"prompt_template": "{question} {question}"}, "must contain {question} once"),
        ({"prompt_template": "{question}", "system_prompt": "Think."}, "cannot be combined with `system_prompt`"),
        (
            {"prompt_template": "{question}", "dataset_name": None, "dataset_builder": "x.y"},
            "cannot be combined with `dataset_bui",
        ),
    ],
)
def test_invalid_prompt_templates_are_rejected(fields, message):
    with pytest.raises(ValueError, match=message):
        ScriptArguments(**{"dataset_name": "d", **fields})


def nested_list(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "values", [[1, "a"], [1, [1]], [1, 2**70], [nested_list(200), 1]], ids=["text", "list", "large", "deep"]
)
def test_the_error_for_an_unsupported_column_names_the_column(tmp_path, values):
    rows = [{"question": "q", "answer": "1", "level": value} for value in values]
    with pytest.raises(UserError, match="the column `level` cannot be stored"):
        load_datasets(args(write_lines(tmp_path, rows)))


def test_large_integers_are_accepted_as_reference_answers(tmp_path):
    rows = [{"question": "q", "answer": 2**70}]
    data, _ = load_datasets(args(write_lines(tmp_path, rows)))
    assert (data[0]["solution"], data[0]["answer"]) == (str(2**70), str(2**70))


@pytest.mark.parametrize("name", ["data.jsonl", "data.parquet", "folder/data.json"])
def test_a_pipe_is_rejected_without_being_read(tmp_path, name):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match="must be a file or a folder of files"):
        check_source(args(tmp_path / name))
    if "/" in name:
        with pytest.raises(UserError, match="must be a file or a folder of files"):
            check_source(args(tmp_path / "folder"))


@pytest.mark.parametrize("first", [5, 2**70])
def test_reference_answers_may_mix_numbers_and_text(tmp_path, first):
    rows = [{"question": "q", "answer": gold} for gold in (first, "1/2")]
    data, _ = load_datasets(args(write_lines(tmp_path, rows), max_train_samples=None))
    assert {*data["answer"]} == {*data["solution"]} == {str(first), "1/2"}


def test_the_system_prompt_replaces_the_system_message_of_a_chat_prompt():
    messages = [{"role": "system", "content": "theirs"}, {"role": "user", "content": "q"}]
    assert make_prompt(messages, "ours", "here") == [{"role": "system", "content": "ours"}, messages[1]]
    assert make_prompt(messages, None, "here") == messages
    assert make_prompt("q", None, "here") == [{"role": "user", "content": "q"}]


@pytest.mark.parametrize("question", [None, "", 5, [], [{"content": "q"}], ["text"]])
def test_the_error_for_a_row_without_a_question_names_the_row(question):
    with pytest.raises(UserError, match="data, row 7: the question is"):
        make_prompt(question, None, "data, row 7")


def test_a_prompt_that_ends_with_an_assistant_message_is_rejected():
    turns = [{"role": role, "content": role} for role in ("user", "assistant", "user", "assistant")]
    assert make_prompt(turns[:3], None, "data, row 7") == turns[:3]
    with pytest.raises(UserError, match="data, row 7: the last chat message is from the assistant"):
        make_prompt(turns, None, "data, row 7")


def test_the_reference_answer_is_the_captured_group_of_the_last_match():
    assert clean_gold("a #### 1 b\n#### 72", r"####\s*(.+)", "here") == "72"
    assert clean_gold("no mark", r"####\s*(.+)", "here") is None
    assert clean_gold(7, None, "here") == "7"
    with pytest.raises(UserError, match=r"here: reference answer \[1\] is not .*: set `solution_column`"):
        clean_gold([1], None, "here")


@pytest.mark.parametrize(
    ("name", "suggestion"), [("gold_anwser", "gold_answer"), ("solution", "answer"), ("reference", "answer")]
)
def test_a_similar_column_or_else_a_column_with_a_usual_name_is_suggested(name, suggestion):
    columns = ["question", "gold_answer", "answer"]
    with pytest.raises(UserError, match=rf"0 of them match .* Did you mean `{suggestion}`"):
        find_column(columns, "solution_column", name, ["solution", "answer"], "data")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt_column": "quest"}, r"0 of them match `prompt_column` \(quest\)\. Did you mean `question`"),
        (
            {"solution_column": "gold"},
            r"The columns of .* are question, final_answer, answer: 0 of them match `solution_column` \(gold\)\. "
            r"Did you mean `(final_)?answer`",
        ),
        ({}, r"2 of them match `solution_column` \(solution, final_answer, answer\): set `solution_column`"),
    ],
)
def test_missing_and_ambiguous_columns_are_rejected(tmp_path, fields, message):
    file = write_lines(tmp_path, [{"question": "q", "final_answer": "1", "answer": "2"}])
    with pytest.raises(UserError, match=message):
        check_source(args(file, **fields))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.jsonl", None, "absent.jsonl does not exist"),
        ("data.csv", "a,b", "must be a file or a folder of files of a single type"),
        ("empty.jsonl", "", "empty.jsonl contains no rows"),
        ("array.json", "[]", "array.json contains no rows"),
        ("rows.json", "[1]", r"rows.json, row 0 cannot be read \(one int\)"),
        ("cut.parquet", "PAR1 and no more", "cannot be read"),
    ],
)
def test_unreadable_files_are_rejected(tmp_path, name, content, message):
    file = tmp_path / name
    if content is not None:
        file.write_text(content)
    with pytest.raises(UserError, match=message):
        check_source(args(file))


def test_a_column_missing_from_the_first_row_is_read(tmp_path):
    data = write_lines(tmp_path, [{"question": "a", "answer": 1}, {"question": "b", "answer": 2, "level": "hard"}])
    assert read_rows(args(data), str(data), "train").columns["level"] == [None, "hard"]


def test_all_files_of_a_folder_must_have_the_same_suffix(tmp_path):
    write_lines(tmp_path, ZWHE99[:2], "a.jsonl")
    write_lines(tmp_path, ZWHE99[2:5], "b.jsonl")
    assert len(read_rows(args(tmp_path), str(tmp_path), "train").golds) == 5
    (tmp_path / "c.json").write_text("[]")
    with pytest.raises(UserError, match="must be a file or a folder of files of a single type"):
        check_source(args(tmp_path))


def test_only_files_of_the_requested_split_are_read_from_a_folder(tmp_path):
    write_lines(tmp_path, ZWHE99[:2], "train-00000-of-00001.jsonl")
    write_lines(tmp_path, ZWHE99[2:5], "test-00000-of-00001.jsonl")
    assert [len(read_rows(args(tmp_path), str(tmp_path), split).golds) for split in ("train", "test")] == [2, 3]


@pytest.mark.parametrize(("split", "message"), [("eval", "validation.jsonl, but no file"), ("train[:80%]", "slices")])
def test_local_data_without_the_requested_split_is_rejected(tmp_path, split, message):
    for name in ("train", "validation"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"question": "1+1", "answer": "2"}))
    with pytest.raises(UserError, match=re.escape(message)):
        read_rows(args(tmp_path), str(tmp_path), split)
    # If the path is a file, its name does not matter.
    assert len(read_rows(args(tmp_path), str(tmp_path / "train.jsonl"), "eval").golds) == 1


ARITHMETIC = "trl_ces.lab.tasks.arithmetic.make_datasets"
TOY_TASK = {"dataset_builder": ARITHMETIC, "max_train_samples": 6, "num_eval_samples": 3}


def test_a_builder_returns_disjoint_training_and_evaluation_problems():
    train, evaluation = load_datasets(args(None, **TOY_TASK))
    assert (len(train), len(evaluation)) == (6, 3)
    assert not set(train["prompt"]) & set(evaluation["prompt"])
    for row in train:
        assert sum(map(int, row["prompt"].rstrip(":").split("+"))) == int(row["solution"])


def test_a_builder_receives_its_arguments_and_invalid_arguments_are_rejected():
    four_terms = {"min_terms": 4, "max_terms": 4}
    for rows in load_datasets(args(None, **TOY_TASK, dataset_kwargs=four_terms)):
        assert {prompt.count("+") for prompt in rows["prompt"]} == {3}
    for invalid, message in (
        ({"min_terms": 5}, "min_terms=5, max_terms=2"),
        ({"term": 3}, "unexpected keyword argument 'term'"),
    ):
        with pytest.raises(UserError, match=f"`dataset_builder`: {ARITHMETIC} called with .*{message}"):
            check_source(args(None, **TOY_TASK, dataset_kwargs=invalid))
