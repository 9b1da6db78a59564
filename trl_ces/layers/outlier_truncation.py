"""DOT's cut: in training, completions that are far longer than others of an all-correct group lose their end.

The completions are graded twice: by the accuracy reward alone, before the cut, and by all rewards after it. TRL's
`_generate` runs twice as well, the second time on the cut tokens in the place of new ones, so that text, turns and
masks are made where they always are. Logged lengths are those before the cut.

Overrides of TRL: `_generate`, `_generate_and_score_completions`. Calls `_calculate_rewards`. Writes `rollout_func`,
`_metrics`, `_pending_extra_logs` and `_pending_metrics`.
"""

import copy
from typing import Any, cast

import torch
from accelerate.utils import gather

from ..methods.dot import dot_limits
from ..methods.group_reward import accuracy_column
from .group_rewards import no_verdicts
from .layer import Layer
from .rows import rows_of_process
from .turns import policy_lengths


class OutlierTruncation(Layer):
    """
    `dot_alpha` and `dot_least` of [`CESConfig`], see [`dot_limits`].

    Raises:
        `ValueError`: With `dot_alpha`, if there are tools or environments, or the accuracy reward is ambiguous.
    """

    _examples: list[dict] = []  # noqa: RUF012 of the current rollout

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.args.dot_alpha is None:
            return
        self._graded_by = accuracy_column(self.args.ces_accuracy_reward, self.reward_func_names, self.reward_funcs)
        if self.tools or self.environment_factories is not None:
            raise ValueError("`dot_alpha` cuts completions without tools and environments: set it to None.")

    def _generate_and_score_completions(self, inputs):
        self._examples = inputs
        return super()._generate_and_score_completions(inputs)

    def _generate(self, prompts):
        outputs = super()._generate(prompts)
        if self.args.dot_alpha is None or not self.model.training:
            return outputs
        prompt_ids, completion_ids, masks, completions, logps, more, *_ = outputs
        examples = [
            # as TRL adds them for the rewards: one value, or one a row
            {**example, **{name: values[row] if isinstance(values, list) else values for name, values in more.items()}}
            for row, example in enumerate(self._examples)
        ]
        correct = self._accuracy(examples, prompts, completions, completion_ids) >= self.args.ces_correct_threshold
        lengths = gather(torch.tensor(policy_lengths(completion_ids, masks), device=correct.device))
        groups = (-1, self._group_size)
        limits = dot_limits(lengths.view(groups), correct.view(groups), self.args.dot_alpha, self.args.dot_least)
        cut = limits.flatten() < lengths
        self._metrics["train"]["dot/cut_share"].append(cut.float().mean().item())
        if not cut.any():
            return outputs
        here = rows_of_process({"limits": limits.flatten()}, self.accelerator)["limits"].tolist()
        whole = [[1] * len(ids) for ids in completion_ids] if masks is None else masks
        ends = [end_of(mask, limit) for mask, limit in zip(whole, here, strict=True)]
        rows: dict[str, Any] = {"completion_ids": completion_ids, "logprobs": logps, "env_mask": masks}
        shortened = {
            name: None if values is None else [row[:end] for row, end in zip(values, ends, strict=True)]
            for name, values in rows.items()
        }
        if masks is None:
            del shortened["env_mask"]
        return self._generated_again(prompts, {"prompt_ids": prompt_ids, **shortened, **more})

    def _accuracy(self, examples, prompts, completions, completion_ids) -> torch.Tensor:
        """The accuracy rewards of all processes, shape (N,), without calling the other functions."""
        funcs = self.reward_funcs
        only = [func if column == self._graded_by else no_verdicts for column, func in enumerate(funcs)]
        self.reward_funcs = cast(Any, only)
        try:
            return super()._calculate_rewards(examples, prompts, completions, completion_ids)[:, self._graded_by]
        finally:
            self.reward_funcs = funcs
            self._pending_extra_logs.clear()  # what the function logs, it logs again after the cut
            self._pending_metrics.clear()

    def _generated_again(self, prompts, rollout: dict[str, Any]):
        """What `_generate` returns for these tokens; logs nothing."""
        before = self._metrics, self.rollout_func, self.state.num_input_tokens_seen
        self._metrics, self.rollout_func = copy.deepcopy(self._metrics), lambda *_: rollout
        try:
            return super()._generate(prompts)
        finally:
            self._metrics, self.rollout_func, self.state.num_input_tokens_seen = before


def end_of(mask: list[int], limit: int) -> int:
    """Place behind the `limit`-th token of the policy's own, where its `mask` is 1, or behind all."""
    own = [place for place, is_own in enumerate(mask) if is_own]
    return own[limit - 1] + 1 if limit < len(own) else len(mask)
