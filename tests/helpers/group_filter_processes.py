"""Started by test_group_filter_processes.py: advantages and logged rewards of a rollout with GFPO. Not a test file."""

import json
import sys
from pathlib import Path

from accelerate.utils import gather
from length_reward_processes import PROMPTS, make_script
from processes import end_processes
from trainers import scripted_trainer

from trl_ces import CESTrainer

# The metrics that tell of all completions, as without GFPO.
OF_ALL = [f"rewards/scripted_{name}_reward/{part}" for name in ("accuracy", "bonus") for part in ("mean", "std")]


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
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    rank, here = trainer.accelerator.process_index, 12 // trainer.accelerator.num_processes
    rows = [prompt for prompt in PROMPTS for _ in range(4)][rank * here : (rank + 1) * here]
    batch = trainer._generate_and_score_completions([{"prompt": prompt} for prompt in rows])
    names = [name for name in ("advantages", "correct", "scorable", "equal_rewards") if name in batch]
    return {name: gather(batch[name]).tolist() for name in names}


if __name__ == "__main__":
    trainer = make_trainer(sys.argv[1], int(sys.argv[2]), **json.loads(sys.argv[3]))
    found = scored(trainer) | {"metrics": trainer._metrics["train"]}
    Path(sys.argv[1], f"rank{trainer.accelerator.process_index}.json").write_text(json.dumps(found))
    end_processes()
