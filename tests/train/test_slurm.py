"""recipes/slurm/ces.slurm: what it starts, and how it ends. Slurm is tests/helpers/slurm_stand_in.py."""

import os
import re
import shlex
import sys

import pytest
from processes import free_port
from slurm_jobs import RECIPES, SCRIPT, changed, submit
from slurm_stand_in import directives, install, log

from trl_ces.support.yaml import read_yaml
from trl_ces.train.recipe import load_recipe
from trl_ces.train.server import server_command

# `vllm`: healthy after a moment, until it is killed. `trl-ces`: trains until told.
VLLM = """#!/bin/sh
[ "$1 $2" = "serve NAME" ] && [ "$VLLM_SERVER_DEV_MODE" = 1 ] || exit 3
while [ "$1" != --port ]; do shift; done
{vllm}
mkdir -p www/health && exec {python} -m http.server "$2" --directory www
"""
TRAIN = """#!/bin/sh
echo "$@" >> said
trap 'echo saved >> said; mkdir -p out/checkpoint-1; {saves}; exit 0' TERM
{train}
"""


def job(folder, train, vllm="", nodes=3, saves="touch out/checkpoint-1/trainer_state.json"):
    """A folder with the stand-ins and a script for them."""
    commands = install(folder / "bin")
    for name, text in (("vllm", VLLM), ("trl-ces", TRAIN)):
        (commands / name).write_text(text.format(vllm=vllm, train=train, saves=saves, python=sys.executable))
        (commands / name).chmod(0o755)
    lines = {"MODEL": "NAME", "OUTPUT": "out", "PORT": free_port(), "RECIPE": "mine", "nodes": nodes}
    return commands, changed(folder, gpus_per_node=8, **lines)


def test_the_directives_are_read_by_sbatch_and_the_lines_to_change_stand_on_top():
    options = directives(SCRIPT)
    assert (options.nodes, options.gpus_per_node, options.signal) == ("3", "8", "B:TERM@900")
    assert options.requeue
    assert options.open_mode == "append"
    assert options.ntasks_per_node == "1"
    lines = SCRIPT.read_text().splitlines()
    to_change = [n for n, line in enumerate(lines) if re.match(r"#SBATCH --(account|partition)|[A-Z_]+=", line)]
    assert max(to_change) < 32
    assert len([line for line in lines if line.startswith("#SBATCH")]) == len(
        [value for value in vars(options).values() if value]
    )


def test_the_script_starts_the_server_and_the_training_of_its_recipe(tmp_path):
    commands, script = job(tmp_path, "exit 0")
    assert submit(tmp_path, commands, script, "--learning_rate", "1e-6")[0] == 0
    server, training = [entry for entry in log(commands) if entry["command"] == "srun"]
    assert (server["nodes"], training["nodes"]) == (["127.0.0.3"], ["127.0.0.1", "127.0.0.2"])
    given = dict(re.findall(r'^([A-Z_]+)="?([^"\n]+)', SCRIPT.read_text(), flags=re.MULTILINE))
    recipe = load_recipe(given["RECIPE"].strip("()").split())
    expected = shlex.split(server_command(recipe).replace(given["MODEL"], "NAME"))
    words = server["words"][server["words"].index("env") + 1 :]
    start = words.index("--port")
    assert words[start + 2 :][-2:] == ["--data-parallel-size", "8"]
    assert sorted(words[:start] + words[start + 2 : -2]) == sorted(expected)
    assert recipe.model.model_name_or_path == given["MODEL"]
    assert recipe.setting("output_dir") == given["OUTPUT"]
    assert recipe.setting("vllm_max_model_length") == int(given["MAX_MODEL_LEN"])
    engine = read_yaml(RECIPES / "accelerate" / f"{given['ENGINE']}.yaml")
    assert engine["main_process_port"]
    said = sorted((tmp_path / "said").read_text().splitlines())
    assert len(said) == 2
    for rank, line in enumerate(said):
        assert line.startswith("train --config mine --model_name_or_path NAME --output_dir out ")
        assert "--vllm_server_host 127.0.0.3 " in line
        assert "--num_machines 2 --num_processes 16 --main_process_ip 127.0.0.1 " in line
        assert line.endswith(f"--learning_rate 1e-6 --machine_rank {rank}")


