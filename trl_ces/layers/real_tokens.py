"""Forward passes over real tokens only, with the rows of an optimizer step arranged by length.

TRL pads each row of a rollout to the longest row and runs every forward pass at that width. This layer wraps the
model to remove the padding (padding.py). It also arranges the rows of an optimizer step by length in TRL's buffer of
micro-batches, across processes (micro_batches.py). These changes affect only the order of floating-point additions.

Old log-probs are computed over the same micro-batches as the update, so that the first importance ratio of a rollout
is exactly 1, even in bf16. TRL computes them earlier, in different batches. This layer makes that call return zeros
and replaces the zeros later, unless TRL needs the log-probs for its vLLM importance sampling correction.

Overrides of TRL: `_generate`, `_get_per_token_logps_and_entropies`, `_prepare_inputs`, `_compute_loss`. Reads `_step`
and `_metrics`, and writes `_buffered_inputs`.
"""

import logging
from typing import Any, cast

import torch
from accelerate.utils import DistributedType, gather_object
from trl.models.utils import disable_gradient_checkpointing

from .layer import Layer
from .micro_batches import arrange_rows, forward_batches, movable_entries, pieces, without_sync
from .padding import padding_plan, real_spans, without_padding
from .rows import row_layout

logger = logging.getLogger(__name__)

OLD = "old_per_token_logps"


