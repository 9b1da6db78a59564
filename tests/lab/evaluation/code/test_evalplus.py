"""EvalPlus' data without its package: where its files are found, MBPP's argument types, the special rules."""

import gzip
import json
import urllib.error

import pytest
from fixtures_evaluation import rows_of, write_data

from trl_ces.lab.evaluation.benchmarks import BENCHMARKS
from trl_ces.lab.evaluation.code import evalplus
from trl_ces.lab.evaluation.code.evalplus import ALSO_RIGHT, mbpp_inputs, release_file
from trl_ces.lab.evaluation.code.tasks import read_task
from trl_ces.lab.evaluation.problems import load_benchmark
from trl_ces.support.errors import UserError

CACHED = {"humaneval": "HumanEvalPlus-v0.1.10.jsonl", "mbpp": "MbppPlus-v0.2.0.jsonl"}
URLS = {
    "humaneval": "https://github.com/evalplus/humanevalplus_release/releases/download/v0.1.10/HumanEvalPlus.jsonl.gz",
    "mbpp": "https://github.com/evalplus/mbppplus_release/releases/download/v0.2.0/MbppPlus.jsonl.gz",
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache of EvalPlus, and no network."""

    def refuse(url, timeout):
        raise urllib.error.URLError("no network")

    for dataset in CACHED:
        monkeypatch.delenv(f"{dataset.upper()}_OVERRIDE_PATH", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(evalplus, "urlopen", refuse)
    return tmp_path / "cache" / "evalplus"


def lines(dataset):
    return "".join(json.dumps(row) + "\n" for row in rows_of(f"{dataset}_plus"))


@pytest.mark.parametrize("dataset", CACHED)
@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_a_file_named_in_the_environment_is_read(dataset, ending, tmp_path, monkeypatch):
    file = tmp_path / f"mine.{ending}"
    text = lines(dataset).encode()
    file.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    monkeypatch.setenv(f"{dataset.upper()}_OVERRIDE_PATH", str(file))
    data = write_data(tmp_path, [f"{dataset}_plus"])
    assert load_benchmark(f"{dataset}_plus") == load_benchmark(f"{dataset}_plus", data)
    assert len(load_benchmark(dataset)) == BENCHMARKS[dataset].count


@pytest.mark.parametrize("dataset", CACHED)
def test_the_release_is_downloaded_once_into_evalplus_cache(dataset, cache, monkeypatch, tmp_path):
    asked = []

    def download(url, timeout):
        asked.append(url)
        packed = tmp_path / "release.gz"
        packed.write_bytes(gzip.compress(lines(dataset).encode()))
        return packed.open("rb")

    monkeypatch.setattr(evalplus, "urlopen", download)
    first = load_benchmark(dataset)
    assert (cache / CACHED[dataset]).read_text() == lines(dataset)
    assert load_benchmark(dataset) == first
    assert asked == [URLS[dataset]]


def test_a_release_that_cannot_be_had_is_a_refusal_with_the_way_out(cache, monkeypatch, tmp_path):
    with pytest.raises(UserError, match=r"MbppPlus.jsonl.gz could not be downloaded .*no network.*`--data_dir`"):
        release_file("mbpp")
    torn = tmp_path / "torn.gz"
    torn.write_bytes(gzip.compress(lines("mbpp").encode())[:-20])
    monkeypatch.setattr(evalplus, "urlopen", lambda url, timeout: torn.open("rb"))
    with pytest.raises(UserError, match="could not be downloaded"):
        release_file("mbpp")
    assert not (cache / CACHED["mbpp"]).exists()
    monkeypatch.setenv("MBPP_OVERRIDE_PATH", str(tmp_path / "nowhere.jsonl"))
    with pytest.raises(UserError, match=r"mbpp: .*nowhere\.jsonl cannot be read"):
        load_benchmark("mbpp")


def test_a_damaged_archive_is_named(tmp_path):
    file = write_data(tmp_path, ["mbpp"]) / BENCHMARKS["mbpp"].file
    content = bytearray(file.read_bytes())
    content[20:40] = bytes(20)
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"mbpp: .*MbppPlus.jsonl.gz cannot be read"):
        load_benchmark("mbpp", tmp_path)


# As mbpp_deserialize_inputs of evalplus 0.3.1 gives them.
@pytest.mark.parametrize(
    ("task", "arguments", "typed"),
    [
        (1, [[1, 2], "a"], [[1, 2], "a"]),
        (2, [[3, 4], [5]], [(3, 4), (5,)]),
        (63, [[[1, 2], [3]]], [[(1, 2), (3,)]]),
        (75, [[[6, 24], [7]], 6], [[(6, 24), (7,)], 6]),
        (106, [[5, 6], [9, 10]], [[5, 6], (9, 10)]),
        (115, [[[1, 2], [], {}]], [[{1, 2}, {}, {}]]),
        (124, ["0.5", "1+2j"], (0.5, 1 + 2j)),
        (250, [[10, 8], 4], [(10, 8), 4]),
        (252, ["1j"], [1j]),
        (259, [[[1, 3]], [[6, 7]]], [((1, 3),), ((6, 7),)]),
        (278, [[1, [4, [6]], 2]], [(1, (4, [6]), 2)]),
        (307, [["a", 5, []], 2, 50], [("a", 5, []), 2, 50]),
        (580, [[4, [7, [6]]]], ((4, (7, (6,))),)),
        (722, [{"Ann": [6.2, 70]}, 6.0, 70], [{"Ann": (6.2, 70)}, 6.0, 70]),
    ],
)
def test_mbpps_arguments_get_the_types_that_its_functions_take(task, arguments, typed):
    assert repr(mbpp_inputs(f"Mbpp/{task}", [arguments, arguments])) == repr([typed, typed])


@pytest.mark.parametrize(
    ("name", "arguments", "output"),
    [
        ("sum_div", (8,), 0),
        ("surface_Area", (3, 4), 35),  # 9 + 2 * 3 * sqrt(1.5^2 + 4^2) = 34.6
        ("surface_Area", (1, 2), 5),  # 1 + 2 * sqrt(0.25 + 4) = 5.1
        ("digit_distance_nums", (23, 56), 6),
        ("digit_distance_nums", (123, 7), 7),  # 1 + 2 + |3 - 7|
        ("digit_distance_nums", (7, 123), 7),
    ],
)
def test_other_readings_of_the_wording_are_right_too(name, arguments, output):
    assert ALSO_RIGHT[name](*arguments) == output
    row = {"task_id": "Mbpp/1", "prompt": "", "canonical_solution": "", "entry_point": name, "atol": 0}
    task = read_task("mbpp", {**row, "base_input": [list(arguments)], "plus_input": []})
    assert task.accepted == (f"[{output}]", "[]")


@pytest.mark.parametrize(
    ("name", "convert", "rule"),
    [
        ("similar_elements", "set", "equal"),
        ("check_str", "not_none", "equal"),
        ("are_equivalent", None, "any"),
        ("halve", None, "equal"),
    ],
)
def test_some_functions_have_rules_of_their_own(name, convert, rule):
    row = {"task_id": "Mbpp/1", "prompt": "", "canonical_solution": "", "entry_point": name, "atol": 0}
    task = read_task("mbpp", {**row, "base_input": [[1]], "plus_input": []})
    assert (task.convert, task.rule, task.accepted) == (convert, rule, None)
