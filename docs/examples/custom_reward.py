"""
Train with CES and two custom rewards: one for estimates with an error of at most 1 %, and a smaller one for the unit.

    python docs/examples/custom_reward.py --model HuggingFaceTB/SmolLM2-135M-Instruct --output_dir runs/estimates

Add `--use_cpu` on a machine without a GPU.

CES needs one reward that decides whether a completion is correct. By default, this is the reward whose name contains
"accuracy"; to choose another reward, set `ces_accuracy_reward="..."`. The unit reward only affects the advantage.
"""

import argparse
import re

from datasets import Dataset

from trl_ces import CESConfig, CESTrainer

METRES = {"miles": 1609.344, "yards": 0.9144, "feet": 0.3048}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def last_number(completion):
    """Return the last number of a completion (a string or a list of messages), or `None` if it has no number."""
    text = completion if isinstance(completion, str) else completion[-1]["content"]
    numbers = NUMBER.findall(text.replace(",", ""))
    return float(numbers[-1]) if numbers else None


def estimate_accuracy_reward(completions, metres, **kwargs):
    """Return 1.0 for an estimate within 1 % of `metres`, else 0.0; `None` (unscored) if a row has no reference."""
    rewards = []
    for completion, reference in zip(completions, metres, strict=True):
        guess = last_number(completion)
        is_correct = reference is not None and guess is not None and abs(guess - reference) <= 0.01 * abs(reference)
        rewards.append(None if reference is None else float(is_correct))
    return rewards


def unit_reward(completions, **kwargs):
    """Return 1.0 for a completion that names the unit, else 0.0."""
    texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
    return [float("metre" in text or "meter" in text) for text in texts]


def problems():
    """Return questions with reference answers. Rewards receive all columns except `prompt` by name."""
    rows = [
        {
            "prompt": [{"role": "user", "content": f"How many metres are {number} {unit}? Answer with a number."}],
            "metres": number * METRES[unit],
        }
        for unit in METRES
        for number in range(2, 22)
    ]
    return Dataset.from_list(rows)


def make_trainer(model, output_dir, **changes):
    """Return the trainer; `changes` override settings of `CESConfig`."""
    settings = {
        "output_dir": output_dir,
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "steps_per_generation": 2,
        "max_completion_length": 64,
        # CES shapes floor(length * tau * b) tokens, which is 0 at 64 tokens with the paper's tau of 0.01.
        "ces_tau": 0.1,
        "reward_weights": [1.0, 0.1],
        "learning_rate": 1e-6,
        "max_steps": 20,
        "logging_steps": 1,
        **changes,
    }
    return CESTrainer(
        model=model,
        reward_funcs=[estimate_accuracy_reward, unit_reward],
        args=CESConfig(**settings),
        train_dataset=problems(),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train with CES and your own rewards")
    parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M-Instruct", help="Hub id or directory")
    parser.add_argument("--output_dir", default="runs/estimates")
    parser.add_argument("--max_steps", type=int, default=20)
    parser.add_argument("--use_cpu", action="store_true")
    options = parser.parse_args()
    trainer = make_trainer(
        options.model,
        options.output_dir,
        max_steps=options.max_steps,
        use_cpu=options.use_cpu,
        bf16=not options.use_cpu,
    )
    trainer.train()
    trainer.save_model()
