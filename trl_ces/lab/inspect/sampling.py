"""Sample completions of a recipe's model, compute their entropies, and grade them with the recipe's reward."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, TrainerState
from transformers.utils import logging
from trl import get_quantization_config
from trl.trainer.utils import is_async_callable

from ...layers.first_rollout import describe_example
from ...layers.reward_calls import RewardError, guard
from ...layers.turns import read_turns
from ...methods.group_reward import accuracy_reward_index, reward_name
from ...support.errors import UserError, first_line, hub_errors
from ...support.hub import nearest_model
from ...support.prompts import check_chat_template
from ...train.data import make_prompt
from ...train.lookup import find_reward_functions, model_path
from ..evaluation.generate import generate_batch
from ..evaluation.models import apply_template, cut_at_end, end_tokens
from .settings import Prompts, Sampling
from .tokens import HighEntropyToken, high_entropy_tokens

if TYPE_CHECKING:
    from ...train.recipe import Recipe


@dataclass(frozen=True)
class SampledCompletion:
    """One sampled completion."""

    prompt: int  # index of its prompt
    tokens: list[int]  # token ids, including the end token
    ended: bool  # whether it has an end token; otherwise it was truncated
    entropies: list[float]  # in bits, one per token
    top_tokens: list[HighEntropyToken]  # sorted by position


@dataclass(frozen=True)
class RecipeSample:
    """Completions sampled from a recipe's model."""

    name: str  # name of the model
    tokenizer: Any
    prompts: list[str]  # with the chat template applied
    completions: list[SampledCompletion]  # grouped by prompt, in the order of the prompts
    correct: list[bool | None] | None  # one per completion (`None`: unscored); `None` if scoring was not possible
    reason: str | None  # why scoring was not possible, or an example if no completion is correct


def sample_recipe(recipe: Recipe, prompts: Prompts, sampling: Sampling, *, build: bool = False) -> RecipeSample:
    """Sample completions of a recipe's model and grade them with its reward; `build`: call `model_builder` first."""
    name, model, tokenizer = _load_model(recipe, build)
    system, template = recipe.script.system_prompt, recipe.script.prompt_template
    if prompts.typed and (template or tokenizer.chat_template is not None):
        prompts = Prompts([make_prompt(text, system, "--prompt", template) for text in prompts.prompts])
    chat_options = recipe.training.get("chat_template_kwargs")
    encoded = [encode_prompt(tokenizer, prompt, chat_options) for prompt in prompts.prompts]
    completions = sample_completions(model, tokenizer, encoded, sampling)
    correct, reason = None, None
    if prompts.columns:
        correct, reason = _grade(recipe, tokenizer, prompts, encoded, completions)
    return RecipeSample(name, tokenizer, [tokenizer.decode(ids) for ids in encoded], completions, correct, reason)


def _load_model(recipe: Recipe, build: bool) -> tuple[str, Any, Any]:
    """Return the model's name, the model and the tokenizer."""
    logging.disable_progress_bar()
    name = model_path(recipe) if build else str(recipe.model.model_name_or_path)
    path = os.path.expanduser(name)
    on_cpu = recipe.training.get("use_cpu") or not torch.accelerator.is_available()
    hub = {
        "revision": recipe.model.model_revision,
        "trust_remote_code": recipe.training.get("trust_remote_code", False),
    }
    loading = {
        "dtype": recipe.model.dtype,
        "quantization_config": get_quantization_config(recipe.model),
        "device_map": "cpu" if on_cpu else str(torch.accelerator.current_accelerator()),
        **(recipe.training.get("model_init_kwargs") or {}),
    }
    # Flash attention, which a recipe may select for training, supports neither CPUs nor float32 weights.
    loading["attn_implementation"] = None if "flash" in str(recipe.attention) else recipe.attention
    loading = {key: value for key, value in loading.items() if value is not None}
    load_errors: tuple[type[Exception], ...] = (*hub_errors(), ValueError, ImportError)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, **hub)
        return name, AutoModelForCausalLM.from_pretrained(path, **hub, **loading), tokenizer
    except load_errors as error:
        raise UserError(f"The model {name!r} cannot be loaded: {first_line(error)}{nearest_model(name)}") from error


