"""A run's rollouts and steps, counted before it, against those of real runs."""

import pytest
import torch
from tiny import random_script, scripted_accuracy_reward, scripted_rollout
from trainers import scripted_trainer

from trl_ces.support.errors import UserError
from trl_ces.train.recipe import make_recipe
from trl_ces.train.sizes import make_schedule


def made(tmp_path, **fields):
    usual = {
        "model_name_or_path": "unused",
        "dataset_name": "arithmetic",
        "output_dir": str(tmp_path),
        "use_cpu": True,
        "bf16": False,
        "num_generations": 4,
    }
    return make_recipe({**usual, **fields}, "this test")


# Rows of the data, and fields; per_device_train_batch_size is for one process.
SCHEDULES = {
    "on-policy": (7, {"per_device_train_batch_size": 8}),
    "two steps a rollout, two epochs": (
        9,
        {"per_device_train_batch_size": 4, "steps_per_generation": 2, "num_train_epochs": 2},
    ),
    "accumulated": (
        7,
        {
            "per_device_train_batch_size": 4,
            "gradient_accumulation_steps": 2,
            "steps_per_generation": 4,
            "num_train_epochs": 1.5,
        },
    ),
    "used twice": (6, {"per_device_train_batch_size": 4, "steps_per_generation": 2, "num_iterations": 2}),
    "a number of steps": (6, {"per_device_train_batch_size": 4, "steps_per_generation": 2, "max_steps": 5}),
}


@pytest.mark.parametrize("case", SCHEDULES)
def test_the_steps_and_rollouts_are_those_of_a_real_run(tmp_path, case):
    rows, fields = SCHEDULES[case]
    plan = make_schedule(made(tmp_path, **fields).check_training(1), 1, rows)
    prompts = [f"{n}+{n}=" for n in range(rows)]
    script = random_script(prompts, [[1, 0, 0, 1]] * rows, torch.Generator().manual_seed(1), lengths=(2, 4))
    scripted, rollouts = scripted_rollout(script, 4), []

    def counted(prompts, trainer):
        rollouts.append(len(prompts))
        return scripted(prompts, trainer)

    more = {"rollout_func": counted}
    trainer = scripted_trainer(tmp_path, script, [scripted_accuracy_reward], more=more, **fields)
    trainer.train()
    assert plan.steps == trainer.state.global_step
    assert plan.rollouts == len(rollouts)
    assert {plan.responses} == set(rollouts)


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_the_papers_schedule_is_the_same_on_any_number_of_devices(tmp_path, processes):
    recipe = made(tmp_path, responses_per_step=4, responses_per_rollout=48, num_train_epochs=1)
    plan = make_schedule(recipe.check_training(processes), processes, 2500)
    # fidelity: 12 prompts x 4 samples, 12 steps a rollout, 208 rollouts, 2,496 steps
    assert (plan.responses, plan.prompts, plan.responses_per_step, plan.updates) == (48, 12, 4, 12)
    assert (plan.rollouts, plan.steps, plan.policy) == (208, 2496, "off-policy (11 of 12 updates)")
    assert (plan.micro_batch, plan.accumulation) == {1: (2, 2), 2: (2, 1), 4: (1, 1)}[processes]


def test_too_few_rows_for_a_rollout_are_refused_before_it(tmp_path):
    config = made(tmp_path, per_device_train_batch_size=8, max_steps=5).check_training(1)
    assert make_schedule(config, 1, 2).rollouts == 5
    with pytest.raises(UserError, match="There are 1 rows to train on, and a rollout takes 2 prompts: give more rows"):
        make_schedule(config, 1, 1)


def test_one_update_of_a_rollout_is_on_policy_and_unknown_rows_leave_the_steps_open(tmp_path):
    plan = make_schedule(made(tmp_path, responses_per_step=8).check_training(1), 1, None)
    assert (plan.updates, plan.policy, plan.steps, plan.rollouts) == (1, "on-policy", None, None)
    drawn = make_schedule(
        made(tmp_path, responses_per_step=8, shaping="none", dynamic_sampling=True).check_training(1), 1, None
    )
    assert drawn.rounds == 10
