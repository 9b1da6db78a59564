"""Forwards over real tokens only: TRL pads every row of a rollout to its longest; here the model sees less of that.

TRL pads prompts on the left and completions on the right, so that the real tokens of a row stand together. A forward
over some of the rows needs only as many columns as the longest of them has tokens, and where attention takes sequences
of different lengths, no padding at all (padding-free: the rows stand in one, as in TRL's `SFTConfig.padding_free`).
Log-probabilities and entropies come back in the columns they would have had.
"""

import logging
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.utils.generic import is_flash_attention_requested

logger = logging.getLogger(__name__)

# Frequencies that follow the length of the input, padding included: what is trimmed would change them.
ROPE_OF_THE_LENGTH = ("dynamic", "longrope")
# Whose attention starts anew where positions do, and which mix nothing else over positions: convolutions and linear
# attention would carry one row into the next. tests/rollout/test_padding.py compares each of these with padded rows.
PACKED_APART = ("llama", "mistral", "qwen2", "qwen3", "olmo2", "olmo3", "granite", "smollm3", "gemma2", "phi3")
# What a model with a fused LM head returns for each token; see `FusedCausalLMOutput` in trl/trainer/utils.py.
PER_TOKEN = ("log_probs", "entropy")


class Span(NamedTuple):
    """The columns [start, end) of a padded row in which its real tokens stand."""

    start: int
    end: int


def real_spans(attention_mask: Tensor) -> list[Span]:
    """
    Where the real tokens of each row stand. Waits for the device once.

    Args:
        attention_mask (`Tensor`): Shape (B, L), 1 from the first real token to the last.

    Returns:
        `list[Span]`: Of length B. A row without real tokens counts as one without padding.
    """
    real = attention_mask != 0
    start = real.int().argmax(dim=1)
    end = real.size(1) - real.flip(1).int().argmax(dim=1)
    return [Span(*span) for span in torch.stack([start, end], dim=1).tolist()]


class PaddingSupport(NamedTuple):
    """
    What can be kept out of a model's forwards.

    Args:
        left (`bool`): Padding on the left of prompts: positions count only relative to each other.
        right (`bool`): Padding on the right of completions.
        pack (`bool`): All padding: rows may stand in one, told apart by their positions.
        reason (`str`): Why something cannot; empty where all can.
    """

    left: bool
    right: bool
    pack: bool
    reason: str = ""


def padding_support(model: torch.nn.Module) -> PaddingSupport:
    """What can go without changing what `model`, a Transformers or PEFT model, computes at the real tokens."""
    if any(adapter.is_prompt_learning for adapter in getattr(model, "peft_config", {}).values()):
        reason = "its prompts are learned, and their virtual tokens stand before the padding, so padding stays"
        return PaddingSupport(left=False, right=False, pack=False, reason=reason)
    config = _text_config(model)
    rope_types = _rope_types(getattr(config, "rope_parameters", None))
    moving = sorted(rope_types.intersection(ROPE_OF_THE_LENGTH))
    if moving:
        reason = f"its rotary embeddings ({moving[0]}) follow the padded length, so padding stays"
        return PaddingSupport(left=False, right=False, pack=False, reason=reason)
    stateful = any(getattr(module, "_is_stateful", False) for module in model.modules())
    if stateful or not rope_types:
        reason = "it is recurrent" if stateful else "its positions are not rotary"
        reason += ", so padding on the left of prompts stays, and rows are not packed"
        return PaddingSupport(left=False, right=True, pack=False, reason=reason)
    if config.model_type not in PACKED_APART:
        reason = f"models of type {config.model_type} are not known to keep packed rows apart"
        return PaddingSupport(left=True, right=True, pack=False, reason=reason)
    return PaddingSupport(left=True, right=True, pack=True)


def padding_plan(
    model: torch.nn.Module, trim: bool, pack: bool | None, sequences_are_split: bool = False
) -> PaddingSupport:
    """
    What is kept out of a model's forwards.

    Args:
        model (`torch.nn.Module`): A Transformers or PEFT model.
        trim (`bool`): `CESConfig.trim_padding`.
        pack (`bool`, *optional*): `CESConfig.padding_free`; `None` packs where attention is flash attention.
        sequences_are_split (`bool`, *optional*, defaults to `False`): Context or sequence parallelism: all stays.

    Raises:
        ValueError: `pack`, but rows of this model cannot be packed.
    """
    support = padding_support(model)
    if sequences_are_split:
        support = PaddingSupport(False, False, False, "sequences are split over processes, so padding stays")
    flash = is_flash_attention_requested(_text_config(model))
    if pack and not support.pack:
        raise ValueError(f"`padding_free=True`, but with this model {support.reason}: set `padding_free=False`.")
    if pack and not flash:
        logger.warning(
            "`padding_free=True` without flash attention: each forward computes attention between all of its rows and "
            "throws most of it away. Set `padding_free=False`, or `attn_implementation` in `model_init_kwargs` to "
            '"flash_attention_2".'
        )
    if support.reason and trim and (not support.left or flash):
        logger.info("Some padding stays in the forwards of this model: %s.", support.reason)
    packs = support.pack and (flash and trim if pack is None else pack)
    return support._replace(left=support.left and trim, right=support.right and trim, pack=packs)


