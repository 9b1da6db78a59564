"""Which sampled answers are correct, by a recipe's accuracy reward, called as the trainer calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transformers import TrainerState
from trl.trainer.utils import is_async_callable

from ...layers.reward_guard import accepted
from ...layers.turns import read_turns
from ...support.errors import first_line
from ...support.reward_names import accuracy_reward_index, reward_name
from ...train.lookup import find_reward_functions

if TYPE_CHECKING:
    from ...train.recipe import Recipe
    from .answers import SampledAnswer
    from .settings import Prompts


def accuracy_verdicts(
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
    arguments = accepted(func, _reward_arguments(tokenizer, asked, encoded, answers))
    try:
        values = list(asyncio.run(func(**arguments)) if is_async_callable(func) else func(**arguments))
    except Exception as error:  # a user's function can fail in any way, and the table is of use without it
        said = first_line(error) if str(error).strip() else "no message"
        return None, f"the reward {reward_name(func)} failed here ({type(error).__name__}: {said})."
    if len(values) != len(answers):
        return None, f"the reward {reward_name(func)} returned {len(values)} values for {len(answers)} answers."
    threshold = recipe.setting("ces_correct_threshold")
    return [None if value is None or value != value else bool(value >= threshold) for value in values], None


def _reward_arguments(
    tokenizer: Any, asked: Prompts, encoded: Sequence[list[int]], answers: Sequence[SampledAnswer]
) -> dict[str, Any]:
    """Keyword arguments of a reward function, TRL's and CESTrainer's, one entry per answer."""
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
