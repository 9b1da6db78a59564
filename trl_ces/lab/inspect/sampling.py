"""Completions sampled from a recipe's model, and whether each is correct."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transformers import TrainerState
from trl.trainer.utils import is_async_callable

from ...layers.first_rollout import describe_example
from ...layers.reward_calls import RewardError, guard
from ...layers.turns import read_turns
from ...support.errors import UserError, first_line, hub_errors
from ...support.prompts import build_prompt
from ...support.reward_names import accuracy_reward_index, reward_name
from ...train.lookup import find_reward_functions, model_path
from .answers import SampledAnswer, encode_prompt, sample_answers
from .settings import Prompts, Sampling

if TYPE_CHECKING:
    from ...train.recipe import Recipe


@dataclass(frozen=True)
class RecipeSample:
    """What a recipe's model wrote."""

    name: str
    model: Any
    tokenizer: Any
    prompts: list[list[int]]  # token ids
    answers: list[SampledAnswer]  # the first prompt's first
    correct: list[bool | None] | None  # per completion, `None` if its reward could not tell; `None` without verdicts
    reason: str | None  # why there are no verdicts, where a reward was to give them, or no correct completion


def sample_recipe(recipe: Recipe, asked: Prompts, sampling: Sampling, *, build: bool = False) -> RecipeSample:
    """Loads the recipe's model, samples its completions, and grades them by the recipe's accuracy reward."""
    name, model, tokenizer = _load_model(recipe, build)
    prompts = asked.prompts
    if asked.typed and tokenizer.chat_template is not None:
        prompts = [build_prompt(text, recipe.script.system_prompt) for text in prompts]
    encoded = [encode_prompt(tokenizer, prompt, recipe.training.get("chat_template_kwargs")) for prompt in prompts]
    answers = sample_answers(model, tokenizer, encoded, sampling)
    correct, reason = None, None
    if asked.columns:
        correct, reason = _accuracy_verdicts(recipe, tokenizer, asked, encoded, answers)
    return RecipeSample(name, model, tokenizer, encoded, answers, correct, reason)


def _load_model(recipe: Recipe, build: bool) -> tuple[str, Any, Any]:
    """The model's name, the model and its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging
    from trl import get_quantization_config

    logging.disable_progress_bar()
    name = model_path(recipe) if build else str(recipe.model.model_name_or_path)
    place = os.path.expanduser(name)
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
    # A recipe's flash attention is for the forwards of training: it takes neither a CPU nor float32 weights.
    loading["attn_implementation"] = None if "flash" in str(recipe.attention) else recipe.attention
    loading = {key: value for key, value in loading.items() if value is not None}
    refusals: tuple[type[Exception], ...] = (*hub_errors(), ValueError, ImportError)
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, **hub)
        return name, AutoModelForCausalLM.from_pretrained(place, **hub, **loading), tokenizer
    except refusals as error:
        if os.environ.get("TRL_CES_DEBUG"):
            raise
        raise UserError(
            f"The model {name!r} cannot be loaded: {first_line(error)} (TRL_CES_DEBUG=1 shows where)"
        ) from error


def _accuracy_verdicts(
    recipe: Recipe, tokenizer: Any, asked: Prompts, encoded: Sequence[list[int]], answers: Sequence[SampledAnswer]
) -> tuple[list[bool | None] | None, str | None]:
    """Asks the accuracy reward."""
    functions = find_reward_functions(recipe)
    try:
        index = accuracy_reward_index([reward_name(func) for func in functions], recipe.setting("ces_accuracy_reward"))
    except ValueError as error:
        return None, str(error)
    func: Any = functions[index]
    if isinstance(func, str):
        return None, f"the accuracy reward is the reward model {func}, which only the trainer loads."
    arguments, name = _reward_arguments(tokenizer, asked, encoded, answers), reward_name(func)
    ask = guard(func, name, "stop")  # as in training
    try:
        values = asyncio.run(ask(**arguments)) if is_async_callable(ask) else ask(**arguments)
    except RewardError as error:  # the table is of use without it
        return None, str(error)
    threshold = recipe.setting("ces_correct_threshold")
    verdicts = [None if value is None else value >= threshold for value in values]
    seen = describe_example(func, arguments["completions"][0], {name: values[0] for name, values in asked.columns.items()})
    return verdicts, None if any(verdicts) else f"{name} calls no completion correct. {seen}"


def _reward_arguments(
    tokenizer: Any, asked: Prompts, encoded: Sequence[list[int]], answers: Sequence[SampledAnswer]
) -> dict[str, Any]:
    """Keyword arguments of a reward function, TRL's and CESTrainer's, one entry per completion."""
    tokens = [answer.tokens for answer in answers]
    prompts = [asked.prompts[answer.prompt] for answer in answers]
    texts = tokenizer.batch_decode(tokens, skip_special_tokens=True)
    return {
        "prompts": prompts,
        "completions": [
            text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
            for prompt, text in zip(prompts, texts, strict=True)
        ],
        "completion_ids": tokens,
        **read_turns([encoded[answer.prompt] for answer in answers], tokens, None, tokenizer),
        **{name: [values[answer.prompt] for answer in answers] for name, values in asked.columns.items()},
        # What TRL offers for logging goes nowhere: there is no run.
        "trainer_state": TrainerState(),
        "log_extra": lambda *args, **kwargs: None,
        "log_metric": lambda *args, **kwargs: None,
    }
