"""A trainer over prompts of vowels: its rewards, and what tests ask of its weights."""

import torch
from tiny import (
    tiny_model,
)

PROMPTS = [f"{a}+{b}=" for a in range(4) for b in range(4)]


def vowel_accuracy_reward(completions, **kwargs):
    """1 if a completion has a vowel among its first three characters: about half of a random model's."""
    return [float(any(character in "aeiou" for character in text[:3])) for text in completions]


def short_reward(completions, **kwargs):
    return [float(len(text) < 8) for text in completions]


def weights(trainer):
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def assert_weights_moved(trainer):
    start = tiny_model().state_dict()
    assert any(not torch.equal(value, start[name]) for name, value in trainer.model.state_dict().items())
