"""A study that stopped before the modules moved goes on: its files name them by their old dotted paths."""

import json
from pathlib import Path

import pytest
import yaml

from trl_ces.cli import study as command
from trl_ces.report.runs import read_runs
from trl_ces.study import run as study_run
from trl_ces.study.cells import load_study
from trl_ces.study.results import read_results
from trl_ces.study.run import prepare
from trl_ces.support.errors import UserError

# As the command of that time wrote them: `trl-ces study` on STUDY, stopped after two runs.
STUDY = """
output_dir: out
seeds: [0, 1]
methods:
  DAPO: {config: arithmetic/dapo}
  CES: {config: arithmetic/ces}
overrides:
  model_name_or_path: base
  max_steps: 12
  trim_padding: false  # the recipes of that time had the two
  arrange_by_length: false
  env: {OMP_NUM_THREADS: 1}
evaluation:
  function: trl_ces.arithmetic_evaluation.evaluate
  num_problems: 20
"""
RECIPE = """\
shaping: none
model_name_or_path: base
model_builder: trl_ces.arithmetic_model.make_base_model
dtype: float32
dataset_name: arithmetic
max_train_samples: 1280
dataset_seed: 0
reward_funcs:
- trl_ces.arithmetic.arithmetic_accuracy_reward
num_generations: 8
per_device_train_batch_size: 64
steps_per_generation: 4
max_completion_length: 64
trim_padding: false
arrange_by_length: false
temperature: 1.0
max_steps: 12
learning_rate: 0.0001
lr_scheduler_type: constant
output_dir: out/dapo/seed-{seed}
run_name: mini-dapo-seed-{seed}
seed: {seed}
use_cpu: true
bf16: false
gradient_checkpointing: false
logging_steps: 4
save_strategy: 'no'
report_to: none
env:
  OMP_NUM_THREADS: 1
"""
EVALUATION = {
    "settings": {"function": "trl_ces.arithmetic_evaluation.evaluate", "num_problems": 20},
    "seconds": 2.0,
    "benchmarks": {"held out": {"accuracy": 0.25, "length_tokens": 23.2, "entropy_bits": 2.3, "checks": 0.2}},
    "packages": {"trl_ces": "0.1.0", "trl": "1.16.0"},
}
TRAINING = {"seconds": 24.5, "attempts": 1, "steps": 12, "tokens": 20565, "packages": {"trl_ces": "0.1.0"}}
POINT = {
    "step": 4,
    "rewards/arithmetic_accuracy_reward/mean": 0.5,
    "completions/mean_length": 22.0,
    "entropy": 1.5,
    "num_tokens": 9.0,
}


def write_state(folder):
    state = {"global_step": 12, "max_steps": 12, "log_history": [POINT]}
    (folder / "trainer_state.json").write_text(json.dumps(state))


@pytest.fixture(params=["as it was", "in today's names"])
def old(request, tmp_path, monkeypatch):
    """The folder, and the study's YAML, which its owner may have brought up to date."""
    monkeypatch.chdir(tmp_path)
    text = STUDY if request.param == "as it was" else STUDY.replace("trl_ces.ar", "trl_ces.toy.ar")
    (tmp_path / "mini.yaml").write_text(text)
    for seed in (0, 1):
        folder = tmp_path / "out" / "dapo" / f"seed-{seed}"
        folder.mkdir(parents=True)
        (folder / "recipe.yaml").write_text(RECIPE.format(seed=seed))
        (folder / "training.json").write_text(json.dumps(TRAINING, indent=2))
        (folder / "evaluation.json").write_text(json.dumps(EVALUATION, indent=2))
        write_state(folder)
    return tmp_path


def test_finished_runs_stay_finished_and_the_others_are_run_and_compared(old, monkeypatch, capsys):
    begun = []

    def run_all(pending, slots, on_finish, on_failure):
        for run in pending:
            begun.append((run.cell.name, [step.log.name for step in run.steps]))
            run.cell.folder.mkdir(parents=True)
            for step in run.steps:
                step.before()
                write_state(run.cell.folder)
                step.after()
            evaluation = {**EVALUATION, "settings": load_study(Path("mini.yaml")).evaluation}
            (run.cell.folder / "evaluation.json").write_text(json.dumps(evaluation))
            on_finish(run.cell)
        return []

    monkeypatch.setattr(study_run, "run_all", run_all)
    assert command.run(["--config", "mini.yaml"]) == 0
    assert begun == [(f"CES, seed {seed}", ["train.log", "evaluation.log"]) for seed in (0, 1)]
    assert "4 runs in out: 2 finished, 2 to go" in capsys.readouterr().out
    table = read_results(old / "out" / "results.csv")
    assert table[["method", "seed", "train/steps"]].values.tolist() == [
        ["DAPO", 0, 12.0],
        ["DAPO", 1, 12.0],
        ["CES", 0, 12.0],
        ["CES", 1, 12.0],
    ]
    assert "| CES    |    2 | 25.0 ± 0.0 | +0.0 ± 0.0 |" in (old / "out" / "comparison.md").read_text()
    begun.clear()
    assert command.run(["--config", "mini.yaml"]) == 0
    assert begun == []
    (study,) = read_runs([old / "out"]).studies
    assert {(training.method, training.seed) for training in study.trainings} == {
        (method, seed) for method in ("DAPO", "CES") for seed in (0, 1)
    }


def test_a_run_that_was_trained_is_only_measured(old):
    (old / "out" / "dapo" / "seed-1" / "evaluation.json").unlink()
    pending, _ = prepare(load_study(Path("mini.yaml")), 1)
    steps = {run.cell.name: [step.log.name for step in run.steps] for run in pending}
    assert steps["DAPO, seed 1"] == ["evaluation.log"]
    assert "DAPO, seed 0" not in steps


def test_another_reward_is_still_refused(old):
    file = old / "out" / "dapo" / "seed-0" / "recipe.yaml"
    recipe = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**recipe, "reward_funcs": ["trl_ces.rewards.accuracy_reward"]}))
    with pytest.raises(UserError, match=r"holds a run with other settings \(`reward_funcs`"):
        prepare(load_study(Path("mini.yaml")), 1)
