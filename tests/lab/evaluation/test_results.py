"""Results of a run and comparisons of several runs, checked against hand-computed values."""

import json
from pathlib import Path

import pytest
from interval_oracle import accuracy, difference

from trl_ces.cli.main import main
from trl_ces.lab.evaluation.results import compare, comparison_text, load_run, results_table, summarize
from trl_ces.support.errors import UserError

SETTINGS = {
    "model": "m",
    "benchmarks": ["aime24", "gsm8k"],
    "num_samples": 4,
    "temperature": 0.4,
    "top_p": 0.95,
    "repetition_penalty": 1.05,
    "max_new_tokens": 100,
    "backend": "vllm",
    "fingerprint": None,
    "data": {"aime24": {"problems": 2, "digest": "d"}, "gsm8k": {"problems": 3, "digest": "e"}},
}


def samples(benchmark, problem, correct, tokens, script=None, reasons=None):
    return [
        {
            "benchmark": benchmark,
            "problem": problem,
            "sample": number,
            "seed": 0,
            "gold": "0",
            "final_answer": "0",
            "correct": score,
            "correct_qwen": bool(score if script is None else script[number]),
            "tokens": tokens[number],
            "finish_reason": "stop" if reasons is None else reasons[number],
            "text": "",
        }
        for number, score in enumerate(correct)
    ]


T, F = True, False
FIRST = [
    *samples("aime24", 0, [T, T, F, F], [10, 20, 30, 40], script=[T, T, T, F]),
    *samples("aime24", 7, [F, F, F, F], [100] * 4, reasons=["stop", "length", "length", "length"]),
    *samples("gsm8k", 0, [T, T, T, T], [8] * 4),
    *samples("gsm8k", 1, [T, T, T, F], [12] * 4),
    *samples("gsm8k", 2, [None] * 4, [16] * 4),
]
SECOND = [
    *samples("aime24", 0, [T, T, T, T], [20] * 4),
    *samples("aime24", 7, [F, F, F, T], [60] * 4),
    *samples("gsm8k", 0, [T, T, T, F], [10] * 4),
    *samples("gsm8k", 1, [T, T, F, F], [10] * 4),
    *samples("gsm8k", 2, [T] * 4, [30] * 4),
]
# (accuracy, number of completions) per problem of aime24
FIRST_AIME24, SECOND_AIME24 = [[(0.5, 4), (0.0, 4)]], [[(1.0, 4), (0.25, 4)]]


def cells(text):
    """Return the cells of each Markdown table, without the separator line."""
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("|")]
    split = [[[cell.strip() for cell in line.split("|")[1:-1]] for line in table] for table in tables]
    return [[table[0], *table[2:]] for table in split]


def format_interval(mean, low, high, sign=""):
    return f"{100 * mean:{sign}.1f} [{100 * low:{sign}.1f}, {100 * high:{sign}.1f}]"


def test_summary_matches_hand_computed_values():
    summary = summarize(SETTINGS, FIRST)
    assert summary == summarize(SETTINGS, FIRST[::-1])  # the order of the samples has no effect
    aime, gsm = summary["benchmarks"]["aime24"], summary["benchmarks"]["gsm8k"]
    assert (aime["problems"], aime["samples"], aime["unscored"], aime["truncated"]) == (2, 8, 0, 3 / 8)
    assert tuple(aime["correct"]["accuracy"].values()) == pytest.approx(accuracy(FIRST_AIME24))
    assert aime["correct"]["accuracy"]["mean"] == 0.25  # the mean of 2 / 4 and 0 / 4
    assert aime["correct_qwen"]["accuracy"]["mean"] == 0.375  # the mean of 3 / 4 and 0 / 4
    assert aime["length_tokens"]["mean"] == 62.5  # the mean of 25 and 100
    assert aime["correct"]["pass_at"] == {"1": 0.25, "2": pytest.approx((1 - 1 / 6) / 2), "4": 0.5}
    # the two correct completions have 10 and 20 tokens
    assert aime["correct"]["budgets"] == {"3": 0, "6": 0, "12": 0.125, "25": 0.25, "50": 0.25, "100": 0.25}
    assert aime["correct"]["area"]["mean"] == pytest.approx((0.9 + 0.8) / 8)
    # the third problem of gsm8k is unscored, so it counts only toward the length
    assert (gsm["unscored"], gsm["length_tokens"]["mean"]) == (4, 12.0)
    assert (gsm["problems"], gsm["correct"]["problems"], gsm["correct_qwen"]["problems"]) == (3, 2, 3)
    assert gsm["correct"]["accuracy"]["mean"] == (1 + 0.75) / 2
    assert gsm["correct_qwen"]["accuracy"]["mean"] == pytest.approx((1 + 0.75 + 0) / 3)
    average = summary["averages"]["math"]
    assert average["correct"]["accuracy"]["mean"] == (0.25 + 0.875) / 2  # benchmarks have equal weights
    assert average["length_tokens"]["mean"] == (62.5 + 12) / 2
    assert set(summary["averages"]) == {"math"}
    assert json.loads(json.dumps(summary)) == summary
    assert summary["packages"]["trl_ces"]


