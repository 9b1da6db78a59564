"""Started by test_length_reward_processes.py: rewards of a rollout with every length reward. Not a test file."""

import sys

import torch
from datasets import Dataset
from length_rules import RULES
from processes import end_processes
from tiny import random_script, scripted_accuracy_reward, scripted_rollout, settings, tiny_model, tiny_tokenizer

from trl_ces import CESConfig, CESTrainer, rewards

PROMPTS = ["1+2=", "3+4=", "5+6="]
ACCURACIES = [[1, 0, None, 1], [0, 1, 1, 0], [0, 0, 0, 0]]


def make_script():
    generator = torch.Generator().manual_seed(3)
    return random_script(PROMPTS, ACCURACIES, generator, masked=True, truncated=(1, 6))


def gathered_rewards(output, processes):
    """The rewards of one rollout: column 0 the accuracy, then one per rule. Shape (12, 1 + len(RULES))."""
    arguments = settings(
        output,
        per_device_train_batch_size=12 // processes,
        max_steps=1,
        max_completion_length=40,
        shuffle_dataset=False,
    )
    of_rules = [getattr(rewards, f"get_{name}_length_reward")(**RULES[name][-1]) for name in RULES]
    trainer = CESTrainer(
        model=tiny_model(),
        reward_funcs=[scripted_accuracy_reward, *of_rules],
        args=CESConfig(**arguments),
        train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
        processing_class=tiny_tokenizer(),
        rollout_func=scripted_rollout(make_script(), 4),
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
