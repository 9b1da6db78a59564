"""recipes/slurm/ces.slurm trains on two nodes with a third for the server, is killed, requeued, and ends as if not.

Nodes are launches on this machine; Slurm is tests/helpers/slurm_stand_in.py, the server tests/helpers/vllm_server.py.
"""

import json
import os
import sys

import pytest
import torch
from processes import free_port
from server_runs import install as install_vllm
from server_runs import with_stub
from server_training import RECIPE, assert_same_weights, make_job, weights
from slurm_jobs import changed, submit
from slurm_stand_in import install, log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def run(folder, job, asked_after=None):
    """The job's code, what it printed, and its commands' log."""
    folder.mkdir()
    commands = install(folder / "bin")
    install_vllm(commands)
    (commands / "trl-ces").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m trl_ces.cli.main "$@"\n')
    (commands / "trl-ces").chmod(0o755)
    (folder / "recipe.yaml").write_text(json.dumps({**RECIPE, "dataset_name": str(job / "rows.jsonl")}))
    lines = {"RECIPE": "recipe.yaml", "MODEL": job / "model", "MAX_MODEL_LEN": 64, "OUTPUT": "out", "ENGINE": "ddp"}
    script = changed(folder, **lines, PORT=free_port(), gpus_per_node=1)
    ports = ["--main_process_port", str(free_port()), "--vllm_group_port", str(free_port())]
    variables = with_stub(TRL_CES_TEST_FAULT="null", HF_HUB_OFFLINE="1")
    if asked_after is not None:
        variables["SLURM_STAND_IN_TERM"] = str(folder / "out" / f"checkpoint-{asked_after}")
    variables = {name: value for name, value in variables.items() if os.environ.get(name) != value and name != "PATH"}
    code, said = submit(folder, commands, script, *ports, **variables)
    return code, said, log(commands)


def test_a_job_that_is_killed_and_requeued_ends_with_the_weights_of_one_that_is_not(tmp_path):
    job = make_job(tmp_path)
    code, said, commands = run(tmp_path / "whole", job)
    assert code == 0, said[-4000:]
    assert [len(entry["nodes"]) for entry in commands if entry["command"] == "srun"] == [1, 2]

    code, said, commands = run(tmp_path / "killed", job, asked_after=2)
    assert code == 0, said[-4000:]
    assert "Stopped by SIGTERM after step" in said
    assert "ces.slurm: the job is requeued." in said
    assert "Resuming from out/checkpoint-" in said
    steps = [entry for entry in commands if entry["command"] == "srun"]
    assert [len(entry["nodes"]) for entry in steps] == [1, 2, 1, 2]
    assert "--resume_from_checkpoint" not in steps[1]["words"]
    assert steps[3]["words"][-2:] == ["--resume_from_checkpoint", "true"]
    assert_same_weights(tmp_path / "killed" / "out", tmp_path / "whole" / "out")
    trained, first = weights(tmp_path / "whole" / "out"), weights(job / "model")
    assert any(not torch.equal(value, first[name]) for name, value in trained.items())
