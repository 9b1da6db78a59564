"""Started by test_group_filter_processes.py: advantages and logged rewards of a rollout with GFPO. Not a test file."""

import json
import sys
from pathlib import Path

from accelerate.utils import gather
from datasets import Dataset
from length_reward_processes import PROMPTS, make_script
from processes import end_processes
from tiny import (
    scripted_accuracy_reward,
    scripted_bonus_reward,
    scripted_rollout,
    settings,
    tiny_model,
    tiny_tokenizer,
)

from trl_ces import CESConfig, CESTrainer


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
    return trainer_class(
        model=tiny_model(),
        reward_funcs=[scripted_accuracy_reward, scripted_bonus_reward],
        args=CESConfig(**settings(output, **arguments)),
        train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
        eval_dataset=Dataset.from_dict({"prompt": PROMPTS}),
        processing_class=tiny_tokenizer(),
        rollout_func=scripted_rollout(make_script(), arguments.get("num_generations", 4)),
    )


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
    trainer = make_trainer(sys.argv[1], int(sys.argv[2]))
    found = scored(trainer) | {"metrics": trainer._metrics["train"]}
    Path(sys.argv[1], f"rank{trainer.accelerator.process_index}.json").write_text(json.dumps(found))
    end_processes()
