"""The base model of the small world in arithmetic.py: its tokenizer and its training."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...support.files import write_json
from ...support.locks import lock_file
from .arithmetic import CHARACTERS, LETTERS, World, draw_terms, write_prompt, write_text

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

# torch and transformers take seconds to import: the functions that need them do.

PAD, EOS = "<pad>", "<eos>"
SETTINGS_FILE = "arithmetic_world.json"


def build_tokenizer(sums: int = 1) -> PreTrainedTokenizerFast:
    """One token for each character of a world with so many sums, one for padding, one for the end of the text."""
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
    world: World | None = None,
    seed: int = 0,
    steps: int = 450,
    batch_size: int = 64,
    learning_rate: float = 3e-3,
    layers: int = 3,
    width: int = 96,
    device: str = "cpu",
    on_step: Callable[[int, int, float], None] | None = None,
) -> bool:
    """Trains a small Llama on texts of the train problems and saves it; one of the same settings is kept."""
    import torch

    world, output_dir = world or World(), Path(output_dir)
    training = {"seed": seed, "steps": steps, "batch_size": batch_size, "learning_rate": learning_rate}
    settings = {"world": asdict(world), **training, "layers": layers, "width": width, "device": device}
    if _made_with(output_dir) == settings:
        return False
    (output_dir / SETTINGS_FILE).unlink(missing_ok=True)  # from here on the folder holds no finished model

    tokenizer, rng = build_tokenizer(world.sums), random.Random(seed)
    model = _new_model(tokenizer, seed, layers, width)
    model.to(device)  # type: ignore[arg-type]  # transformers' wrapper hides the signature
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (0.1 * steps), (steps - step) / (0.9 * steps), 1.0)
    )
    for step in range(steps):
        sums = sums_at(step, steps, world.sums)
        batch = _supervised_batch(tokenizer, world, sums, batch_size * world.sums // sums, rng)
        optimizer.zero_grad()
        loss = _backward(model, batch)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if on_step is not None:
            on_step(step + 1, steps, loss)

    model.save_pretrained(output_dir)
    tokenizer.save_pretrained(output_dir)
    write_json(output_dir / SETTINGS_FILE, settings)
    return True


# The defaults of its training.
BASE_TRAINING = {
    name: entry.default
    for name, entry in signature(build_base_model).parameters.items()
    if name not in ("output_dir", "world", "on_step")
}


def sums_at(step: int, steps: int, sums: int) -> int:
    """Sums of the texts at a step: 2, 4, 8, ... in equal parts of the first half, then `sums`.

    From two sums a model soon learns to find the numbers behind a letter; from twelve it had not after 1,200 steps.
    """
    fewer = [2**power for power in range(1, sums.bit_length()) if 2**power < sums]
    part = 2 * step * len(fewer) // steps
    return fewer[part] if part < len(fewer) else sums


def _made_with(folder: Path) -> Any:
    """The settings of the model in `folder`, `None` if unknown."""
    file = folder / SETTINGS_FILE
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def _new_model(tokenizer: PreTrainedTokenizerFast, seed: int, layers: int, width: int) -> LlamaForCausalLM:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    # Llama: AutoTokenizer loads its tokenizer as it was saved, and replaces a Qwen2's by another class.
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
    tokenizer: PreTrainedTokenizerFast, world: World, sums: int, size: int, rng: random.Random
) -> dict[str, torch.Tensor]:
    """New train problems of so many sums with their texts, (size, T) each; prompt and padding carry no label."""
    problems = [[draw_terms(world, "train", rng) for _ in range(sums)] for _ in range(size)]
    prompts = list(map(write_prompt, problems))
    texts = [start + write_text(one, world, rng) for start, one in zip(prompts, problems, strict=True)]
    if sums < world.sums:  # then any letters name them, in their order, so that all are learned
        others = ["".join(sorted(rng.sample(LETTERS[: world.sums], sums))) for _ in texts]
        texts = [text.translate(str.maketrans(LETTERS[:sums], to)) for text, to in zip(texts, others, strict=True)]
    texts = [text + EOS for text in texts]
    batch = tokenizer(texts, return_tensors="pt", padding=True, padding_side="right")
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    for row, prompt in enumerate(prompts):
        labels[row, : len(prompt)] = -100  # one token a character
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "labels": labels}


def _backward(model: LlamaForCausalLM, batch: dict[str, torch.Tensor]) -> float:
    """Adds the gradient of the batch's mean loss, and returns it; rows of one length together need less padding."""
    lengths, loss = batch["attention_mask"].sum(dim=1), 0.0
    count = (batch["labels"][:, 1:] != -100).sum()  # the first token of a row is not predicted
    for rows in lengths.argsort(stable=True).chunk(4):
        part = {name: values[rows, : lengths[rows].max()].to(model.device) for name, values in batch.items()}
        of_part = model(**part, num_items_in_batch=count).loss
        of_part.backward()
        loss += of_part.item()
    return loss


def make_base_model(model_name_or_path: str, **settings: Any) -> str:
    """The `model_builder` of recipes/arithmetic: the base model in that directory, made on first use.

    If several processes ask for one directory, the first makes the model and the others wait.
    """
    folder = Path(model_name_or_path)
    training = {name: settings.get(name, default) for name, default in BASE_TRAINING.items()}
    world = World(**{name: value for name, value in settings.items() if name not in BASE_TRAINING})
    with lock_file(folder.with_name(f".{folder.name}.lock"), wait=True):
        if not (folder / "config.json").is_file():
            print(f"Making the base model {folder}, once: about a minute of one core.", flush=True)
            partial = folder.with_name(f".{folder.name}.partial")  # a kill leaves no half model under the real name
            build_base_model(partial, world, **training)
            partial.rename(folder)
        elif settings and (made := _made_with(folder)) != (wanted := {"world": asdict(world), **training}):
            raise ValueError(
                f"{folder} holds a model made with {made or 'settings unknown'}, and one with {wanted} is asked for: "
                "name another directory."
            )
    return model_name_or_path
