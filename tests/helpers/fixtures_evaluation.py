"""Test problems in the format of each benchmark's rows, and a tiny chat model."""

import gzip
import json
import os
import string
from pathlib import Path

import torch
from tiny import tiny_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from trl_ces.lab.evaluation.benchmarks import BENCHMARKS
from trl_ces.lab.evaluation.generate import GeneratedCompletion

# Folder of the real benchmark files, which are not part of the repository and may be missing.
REAL_DATA = Path(os.environ.get("TRL_CES_DATA") or Path(__file__).parents[3] / "shared" / "data")

# A few rows per benchmark; code benchmarks that use the same data share one row.
SAVED = json.loads(Path(__file__).with_name("benchmark_rows.json").read_text(encoding="utf-8"))
CODE_ROWS = {name: SAVED[name][0] for name in ("humaneval", "mbpp")}
ROWS = {
    name: [CODE_ROWS[benchmark.dataset]] if benchmark.kind == "code" else SAVED[name]
    for name, benchmark in BENCHMARKS.items()
}
TABLE = ROWS["tabmwp"][0]["table"]


def rows_of(name):
    """Repeat the rows to the size of the benchmark; clear the answers that are missing in the real file."""
    benchmark = BENCHMARKS[name]
    rows = [dict(ROWS[name][number % len(ROWS[name])]) for number in range(benchmark.count)]
    for number in benchmark.without_gold:
        rows[number]["answer"] = ""
    return rows


def write_data(folder, names=tuple(BENCHMARKS)):
    """Write benchmark files in the layout that `--data_dir` expects."""
    for name in names:
        file = folder / BENCHMARKS[name].file
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = rows_of(name)
        if file.suffix == ".json":
            file.write_text(json.dumps(rows), encoding="utf-8")
        elif file.suffix == ".gz":
            file.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
        else:
            file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return folder


def write_model(folder, context=1024, seed=0, **tokenizer):
    """Save a chat model with random weights and a context long enough for the paper's prompt."""
    saved_tokenizer = tiny_tokenizer(**{"characters": string.printable, **tokenizer})
    torch.manual_seed(seed)
    # Use Llama, because AutoTokenizer replaces the saved tokenizer class of a Qwen2 model.
    config = LlamaConfig(
        vocab_size=len(saved_tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=context,
        tie_word_embeddings=False,
        initializer_range=0.5,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    saved_tokenizer.save_pretrained(folder)
    return folder


class ScriptedBackend:
    """Backend that records the seeds and returns the first text in `texts` whose key occurs in the question."""

    batch_size = 4

    def __init__(self, tokenizer, texts):
        self.tokenizer, self.texts, self.seeds, self.closed = tokenizer, texts, [], False

    def generate(self, prompts, seeds):
        self.seeds.append(list(seeds))
        completions = []
        for index, prompt in enumerate(prompts):
            question = self.tokenizer.decode(prompt)
            text = next(text for key, text in self.texts.items() if key in question)
            completions.append(GeneratedCompletion(index, self.tokenizer(text)["input_ids"], "stop"))
        yield completions[:1]
        yield completions[1:]

    def close(self):
        self.closed = True
