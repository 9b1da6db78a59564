"""Tokenizer and base model of the toy task in arithmetic.py."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...support.files import write_json
from ...support.locks import lock_file
from .arithmetic import CHARACTERS, LETTERS, ToyTask, draw_terms, write_prompt, write_text

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

PAD, EOS = "<pad>", "<eos>"
SETTINGS_FILE = "base_model.json"  # in the model's folder
# Settings for training the base model, with their defaults.
BASE_TRAINING = {"seed": 0, "steps": 450, "batch_size": 64, "learning_rate": 3e-3, "layers": 3, "width": 96}


def build_tokenizer(sums: int = 1) -> PreTrainedTokenizerFast:
    """Build a character-level tokenizer for problems of `sums` sums each, with padding and end-of-text tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    characters = CHARACTERS + (LETTERS[:sums] if sums > 1 else "")
    vocabulary = {token: index for index, token in enumerate([PAD, EOS, *characters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, padding_side="left", model_max_length=512
    )


def build_base_model(
    output_dir: str | Path,
    task: ToyTask | None = None,
    on_step: Callable[[int, int, float], None] | None = None,
    start_from: str | Path | None = None,
    **training: Any,
) -> None:
    """Train a small Llama on texts that solve training problems, and save it with its settings.

    `training` overrides `BASE_TRAINING`. `on_step` receives the step, the total number of steps, and the loss in nats
    per token. If `start_from` is set, training starts from the base model in that directory, and every text has
    `task.sums` sums.
    """
    import torch
    from transformers import LlamaForCausalLM

    task = task or ToyTask()
    settings = {"task": asdict(task), **BASE_TRAINING, **training}  # everything that determines the weights
    steps, batch_size, learning_rate = settings["steps"], settings["batch_size"], settings["learning_rate"]
    tokenizer, rng = build_tokenizer(task.sums), random.Random(settings["seed"])
    if start_from is None:
        model = _new_model(tokenizer, settings["seed"], settings["layers"], settings["width"])
    else:
        model = LlamaForCausalLM.from_pretrained(start_from, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (0.1 * steps), (steps - step) / (0.9 * steps), 1.0)
    )
    for step in range(steps):
        sums = sums_at(step, steps, task.sums) if start_from is None else task.sums
        batch = _supervised_batch(tokenizer, task, sums, batch_size * task.sums // sums, rng)
        optimizer.zero_grad()
        loss = _backward(model, batch)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if on_step is not None:
            on_step(step + 1, steps, loss)

    model.save_pretrained(output_dir)
    tokenizer.save_pretrained(output_dir)
    write_json(Path(output_dir) / SETTINGS_FILE, settings)


def sums_at(step: int, steps: int, sums: int) -> int:
    """
    Return the number of sums per text: 2, 4, 8, ... in the first half of training, then `sums`.

    A model trained on `sums` sums per text from the start learns nothing.
    """
    smaller = [2**power for power in range(1, sums.bit_length()) if 2**power < sums]
    stage = 2 * step * len(smaller) // steps
    return smaller[stage] if stage < len(smaller) else sums


def _new_model(tokenizer: PreTrainedTokenizerFast, seed: int, layers: int, width: int) -> LlamaForCausalLM:
    """Create a randomly initialized model for the tokenizer's vocabulary."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    # AutoTokenizer loads the tokenizer of a Llama model as saved, but replaces the tokenizer class of a Qwen2 model.
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=8 * width // 3,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def _supervised_batch(
    tokenizer: PreTrainedTokenizerFast, task: ToyTask, sums: int, size: int, rng: random.Random
) -> dict[str, torch.Tensor]:
    """Draw training texts and return ids, mask and labels, each (size, T); prompt and padding have label -100."""
    problems = [[draw_terms(task, "train", rng) for _ in range(sums)] for _ in range(size)]
    prompts = list(map(write_prompt, problems))
    texts = [prompt + write_text(problem, task, rng) for prompt, problem in zip(prompts, problems, strict=True)]
    if sums < task.sums:  # label the sums with a random subset of the letters, so that the model learns all letters
        subsets = ["".join(sorted(rng.sample(LETTERS[: task.sums], sums))) for _ in texts]
        texts = [
            text.translate(str.maketrans(LETTERS[:sums], subset)) for text, subset in zip(texts, subsets, strict=True)
        ]
    texts = [text + EOS for text in texts]
    batch = tokenizer(texts, return_tensors="pt", padding=True, padding_side="right")
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    for row, prompt in enumerate(prompts):
        labels[row, : len(prompt)] = -100  # one token per character
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "labels": labels}


def _backward(model: LlamaForCausalLM, batch: dict[str, torch.Tensor]) -> float:
    """Accumulate the gradient of the batch's mean loss and return the loss; group rows by length to reduce padding."""
    lengths, loss = batch["attention_mask"].sum(dim=1), 0.0
    count = (batch["labels"][:, 1:] != -100).sum()  # the first token of a row is not predicted
    for rows in lengths.argsort(stable=True).chunk(4):
        part = {name: values[rows, : lengths[rows].max()] for name, values in batch.items()}
        part_loss = model(**part, num_items_in_batch=count).loss
        part_loss.backward()
        loss += part_loss.item()
    return loss


def make_base_model(
    model_name_or_path: str, on_step: Callable[[int, int, float], None] | None = None, **settings: Any
) -> str:
    """
    Train the base model in a directory on first use, and return the directory; a `model_builder` for recipes.

    `settings` are fields of `ToyTask` and `BASE_TRAINING`; raise `ValueError` if the directory's model has other
    settings.
    """
    folder = Path(model_name_or_path)
    training = {name: value for name, value in settings.items() if name in BASE_TRAINING}
    task = ToyTask(**{name: value for name, value in settings.items() if name not in BASE_TRAINING})
    with lock_file(folder.with_name(f".{folder.name}.lock"), wait=True):
        if not (folder / "config.json").is_file():
            if on_step is None:
                print(f"Training the base model {folder} (only once, about a minute on one core).", flush=True)
            partial = folder.with_name(f".{folder.name}.partial")  # renamed when complete
            build_base_model(partial, task, on_step, **training)
            partial.rename(folder)
        elif settings:
            expected = {"task": asdict(task), **BASE_TRAINING, **training}
            stored = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
            if stored != expected:
                raise ValueError(
                    f"{folder} contains a model with settings {stored}, not {expected}: use a different directory."
                )
    return model_name_or_path
