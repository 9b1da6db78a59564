"""Compute every length reward for one rollout. Started by test_group_processes.py; not a test file."""

import sys

import torch
from length_oracles import SETTINGS
from processes import end_processes
from tiny import random_script, scripted_accuracy_reward
from trainers import record_results, scripted_trainer

from trl_ces import rewards

PROMPTS = ["1+2=", "3+4=", "5+6="]
ACCURACIES = [[1, 0, None, 1], [0, 1, 1, 0], [0, 0, 0, 0]]


def make_script():
    generator = torch.Generator().manual_seed(3)
    return random_script(PROMPTS, ACCURACIES, generator, masked=True, truncated=(1, 6))


def gathered_rewards(output, processes):
    """
    Return the rewards of one rollout, and the rank.

    The rewards have shape (12, 1 + methods): the accuracy, followed by one column per length reward.
    """
    length_rewards = [getattr(rewards, f"get_{name}_length_reward")(**SETTINGS[name][-1]) for name in SETTINGS]
    trainer = scripted_trainer(
        output,
        make_script(),
        [scripted_accuracy_reward, *length_rewards],
        per_device_train_batch_size=12 // processes,
        max_steps=1,
        max_completion_length=40,
        shuffle_dataset=False,
    )
    assert trainer.accelerator.num_processes == processes
    results = record_results(trainer, "_calculate_rewards")
    trainer.train()
    (result,) = results
    return result, trainer.accelerator.process_index


if __name__ == "__main__":
    output, processes = sys.argv[1], int(sys.argv[2])
    gathered, rank = gathered_rewards(output, processes)
    torch.save(gathered, f"{output}/rewards{rank}.pt")
    end_processes()
