"""Started by test_group_processes.py: a rollout with every length reward, and one a variant. Not a test file."""

import json
import sys
from pathlib import Path

import torch
from accelerate.utils import gather
from length_rules import RULES
from processes import end_processes
from tiny import random_script, scripted_accuracy_reward
from trainers import ready, recorded, scripted_trainer

from trl_ces import CESTrainer, rewards

PROMPTS = ["1+2=", "3+4=", "5+6="]
ACCURACIES = [[1, 0, None, 1], [0, 1, 1, 0], [0, 0, 0, 0]]
# The metrics that tell of all completions, as without GFPO.
OF_ALL = [f"rewards/scripted_{name}_reward/{part}" for name in ("accuracy", "bonus") for part in ("mean", "std")]

DLER = {"gfpo_keep": None, "whiten_over_tokens": True, "scale_rewards": "none", "shaping": "none"}
VARIANTS = {"gfpo": {}, "qlpo": {"gfpo_metric": "qlpo"}, "dler": DLER}


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
    found = recorded(trainer, "_calculate_rewards")
    trainer.train()
    (result,) = found
    return result, trainer.accelerator.process_index


def make_trainer(output, processes=1, trainer_class=CESTrainer, **changes):
    arguments = {
        "per_device_train_batch_size": 12 // processes,
        "max_steps": 1,
        "max_completion_length": 40,
        "shuffle_dataset": False,
        "ces_tau": 0.3,
        "gfpo_keep": 2,
        "reward_weights": [1.0, 2.0],
        "log_completions": True,
        **changes,
    }
    return scripted_trainer(output, make_script(), trainer_class=trainer_class, **arguments)


def scored(trainer):
    """One rollout: its tensors of all processes, by name."""
    rank, here = trainer.accelerator.process_index, 12 // trainer.accelerator.num_processes
    rows = [prompt for prompt in PROMPTS for _ in range(4)][rank * here : (rank + 1) * here]
    batch = ready(trainer)._generate_and_score_completions([{"prompt": prompt} for prompt in rows])
    names = [name for name in ("advantages", "correct", "scored", "equal_rewards") if name in batch]
    return {name: gather(batch[name]).tolist() for name in names}


if __name__ == "__main__":
    output, processes = sys.argv[1], int(sys.argv[2])
    gathered, rank = gathered_rewards(output, processes)
    torch.save(gathered, f"{output}/rewards{rank}.pt")
    for name, changes in VARIANTS.items():
        trainer = make_trainer(output, processes, **changes)
        found = scored(trainer) | {"metrics": trainer._metrics["train"]}
        Path(output, f"{name}{rank}.json").write_text(json.dumps(found))
    end_processes()
