"""DLER's advantages: in training, whitened over the tokens of a rollout, of all processes.

Overrides of TRL: `_generate_and_score_completions`.
"""

from accelerate.utils import gather

from ..methods.dler import whitened
from .layer import Layer
from .rows import rows_of_process


class TokenWhitening(Layer):
    """`whiten_over_tokens` of [`CESConfig`], see [`whitened`]. TRL's are then rewards less their mean."""

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        if not self.args.whiten_over_tokens or not self.model.training:
            return batch
        tokens = (batch["completion_mask"] * batch.get("tool_mask", 1)).sum(dim=1)
        every = whitened(gather(batch["advantages"]), gather(tokens))
        return {**batch, **rows_of_process({"advantages": every}, self.accelerator)}