def encode_prompt(
    tokenizer: Any, prompt: str | list[dict[str, str]], chat_template_kwargs: dict[str, Any] | None = None
) -> list[int]:
    """Encode a prompt as TRL does: text unchanged, chat messages with the tokenizer's chat template."""
    if isinstance(prompt, str):
        ids = tokenizer(prompt)["input_ids"]
    else:
        check_chat_template(prompt, tokenizer.name_or_path, tokenizer)
        options = {"tokenize": True, "return_dict": True, **(chat_template_kwargs or {})}
        ids = apply_template(tokenizer, prompt, **options)["input_ids"]
    if not ids:
        raise UserError(f"The prompt {prompt!r} has no tokens: use a non-empty prompt.")
    return list(ids)


def sample_completions(
    model: Any, tokenizer: Any, prompts: Sequence[list[int]], sampling: Sampling
) -> list[SampledCompletion]:
    """Sample completions from the full distribution (no top-k, no top-p) and find their high-entropy tokens."""
    model.eval()
    ends, pad = end_tokens(tokenizer, model.generation_config.eos_token_id), tokenizer.pad_token_id
    pad = (ends or [0])[0] if pad is None else pad  # any token works, because padding is masked
    settings = GenerationConfig(
        do_sample=True,
        temperature=sampling.temperature,
        top_k=0,
        top_p=1.0,
        max_new_tokens=sampling.max_new_tokens,
        eos_token_id=ends or None,
        pad_token_id=pad,
        disable_compile=True,
    )
    rows = [number for number in range(len(prompts)) for _ in range(sampling.num_samples)]
    batches = [rows[start : start + sampling.batch_size] for start in range(0, len(rows), sampling.batch_size)]
    sampled: list[list[int]] = []
    completions: list[SampledCompletion] = []
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.manual_seed(sampling.seed)
        for numbers in tqdm(batches, desc="Sampling", unit="batch"):
            for tokens in generate_batch(model, [prompts[number] for number in numbers], settings):
                length = len(cut_at_end(tokens, ends)[0]) + 1  # includes the end token
                sampled.append(tokens[:length])
        tau = sampling.numeric_tau([len(tokens) for tokens in sampled])
        for numbers in batches:
            batch_prompts, batch = [prompts[number] for number in numbers], sampled[len(completions) :][: len(numbers)]
            results = high_entropy_tokens(
                model, batch_prompts, batch, temperature=sampling.temperature, tau=tau, pad=pad
            )
            for number, tokens, (entropies, top_tokens) in zip(numbers, batch, results, strict=True):
                completions.append(SampledCompletion(number, tokens, tokens[-1] in ends, entropies, top_tokens))
    return completions


def _grade(
    recipe: Recipe,
    tokenizer: Any,
    prompts: Prompts,
    encoded: Sequence[list[int]],
    completions: Sequence[SampledCompletion],
) -> tuple[list[bool | None] | None, str | None]:
    """Call the accuracy reward with the same arguments as in training; return `correct` and `reason`."""
    functions = find_reward_functions(recipe)
    try:
        index = accuracy_reward_index([reward_name(func) for func in functions], recipe.setting("ces_accuracy_reward"))
    except ValueError as error:
        return None, str(error)
    func: Any = functions[index]
    if isinstance(func, str):
        return None, f"the accuracy reward is the reward model {func}, which is loaded only for training."
    rows = [completion.prompt for completion in completions]
    tokens = [completion.tokens for completion in completions]
    texts = zip(rows, tokenizer.batch_decode(tokens, skip_special_tokens=True), strict=True)
    arguments: dict[str, Any] = {
        "prompts": [prompts.prompts[row] for row in rows],
        "completions": [
            text if isinstance(prompts.prompts[row], str) else [{"role": "assistant", "content": text}]
            for row, text in texts
        ],
        "completion_ids": tokens,
        **read_turns([encoded[row] for row in rows], tokens, None, tokenizer),
        **{name: [values[row] for row in rows] for name, values in prompts.columns.items()},
        "trainer_state": TrainerState(),
        "log_extra": lambda *args, **kwargs: None,  # there is no log outside a training run
        "log_metric": lambda *args, **kwargs: None,
    }
    reward = guard(func, reward_name(func), "stop")  # as in training
    try:
        values = asyncio.run(reward(**arguments)) if is_async_callable(reward) else reward(**arguments)
    except RewardError as error:  # the remaining results are useful without grades
        return None, str(error)
    threshold = recipe.setting("ces_correct_threshold")
    correct = [None if value is None else value >= threshold for value in values]
    row = {name: entries[0] for name, entries in prompts.columns.items()}
    example = describe_example(func, arguments["completions"][0], row)
    return correct, None if any(correct) else f"{reward_name(func)} scored no completion as correct. {example}"
