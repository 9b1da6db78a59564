"""Answers sampled from a recipe's model, and whether each is correct."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...support.prompts import build_prompt
from .answers import SampledAnswer, encode_prompt, sample_answers
from .model import load_model
from .settings import Prompts, Sampling
from .verdicts import accuracy_verdicts

if TYPE_CHECKING:
    from ...train.recipe import Recipe


@dataclass(frozen=True)
class RecipeSample:
    """What a recipe's model answered."""

    name: str
    model: Any
    tokenizer: Any
    prompts: list[list[int]]  # token ids
    answers: list[SampledAnswer]  # the first prompt's first
    correct: list[bool | None] | None  # per answer, `None` if its reward could not tell; `None` without verdicts
    reason: str | None  # why there are no verdicts, where a reward was to give them


def sample_recipe(
    recipe: Recipe,
    asked: Prompts,
    sampling: Sampling,
    *,
    build: bool = False,
    on_batch: Callable[[int, int], None] | None = None,
) -> RecipeSample:
    """Loads the recipe's model, lets it answer, and grades the answers by the recipe's accuracy reward."""
    name, model, tokenizer = load_model(recipe, build)
    prompts = asked.prompts
    if asked.typed and tokenizer.chat_template is not None:
        prompts = [build_prompt(text, recipe.script.system_prompt) for text in prompts]
    encoded = [encode_prompt(tokenizer, prompt, recipe.training.get("chat_template_kwargs")) for prompt in prompts]
    answers = sample_answers(model, tokenizer, encoded, sampling, on_batch)
    correct, reason = None, None
    if asked.columns:
        correct, reason = accuracy_verdicts(recipe, tokenizer, asked, encoded, answers)
    return RecipeSample(name, model, tokenizer, encoded, answers, correct, reason)
