"""The length rewards, each beside its oracle, and groups from lists."""

import math

import torch

from trl_ces.methods.groups import Groups

LIMIT = 12000

# By rule, the settings to try: the rule is in trl_ces/methods/, its oracle in length_oracles.py. The hand-worked row
# takes the first, over lengths 100, 200, 300, 500, of which the first and the third are correct.
RULES = {
    "kimi": [{}, {"correct_only": True}, {"correct_only": False}],
    "arora": [{"alpha": 0.2}, {"alpha": 1.0}],
    "alp": [
        {"beta": 0.5, "normalizer": 2000},
        {"beta": 0.5, "normalizer": 9, "correct_only": True},
        {"beta": 0.02, "normalizer": 100.5},
    ],
    "linear": [{"coefficient": 0.25}, {"correct_only": True}, {"coefficient": 1.0}],
    "shorter": [{"beta": 0.001}, {"beta": 0.3, "correct_only": True}, {"beta": 0.02}],
    "laser": [{"alpha": 0.5, "target": 300}, {"alpha": 0.3, "target": 13.5}],
    "laser_d": [{"alpha": 0.5, "every": 1}, {"alpha": 0.3, "step": 13.5}],
    "mai": [{"weight": 0.25}, {"weight": 1.0}],
    "smart_thinker": [{}],
    "grpo_lead": [{"alpha": 0.1}, {"alpha": 1.0}],
    "acoer": [{"budget": 1000}, {"budget": 13.5}],
    "toggle": [{"solved": 0.5, "every": 1}, {"solved": 0.25, "every": 3, "percentile": 0.7}],
    "gr3": [{"alpha": 0.33}, {"alpha": 2.0}],
}


def groups_of(rows, max_length=LIMIT):
    """`Groups` from one (rewards, lengths) per group."""
    rewards = torch.tensor([[math.nan if reward is None else reward for reward in row[0]] for row in rows])
    lengths = torch.tensor([row[1] for row in rows])
    return Groups(
        correct=rewards >= 1,
        scored=~rewards.isnan(),
        truncated=lengths >= LIMIT,
        lengths=lengths,
        rewards=rewards,
        max_length=max_length,
        prompts=torch.arange(len(rows)),
    )
