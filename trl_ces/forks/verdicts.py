"""Which sampled answers are correct, by a recipe's accuracy reward, called as the trainer calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transformers import TrainerState
from trl.trainer.utils import is_async_callable

from ..rollout.reward_guard import accepted
from ..support.errors import first_line
from ..support.prompts import THINK_CLOSE, THINK_OPEN, opens_thinking
from ..support.reward_names import accuracy_reward_index, reward_name
from ..train.lookup import find_reward_functions

if TYPE_CHECKING:
    from ..train.recipe import Recipe
    from .answers import SampledAnswer


def accuracy_verdicts(
    recipe: Recipe,
    tokenizer: Any,
    prompts: Sequence[Any],
    columns: dict[str, list[Any]],
    encoded: Sequence[list[int]],
    answers: Sequence[SampledAnswer],
) -> tuple[list[bool | None] | None, str | None]:
    """
    Asks the accuracy reward.

    Args:
        recipe ([`Recipe`]): Names the rewards, and which of them tells right from wrong.
        tokenizer (`PreTrainedTokenizerBase`): Decodes the answers.
        prompts (`Sequence`): Texts or chat messages.
        columns (`dict[str, list]`): The data's other columns, one value per prompt.
        encoded (`Sequence[list[int]]`): The prompts' token ids.
        answers (`Sequence[SampledAnswer]`): To grade.

    Returns:
        `tuple`: Whether each answer is correct (`None` where the reward could not tell), and `None`; or `None`, and a
        sentence on why the answers cannot be graded here.

    Raises:
        UserError: if a reward of the recipe does not exist.
    """
    training = recipe.training
    functions = find_reward_functions(recipe.script, training.get("max_completion_length", 512))
    try:
        index = accuracy_reward_index([reward_name(func) for func in functions], training.get("ces_accuracy_reward"))
    except ValueError as error:
        return None, str(error)
    func: Any = functions[index]
    if isinstance(func, str):
        return None, f"the accuracy reward is the reward model {func}, which only the trainer loads."
    arguments = accepted(func, reward_arguments(tokenizer, prompts, columns, encoded, answers))
    try:
        values = list(asyncio.run(func(**arguments)) if is_async_callable(func) else func(**arguments))
    except Exception as error:  # a user's function can fail in any way, and the table is of use without it
        said = first_line(error) if str(error).strip() else "no message"
        return None, f"the reward {reward_name(func)} failed here ({type(error).__name__}: {said})."
    if len(values) != len(answers):
        return None, f"the reward {reward_name(func)} returned {len(values)} values for {len(answers)} answers."
    threshold = training.get("ces_correct_threshold", 1.0)
    return [None if value is None or value != value else bool(value >= threshold) for value in values], None


def reward_arguments(
    tokenizer: Any,
    prompts: Sequence[Any],
    columns: dict[str, list[Any]],
    encoded: Sequence[list[int]],
    answers: Sequence[SampledAnswer],
) -> dict[str, Any]:
    """Keyword arguments of a reward function, TRL's and CESTrainer's, one entry per answer."""
    texts = tokenizer.batch_decode([answer.tokens for answer in answers], skip_special_tokens=True)
    added = tokenizer.get_added_vocab()
    tags = {added[tag] for tag in (THINK_OPEN, THINK_CLOSE) if tag in added}
    special = set(tokenizer.all_special_ids) - tags
    turns = [[token for token in answer.tokens if token not in special] for answer in answers]
    asked = [prompts[answer.prompt] for answer in answers]
    return {
        "prompts": asked,
        "completions": [
            text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
            for prompt, text in zip(asked, texts, strict=True)
        ],
        "completion_ids": [answer.tokens for answer in answers],
        **{name: [values[answer.prompt] for answer in answers] for name, values in columns.items()},
        "thinking_prefilled": [opens_thinking(tokenizer.decode(encoded[answer.prompt])) for answer in answers],
        "last_turns": tokenizer.batch_decode(turns),
        # What TRL offers for logging goes nowhere: there is no run.
        "trainer_state": TrainerState(),
        "log_extra": lambda *args, **kwargs: None,
        "log_metric": lambda *args, **kwargs: None,
    }
