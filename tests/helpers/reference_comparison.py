"""Compare a trainer with tests/reference.py on a scripted rollout."""

import pytest
import torch
from trainers import prepare_trainer, scripted_trainer

PROMPTS = ["12+3=", "4+5="]


def make_trainer(tmp_path, script, group_size=4, model=None, **changes):
    changes = {"per_device_train_batch_size": group_size * len(script), "max_completion_length": 40, **changes}
    more = {} if model is None else {"model": model}
    return scripted_trainer(tmp_path, script, num_generations=group_size, more=more, **changes)


def rollout(trainer, script, group_size=4):
    examples = [{"prompt": prompt} for prompt in script for _ in range(group_size)]
    return prepare_trainer(trainer)._generate_and_score_completions(examples)


def reference_rows(trainer, script, mask_truncated=False):
    rows = []
    for prompt, group in script.items():
        for entry in group:
            scores = [score for score in (entry["accuracy"], entry["bonus"]) if score is not None]
            mask = entry.get("mask", [1] * len(entry["completion_ids"]))
            if mask_truncated and entry["completion_ids"][-1] != 1:
                mask = [0] * len(mask)
            rows.append(
                {
                    "prompt_ids": trainer.processing_class.encode(prompt),
                    "completion_ids": entry["completion_ids"],
                    "mask": mask,
                    "accuracy": entry["accuracy"],
                    "rewards": sum(scores) if scores else None,
                }
            )
    return rows


def assert_loss_and_gradients_agree(trainer, loss, reference_model, reference_loss):
    # Token losses with magnitudes near 1 cancel in the mean, so the tolerance is absolute.
    assert loss.item() == pytest.approx(reference_loss.item(), rel=0, abs=1e-5)
    trainer.model.zero_grad()
    loss.backward()
    reference_loss.backward()
    expected = dict(reference_model.named_parameters())
    for name, parameter in trainer.model.named_parameters():
        difference = (parameter.grad.double() - expected[name].grad).norm() / expected[name].grad.norm()
        assert difference < 1e-4, f"{name}: relative difference {difference:.2e}"


@torch.no_grad()
def perturb_weights(model):
    """Perturb the weights after sampling, so that the importance ratios are not 1."""
    generator = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        parameter.add_(0.03 * torch.randn(parameter.shape, generator=generator))