def unpadded(model: Any, padding: PaddingSupport, spans: list[Span], multiple: int) -> Any:
    """
    `model` as TRL may call it with rows that have these `spans`.

    Args:
        model (`Callable`): A causal language model with TRL's fused LM head, wrapped or not.
        padding ([`PaddingSupport`]): What to keep out.
        spans (`list[Span]`): Of the rows that it will be called with.
        multiple (`int`): TRL's `pad_to_multiple_of`, or 1.
    """
    if padding.pack:
        return PackedModel(model, spans)
    if padding.left:
        return LeftAlignedModel(model, spans, multiple)
    return RightTrimmedModel(model, spans, multiple) if padding.right else model


def _text_config(model: torch.nn.Module) -> Any:
    return model.config.get_text_config()  # type: ignore[operator, union-attr]


def _rope_types(parameters: dict[str, Any] | None) -> set[str]:
    """The kinds of rotary embeddings in a config's `rope_parameters`, which may have an entry for each layer type."""
    if not parameters:
        return set()
    nested = [entry for entry in parameters.values() if isinstance(entry, dict) and "rope_theta" in entry]
    entries = nested or [parameters]
    if any("llama_4_scaling_beta" in entry for entry in entries):  # scales attention by the position itself
        return set()
    return {entry.get("rope_type", "default") for entry in entries}


class LeftAlignedModel:
    """
    A model as TRL calls it, with padded rows; the model inside sees them moved to the left and cut behind the longest.

    It needs no attention mask then: what stands behind a row's end cannot be seen from the row, for attention is
    causal. That spares a mask of (B, L, L), and attention kernels that take none are the fast ones.

    Args:
        model (`Callable`): A causal language model with TRL's fused LM head, wrapped or not.
        spans (`list[Span]`): Of the rows that it will be called with.
        multiple (`int`, *optional*, defaults to 1): Rows are as long as a multiple of this.
    """

    def __init__(self, model: Any, spans: list[Span], multiple: int = 1):
        self.model, self.spans, self.multiple = model, spans, multiple

    def __call__(self, *, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, **kwargs: Any) -> Any:
        """As the model; `log_probs` and `entropy` have shape (B, L - 1), 0 where nothing was computed."""
        rows, padded = input_ids.shape
        longest = max(2, *(end - start for start, end in self.spans))  # one token predicts the next
        width = -(-longest // self.multiple) * self.multiple
        device = input_ids.device
        columns = torch.tensor([start for start, _ in self.spans], device=device).unsqueeze(1)
        columns = columns + torch.arange(width, device=device)
        outside, source = columns >= padded, columns.clamp(max=padded - 1)
        mask = attention_mask.gather(1, source).masked_fill(outside, 0)
        outputs = self.model(
            input_ids=input_ids.gather(1, source),
            # The load-balancing loss of a mixture of experts counts the tokens that the mask shows.
            attention_mask=mask if kwargs.get("output_router_logits") else None,
            labels=labels.gather(1, source).masked_fill(mask == 0, -100),
            **kwargs,
        )
        for name in PER_TOKEN:
            values = getattr(outputs, name)
            if values is not None:
                wide = values.new_zeros(rows, padded - 1 + width).scatter(1, columns[:, :-1], values)
                setattr(outputs, name, wide[:, : padded - 1])
        return outputs


class RightTrimmedModel:
    """
    As [`LeftAlignedModel`], for models that count positions from the left edge: rows stay where they are and only
    columns on the right that are padding in all of them go.
    """

    def __init__(self, model: Any, spans: list[Span], multiple: int = 1):
        self.model, self.spans, self.multiple = model, spans, multiple

    def __call__(self, *, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, **kwargs: Any) -> Any:
        """As [`LeftAlignedModel`]."""
        longest = max(2, *(end for _, end in self.spans))
        width = -(-longest // self.multiple) * self.multiple
        outputs = self.model(
            input_ids=input_ids[:, :width],
            attention_mask=attention_mask[:, :width],
            labels=labels[:, :width],
            **kwargs,
        )
        for name in PER_TOKEN:
            values = getattr(outputs, name)
            if values is not None:
                setattr(outputs, name, pad(values, (0, max(0, input_ids.size(1) - width))))
        return outputs


class PackedModel:
    """
    A model as TRL calls it, with padded rows; the model inside sees one row without padding, whose positions start
    anew for each: Transformers' attention then keeps them apart.

    Where the rows begin is told as well (`cu_seq_lens_q`, `max_length_q`, ...), from lengths that are known here: from
    positions, flash attention would work it out in every layer, each time with a wait for the device.

    Args:
        model (`Callable`): As in [`LeftAlignedModel`].
        spans (`list[Span]`): Of the rows that it will be called with.
    """

    def __init__(self, model: Any, spans: list[Span]):
        self.model = model
        self.lengths = [end - start for start, end in spans]

    def __call__(self, *, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, **kwargs: Any) -> Any:
        """As [`LeftAlignedModel`]."""
        real = attention_mask != 0
        first = real & ~pad(real, (1, -1))  # in each row
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
        # Column j tells of token j + 1, in the padded rows as in the packed one.
        scored = (real & ~first)[:, 1:]
        inside = positions[1:] > 0
        for name in PER_TOKEN:
            values = getattr(outputs, name)
            if values is not None:
                padded = values.new_zeros(scored.shape).masked_scatter(scored, values[0][inside])
                setattr(outputs, name, padded)
        return outputs
