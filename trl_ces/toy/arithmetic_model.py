"""The model of the small world in arithmetic.py: its tokenizer and its making."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..support.files import lock_file
from .arithmetic import CHARACTERS, World, draw_terms, write_completion, write_prompt

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

# torch and transformers take seconds to load: the functions that need them import them.

PAD, EOS = "<pad>", "<eos>"
SETTINGS_FILE = "arithmetic_world.json"
BASE_TRAINING: dict[str, Any] = {"seed": 0, "steps": 450, "batch_size": 64, "learning_rate": 3e-3}


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token for each character of `CHARACTERS`, a padding token and an end-of-text token."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: index for index, token in enumerate([PAD, EOS, *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, padding_side="left", model_max_length=512
    )


def base_model_settings(world: World, seed: int, steps: int, batch_size: int, learning_rate: float) -> dict[str, Any]:
    """What decides the base model, as `build_base_model` writes it beside the weights."""
    return {
        "world": asdict(world),
        "seed": seed,
        "steps": steps,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
    }


def build_base_model(
    output_dir: str | Path,
    world: World | None = None,
    seed: int = BASE_TRAINING["seed"],
    steps: int = BASE_TRAINING["steps"],
    batch_size: int = BASE_TRAINING["batch_size"],
    learning_rate: float = BASE_TRAINING["learning_rate"],
    on_step: Callable[[int, int, float], None] | None = None,
) -> bool:
    """Makes a small Llama (3 layers, width 96), teaches it texts of the train problems and saves it.

    A model that is already there and was made with the same settings is kept. The same settings and seed give the
    same weights on the same machine.

    Args:
        output_dir (`str` or `Path`):
            Where model and tokenizer go, so that `model_name_or_path: <output_dir>` trains from it.
        world ([`World`], *optional*):
            The world to learn; `None` is the default one.
        seed (`int`, *optional*, defaults to `0`):
            Seed of the weights and of the texts.
        steps (`int`, *optional*, defaults to `450`):
            AdamW steps.
        batch_size (`int`, *optional*, defaults to `64`):
            Texts per step; every text is new.
        learning_rate (`float`, *optional*, defaults to `3e-3`):
            Its peak: the first tenth of the steps warms up, the rest falls linearly to 0.
        on_step (`Callable`, *optional*):
            Called with (steps done, steps in all, loss in nats per token) after each step.

    Returns:
        `bool`: whether a model was trained (`False`: the one that was there is kept).
    """
    import torch

    world, output_dir = world or World(), Path(output_dir)
    settings = base_model_settings(world, seed, steps, batch_size, learning_rate)
    written = output_dir / SETTINGS_FILE
    if written.is_file() and json.loads(written.read_text(encoding="utf-8")) == settings:
        return False
    written.unlink(missing_ok=True)  # from here on the folder holds no finished model

    tokenizer, rng = build_tokenizer(), random.Random(seed)
    model = _new_model(tokenizer, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (0.1 * steps), (steps - step) / (0.9 * steps), 1.0)
    )
    for step in range(steps):
        batch = _supervised_batch(tokenizer, world, batch_size, rng)
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if on_step is not None:
            on_step(step + 1, steps, loss.item())

    model.save_pretrained(output_dir)
    tokenizer.save_pretrained(output_dir)
    written.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return True


def _new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    # Llama, because AutoTokenizer loads a Llama's tokenizer as it was saved; a Qwen2's it replaces by another class.
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
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
    tokenizer: PreTrainedTokenizerFast, world: World, size: int, rng: random.Random
) -> dict[str, torch.Tensor]:
    """New problems of the train split with their texts, (size, T) each; prompt and padding carry no label."""
    problems = [draw_terms(world, "train", rng) for _ in range(size)]
    prompts = [write_prompt(terms) for terms in problems]
    texts = [p + write_completion(t, world, rng) + EOS for p, t in zip(prompts, problems, strict=True)]
    batch = tokenizer(texts, return_tensors="pt", padding=True, padding_side="right")
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    for row, prompt in enumerate(prompts):
        labels[row, : len(prompt)] = -100  # one token a character
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "labels": labels}


def make_base_model(model_name_or_path: str, **settings: Any) -> str:
    """The `model_builder` of recipes/arithmetic: the base model in that directory, made if it is not there.

    Several processes may ask for the same directory at a time: one makes it, the others wait.

    Args:
        model_name_or_path (`str`):
            The directory. Without `settings`, a model that is there already is taken as it is.
        settings:
            `seed`, `steps`, `batch_size` and `learning_rate` of [`build_base_model`], and fields of [`World`].

    Raises:
        ValueError: if the directory holds a model that was made with other settings.
    """
    folder = Path(model_name_or_path)
    training = {name: settings.get(name, default) for name, default in BASE_TRAINING.items()}
    world = World(**{name: value for name, value in settings.items() if name not in BASE_TRAINING})
    with lock_file(folder.with_name(f".{folder.name}.lock"), wait=True):
        if not (folder / "config.json").is_file():
            partial = folder.with_name(f".{folder.name}.partial")  # a kill leaves no half model under the real name
            build_base_model(partial, world, **training)
            partial.rename(folder)
        elif settings:
            _check_base_model(folder, base_model_settings(world, **training))
    return model_name_or_path


def _check_base_model(folder: Path, wanted: dict[str, Any]) -> None:
    written = folder / SETTINGS_FILE
    found = json.loads(written.read_text(encoding="utf-8")) if written.is_file() else "settings unknown"
    if found != wanted:
        raise ValueError(
            f"{folder} holds a model made with {found}, and one with {wanted} is asked for: name another directory."
        )
