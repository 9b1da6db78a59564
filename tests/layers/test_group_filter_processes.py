"""GFPO over processes: a group that is split keeps the completions that it keeps on one."""

import json
import math

import pytest
from group_filter_processes import OF_ALL, make_trainer, scored
from processes import run_processes


# Groups of four on processes of six or three rows: of two processes both hold half of the middle group, of four each
# group lies on two.
@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("metric", ["length", "qlpo"])
def test_a_group_split_over_processes_is_filtered_as_on_one(tmp_path, processes, metric):
    one = make_trainer(tmp_path / "one", gfpo_metric=metric)
    expected = scored(one)
    assert not any(math.isnan(value) for value in expected["advantages"])
    run_processes(
        "group_filter_processes.py",
        tmp_path / "several",
        processes,
        timeout=240,
        arguments=(json.dumps({"gfpo_metric": metric}),),
    )
    for rank in range(processes):
        there = json.loads((tmp_path / "several" / f"rank{rank}.json").read_text())
        assert {name: there[name] for name in expected} == expected, rank
        for name in OF_ALL:
            assert there["metrics"][name] == pytest.approx(one._metrics["train"][name], nan_ok=True), name
