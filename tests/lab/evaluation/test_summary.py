"""Results by hand: accuracy, lengths, intervals, pass@k, and two runs problem by problem."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from interval_oracle import accuracy, bootstrap_t, difference
from trl_ces.lab.hub.push import eval_results

from trl_ces.cli.main import main
from trl_ces.lab.evaluation import statistics
from trl_ces.lab.evaluation.comparison import compare, comparison_text, load_run
from trl_ces.lab.evaluation.statistics import interval_of_average, pass_at_k
from trl_ces.lab.evaluation.summary import results_table, summarize
from trl_ces.support.errors import UserError
from trl_ces.support.tables import markdown

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


def samples(benchmark, problem, verdicts, tokens, script=None, reasons=None):
    return [
        {
            "benchmark": benchmark,
            "problem": problem,
            "sample": number,
            "seed": 0,
            "gold": "0",
            "answer": "0",
            "correct": verdict,
            "correct_qwen": bool(verdict if script is None else script[number]),
            "tokens": tokens[number],
            "finish_reason": "stop" if reasons is None else reasons[number],
            "text": "",
        }
        for number, verdict in enumerate(verdicts)
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


def test_the_numbers_of_a_run_are_these():
    found = summarize(SETTINGS, FIRST)
    assert found == summarize(SETTINGS, FIRST[::-1])  # in whatever order they were finished
    aime, gsm = found["benchmarks"]["aime24"], found["benchmarks"]["gsm8k"]
    assert (aime["problems"], aime["samples"], aime["not_judged"], aime["truncated"]) == (2, 8, 0, 3 / 8)
    assert aime["correct"]["accuracy"] == 0.25  # 2 / 4 and 0 / 4
    of_four = accuracy([[(0.5, 4), (0.0, 4)]])
    assert (aime["correct"]["low"], aime["correct"]["high"]) == pytest.approx(of_four[1:])
    assert aime["correct_qwen"]["accuracy"] == 0.375  # 3 / 4 and 0 / 4
    assert aime["length_tokens"]["mean"] == 62.5  # 25 and 100
    assert aime["correct"]["pass_at"] == {"1": 0.25, "2": pytest.approx((1 - 1 / 6) / 2), "4": 0.5}
    # the third problem of gsm8k has no verdict: it counts in the length alone
    assert gsm["not_judged"] == 4
    assert (gsm["problems"], gsm["correct"]["problems"], gsm["correct_qwen"]["problems"]) == (3, 2, 3)
    assert gsm["correct"]["accuracy"] == (1 + 0.75) / 2
    assert gsm["correct_qwen"]["accuracy"] == pytest.approx((1 + 0.75 + 0) / 3)
    assert gsm["length_tokens"]["mean"] == 12.0
    average = found["averages"]["math"]
    assert average["correct"]["mean"] == (0.25 + 0.875) / 2  # sets weigh the same, whatever their sizes
    assert average["length_tokens"]["mean"] == (62.5 + 12) / 2
    assert set(found["averages"]) == {"math"}
    assert json.loads(json.dumps(found)) == found
    assert found["packages"]["trl_ces"]


def test_the_table_has_the_papers_columns_and_the_average():
    text = results_table(summarize(SETTINGS, FIRST))
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert cells[0] == [
        "Dataset", "Acc ↑", "95 %", "n", "Script Acc", "n", "Len ↓", "95 %", "pass@4", "Cut off",
    ]  # fmt: skip
    low, high = (f"{100 * bound:.1f}" for bound in accuracy([[(0.5, 4), (0.0, 4)]])[1:])
    assert cells[2][:6] == ["AIME24", "25.0", f"[{low}, {high}]", "2", "37.5", "2"]
    # of two values a resample has both or one of them twice: t = 0 or, with half the error, 2; 62.5 -+ 2 * 37.5
    assert cells[2][6:] == ["62.5", "[0.0, 138]", "50.0", "37.5"]
    assert (cells[3][0], cells[3][3], cells[3][5]) == ("GSM8K", "2", "3")
    assert cells[4][:2] == ["Average", "56.2"]
    assert cells[4][3:6] == ["", "47.9", ""]
    assert (
        "4 completions are not judged: `correct` cannot grade against their golds, which count in Script Acc alone"
        in text
    )
    assert "5 problems, 4 completions each, temperature 0.4" in text


def test_a_run_whose_thinking_was_ended_by_force_is_marked_wherever_it_is_shown(tmp_path):
    budget = {"thinking_token_budget": 64}
    ended = [answer | {"finish_reason": "forced"} if answer["sample"] == 0 else answer for answer in FIRST]
    summary = summarize(SETTINGS | budget, ended)
    text = results_table(summary)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert (rows[0][-1], rows[2][-1], rows[4][0], rows[4][-1]) == ("Forced", "25.0", "Average", "")
    assert text.startswith("m (forced at 64): 5 problems")
    assert "whose thinking vLLM cut after 64 tokens" in text
    assert {result.metric_name for result in eval_results(summary)} == {
        "accuracy, %, of 2 problems (forced at 64)",
        "mean completion length, tokens, of 2 problems (forced at 64)",
        "mean completion length, tokens, of 3 problems (forced at 64)",
    }
    forced = load_run(write_run(tmp_path / "forced", ended, **budget), "forced")
    found = compare([load_run(write_run(tmp_path / "free", FIRST), "free"), forced])
    assert found["runs"] == ["free", "forced (forced at 64)"]
    assert found["differing"] == {"forced (forced at 64)": {"thinking_token_budget": [None, 64]}}
    free = summarize(SETTINGS, FIRST)
    assert "forced" not in results_table(free).lower()
    assert "forced" not in free["benchmarks"]["aime24"]


def test_an_interval_is_the_bootstrap_t_of_plain_loops():
    for values in ([0.0, 0.25, 1.0, 1.0, 0.5, 0.75], [100.0, 120.0, 130.0, 150.0, 170.0, 900.0, 90.0, 95.0]):
        found, (mean, low, high) = interval_of_average([values]), bootstrap_t([values])
        assert found.mean == pytest.approx(mean)
        width = high - low
        assert (found.low, found.high) == (pytest.approx(low, abs=width / 20), pytest.approx(high, abs=width / 20))
        assert interval_of_average([values]) == found
    assert found.high - found.mean > 1.5 * (found.mean - found.low)  # one long answer: the mean may be far above
    assert interval_of_average([[0.5] * 7]) == interval_of_average([[0.5]])
    shares = [[1.0, 1.0, 1.0, 1.0, 0.2]]  # of an area, which is at most 1
    assert interval_of_average(shares).high > 1 == interval_of_average(shares, 0, 1).high
    assert tuple(interval_of_average([[0.5]])) == (0.5, None, None)
    assert tuple(interval_of_average([[0.5], [0.0, 1.0]])) == (0.5, None, None)  # the one problem's part is unknown
    assert interval_of_average([[]]).mean is None
    assert interval_of_average([[25.0, 100.0]]).low < 0 == interval_of_average([[25.0, 100.0]], least=0).low


def test_the_interval_of_many_values_is_the_normal_one():
    values = list(np.random.default_rng(0).normal(size=4000))  # more than one block of draws
    found = interval_of_average([values])
    assert found.high - found.low == pytest.approx(2 * 1.96 * np.std(values) / math.sqrt(4000), rel=0.05)


def test_the_interval_of_skewed_lengths_holds_the_mean_more_often_than_the_percentile_bootstrap(monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 400)
    random, truth = np.random.default_rng(5), math.exp(0.8**2 / 2)
    found = [interval_of_average([list(random.lognormal(0, 0.8, 20))]) for _ in range(400)]
    assert 0.89 < np.mean([each.low <= truth <= each.high for each in found]) < 0.97  # the other: 0.87


def test_an_average_of_sets_varies_as_the_mean_of_independent_means():
    random = np.random.default_rng(1)
    sets = [list(random.normal(size=200)), list(random.normal(size=50))]
    found = interval_of_average(sets)
    error = math.sqrt(np.var(sets[0]) / 200 + np.var(sets[1]) / 50) / 2
    assert found.mean == pytest.approx((np.mean(sets[0]) + np.mean(sets[1])) / 2)
    assert found.high - found.low == pytest.approx(2 * 1.98 * error, rel=0.06)
    assert interval_of_average([[1.0], []]).mean is None
    # equal sets are drawn apart: their chances do not add up
    same = interval_of_average([sets[0], sets[0]])
    assert same.high - same.low == pytest.approx(2 * 1.96 * np.std(sets[0]) / math.sqrt(400), rel=0.06)


@pytest.mark.parametrize(("count", "correct"), [(4, 0), (4, 1), (4, 3), (4, 4), (6, 2)])
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_answer(count, correct):
    verdicts = [True] * correct + [False] * (count - correct)
    for k in range(1, count + 1):
        subsets = list(itertools.combinations(verdicts, k))
        assert pass_at_k(count, correct, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def write_run(folder, content, **changes):
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(SETTINGS | changes))
    (folder / "samples.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in content))
    return folder


@pytest.fixture
def runs(tmp_path):
    first = load_run(write_run(tmp_path / "first", FIRST), "first")
    return [first, load_run(write_run(tmp_path / "second", SECOND, model="n", seed=3), "second")]


def test_two_runs_are_compared_problem_by_problem(runs):
    found = compare(runs)
    aime, gsm = found["benchmarks"]["aime24"], found["benchmarks"]["gsm8k"]
    assert [entry["mean"] for entry in aime["accuracy"]] == [0.25, 0.625]
    assert [entry["mean"] for entry in aime["length"]] == [62.5, 40]
    assert aime["accuracy_difference"][0] is None
    apart = difference([[(1.0, 4), (0.25, 4)]], [[(0.5, 4), (0.0, 4)]])
    assert tuple(aime["accuracy_difference"][1].values()) == pytest.approx(apart)
    assert (gsm["judged"], gsm["problems"], aime["judged"]) == (2, 3, 2)
    assert aime["length_difference"][1]["mean"] == ((20 - 25) + (60 - 100)) / 2
    # the problem that the first run could not judge counts in neither accuracy
    assert [entry["mean"] for entry in gsm["accuracy"]] == [0.875, 0.625]
    assert gsm["accuracy_difference"][1]["mean"] == -0.25
    assert gsm["length_difference"][1]["mean"] == pytest.approx((2 - 2 + 14) / 3)
    average = found["averages"]["math"]
    assert average["accuracy_difference"][1]["mean"] == pytest.approx((0.375 - 0.25) / 2)
    assert found["differing"] == {"second": {"seed": [None, 3]}}
    other = compare(runs, baseline=1)["benchmarks"]["aime24"]
    assert other["accuracy_difference"][0]["mean"] == -0.375
    assert other["accuracy_difference"][1] is None
    assert compare(runs, "correct_qwen")["benchmarks"]["aime24"]["accuracy"][0]["mean"] == 0.375


def test_questions_are_simple_where_the_first_run_is_right_in_more_than_half(runs):
    split = compare(runs)["split"]
    assert [split["aime24"][part]["problems"] for part in ("simple", "hard")] == [0, 2]  # one half is not more
    assert [split["gsm8k"][part]["problems"] for part in ("simple", "hard")] == [2, 0]
    assert [entry["mean"] for entry in split["gsm8k"]["simple"]["length"]] == [10, 10]
    assert [entry["mean"] for entry in split["aime24"]["hard"]["length"]] == [62.5, 40]
    assert split["aime24"]["hard"]["length_difference"][1]["mean"] == -22.5
    assert split["aime24"]["simple"]["length"][0]["mean"] is None
    # by the script three of four are right
    assert compare(runs, "correct_qwen")["split"]["aime24"]["simple"]["problems"] == 1
    # the reference is the first run also where another is the baseline
    assert compare(runs, baseline=1)["split"] == split


def test_the_comparison_reads_as_table_1_and_table_9(runs):
    text = comparison_text(compare(runs))
    tables = [
        [[cell.strip() for cell in line.split("|")[1:-1]] for line in part.splitlines()]
        for part in text.split("\n\n")
        if part.startswith("|")
    ]
    first, differences, split, _ = tables
    assert first[0] == ["Dataset", "first Acc ↑", "first Len ↓", "second Acc ↑", "second Len ↓"]
    assert [cell.split(" [")[0] for cell in first[2]] == ["AIME24", "25.0", "62.5", "**62.5**", "**40.0**"]
    assert [cell.split(" [")[0] for cell in first[3]] == ["GSM8K", "**87.5**", "**12.0**", "62.5", "16.7"]
    assert first[2][3] == "**62.5** [{:.1f}, {:.1f}]".format(
        *(100 * bound for bound in accuracy([[(1.0, 4), (0.25, 4)]])[1:])
    )
    assert first[4][0] == "Average"
    apart = difference([[(1.0, 4), (0.25, 4)]], [[(0.5, 4), (0.0, 4)]])
    assert differences[0] == ["Dataset", "second − first Acc ↑", "second − first Len ↓"]
    assert differences[2][:2] == ["AIME24", "+37.5 [{:+.1f}, {:+.1f}]".format(*(100 * bound for bound in apart[1:]))]
    assert differences[2][2].startswith("-22.5 [")
    assert [cell.split(" [")[0] for cell in differences[3]] == ["GSM8K", "-25.0", "+4.7"]
    assert "gold can be graded against: 2 of 3 problems of GSM8K; Len all." in text
    assert split[2] == ["AIME24", "simple", "0", "-", "-", "-", "-"]
    assert [cell.split(" [")[0] for cell in split[3]] == ["AIME24", "hard", "2", "25.0", "62.5", "62.5", "40.0"]
    assert "Drawn with other settings than first: second (`seed` None and 3)" in text


def test_runs_on_different_problems_are_not_compared(runs, tmp_path):
    other = {"aime24": {"problems": 2, "digest": "other"}, "gsm8k": SETTINGS["data"]["gsm8k"]}
    third = load_run(write_run(tmp_path / "third", SECOND, data=other), "third")
    with pytest.raises(UserError, match="first and third were asked different problems of aime24"):
        compare([*runs, third])
    only = {"amc23": {"problems": 0, "digest": "x"}}
    fourth = load_run(write_run(tmp_path / "fourth", [], data=only, benchmarks=["amc23"]), "fourth")
    with pytest.raises(UserError, match="no benchmark in common"):
        compare([runs[0], fourth])


def test_a_run_that_is_not_finished_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds 19 of 20 completions: start its `trl-ces eval` again"):
        load_run(write_run(tmp_path / "half", FIRST[:-1]), "half")
    with pytest.raises(UserError, match=r"holds no settings\.json"):
        load_run(tmp_path, "none")
    (tmp_path / "settings.json").write_text("{}")
    with pytest.raises(UserError, match=r"settings\.json has no `num_samples`"):
        load_run(tmp_path, "other")


def test_ties_are_bold_on_both_sides_and_dashes_never(tmp_path):
    both = [load_run(write_run(tmp_path / name, FIRST), name) for name in "ab"]
    text = comparison_text(compare(both))
    (line,) = [line for line in text.splitlines() if line.startswith("| AIME24") and "**" in line]
    assert [line.count(mean) for mean in ("**25.0** [", "**62.5** [")] == [2, 2]
    assert "**-**" not in text


@pytest.fixture
def folders(tmp_path):
    contents = {"base": FIRST, "dapo": SECOND, "ces": SECOND}
    return [str(write_run(tmp_path / name, content)) for name, content in contents.items()]


def test_the_command_lays_out_three_runs_and_writes_their_numbers(folders, tmp_path, capsys):
    file = tmp_path / "all.json"
    assert main(["compare", *folders, "--baseline", "dapo", "--output", str(file)]) == 0
    printed, found = (
        capsys.readouterr().out,
        compare([load_run(Path(folder), Path(folder).name) for folder in folders], baseline=1),
    )
    assert printed == comparison_text(found)
    assert json.loads(file.read_text()) == found
    headers = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if "| Dataset" in line
    ]
    both = ("Acc ↑", "Len ↓")
    assert headers[0][1:] == [f"{name} {what}" for name in ("base", "dapo", "ces") for what in both]
    assert headers[1][1:] == [f"{name} − dapo {what}" for name in ("base", "ces") for what in both]
    assert "## Differences problem by problem" in printed
    assert "Simple: more than half of base's completions are correct" in printed
    assert "other settings" not in printed


def test_the_command_takes_the_scripts_verdict_and_other_names(folders, capsys):
    assert main(["compare", *folders[:2], "--verdict", "correct_qwen", "--names", "R1-7B", "DAPO"]) == 0
    printed = capsys.readouterr().out
    assert "| R1-7B Acc ↑ | R1-7B Len ↓ | DAPO Acc ↑ |" in " ".join(printed.split())
    assert "| AIME24 | 37.5 [" in " ".join(printed.split())
    assert "completions correct by the rules of the Qwen2.5-Math script" in printed


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["A"], ["One directory is named"]),
        (["A", "A"], ["The names are base, base", "`--names`"]),
        (["A", "B", "--names", "x"], ["The names are x for 2 directories"]),
        (["A", "B", "--baseline", "dap"], ["`--baseline` 'dap'", "Did you mean `dapo`?"]),
        (["A", "A/nowhere"], ["holds no settings.json", "`trl-ces eval`"]),
        (["A", "B", "--verdict", "right"], ["--verdict", "--help"]),
        (["A", "B", "--output", "A/settings.json/x"], ["`--output`", "cannot be written"]),
        (["A", "B", "--picture", "A/settings.json/x.png"], ["`--picture`", "Not a directory"]),
        (["A", "B", "--picture", "A/x.unknown"], ["`--picture`", "'unknown' is not supported"]),
    ],
)
def test_the_command_refuses_in_one_sentence(folders, capsys, words, parts):
    places = {"A": folders[0], "B": folders[1]}
    assert main(["compare", *(places.get(word, word.replace("A/", f"{folders[0]}/")) for word in words)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (refusal,) = said.err.splitlines()
    for part in ["trl-ces compare: error: ", *parts]:
        assert part in refusal


def test_a_markdown_table_stands_straight():
    assert markdown(["a", "bb"], [["ccc", "1"]]).splitlines() == ["| a   | bb |", "|-----|---:|", "| ccc |  1 |"]
