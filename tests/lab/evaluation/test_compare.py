"""`trl-ces compare` from the outside: what it prints for finished runs, and what it refuses."""

import json

import pytest
from interval_oracle import difference

from trl_ces.cli.main import main

DATA = {"aime24": {"problems": 2, "digest": "d"}}


def write_run(folder, verdicts, tokens, **changes):
    folder.mkdir()
    settings = {"model": folder.name, "benchmarks": ["aime24"], "num_samples": 2, "data": DATA} | changes
    (folder / "settings.json").write_text(json.dumps(settings))
    lines = [
        {
            "benchmark": "aime24",
            "problem": problem,
            "sample": sample,
            "seed": 1,
            "gold": "2",
            "answer": "2",
            "correct": verdicts[problem][sample],
            "correct_qwen": True,
            "tokens": tokens[problem],
            "finish_reason": "stop",
            "text": "2",
        }
        for problem in range(2)
        for sample in range(2)
    ]
    (folder / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def folders(tmp_path):
    return [
        write_run(tmp_path / "base", [(True, True), (False, False)], [10, 300]),
        write_run(tmp_path / "dapo", [(True, False), (False, False)], [12, 200]),
        write_run(tmp_path / "ces", [(True, True), (True, False)], [11, 150]),
    ]


def compare(capsys, *words):
    code = main(["compare", *map(str, words)])
    said = capsys.readouterr()
    assert code == 0, said.err
    return said.out


def table(printed, number):
    part = [part for part in printed.split("\n\n") if part.startswith("|")][number]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in part.splitlines()]


def test_three_runs_are_laid_out_as_the_papers_table_1(folders, capsys, tmp_path):
    printed = compare(capsys, *folders, "--baseline", "dapo", "--output", tmp_path / "all.json")
    assert table(printed, 0)[0] == [
        "Dataset",
        *("base Acc ↑", "base Len ↓", "dapo Acc ↑", "dapo Len ↓", "ces Acc ↑", "ces Len ↓"),
        *("ces - dapo Acc", "Len"),
    ]
    assert table(printed, 0)[2] == ["AIME24", "50.0", "155", "25.0", "106", "**75.0**", "**80.5**", "+50.0", "-25.5"]
    assert table(printed, 1)[0] == ["Dataset", "base Acc", "95 %", "Len", "95 %", "ces Acc", "95 %", "Len", "95 %"]
    _, low, high = difference([[(1.0, 2), (0.0, 2)]], [[(0.5, 2), (0.0, 2)]])
    assert table(printed, 1)[2][1:4] == ["+25.0", f"[{100 * low:+.1f}, {100 * high:+.1f}]", "+49.0"]
    assert [row[:4] for row in table(printed, 2)[2:]] == [
        ["AIME24", "simple", "1", "10.0"],
        ["AIME24", "hard", "1", "300"],
    ]
    assert "## Differences to dapo" in printed
    assert "simple: base is right" in printed
    assert "other settings" not in printed
    found = json.loads((tmp_path / "all.json").read_text())
    assert found["split"]["aime24"]["hard"]["length_difference"][2]["mean"] == -150


def test_the_scripts_verdict_and_other_names_can_be_asked_for(folders, capsys):
    printed = compare(capsys, *folders[:2], "--verdict", "correct_qwen", "--names", "R1-7B", "DAPO")
    assert table(printed, 0)[2] == ["AIME24", "**100.0**", "155", "**100.0**", "**106**", "+0.0", "-49.0"]
    assert "right by the rules of the Qwen2.5-Math script" in printed


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["A"], ["One directory is named"]),
        (["A", "A"], ["The names are base, base", "`--names`"]),
        (["A", "B", "--names", "x"], ["The names are x for 2 directories"]),
        (["A", "B", "--baseline", "dap"], ["`--baseline` 'dap'", "Did you mean `dapo`?"]),
        (["A", "NOWHERE"], ["holds no settings.json", "`trl-ces eval`"]),
        (["A", "OTHER"], ["base and other were asked different problems of aime24 (2 and 9)"]),
        (["A", "HALF"], ["holds 3 of 4 answers"]),
        (["A", "B", "--verdict", "right"], ["--verdict", "--help"]),
        (["A", "B", "--output", "A/settings.json/x"], ["`--output`", "cannot be written"]),
    ],
)
def test_runs_that_cannot_be_compared_are_refused_in_one_sentence(folders, tmp_path, capsys, words, parts):
    write_run(
        tmp_path / "other", [(True, True)] * 2, [1, 2], data={"aime24": {"problems": 9, "digest": "x"}}, num_samples=2
    )
    file = tmp_path / "other" / "samples.jsonl"
    file.write_text(
        "".join(
            json.dumps(json.loads(file.read_text().splitlines()[0]) | {"problem": n // 2, "sample": n % 2}) + "\n"
            for n in range(18)
        )
    )
    half = write_run(tmp_path / "half", [(True, True)] * 2, [1, 2])
    (half / "samples.jsonl").write_text("".join((half / "samples.jsonl").read_text().splitlines(keepends=True)[:3]))
    places = {"A": folders[0], "B": folders[1], "NOWHERE": tmp_path, "OTHER": tmp_path / "other", "HALF": half}
    words = [str(places.get(word, word)).replace("A/", f"{folders[0]}/") for word in words]
    assert main(["compare", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (refusal,) = said.err.splitlines()
    for part in ["trl-ces compare: error: ", *parts]:
        assert part in refusal


def test_help_shows_the_ways_to_call_it(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["compare"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    for part in ("trl-ces compare A B", "--baseline", "section 5.2"):
        assert part in said
