"""
Train with CES and a calculator that the model can call as a tool.

    python docs/examples/tools.py --model Qwen/Qwen3-0.6B --output_dir runs/calculator

TRL runs the tool and inserts its output into the completion. The model did not generate these tokens, so the loss
excludes them, and CES neither counts them in a completion's length nor shapes them.
"""

import argparse
import re

from datasets import Dataset

from trl_ces import CESConfig, CESTrainer


def multiply(a: int, b: int) -> int:
    """
    Multiplies two whole numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a * b


def answer_accuracy_reward(completions, product, **kwargs):
    """Return 1.0 if the last message, after all tool outputs, contains the product, else 0.0."""
    texts = [(messages[-1].get("content") or "").replace(",", "") for messages in completions]
    return [float(str(number) in re.findall(r"\d+", text)) for text, number in zip(texts, product, strict=True)]


def problems():
    """Return multiplication problems that a small model cannot solve without the tool."""
    pairs = [(a, b) for a in range(23, 43, 4) for b in range(117, 137, 5)]
    rows = [
        {"prompt": [{"role": "user", "content": f"What is {a} times {b}? End with the number."}], "product": a * b}
        for a, b in pairs
    ]
    return Dataset.from_list(rows)


def make_trainer(model, output_dir, **changes):
    """Return the trainer; `changes` override settings of `CESConfig`."""
    settings = {
        "output_dir": output_dir,
        "num_generations": 4,
        "per_device_train_batch_size": 4,
        "steps_per_generation": 4,
        # limit for the whole dialogue: tool calls, tool outputs and the last message
        "max_completion_length": 512,
        "max_tool_calling_iterations": 3,
        "chat_template_kwargs": {"enable_thinking": False},
        "ces_tau": 0.05,
        "learning_rate": 1e-6,
        "max_steps": 20,
        "logging_steps": 1,
        **changes,
    }
    return CESTrainer(
        model=model,
        reward_funcs=answer_accuracy_reward,
        args=CESConfig(**settings),
        train_dataset=problems(),
        tools=[multiply],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train with CES and a tool")
    parser.add_argument("--model", default="Qwen/Qwen3-0.6B", help="model with a chat template that supports tools")
    parser.add_argument("--output_dir", default="runs/calculator")
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
