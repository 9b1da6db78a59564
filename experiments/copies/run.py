"""A policy that can answer or copy: is it paid for copying the question, and does it learn to?

    python experiments/copies/run.py --output runs/copies           # rollouts.csv; two CPU cores, ten minutes

A model of 130,000 weights writes the sum of two numbers with its working, and boxes it; in three texts of ten that it
learned from, it boxes the question's own formula instead. CES, and DAPO with ALP's length reward, then train it twice:
by `accuracy_reward` without the question, where equal value is enough, and with it, as TRL calls it.
"""

import argparse
import random
import re
from pathlib import Path

import pandas as pd
import torch
from datasets import Dataset
from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from trl_ces import CESConfig, CESTrainer
from trl_ces.rewards import accuracy_reward, get_alp_length_reward

PAD, EOS, BOX = "<pad>", "<eos>", "\\boxed"
COPIES, SLIPS = 0.3, 0.3  # in the texts that the base model learns from
STEPS, BASE_STEPS = 120, 700
METHODS = {"CES": {"shaping": "ces", "ces_tau": 0.2}, "DAPO + ALP": {"shaping": "none"}}
REWARDS = ("by value", "with the question")


def tokenizer():
    words = [PAD, EOS, BOX, *"0123456789+=,;${}"]
    made = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token=PAD))
    made.pre_tokenizer = Split(Regex(r"<pad>|<eos>|\\boxed|[\s\S]"), behavior="isolated")
    made.decoder = Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=made, padding_side="left", pad_token=PAD, eos_token=EOS)


def problem(draw):
    return draw.randrange(10, 100), draw.randrange(10, 100)


def prompt(one, other):
    return f"${one}+{other}$="


def text(one, other, draw):
    """`7+8=15,3+4+1=8;\\boxed{85}`, with a slip now and then; or the copy."""
    if draw.random() < COPIES:
        return f"{BOX}{{{one}+{other}}}"
    ones = one % 10 + other % 10
    tens = one // 10 + other // 10 + ones // 10
    if draw.random() < SLIPS:
        tens += draw.choice([-1, 1])
    working = f"{one % 10}+{other % 10}={ones},{one // 10}+{other // 10}+{ones // 10}={tens};"
    return working + f"{BOX}{{{10 * tens + ones % 10}}}"


def base_model(folder, seed):
    words, draw = tokenizer(), random.Random(seed)
    torch.manual_seed(seed)
    sizes = {"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 3, "num_attention_heads": 4}
    ends = {"bos_token_id": None, "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(words), tie_word_embeddings=True, **sizes, **ends))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=BASE_STEPS)
    for _ in range(BASE_STEPS):
        drawn = [problem(draw) for _ in range(128)]
        starts = [prompt(*pair) for pair in drawn]
        texts = [start + text(*pair, draw) + EOS for start, pair in zip(starts, drawn, strict=True)]
        batch = words(texts, return_tensors="pt", padding=True, padding_side="right")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        labels[:, : len(starts[0])] = -100
        loss = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.save_pretrained(folder)
    words.save_pretrained(folder)


def train(folder, base, method, reward, seed):
    """The share of copies, of correct sums and the length, by rollout."""
    draw, rows = random.Random(1000 + seed), []

    def graded_accuracy_reward(prompts, completions, solution, **columns):
        rows.append(
            {
                "copies": sum(bool(re.search(r"boxed\{\d+\+", one)) for one in completions) / len(completions),
                "right": sum(f"{BOX}{{{gold}}}" in one for one, gold in zip(completions, solution, strict=True))
                / len(completions),
                "tokens": sum(len(ids) for ids in columns["completion_ids"]) / len(completions),
            }
        )
        question = {"prompts": prompts} if reward == "with the question" else {}
        return accuracy_reward(completions, solution, **question)

    pairs = [problem(draw) for _ in range(32 * STEPS)]
    data = {"prompt": [prompt(*pair) for pair in pairs], "solution": [str(sum(pair)) for pair in pairs]}
    settings = {"num_generations": 8, "per_device_train_batch_size": 64, "steps_per_generation": 4, "seed": seed}
    settings |= {
        "max_completion_length": 40,
        "max_steps": STEPS,
        "learning_rate": 1e-4,
        "use_cpu": True,
        "bf16": False,
    }
    settings |= {"lr_scheduler_type": "constant", "report_to": "none", "save_strategy": "no", "disable_tqdm": True}
    settings |= {"gradient_checkpointing": False, "logging_steps": 40}
    functions = [graded_accuracy_reward]
    if method == "DAPO + ALP":
        functions.append(get_alp_length_reward(beta=0.5))
    trainer = CESTrainer(
        model=str(base),
        reward_funcs=functions,
        args=CESConfig(output_dir=str(folder), **settings, **METHODS[method]),
        train_dataset=Dataset.from_dict(data),
        processing_class=tokenizer(),
    )
    trainer.train()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for seed in range(options.seeds):
        base = options.output / f"base-{seed}"
        if not base.exists():
            base_model(base, seed)
        for method in METHODS:
            for reward in REWARDS:
                rows = train(options.output / "run", base, method, reward, seed)
                named = {"method": method, "reward": reward, "seed": seed}
                found += [{**named, "step": 4 * number, **row} for number, row in enumerate(rows)]
                print(named, "first", rows[0], "last", rows[-1], flush=True)
                pd.DataFrame(found).round(4).to_csv(options.output / "rollouts.csv", index=False)


if __name__ == "__main__":
    main()