class RealTokens(Layer):
    """
    Keep padding out of forward passes, as set by `trim_padding`, `packing`, `arrange_by_length` and
    `max_tokens_per_micro_batch` of [`CESConfig`]. Without `trim_padding` and `arrange_by_length`, this layer does
    nothing.

    Raises:
        `ValueError`: The model or another setting does not allow `packing` or `max_tokens_per_micro_batch`.
    """

    _defers_old_logps = False  # whether old log-probs of the current rollout are computed after the arrangement
    _expects_old_logps = False  # whether TRL's next forward pass would compute old log-probs that are deferred
    _loss_rows: dict[str, Any] | None = None  # the rows whose loss is being computed
    _warned_of_irregular = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        parallelism = getattr(self.accelerator, "parallelism_config", None)
        split = parallelism is not None and (parallelism.cp_enabled or parallelism.sp_enabled)
        policy = self.accelerator.unwrap_model(self.model)
        self._padding = padding_plan(policy, self.args.trim_padding, self.args.packing, split)
        # The load-balancing loss of a mixture of experts is not a sum over rows.
        self._per_step = 0 if self.aux_loss_enabled or split else self.args.micro_batches_to_arrange()
        if self.args.max_tokens_per_micro_batch is not None and (self._per_step == 0 or not self._padding.right):
            raise ValueError(
                "`max_tokens_per_micro_batch` needs rows that can be rearranged and trimmed: make one of "
                "`steps_per_generation` and `gradient_accumulation_steps` a multiple of the other, set "
                "`router_aux_loss_coef` to 0.0, disable context and sequence parallelism, and use a model whose "
                "positions do not depend on padding."
            )

    def _prepare_inputs(self, generation_batch):
        previous_buffer = self._buffered_inputs
        self._defers_old_logps = self.model.training and self._may_defer_old_logps()
        inputs = super()._prepare_inputs(generation_batch)
        if not self.model.training or self._buffered_inputs is previous_buffer:
            return inputs
        buffer = cast(list[dict], self._buffered_inputs)
        if self._per_step > 0:
            buffer = self._arrange(buffer)
        if self._defers_old_logps:
            self._compute_old_logps(buffer)
            self._defers_old_logps = False
        self._buffered_inputs = cast(Any, buffer)
        return buffer[self._step % len(buffer)]

    def _arrange(self, buffer: list[dict]) -> list[dict]:
        layout, budget = row_layout(self._tokenizer.pad_token_id), self.args.max_tokens_per_micro_batch
        # Gather the entries, because images or tool masks may exist on some processes only.
        movable_by_process = gather_object([movable_entries(buffer, layout, self.accelerator.num_processes)])
        names = {name for movable in movable_by_process for name in movable}
        irregular = sorted(name for name in names if not all(movable.get(name) for movable in movable_by_process))
        if not irregular:
            unit = cast(Any, self.pad_to_multiple_of) or 1
            return arrange_rows(buffer, self._per_step, layout, self.accelerator, self._padding, budget, unit)
        if not self._warned_of_irregular and self.accelerator.is_main_process:
            logger.warning(
                "Rows are not sorted by length%s in rollouts with the following inputs, because on at least one "
                "process they do not have exactly one row of known shape per completion: %s.",
                "" if budget is None else " and `max_tokens_per_micro_batch` is ignored",
                ", ".join(irregular),
            )
        self._warned_of_irregular = True
        return buffer

    def _may_defer_old_logps(self) -> bool:
        """Return whether TRL computes old log-probs that only the update needs."""
        args = self.args
        computed = args.gradient_accumulation_steps % self._micro_steps_per_rollout() != 0
        corrected = self.use_vllm and self.vllm_importance_sampling_correction
        return computed and not corrected and not self._is_vlm and (self._per_step > 0 or self._padding.right)

    @torch.no_grad()
    def _compute_old_logps(self, buffer: list[dict]):
        """Compute the old log-probs of a new rollout with the same forward passes as the update."""
        model, settings = cast(Any, self.model), cast(Any, self.args.gradient_checkpointing_kwargs)
        with disable_gradient_checkpointing(model, settings):
            for batch in buffer:
                parts = []
                for rows in pieces(batch):
                    ids = torch.cat([rows["prompt_ids"], rows["completion_ids"]], dim=1)
                    mask = torch.cat([rows["prompt_mask"], rows["completion_mask"]], dim=1)
                    width = rows["completion_ids"].size(1)
                    parts.append(self._get_per_token_logps_and_entropies(self.model, ids, mask, width)[0])
                batch[OLD] = torch.cat(parts)

    def _generate(self, prompts):
        outputs = super()._generate(prompts)
        # Set this after generation, because a rollout_func may run forward passes.
        self._expects_old_logps = self._defers_old_logps
        return outputs

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **kwargs
    ):
        if self._expects_old_logps and batch_size is not None:
            self._expects_old_logps = False
            return torch.zeros(input_ids.size(0), logits_to_keep, device=input_ids.device), None, None
        image_inputs = kwargs.keys() - {"compute_entropy", "compute_aux_loss"}
        images = any(kwargs[name] is not None for name in image_inputs)
        budget = self.args.max_tokens_per_micro_batch if self.model.training and batch_size is not None else None
        if budget is not None and any(gather_object([images])):
            budget = None
        if self._padding.right and not images:
            outputs = self._forward_real_tokens(
                model, input_ids, attention_mask, logits_to_keep, batch_size, budget, **kwargs
            )
        else:
            outputs = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size=batch_size, **kwargs
            )
        if self._loss_rows is not None:
            self._log_first_ratio(self._loss_rows, outputs[0])
        return outputs

    def _forward_real_tokens(self, model, input_ids, attention_mask, logits_to_keep, batch_size, budget, **kwargs):
        """Run TRL's method on a model that trims or packs rows; without gradients, batch rows of similar length."""
        run, spans = super()._get_per_token_logps_and_entropies, real_spans(attention_mask)
        unit = cast(Any, self.pad_to_multiple_of) or 1
        if batch_size is None:
            model = without_padding(model, self._padding, spans, unit)
            return run(model, input_ids, attention_mask, logits_to_keep, **kwargs)
        sort = self.args.arrange_by_length
        batches = forward_batches(spans, batch_size, sort, self._padding, budget, unit)
        parts = []
        for rows in batches:
            wrapped = without_padding(model, self._padding, [spans[row] for row in rows], unit)
            parts.append(run(wrapped, input_ids[rows], attention_mask[rows], logits_to_keep, **kwargs))
        order = torch.tensor([row for rows in batches for row in rows], device=input_ids.device).argsort()
        logps, entropies = (
            None if part[0] is None else torch.cat(part)[order] for part in list(zip(*parts, strict=True))[:2]
        )
        return logps, entropies, None  # no auxiliary loss without a gradient

    def _compute_loss(self, model, inputs):
        *first, last = pieces(inputs)
        total, earlier_loss = inputs["prompt_ids"].size(0), 0.0
        for rows in first:
            with without_sync(self.accelerator, model):
                loss = self._loss_of_piece(model, rows, total)
                # As in `transformers.Trainer`.
                deepspeed = self.accelerator.distributed_type == DistributedType.DEEPSPEED
                self.accelerator.backward(loss, **({"scale_wrt_gas": False} if deepspeed else {}))
            earlier_loss = earlier_loss + loss.detach()
        loss = self._loss_of_piece(model, last, total)
        return loss + earlier_loss if first else loss  # detached: `earlier_loss` affects only the logged loss

    def _loss_of_piece(self, model, rows, total: int):
        """Return the share of `rows` in the loss of `total` rows; TRL normalizes by the rollout's tokens or rows."""
        self._loss_rows = rows
        try:
            loss = super()._compute_loss(model, rows)
        finally:
            self._loss_rows = None
        size = rows["prompt_ids"].size(0)
        return loss if size == total or self.loss_type in ("dapo", "cispo", "vespo") else loss * size / total

    def _log_first_ratio(self, rows: dict[str, Any], logps: torch.Tensor):
        """Log the largest |log ratio| of a rollout's first micro-batch; it is 0 if old and new log-probs match."""
        if not self.model.training or OLD not in rows or self._step % self._micro_steps_per_rollout():
            return
        if self._per_step == 0 and not self._padding.right:
            return
        mask = rows["completion_mask"] * rows.get("tool_mask", 1)
        largest = ((logps.detach() - rows[OLD]).abs() * mask).max()
        self._metrics["train"]["log_ratio/first_step_max"].append(self.accelerator.gather(largest).max().item())