def test_a_failure_of_the_training_ends_the_job_with_its_code(tmp_path):
    commands, script = job(tmp_path, '[ "${SLURM_NODEID}" = 0 ] && sleep 600; exit 7')
    assert submit(tmp_path, commands, script)[0] in (7, 137)  # srun kills the other node's
    assert not [entry for entry in log(commands) if entry.get("words") == ["requeue", "4711"]]


def test_a_server_that_does_not_come_up_ends_the_job_before_any_training(tmp_path):
    commands, script = job(tmp_path, "exit 0", vllm="exit 9")
    code, said = submit(tmp_path, commands, script)
    assert code == 1
    assert "ces.slurm: the server on 127.0.0.3 is not up: see above.\n" in said
    assert not (tmp_path / "said").exists()


def test_a_server_that_ends_in_the_run_lets_the_training_save_and_fails_the_job(tmp_path):
    dies = "(while [ ! -e said ]; do sleep 0.1; done; kill $$) &"
    commands, script = job(tmp_path, "while :; do sleep 0.1; done", vllm=dies, nodes=2)
    code, said = submit(tmp_path, commands, script)
    assert code == 1
    assert "ces.slurm: the server has ended: the training is asked to save.\n" in said
    assert (tmp_path / "said").read_text().splitlines()[-1] == "saved"
    assert not [entry for entry in log(commands) if entry.get("words") == ["requeue", "4711"]]


def test_one_node_is_refused(tmp_path):
    commands, script = job(tmp_path, "exit 0", nodes=1)
    code, said = submit(tmp_path, commands, script)
    assert code == 2
    assert said == "ces.slurm: one node serves and the others train: give --nodes=2 or more.\n"


@pytest.mark.parametrize("whole", [True, False], ids=["a whole checkpoint", "half a checkpoint"])
def test_before_its_time_limit_a_job_saves_is_requeued_and_resumes(tmp_path, whole):
    ends = "[ -d out/checkpoint-1 ] && touch out/trainer_state.json && exit 0"
    saves = {} if whole else {"saves": "touch out/checkpoint-1/model.safetensors"}
    commands, script = job(tmp_path, f"{ends}\ntouch out.ready\nwhile :; do sleep 0.1; done", nodes=2, **saves)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trainer_state.json").touch()  # of a finished run, which this job makes longer
    os.utime(tmp_path / "out" / "trainer_state.json", (0, 0))
    code, said = submit(tmp_path, commands, script, SLURM_STAND_IN_TERM=str(tmp_path / "out.ready"))
    assert code == 0
    assert said.count("ces.slurm: the job is requeued.\n") == 1
    assert [entry["command"] for entry in log(commands)].count("time limit") == 1
    first, saved, second = (tmp_path / "said").read_text().splitlines()
    assert saved == "saved"
    assert "--resume_from_checkpoint" not in first
    assert ("--resume_from_checkpoint true --machine_rank 0" in second) == whole


def test_a_job_that_is_done_when_it_is_asked_to_save_is_not_requeued(tmp_path):
    done = "trap 'touch out/trainer_state.json; exit 0' TERM\nmkdir out\ntouch out.ready\nwhile :; do sleep 0.1; done"
    commands, script = job(tmp_path, done, nodes=2)
    code, said = submit(tmp_path, commands, script, SLURM_STAND_IN_TERM=str(tmp_path / "out.ready"))
    assert (code, said.count("requeued")) == (0, 0)


def test_a_job_that_is_asked_to_save_before_its_server_is_up_starts_again(tmp_path):
    slow = "[ -e out.ready ] || { touch out.ready; sleep 600; }"
    commands, script = job(tmp_path, "exit 0", vllm=slow, nodes=2)
    code, said = submit(tmp_path, commands, script, SLURM_STAND_IN_TERM=str(tmp_path / "out.ready"))
    assert (code, said.count("ces.slurm: the job is requeued.\n")) == (0, 1)
    assert len((tmp_path / "said").read_text().splitlines()) == 1
