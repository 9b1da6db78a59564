"""Run forward passes without TRL's padding, which extends every row of a rollout to the length of the longest row.

TRL pads prompts on the left and completions on the right, so the real tokens of a row are contiguous. A forward pass
needs only as many columns as its longest row has tokens. If attention supports sequences of different lengths, no
padding is needed at all: the rows are packed into one row, as in TRL's `SFTConfig.padding_free`. Log-probs and
entropies are returned in their original columns.
"""

import logging
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.utils.generic import is_flash_attention_requested

logger = logging.getLogger(__name__)

# RoPE types whose frequencies depend on the padded input length, so that trimming would change them.
LENGTH_DEPENDENT_ROPE = ("dynamic", "longrope")
# Model types in which packed rows do not affect each other: attention restarts where positions restart, and no
# convolution or linear attention mixes positions. tests/layers/test_padding.py compares packed with padded rows.
PACKABLE_MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3", "olmo2", "olmo3", "granite", "smollm3", "gemma2", "phi3")
# Per-token outputs of TRL's fused LM head; see `FusedCausalLMOutput` in trl/trainer/utils.py.
PER_TOKEN = ("log_probs", "entropy")


class Span(NamedTuple):
    """The columns [start, end) of a row's real tokens."""

    start: int
    end: int


def real_spans(attention_mask: Tensor) -> list[Span]:
    """Return the span of real tokens in each row, or the entire row if its mask is all 0. Synchronizes the device."""
    real = attention_mask != 0
    start = real.int().argmax(dim=1)
    end = real.size(1) - real.flip(1).int().argmax(dim=1)
    return [Span(*span) for span in torch.stack([start, end], dim=1).tolist()]


class PaddingSupport(NamedTuple):
    """Padding that a model's forward passes can omit."""

    left: bool  # padding of prompts; needs relative positions
    right: bool  # padding of completions
    pack: bool  # all padding, by packing all rows into one, in which positions restart at each original row
    reason: str = ""  # why some padding is kept


def padding_support(model: torch.nn.Module) -> PaddingSupport:
    """Decide which padding can be omitted without changing the outputs of `model` (Transformers or PEFT)."""
    if any(adapter.is_prompt_learning for adapter in getattr(model, "peft_config", {}).values()):
        reason = "it uses prompt learning, which puts virtual tokens before the padding"
        return PaddingSupport(left=False, right=False, pack=False, reason=reason)
    config = _text_config(model)
    rope_types = _rope_types(getattr(config, "rope_parameters", None))
    length_dependent = sorted(rope_types.intersection(LENGTH_DEPENDENT_ROPE))
    if length_dependent:
        reason = f"its rotary embeddings ({length_dependent[0]}) depend on the padded length"
        return PaddingSupport(left=False, right=False, pack=False, reason=reason)
    stateful = any(getattr(module, "_is_stateful", False) for module in model.modules())
    if stateful or not rope_types:
        reason = "it is recurrent" if stateful else "it does not use standard rotary position embeddings"
        return PaddingSupport(left=False, right=True, pack=False, reason=reason)
    if config.model_type not in PACKABLE_MODEL_TYPES:
        reason = f"models of type {config.model_type} are not known to support packed rows"
        return PaddingSupport(left=True, right=True, pack=False, reason=reason)
    return PaddingSupport(left=True, right=True, pack=True)


def padding_plan(
    model: torch.nn.Module, trim: bool, pack: bool | None, sequences_are_split: bool = False
) -> PaddingSupport:
    """Decide which padding to omit; raise `ValueError` if `pack` is `True` but rows cannot be packed."""
    support = padding_support(model)
    if sequences_are_split:
        support = PaddingSupport(False, False, False, "its sequences are split over processes")
    flash = is_flash_attention_requested(_text_config(model))
    if pack and not support.pack:
        raise ValueError(f"Rows cannot be packed for this model ({support.reason}): set `packing=False`.")
    if pack and not flash:
        logger.warning(
            "With `packing=True` but without FlashAttention, each forward pass computes attention between all of its "
            "rows and discards most of the result. Set `packing=False`, or set `attn_implementation` to "
            '"flash_attention_2" in `model_init_kwargs`.'
        )
    if support.reason and trim and (not support.left or flash):
        logger.info("Forward passes of this model keep some or all of the padding: %s.", support.reason)
    packs = support.pack and (flash and trim if pack is None else pack)
    return support._replace(left=support.left and trim, right=support.right and trim, pack=packs)


