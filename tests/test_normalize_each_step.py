"""Check that `normalize_each_step` divides the loss by each step's token count (Eq. 1), not by the mean count."""

import pytest
import torch
from tiny import AS_TRL
from trl import GRPOTrainer
from unpadded_runs import CASES, train

from trl_ces import CESTrainer

# The learning rate is 0, so that the gradients of all steps are comparable.
NO_UPDATES = {"learning_rate": 0.0, "gradient_accumulation_steps": 2, "steps_per_generation": 8, "max_steps": 4}


@pytest.mark.parametrize(
    ("changes", "options"),
    [(AS_TRL, {}), (AS_TRL, {"script_options": {"masked": True}}), ({}, {})],
    ids=["as trl", "tool mask", "arranged"],
)
def test_the_loss_of_a_step_is_divided_by_its_own_tokens(tmp_path, changes, options):
    _, mean = train(CESTrainer, tmp_path / "trl", **NO_UPDATES, **changes, **options)
    trainer, each = train(CESTrainer, tmp_path / "each", **NO_UPDATES, **changes, **options, normalize_each_step=True)
    buffer = trainer._buffered_inputs
    tokens = [int((batch["completion_mask"] * batch.get("tool_mask", 1)).sum()) for batch in buffer]
    tokens_per_step = [sum(tokens[start : start + 2]) for start in range(0, 8, 2)]
    assert max(tokens_per_step) > 1.05 * min(tokens_per_step)
    for count, by_mean, by_step in zip(tokens_per_step, mean.gradients, each.gradients, strict=True):
        weight = sum(tokens_per_step) / 4 / count
        for name, value in by_step.items():
            torch.testing.assert_close(value, by_mean[name] * weight, rtol=1e-4, atol=1e-7)


def test_the_setting_has_no_effect_with_one_step_per_rollout(tmp_path):
    _, upstream = train(GRPOTrainer, tmp_path / "trl", **CASES["on-policy"])
    _, each = train(CESTrainer, tmp_path / "each", **CASES["on-policy"], **AS_TRL, normalize_each_step=True)
    for expected, actual in zip(upstream.gradients, each.gradients, strict=True):
        assert all(torch.equal(value, actual[name]) for name, value in expected.items())


def test_a_rollout_must_have_a_whole_number_of_steps(tmp_path):
    with pytest.raises(ValueError, match="whole number of optimizer steps per rollout"):
        train(CESTrainer, tmp_path, gradient_accumulation_steps=6, steps_per_generation=8, normalize_each_step=True)
