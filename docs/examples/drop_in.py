"""
Switch a TRL script from GRPO to CES by changing two names.

    python docs/examples/drop_in.py --model HuggingFaceTB/SmolLM2-135M-Instruct --output_dir runs/drop_in

Add `--use_cpu` on a machine without a GPU.
"""

import argparse

from datasets import Dataset

from trl_ces import CESConfig, CESTrainer  # was: from trl import GRPOConfig, GRPOTrainer
from trl_ces.rewards import accuracy_reward  # TRL's accuracy_reward also works

parser = argparse.ArgumentParser(description="Train with CES instead of GRPO")
parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M-Instruct", help="Hub id or directory")
parser.add_argument("--output_dir", default="runs/drop_in")
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
    reward_funcs=accuracy_reward,
    args=CESConfig(
        output_dir=options.output_dir,
        max_steps=options.max_steps,
        use_cpu=options.use_cpu,
        bf16=not options.use_cpu,
        num_generations=4,
        max_completion_length=128,
        ces_tau=0.05,  # CES shapes floor(length * tau * b) tokens; the paper's 0.01 suits long completions
        logging_steps=1,
    ),
    train_dataset=Dataset.from_list(problems),
)
trainer.train()
trainer.save_model()
