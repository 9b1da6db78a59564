"""recipes/slurm/node.slurm under tests/helpers/slurm_stand_in.py: one node, saved and requeued at the time limit."""

import os

import pytest
from slurm_jobs import RECIPES, SCRIPT, changed, submit
from slurm_stand_in import install, log

from trl_ces.train.recipe import load_recipe

NODE = RECIPES / "slurm" / "node.slurm"
TRAIN = """#!/bin/sh
echo "$@" >> said
trap 'echo saved >> said; mkdir -p out/checkpoint-1; touch out/checkpoint-1/trainer_state.json; exit 0' TERM
{train}
"""


def job(folder, train):
    commands = install(folder / "bin")
    (commands / "trl-ces").write_text(TRAIN.format(train=train))
    (commands / "trl-ces").chmod(0o755)
    return commands, changed(folder, NODE, OUTPUT="out", gpus_per_node=8)


@pytest.mark.parametrize("code", [0, 7])
def test_the_training_starts_on_all_gpus_and_the_job_ends_with_its_code(tmp_path, code):
    commands, script = job(tmp_path, f"exit {code}")
    assert submit(tmp_path, commands, script, "--seed", "43")[0] == code
    assert (tmp_path / "said").read_text() == (
        "train --config R1-7B colocate --accelerate_config zero3 --num_processes 8 --output_dir out --seed 43\n"
    )
    assert not [entry for entry in log(commands) if entry.get("words") == ["requeue", "4711"]]
    assert load_recipe(["R1-7B", "colocate"]).setting("output_dir") in NODE.read_text()


WAYS_OUT = {NODE: "give OUTPUT=DIRECTORY before sbatch, not", SCRIPT: "change OUTPUT in the script, do not give"}


@pytest.mark.parametrize("source", WAYS_OUT, ids=["node", "ces"])
def test_an_output_that_a_requeued_job_would_not_look_into_is_refused(tmp_path, source):
    commands = install(tmp_path / "bin")
    code, said = submit(tmp_path, commands, changed(tmp_path, source), "--output_dir", "mine")
    assert code == 2
    assert said == f"{source.name}: {WAYS_OUT[source]} --output_dir.\n"


def test_before_its_time_limit_the_job_saves_is_requeued_and_resumes(tmp_path):
    ends = "[ -d out/checkpoint-1 ] && touch out/trainer_state.json && exit 0"
    commands, script = job(tmp_path, f"{ends}\ntouch out.ready\nwhile :; do sleep 0.1; done")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trainer_state.json").touch()  # of a finished run, which this job makes longer
    os.utime(tmp_path / "out" / "trainer_state.json", (0, 0))
    code, said = submit(tmp_path, commands, script, SLURM_STAND_IN_TERM=str(tmp_path / "out.ready"))
    assert code == 0
    assert said.count("node.slurm: the job is requeued.\n") == 1
    first, saved, second = (tmp_path / "said").read_text().splitlines()
    assert saved == "saved"
    assert "--resume_from_checkpoint" not in first
    assert second.endswith("--resume_from_checkpoint true")
