"""EvalPlus data without the `evalplus` package: download URL, MBPP argument types, and special rules."""

import re

import pytest

from trl_ces.lab.evaluation.benchmarks import load_benchmark
from trl_ces.lab.evaluation.code.tasks import ALTERNATIVE_OUTPUTS, mbpp_inputs, read_task
from trl_ces.support.errors import UserError


def test_error_without_data_dir_names_the_download_url():
    url = "https://github.com/evalplus/mbppplus_release/releases/download/v0.2.0/MbppPlus.jsonl.gz"
    with pytest.raises(
        UserError, match=rf"mbpp cannot be read .* code/MbppPlus.jsonl.gz with `--data_dir`\. .*{re.escape(url)}$"
    ):
        load_benchmark("mbpp")


# The expected values are the results of `mbpp_deserialize_inputs` in evalplus 0.3.1.
@pytest.mark.parametrize(
    ("task", "arguments", "expected"),
    [
        (1, [[1, 2], "a"], [[1, 2], "a"]),
        (2, [[3, 4], [5]], [(3, 4), (5,)]),
        (63, [[[1, 2], [3]]], [[(1, 2), (3,)]]),
        (75, [[[6, 24], [7]], 6], [[(6, 24), (7,)], 6]),
        (106, [[5, 6], [9, 10]], [[5, 6], (9, 10)]),
        (124, ["0.5", "1+2j"], [0.5, 1 + 2j]),
        (250, [[10, 8], 4], [(10, 8), 4]),
        (252, ["1j"], [1j]),
        (259, [[[1, 3]], [[6, 7]]], [((1, 3),), ((6, 7),)]),
        (278, [[1, [4, [6]], 2]], [(1, (4, [6]), 2)]),
        (580, [[4, [7, [6]]]], [(4, (7, (6,)))]),
        (722, [{"Ann": [6.2, 70]}, 6.0, 70], [{"Ann": (6.2, 70)}, 6.0, 70]),
    ],
)
def test_mbpp_arguments_are_converted_to_the_expected_types(task, arguments, expected):
    assert repr(mbpp_inputs(f"Mbpp/{task}", [arguments, arguments])) == repr([expected, expected])


@pytest.mark.parametrize(
    ("name", "arguments", "output"),
    [
        ("surface_Area", (3, 4), 35),  # 9 + 2 * 3 * sqrt(1.5^2 + 4^2) = 34.6
        ("surface_Area", (1, 2), 5),  # 1 + 2 * sqrt(0.25 + 4) = 5.1
        ("digit_distance_nums", (23, 56), 6),
        ("digit_distance_nums", (123, 7), 7),  # 1 + 2 + |3 - 7|
        ("digit_distance_nums", (7, 123), 7),
    ],
)
def test_alternative_interpretations_of_a_problem_are_accepted(name, arguments, output):
    assert ALTERNATIVE_OUTPUTS[name](*arguments) == output
    row = {"task_id": "Mbpp/1", "prompt": "", "canonical_solution": "", "entry_point": name, "atol": 0}
    task = read_task("mbpp", {**row, "base_input": [list(arguments)], "plus_input": []})
    assert task.accepted == (f"[{output}]", "[]")


@pytest.mark.parametrize(
    ("name", "convert", "rule"),
    [
        ("similar_elements", "set", "equal"),
        ("check_str", "not_none", "equal"),
        ("halve", None, "equal"),
    ],
)
def test_special_rules_are_assigned_by_function_name(name, convert, rule):
    row = {"task_id": "Mbpp/1", "prompt": "", "canonical_solution": "", "entry_point": name, "atol": 0}
    task = read_task("mbpp", {**row, "base_input": [[1]], "plus_input": []})
    assert (task.convert, task.rule, task.accepted) == (convert, rule, None)
