"""
Train with CES and a group reward, a bonus for short correct completions.

    python docs/examples/group_reward.py --model HuggingFaceTB/SmolLM2-135M-Instruct --output_dir runs/brief

Add `--use_cpu` on a machine without a GPU.

A group reward receives the correctness and lengths of all completions of a rollout, from all processes, as tensors of
shape (prompts, completions per prompt). List it in `reward_funcs` like any other reward.
"""

import argparse

from datasets import Dataset

from trl_ces import CESConfig, CESTrainer
from trl_ces.rewards import accuracy_reward, group_reward


@group_reward
def brief_reward(groups):
    """Return 1 for correct completions up to the mean length of the correct completions in their group, else 0."""
    correct = groups.correct & groups.scored
    mean = (groups.lengths * correct).sum(dim=1, keepdim=True) / correct.sum(dim=1, keepdim=True).clamp(min=1)
    return (correct & (groups.lengths <= mean)).float()


parser = argparse.ArgumentParser(description="Train with CES and a group reward")
parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M-Instruct", help="Hub id or directory")
parser.add_argument("--output_dir", default="runs/brief")
parser.add_argument("--max_steps", type=int, default=20)
parser.add_argument("--use_cpu", action="store_true")
options = parser.parse_args()

question = "What is {} + {}? Think step by step, then give the answer as \\boxed{{}}."
problems = [
    {"prompt": [{"role": "user", "content": question.format(a, b)}], "solution": str(a + b)}
    for a in range(2, 10)
    for b in range(2, 10)
]
trainer = CESTrainer(
    model=options.model,
    reward_funcs=[accuracy_reward, brief_reward],
    args=CESConfig(
        output_dir=options.output_dir,
        max_steps=options.max_steps,
        use_cpu=options.use_cpu,
        bf16=not options.use_cpu,
        num_generations=4,
        max_completion_length=128,
        reward_weights=[1.0, 0.2],
        ces_tau=0.05,
        logging_steps=1,
    ),
    train_dataset=Dataset.from_list(problems),
)
trainer.train()
trainer.save_model()
