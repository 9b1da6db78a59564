"""Run `trl-ces train` with the stand-in for vLLM's server in tests/helpers/vllm_server.py.

The runs use one process, two processes, two machines (simulated by two launches), or a restarted server.
"""

import time

import pytest
import torch
from processes import free_port
from server_runs import serve_in_process
from server_training import Training, assert_same_weights, machine_flags, make_job, train, weights

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

TWO_PROCESSES = ("--num_processes", "2")


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return make_job(tmp_path_factory.mktemp("job"))


def test_two_processes_and_two_machines_match_a_single_process_run(job, tmp_path):
    """Compare only the first step: TRL shuffles the rows of each process separately, so later steps differ."""
    changes = {"max_steps": 1, "responses_per_rollout": 8, "adam_epsilon": 1e-4}
    with serve_in_process(job / "model") as stand_in:
        assert train(job, tmp_path / "one", stand_in.url, **changes).code == 0
        assert train(job, tmp_path / "two", stand_in.url, TWO_PROCESSES, **changes).code == 0
        nodes = [
            Training(job, tmp_path / f"node{rank}", stand_in.url, flags, **changes)
            for rank, flags in enumerate(machine_flags())
        ]
        assert [node.wait().code for node in nodes] == [0, 0]
        requests = stand_in.log("completions")
    assert len(requests) == 3, "expected one request per rollout, from rank 0"
    assert requests[0] == requests[1] == requests[2]
    expected = weights(tmp_path / "one")
    for name, value in weights(tmp_path / "two").items():
        assert (value - expected[name]).norm() <= 1e-4 * expected[name].norm(), name
    assert any(not torch.equal(value, weights(job / "model")[name]) for name, value in expected.items())
    assert_same_weights(tmp_path / "node0", tmp_path / "two")
    assert not (tmp_path / "node1" / "model.safetensors").exists()


@pytest.mark.parametrize("flags", [(), TWO_PROCESSES], ids=["one process", "two processes"])
def test_a_run_resumes_with_a_new_server_after_the_server_dies(job, tmp_path, flags):
    with serve_in_process(job / "model") as stand_in:
        assert train(job, tmp_path / "complete", stand_in.url, flags).code == 0
        rollouts = stand_in.log("completions")
    with serve_in_process(job / "model") as stand_in:
        stand_in.fail("/v1/completions", "die", skip=1)
        result = train(job, tmp_path / "stopped", stand_in.url, flags)
        assert stand_in.process.wait(60) == 1
    assert result.code == 2
    (sentence,) = result.error_messages()
    assert f"The vLLM server at {stand_in.url} failed (ConnectionError)" in sentence
    assert "start it with `VLLM_SERVER_DEV_MODE=1 vllm serve" in sentence
    assert "Resume from" in sentence
    assert "checkpoint-2 with the same command and `--resume_from_checkpoint true`." in sentence
    with serve_in_process(job / "model") as stand_in:  # the new server has the initial weights
        result = train(job, tmp_path / "stopped", stand_in.url, [*flags, "--resume_from_checkpoint", "true"])
        assert result.code == 0, result.errors[-3000:]
        assert stand_in.log("completions") == rollouts[1:]
    assert_same_weights(tmp_path / "stopped", tmp_path / "complete")


def test_training_waits_for_a_server_that_starts_later(job, tmp_path):
    port = free_port()
    training = Training(job, tmp_path / "out", f"http://127.0.0.1:{port}", max_steps=2, vllm_server_timeout=300)
    time.sleep(5)
    with serve_in_process(job / "model", port=port):
        assert training.wait().code == 0
