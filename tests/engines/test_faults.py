"""Check that injected faults are reported in one sentence, and that resumed runs match uninterrupted runs.

The faults are listed in docs/cluster.md, "When something fails". The server is the stand-in in
tests/helpers/vllm_server.py. Several launches on this machine simulate several machines.
"""

import os
import shutil

import pytest
from server_runs import serve_in_process, serve_in_thread
from server_training import Training, assert_same_weights, machine_flags, make_job, train

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

TWO_PROCESSES = ("--num_processes", "2")
RESUME = ("--resume_from_checkpoint", "true")


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return make_job(tmp_path_factory.mktemp("job"))


@pytest.fixture(scope="module")
def stand_in(job):
    with serve_in_thread(job / "model") as (running, _):
        yield running


@pytest.fixture(scope="module")
def complete_runs(job, stand_in, tmp_path_factory):
    """Map each number of processes to the output folder of a run without faults."""
    folder = tmp_path_factory.mktemp("complete")
    runs = {1: train(job, folder / "1", stand_in.url), 2: train(job, folder / "2", stand_in.url, TWO_PROCESSES)}
    assert [run.code for run in runs.values()] == [0, 0]
    return {number: folder / str(number) for number in runs}


# Name -> (server fault, settings, part of the command's error message).
SERVER_FAULTS = {
    "request rejected": (("/v1/completions", 400), {}, "failed (Request failed: 400, "),
    "engine dead": (("/v1/completions", 500, 9), {}, "failed (RetryError): see its log, and restart it with"),
    "server unresponsive": (("/v1/completions", "hang"), {"ddp_timeout": 20}, "failed (ReadTimeout)"),
}


@pytest.mark.parametrize("fault", SERVER_FAULTS)
def test_a_server_fault_is_reported_and_the_resumed_run_matches(job, tmp_path, stand_in, complete_runs, fault):
    (path, kind, *times), changes, sentence = SERVER_FAULTS[fault]
    stand_in.fail(path, kind, skip=1, times=times[0] if times else 1)
    result = train(job, tmp_path / "out", stand_in.url, **changes)
    stand_in.clear_faults()
    assert result.code == 2
    (message,) = result.error_messages()
    assert sentence in message
    assert "checkpoint-2 with the same command and `--resume_from_checkpoint true`." in message
    assert train(job, tmp_path / "out", stand_in.url, RESUME).code == 0
    assert_same_weights(tmp_path / "out", complete_runs[1])


def test_a_run_resumes_after_the_server_dies_during_a_weight_update(job, tmp_path, complete_runs):
    with serve_in_process(job / "model") as dying:
        dying.fail("/update_weights", "die", skip=1)
        result = train(job, tmp_path / "out", dying.url)
    assert result.code in (1, 2)
    assert len(result.error_messages()) == 1
    assert "Resume from" in result.error_messages()[0]
    with serve_in_process(job / "model") as restarted:
        assert train(job, tmp_path / "out", restarted.url, RESUME).code == 0
    assert_same_weights(tmp_path / "out", complete_runs[1])


# Fault on rank 1 in the second rollout -> (exit code of the command, its error message). Hanging processes are not
# tested, because with `use_cpu`, transformers ignores `ddp_timeout` and uses torch's limit of 30 minutes.
PROCESS_FAULTS = {
    "killed": (1, "training ended with code 1; see the first error above, if any"),
    "reward raises": (2, "The reward function 'vowel_accuracy_reward' raised ValueError: grader unavailable"),
    "time limit": (0, None),
    "machine lost": (-9, None),
}


@pytest.mark.parametrize("fault", PROCESS_FAULTS)
def test_a_process_fault_ends_the_run_and_the_resumed_run_matches(job, tmp_path, stand_in, complete_runs, fault):
    code, sentence = PROCESS_FAULTS[fault]
    injected_fault = {"rank": 1, "call": 2, "what": fault}
    result = train(job, tmp_path / "out", stand_in.url, TWO_PROCESSES, fault=injected_fault)
    assert result.code == code, result.errors[-3000:]
    if sentence is None:
        assert not result.error_messages()
        assert fault != "time limit" or "Stopped by SIGTERM after step 3. Resume from " in result.stdout
    else:
        assert len(result.error_messages()) == 1
        assert sentence in result.error_messages()[0]
        assert "checkpoint-2 with the same command and `--resume_from_checkpoint true`." in result.error_messages()[0]
    assert train(job, tmp_path / "out", stand_in.url, [*TWO_PROCESSES, *RESUME]).code == 0
    assert_same_weights(tmp_path / "out", complete_runs[2])


def test_a_full_disk_is_reported_and_the_resumed_run_matches(job, tmp_path, stand_in, complete_runs):
    outputs = [tmp_path / "node0", tmp_path / "node1"]  # the machines do not share a disk
    injected_fault = {"rank": 1, "call": 2, "what": "full disk"}
    nodes = [
        Training(job, output, stand_in.url, flags, fault=injected_fault)
        for output, flags in zip(outputs, machine_flags(), strict=True)
    ]
    first, second = [node.wait() for node in nodes]
    assert second.code == 2
    (sentence,) = second.error_messages()
    assert f"The disk that holds {outputs[1]} is full" in sentence
    assert first.code == 1
    assert "checkpoint-2 with the same command and `--resume_from_checkpoint true`." in first.error_messages()[0]
    # The first machine saved the training state; the second saved the rollout rows and random state of its process.
    checkpoints = [output / "checkpoint-2" for output in outputs]
    shutil.copytree(checkpoints[1], checkpoints[0], dirs_exist_ok=True)
    shutil.copytree(checkpoints[0], checkpoints[1], dirs_exist_ok=True)
    nodes = [
        Training(job, checkpoint.parent, stand_in.url, [*flags, "--resume_from_checkpoint", str(checkpoint)])
        for checkpoint, flags in zip(checkpoints, machine_flags(), strict=True)
    ]
    assert [node.wait().code for node in nodes] == [0, 0]
    assert_same_weights(outputs[0], complete_runs[2])


def test_a_machine_without_vllm_fails_and_the_other_machine_times_out(job, tmp_path, stand_in):
    flags = machine_flags("--rdzv_conf", "timeout=30")
    first = Training(job, tmp_path / "node0", stand_in.url, flags[0])
    second = Training(job, tmp_path / "node1", stand_in.url, flags[1], stub=False)
    failed, waiting = second.wait(), first.wait()
    assert failed.code == 2
    assert "vLLM is missing: run `pip install" in failed.error_messages()[0]
    assert waiting.code == 1
    assert "This run has no checkpoint to resume from: start it again." in waiting.error_messages()[0]


@pytest.mark.parametrize("fault", ["truncated checkpoint", "clock set back"])
def test_a_run_resumes_from_the_newest_complete_checkpoint(job, tmp_path, stand_in, complete_runs, fault):
    output = tmp_path / "out"
    shutil.copytree(complete_runs[1], output)
    shutil.rmtree(output / "checkpoint-6")
    (output / "model.safetensors").unlink()
    if fault == "truncated checkpoint":
        file = output / "checkpoint-5" / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-8])
    else:  # the machine's clock was set back after step 3
        for step in (4, 5):
            os.utime(output / f"checkpoint-{step}", (1e9, 1e9))
    result = train(job, output, stand_in.url, RESUME, save_total_limit=2)
    assert result.code == 0
    assert f"checkpoint-{4 if fault == 'truncated checkpoint' else 5}." in result.stdout
    assert_same_weights(output, complete_runs[1])
