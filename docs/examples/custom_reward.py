"""
CES with your own rewards: estimates within 1 %, and a small reward for naming the unit.

    python docs/examples/custom_reward.py --model HuggingFaceTB/SmolLM2-135M-Instruct --output_dir runs/estimates

with `--use_cpu` where there is no GPU.

CES asks one reward whether a completion is correct. Here it is found by its name, which contains "accuracy"; with
other names, set `ces_accuracy_reward="..."`. The other reward only moves the advantage.
"""

import argparse
import re

from datasets import Dataset

from trl_ces import CESConfig, CESTrainer

METRES = {"miles": 1609.344, "yards": 0.9144, "feet": 0.3048}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def last_number(completion):
    """The last number of a completion, which is a string or a list of messages; `None` if there is none."""
    text = completion if isinstance(completion, str) else completion[-1]["content"]
    found = NUMBER.findall(text.replace(",", ""))
    return float(found[-1]) if found else None


def estimate_accuracy_reward(completions, metres, **kwargs):
    """1.0 within 1 % of the column `metres`, else 0.0; `None` (no verdict) if a row has no gold."""
    rewards = []
    for completion, gold in zip(completions, metres, strict=True):
        guess = last_number(completion)
        is_right = gold is not None and guess is not None and abs(guess - gold) <= 0.01 * abs(gold)
        rewards.append(None if gold is None else float(is_right))
    return rewards


def unit_reward(completions, **kwargs):
    """1.0 if the answer names its unit."""
    texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
    return [float("metre" in text or "meter" in text) for text in texts]


def problems():
    """Questions with golds. Rewards receive the columns beside `prompt` by name."""
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
    """The trainer; `changes` are settings of `CESConfig`."""
    settings = {
        "output_dir": output_dir,
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "steps_per_generation": 2,
        "max_completion_length": 64,
        # k = floor(length * tau * b): at the paper's 0.01 a completion of 64 tokens would have no shaped token
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
    parser = argparse.ArgumentParser(description="CES with rewards of your own")
    parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M-Instruct", help="a Hub id or a folder")
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
