"""Check that two gloo processes match a single process, even if a group is split between the processes."""

import pytest
import torch
from processes import run_processes
from tiny import tiny_model

from trl_ces.methods.metrics import CES_METRICS


def run(output, processes):
    run_processes("two_processes.py", output, processes, timeout=280)
    return torch.load(output / "result.pt", weights_only=True)


def test_two_processes_match_the_weights_and_metrics_of_one_process(tmp_path):
    one, two = run(tmp_path / "one", 1), run(tmp_path / "two", 2)
    assert (one["distributed_type"], two["distributed_type"]) == ("DistributedType.NO", "DistributedType.MULTI_CPU")
    assert one["margin"] > 1e-4, "the script needs a different seed: rounding errors could change the selected tokens"
    start = tiny_model().state_dict()
    for name, value in one["weights"].items():
        torch.testing.assert_close(two["weights"][name], value, rtol=1e-5, atol=1e-5)
        assert not torch.equal(value, start[name]), f"{name} was not trained"
    logs = [[entry for entry in result["log"] if "ces/selected_tokens" in entry] for result in (one, two)]
    assert len(logs[0]) == len(logs[1]) == 2
    for single, double in zip(*logs, strict=True):
        for name in CES_METRICS:
            assert double[name] == pytest.approx(single[name], rel=1e-5), name
