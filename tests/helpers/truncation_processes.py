"""Started by test_outlier_truncation.py: a rollout of all-correct and mixed groups under DOT. Not a test file."""

import json
import sys
from pathlib import Path

from accelerate.utils import gather
from processes import end_processes
from trainers import scripted_trainer

from trl_ces import CESTrainer

PROMPTS = ["1+2=", "3+4=", "5+6="]
LENGTHS = [[10, 10, 10, 30], [12, 9, 30, 11], [8, 8, 30, 9]]
RIGHT = [[1, 1, 1, 1], [1, 0, 1, 1], [1, 1, 1, 1]]
KEPT = [[10, 10, 10, 25], [12, 9, 30, 11], [8, 8, 24, 9]]  # at mean 15, std 10; at mean 13.75, std 10.84: 24


def make_script(masked=False):
    """Completions that end in <eos>; masked: every token of the policy is followed by one of a tool."""
    script = {}
    for prompt, lengths, right in zip(PROMPTS, LENGTHS, RIGHT, strict=True):
        script[prompt] = []
        for member, (length, accuracy) in enumerate(zip(lengths, right, strict=True)):
            ids = [2 + (7 * place + member) % 20 for place in range(length - 1)]
            row = {"accuracy": float(accuracy), "bonus": float(member), "completion_ids": [*ids, 1]}
            if masked:
                row["completion_ids"] = [token for own in ids for token in (own, 30)] + [1]
                row["mask"] = [1, 0] * (length - 1) + [1]
            script[prompt].append(row)
    return script


def ended_accuracy_reward(completion_ids, accuracy, **kwargs):
    """The script's accuracy, or 0 for a completion without its end."""
    return [value if ids[-1] == 1 else 0.0 for ids, value in zip(completion_ids, accuracy, strict=True)]


def letters_reward(completions, **kwargs):
    return [len(text) / 100 for text in completions]


def make_trainer(output, processes=1, masked=False, trainer_class=CESTrainer, **changes):
    arguments = {
        "shaping": "none",
        "dot_alpha": 1.0,
        "dot_least": 5,
        "per_device_train_batch_size": 12 // processes,
        "max_completion_length": 80,
        "shuffle_dataset": False,
        "ces_accuracy_reward": "ended_accuracy_reward",
        **changes,
    }
    return scripted_trainer(
        output, make_script(masked), [ended_accuracy_reward, letters_reward], trainer_class=trainer_class, **arguments
    )


def scored(trainer):
    """One rollout: its rewards, and its masks, all rows padded to the longest; of all processes."""
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    found, calculate = [], trainer._calculate_rewards

    def record(*args):
        found.append(calculate(*args))
        return found[-1]

    trainer._calculate_rewards = record
    rank, here = trainer.accelerator.process_index, 12 // trainer.accelerator.num_processes
    rows = [prompt for prompt in PROMPTS for _ in range(4)][rank * here : (rank + 1) * here]
    batch = trainer._generate_and_score_completions([{"prompt": prompt} for prompt in rows])
    lengths = (batch["completion_mask"] * batch.get("tool_mask", 1)).sum(dim=1)
    return {
        "rewards": found[-1].tolist(),
        "lengths": gather(lengths).view(3, 4).tolist(),
        "advantages": gather(batch["advantages"]).tolist(),
        "share": trainer._metrics["train"].get("dot/cut_share"),
        "mean_length": trainer._metrics["train"]["completions/mean_length"],
        "seen": trainer.state.num_input_tokens_seen,
    }


if __name__ == "__main__":
    trainer = make_trainer(sys.argv[1], int(sys.argv[2]))
    found = scored(trainer)
    Path(sys.argv[1], f"rank{trainer.accelerator.process_index}.json").write_text(json.dumps(found))
    end_processes()
