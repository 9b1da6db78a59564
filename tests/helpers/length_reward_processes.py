"""Started by test_length_reward_processes.py: rewards of a rollout with every length reward. Not a test file."""

import sys

import torch
from length_rules import RULES
from processes import end_processes
from tiny import random_script, scripted_accuracy_reward
from trainers import scripted_trainer

from trl_ces import rewards

PROMPTS = ["1+2=", "3+4=", "5+6="]
ACCURACIES = [[1, 0, None, 1], [0, 1, 1, 0], [0, 0, 0, 0]]


def make_script():
    generator = torch.Generator().manual_seed(3)
    return random_script(PROMPTS, ACCURACIES, generator, masked=True, truncated=(1, 6))


def gathered_rewards(output, processes):
    """The rewards of one rollout: column 0 the accuracy, then one per rule. Shape (12, 1 + len(RULES))."""
    of_rules = [getattr(rewards, f"get_{name}_length_reward")(**RULES[name][-1]) for name in RULES]
    trainer = scripted_trainer(
        output,
        make_script(),
        [scripted_accuracy_reward, *of_rules],
        per_device_train_batch_size=12 // processes,
        max_steps=1,
        max_completion_length=40,
        shuffle_dataset=False,
    )
    assert trainer.accelerator.num_processes == processes
    found, calculate = [], trainer._calculate_rewards

    def record(*args):
        found.append(calculate(*args))
        return found[-1]

    trainer._calculate_rewards = record
    trainer.train()
    (result,) = found
    return result, trainer.accelerator.process_index


if __name__ == "__main__":
    gathered, rank = gathered_rewards(sys.argv[1], int(sys.argv[2]))
    torch.save(gathered, f"{sys.argv[1]}/rewards{rank}.pt")
    end_processes()
