"""Check that the first importance ratio is 1 even in bf16: old log-probs come from the update's forward passes."""

import pytest
import torch
from tiny import random_script, tiny_model
from trainers import scripted_trainer, with_reference
from unpadded_runs import ACCURACIES, PROMPTS

from trl_ces import CESTrainer

FIRST = "log_ratio/first_step_max"


class RatioTrainer(CESTrainer):
    """Trainer that records the largest |log ratio| of each micro-batch from the inputs of TRL's loss."""

    def _compute_loss(self, model, inputs):
        self.logps = []
        loss = super()._compute_loss(model, inputs)
        log_ratios = (torch.cat(self.logps) - inputs["old_per_token_logps"]) * inputs["completion_mask"]
        self.ratios = [*getattr(self, "ratios", []), log_ratios.abs().max().item()]
        return loss

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        outputs = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if torch.is_grad_enabled():
            self.logps.append(outputs[0].detach())
        return outputs


def log_ratios(tmp_path, dtype, **changes):
    """Return the largest |log ratio| of each micro-batch (four per rollout, two rollouts), and the logged values."""
    script = random_script(PROMPTS, ACCURACIES, torch.Generator().manual_seed(3), lengths=(9, 80))
    arguments = {"steps_per_generation": 4, "per_device_train_batch_size": 4, "max_steps": 8, "ces_tau": 0.3}
    arguments |= {"max_completion_length": 90, "learning_rate": 1e-2, "optim": "sgd"}
    arguments |= {"dynamic_sampling_max_rounds": 1, **changes}
    model = with_reference(tiny_model(spread=0.3), tmp_path).to(dtype)
    trainer = scripted_trainer(tmp_path, script, trainer_class=RatioTrainer, more={"model": model}, **arguments)
    trainer.train()
    return trainer.ratios, [entry[FIRST] for entry in trainer.state.log_history if FIRST in entry]


CASES = {
    "arranged": {},
    "trimmed only": {"arrange_by_length": False},
    "packed": {"packing": True},
    "reference model": {"beta": 0.04},
    "dynamic sampling": {"dynamic_sampling": True, "ces_allow_dynamic_sampling": True},
    "in pieces": {"max_tokens_per_micro_batch": 120},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
def test_the_first_importance_ratio_of_a_rollout_is_exactly_1(tmp_path, dtype, case):
    ratios, logged = log_ratios(tmp_path, dtype, **CASES[case])
    assert [ratios[0], ratios[4]] == logged == [0.0, 0.0]
    assert min(ratios[1:4] + ratios[5:]) > 0  # the policy has changed


def test_all_ratios_in_the_first_step_are_1(tmp_path):
    ratios, _ = log_ratios(tmp_path, torch.bfloat16, gradient_accumulation_steps=2, max_steps=4)
    assert ratios[0] == ratios[1] == ratios[4] == ratios[5] == 0.0
    assert ratios[2] > 0
