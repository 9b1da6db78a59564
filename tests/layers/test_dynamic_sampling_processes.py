"""With dynamic sampling, two processes over gloo draw the same prompts and train the same steps as one process."""

import pytest
import torch
from dynamic_sampling_processes import CASES
from processes import run_processes
from tiny import tiny_model


def run(output, processes):
    run_processes("dynamic_sampling_processes.py", output, processes, timeout=140)
    return [torch.load(output / f"result{rank}.pt", weights_only=True) for rank in range(processes)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    return run(folder / "one", 1)[0], *run(folder / "two", 2)


@pytest.mark.parametrize("case", CASES)
def test_two_processes_use_the_prompts_of_one_and_end_with_its_weights(results, case):
    one, first, second = (result[case] for result in results)
    assert len(one["used"]) == len(one["log"]) == 3
    # The two halves, in order, are the batch.
    assert [left + right for left, right in zip(first["used"], second["used"], strict=True)] == one["used"]
    assert first["position"] == second["position"] == one["position"]
    assert first["rounds"] == second["rounds"]
    if case == "out of rounds":
        assert any(entry[3] > 0 for entry in one["log"]), "the test needs a batch that stays short"
    else:
        assert sum(entry[0] > 1 for entry in one["log"]) >= 2, "the test needs dropped groups"
        assert all(entry[3] == 0 for entry in one["log"])
    if case == "even rounds":
        assert any(size % 2 for size in one["rounds"])
        assert all(size % 2 == 0 for size in first["rounds"])
        for entry, other in zip(one["log"], first["log"], strict=True):
            assert entry[1:] == other[1:]  # except the number of rounds
    else:
        assert first["rounds"] == one["rounds"]
        assert first["log"] == second["log"] == one["log"]
    assert one["old"]
    assert first["old"]
    start = tiny_model().state_dict()
    for name, value in one["weights"].items():
        torch.testing.assert_close(first["weights"][name], value, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(second["weights"][name], value, rtol=1e-5, atol=1e-5)
        assert not torch.equal(value, start[name]), f"{name} was not trained"