def without_padding(model: Any, padding: PaddingSupport, spans: list[Span], multiple: int) -> Any:
    """Wrap `model`, which has TRL's fused LM head, to omit the padding outside `spans` (one per row)."""
    if padding.pack:
        return PackedModel(model, spans)
    return TrimmedModel(model, spans, multiple, padding.left) if padding.right else model


def _text_config(model: torch.nn.Module) -> Any:
    return model.config.get_text_config()  # type: ignore[operator, union-attr]


def _rope_types(parameters: dict[str, Any] | None) -> set[str]:
    """Return the RoPE types in a config's `rope_parameters`, which may have an entry per layer type."""
    if not parameters:
        return set()
    nested = [entry for entry in parameters.values() if isinstance(entry, dict) and "rope_theta" in entry]
    entries = nested or [parameters]
    if any("llama_4_scaling_beta" in entry for entry in entries):  # scales attention by the absolute position
        return set()
    return {entry.get("rope_type", "default") for entry in entries}


class TrimmedModel:
    """
    Wrapper that takes TRL's padded rows and passes them to the model, trimmed to the longest row.

    With `left`, rows are also shifted left, which changes absolute positions and recurrent states. Causal attention
    never reads padding after a row's end, so shifted rows need no attention mask, which allows faster kernels.
    """

    def __init__(self, model: Any, spans: list[Span], multiple: int = 1, left: bool = True):
        self.model, self.multiple, self.left = model, multiple, left
        self.spans = spans if left else [Span(0, end) for _, end in spans]

    def __call__(self, *, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, **kwargs: Any) -> Any:
        """Call the model; `log_probs` and `entropy` have shape (B, L - 1), 0 at omitted positions."""
        rows, padded = input_ids.shape
        longest = max(2, *(end - start for start, end in self.spans))  # at least one token and its target
        width = -(-longest // self.multiple) * self.multiple
        width = width if self.left else min(width, padded)  # rows that are not shifted are never widened
        device = input_ids.device
        columns = torch.tensor([start for start, _ in self.spans], device=device).unsqueeze(1)
        columns = columns + torch.arange(width, device=device)
        outside, source = columns >= padded, columns.clamp(max=padded - 1)
        mask = attention_mask.gather(1, source).masked_fill(outside, 0)
        outputs = self.model(
            input_ids=input_ids.gather(1, source),
            # The load-balancing loss of a mixture of experts needs the mask to count tokens.
            attention_mask=None if self.left and not kwargs.get("output_router_logits") else mask,
            labels=labels.gather(1, source).masked_fill(mask == 0, -100),
            **kwargs,
        )
        for name in PER_TOKEN:
            values = getattr(outputs, name)
            if values is not None:
                wide = values.new_zeros(rows, padded - 1 + width).scatter(1, columns[:, :-1], values)
                setattr(outputs, name, wide[:, : padded - 1])
        return outputs


class PackedModel:
    """
    Wrapper that takes TRL's padded rows and packs them into one row for the model; positions restart at each row.

    Row boundaries (`cu_seq_lens_q`, ...) are also passed. Otherwise, FlashAttention would derive them from the
    positions in every layer, with a device synchronization each time.
    """

    def __init__(self, model: Any, spans: list[Span]):
        self.model = model
        self.lengths = [end - start for start, end in spans]

    def __call__(self, *, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, **kwargs: Any) -> Any:
        """Call the model, as in [`TrimmedModel`]."""
        real = attention_mask != 0
        first = real & ~pad(real, (1, -1))  # the first real token of each row
        positions = (real.cumsum(dim=1) - 1)[real]
        starts = torch.tensor([0, *accumulate(self.lengths)], dtype=torch.int32, device=input_ids.device)
        longest = max(self.lengths)
        outputs = self.model(
            input_ids=input_ids[real].unsqueeze(0),
            attention_mask=None,
            position_ids=positions.unsqueeze(0),
            labels=labels[real].unsqueeze(0),
            cu_seq_lens_q=starts,
            cu_seq_lens_k=starts,
            max_length_q=longest,
            max_length_k=longest,
            **kwargs,
        )
        # Column j scores token j + 1, both in the padded rows and in the packed row.
        scored = (real & ~first)[:, 1:]
        inside = positions[1:] > 0
        for name in PER_TOKEN:
            values = getattr(outputs, name)
            if values is not None:
                padded = values.new_zeros(scored.shape).masked_scatter(scored, values[0][inside])
                setattr(outputs, name, padded)
        return outputs