def test_table_has_the_papers_columns_and_the_average():
    text = results_table(summarize(SETTINGS, FIRST))
    table, budgets = cells(text)
    assert table[0] == ["Dataset", "Acc ↑", "n", "Script Acc", "n", "Len ↓", "pass@4", "Cut off"]
    # A resample contains both lengths (t = 0) or the same length twice (|t| = 2, because the error of a resample is
    # at least half the error of the sample). The interval is therefore 62.5 ± 2 * 37.5, clipped at 0.
    expected = [format_interval(*accuracy(FIRST_AIME24)), "2", "37.5", "2", "62.5 [0.0, 138]", "50.0", "37.5"]
    assert table[1] == ["AIME24", *expected]
    assert (table[2][0], table[2][2], table[2][4]) == ("GSM8K", "2", "3")
    assert table[3][:2] == ["Average", format_interval(*accuracy([*FIRST_AIME24, [(1.0, 4), (0.75, 4)]]))]
    assert budgets[1] == ["AIME24", "0.0", "0.0", "12.5", "25.0", "25.0", "25.0", "21.3"]
    assert "4 completions are unscored: the grader does not support their reference answers" in text
    assert "5 problems, 4 completions each, temperature 0.4" in text


def write_run(folder, content, **changes):
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(SETTINGS | changes))
    (folder / "samples.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in content))
    return folder


@pytest.fixture
def runs(tmp_path):
    first = load_run(write_run(tmp_path / "first", FIRST), "first")
    return [first, load_run(write_run(tmp_path / "second", SECOND, model="n", seed=3), "second")]


def means(entries):
    return [entry["mean"] for entry in entries]


def test_runs_are_compared_problem_by_problem(runs):
    comparison = compare(runs)
    aime, gsm = comparison["benchmarks"]["aime24"], comparison["benchmarks"]["gsm8k"]
    assert (means(aime["accuracy"]), means(aime["length"])) == ([0.25, 0.625], [62.5, 40])
    assert aime["accuracy_difference"][0] is None
    assert tuple(aime["accuracy_difference"][1].values()) == pytest.approx(difference(SECOND_AIME24, FIRST_AIME24))
    assert (gsm["scored"], gsm["problems"], aime["scored"]) == (2, 3, 2)
    assert aime["length_difference"][1]["mean"] == ((20 - 25) + (60 - 100)) / 2
    # the problem that is unscored in the first run is excluded in both runs
    assert means(gsm["accuracy"]) == [0.875, 0.625]
    assert gsm["accuracy_difference"][1]["mean"] == -0.25
    assert gsm["length_difference"][1]["mean"] == pytest.approx((2 - 2 + 14) / 3)
    average = comparison["averages"]["math"]
    assert average["accuracy_difference"][1]["mean"] == pytest.approx((0.375 - 0.25) / 2)
    assert comparison["differing"] == {"second": {"seed": [None, 3]}}
    swapped = compare(runs, baseline=1)["benchmarks"]["aime24"]
    assert (swapped["accuracy_difference"][0]["mean"], swapped["accuracy_difference"][1]) == (-0.375, None)
    assert compare(runs, "correct_qwen")["benchmarks"]["aime24"]["accuracy"][0]["mean"] == 0.375


def test_simple_questions_are_mostly_correct_in_the_first_run(runs):
    split = compare(runs)["split"]
    assert [split["aime24"][part]["problems"] for part in ("simple", "hard")] == [0, 2]  # exactly half is not enough
    assert [split["gsm8k"][part]["problems"] for part in ("simple", "hard")] == [2, 0]
    assert means(split["gsm8k"]["simple"]["length"]) == [10, 10]
    assert means(split["aime24"]["hard"]["length"]) == [62.5, 40]
    assert means(split["aime24"]["simple"]["length"]) == [None, None]
    # The paper's script grades 3 of 4 completions as correct.
    assert compare(runs, "correct_qwen")["split"]["aime24"]["simple"]["problems"] == 1
    assert compare(runs, baseline=1)["split"] == split  # the baseline does not affect the split


def test_comparison_has_the_layout_of_the_papers_tables_1_and_9(runs):
    text = comparison_text(compare(runs))
    first, differences, split, budgets = cells(text)
    assert first[0] == ["Dataset", "first Acc ↑", "first Len ↓", "second Acc ↑", "second Len ↓"]
    assert [cell.split(" [")[0] for cell in first[1]] == ["AIME24", "25.0", "62.5", "62.5", "40.0"]
    assert [cell.split(" [")[0] for cell in first[2]] == ["GSM8K", "87.5", "12.0", "62.5", "16.7"]
    assert first[1][3] == format_interval(*accuracy(SECOND_AIME24))
    assert first[3][0] == "Average"
    assert differences[0] == ["Dataset", "second - first Acc ↑", "second - first Len ↓"]
    assert differences[1][:2] == ["AIME24", format_interval(*difference(SECOND_AIME24, FIRST_AIME24), "+")]
    assert differences[1][2].startswith("-22.5 [")
    assert "that can be graded: 2 of 3 problems of GSM8K. Len covers all problems." in text
    assert split[1] == ["AIME24", "simple", "0", "-", "-", "-", "-"]
    assert [cell.split(" [")[0] for cell in split[2]] == ["AIME24", "hard", "2", "25.0", "62.5", "62.5", "40.0"]
    assert budgets[0] == ["Tokens", "first", "second", "second - first"]
    assert [row[0] for row in budgets[1:]] == ["3", "6", "12", "25", "50", "100", "Area"]
    # within 25 tokens: (1/4 + 7/8) / 2 and (1/2 + 5/8) / 2
    assert [cell.split(" [")[0] for cell in budgets[4]] == ["25", "56.2", "56.2", "+0.0"]
    assert "second has different settings from first: `seed` 3 instead of None" in text


def test_runs_on_different_problems_are_rejected(runs, tmp_path):
    changed_data = {"aime24": {"problems": 2, "digest": "other"}, "gsm8k": SETTINGS["data"]["gsm8k"]}
    third = load_run(write_run(tmp_path / "third", SECOND, data=changed_data), "third")
    with pytest.raises(UserError, match="first and third used different aime24 problems"):
        compare([*runs, third])
    amc23_data = {"amc23": {"problems": 0, "digest": "x"}}
    fourth = load_run(write_run(tmp_path / "fourth", [], data=amc23_data, benchmarks=["amc23"]), "fourth")
    with pytest.raises(UserError, match="no benchmark in common"):
        compare([runs[0], fourth])


def test_unfinished_run_is_rejected(tmp_path):
    with pytest.raises(UserError, match="contains 19 of 20 completions: run its `trl-ces eval` command again"):
        load_run(write_run(tmp_path / "half", FIRST[:-1]), "half")


@pytest.fixture
def folders(tmp_path):
    contents = {"base": FIRST, "dapo": SECOND, "ces": SECOND}
    return [str(write_run(tmp_path / name, content)) for name, content in contents.items()]


def test_command_prints_and_saves_a_comparison_of_three_runs(folders, tmp_path, capsys):
    file = tmp_path / "new" / "all.json"
    assert main(["compare", *folders, "--baseline", "dapo", "--output", str(file)]) == 0
    printed = capsys.readouterr().out
    comparison = compare([load_run(Path(folder), Path(folder).name) for folder in folders], baseline=1)
    assert printed == comparison_text(comparison)
    assert json.loads(file.read_text()) == comparison
    tables, measures = cells(printed), ("Acc ↑", "Len ↓")
    assert tables[0][0][1:] == [f"{name} {measure}" for name in ("base", "dapo", "ces") for measure in measures]
    assert tables[1][0][1:] == [f"{name} - dapo {measure}" for name in ("base", "ces") for measure in measures]
    assert "has different settings" not in printed


def test_command_accepts_the_correctness_and_names_options(folders, capsys):
    args = ["--correctness", "correct_qwen", "--names", "R1-7B", "DAPO"]
    assert main(["compare", *folders[:2], *args]) == 0
    table = cells(capsys.readouterr().out)[0]
    assert table[0][1:4] == ["R1-7B Acc ↑", "R1-7B Len ↓", "DAPO Acc ↑"]
    assert table[1][1].startswith("37.5 [")


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["A"], ["Only one directory is given"]),
        (["A", "A"], ["The 2 directories are named base, base", "`--names`"]),
        (["A", "B", "--names", "x"], ["The 2 directories are named x"]),
        (["A", "B", "--baseline", "dap"], ["`--baseline` 'dap'", "Did you mean `dapo`?"]),
        (["A", "A/nowhere"], ["has no settings.json", "`trl-ces eval`"]),
        (["A", "B", "--correctness", "right"], ["--correctness", "--help"]),
    ],
)
def test_command_errors_are_one_line(folders, capsys, args, parts):
    paths = {"A": folders[0], "B": folders[1]}
    assert main(["compare", *(paths.get(word, word.replace("A/", f"{folders[0]}/")) for word in args)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (error,) = printed.err.splitlines()
    for part in ["trl-ces compare: error: ", *parts]:
        assert part in error
