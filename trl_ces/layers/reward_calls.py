"""Calls reward functions: with the model's own text, and with their results checked.

Overrides of TRL: `_generate`, `_calculate_rewards`.
"""

from .layer import Layer
from .reward_guard import guarded_rewards
from .turns import read_turns


class RewardCalls(Layer):
    """
    Passes `REWARD_KEYWORDS` to reward functions that accept them, and checks what every function returns.

    Raises:
        [`RewardError`]: During training; see [`guarded_rewards`].
    """

    # Of the latest completions, by the names of REWARD_KEYWORDS.
    _turns: dict[str, list] = {}  # noqa: RUF012

    def _generate(self, prompts):
        outputs = super()._generate(prompts)
        prompt_ids, completion_ids, masks = outputs[:3]  # lists, but a user's rollout_func may return tensors
        self._turns = read_turns(prompt_ids, completion_ids, masks, self._tokenizer)
        return outputs

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        with guarded_rewards(self, self.args.on_reward_error):
            return super()._calculate_rewards(self._with_turns(inputs), prompts, completions, completion_ids_list)

    def _with_turns(self, examples: list[dict]) -> list[dict]:
        """Adds `REWARD_KEYWORDS` to examples; dataset columns take precedence."""
        return [
            {**{name: values[row] for name, values in self._turns.items()}, **example}
            for row, example in enumerate(examples)
        ]
