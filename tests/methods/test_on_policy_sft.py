"""Test on-policy SFT. tests/test_trainer_reference.py compares its gradient with the reference."""

import math

import torch

from trl_ces.methods.on_policy_sft import on_policy_sft


def test_tokens_of_correct_completions_get_the_inverse_importance_ratio():
    logps = torch.tensor([[-1.0, -200.0, -1.0], [-1.0, -1.0, -1.0]], requires_grad=True)
    old = torch.tensor([[-1.0, -1.0, -2.0], [-3.0, -1.0, -2.0]])
    batch = {"correct": torch.tensor([True, False]), "logps": logps, "old_logps": old}
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    shaped = on_policy_sft(batch, logps, mask)
    assert not shaped.advantages.requires_grad
    expected = torch.tensor([[1.0, math.exp(64), math.exp(-1)], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(shaped.advantages, expected)
    assert torch.equal(shaped.selected, mask.bool())
