"""Remove finished completions from the batch during generation with transformers.

`generate` computes all rows until the last row ends, but most completions are far shorter than the longest one. This
layer calls `generate` for a few tokens at a time and keeps the cache of the unfinished rows. Tokens are sampled from
the same distributions in a different order, so completions differ from TRL's for the same seed.

Overrides of TRL: `_generate_single_turn`. Reads `_dist` and `_is_vlm`.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, GenerationConfig
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.generation.utils import ALL_CACHE_NAMES

from .layer import Layer
from .padding import padding_support

PIECE = 16  # number of tokens between checks for ended rows
CACHE = "cache" if "cache" in ALL_CACHE_NAMES else "past_key_values"  # renamed in transformers 5.24
TEXT_INPUTS = {"input_ids", "attention_mask", "generation_config"}


class EndedRows(Layer):
    """
    Stop computing a completion when it ends, if `trim_padding` of [`CESConfig`] is set.

    Inactive with vLLM, continuous batching, sharded weights (all processes must run the same forward passes), images,
    `generation_kwargs` or `cache_implementation`, and for models whose cache does not support removing rows.
    """

    def _generate_single_turn(self, *args, **kwargs):
        policy = self.accelerator.unwrap_model(self.model)
        with drop_ended_rows(policy) if self._may_drop_rows() and can_drop_rows(policy) else nullcontext():
            return super()._generate_single_turn(*args, **kwargs)

    def _may_drop_rows(self) -> bool:
        args = self.args
        excluded = self.use_vllm or args.use_transformers_continuous_batching or self._is_vlm
        sharded = self._dist.is_zero3 or self._dist.is_fsdp
        return args.trim_padding and not (excluded or sharded or args.generation_kwargs or args.cache_implementation)


def can_drop_rows(model: Any) -> bool:
    """Return whether the cache holds only keys and values, and outputs do not depend on the batch width."""
    if "generate" in vars(model):  # a user's own function, which may not accept a cache
        return False
    if model.config.is_encoder_decoder or not padding_support(model).right:
        return False
    layers = DynamicCache(config=model.config.get_text_config(decoder=True)).layers
    return all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers)


@contextmanager
def drop_ended_rows(model: Any) -> Iterator[None]:
    """Replace `model.generate` with [`generate_in_pieces`] within the context."""
    original = model.generate

    def generate(**inputs: Any) -> Any:
        if inputs.keys() != TEXT_INPUTS:
            return original(**inputs)
        return generate_in_pieces(original, model.config, **inputs)

    model.generate = generate
    try:
        yield
    finally:
        del model.generate


@torch.no_grad()
def generate_in_pieces(
    generate: Callable[..., Tensor],
    config: Any,
    input_ids: Tensor,
    attention_mask: Tensor,
    generation_config: GenerationConfig,
    piece: int = PIECE,
) -> Tensor:
    """
    Generate like `generate`, but do not compute ended rows. The model must pass [`can_drop_rows`].

    `input_ids` and `attention_mask`: shape (B, P), padded on the left. Every `piece` tokens, ended rows are removed.
    Returns prompts and completions, shape (B, P + T), padded on the right after the end token.
    """
    cache = DynamicCache(config=config.get_text_config(decoder=True))
    end_tokens = torch.as_tensor(generation_config.eos_token_id, device=input_ids.device)
    longest = generation_config.max_new_tokens
    completions = input_ids.new_full((len(input_ids), longest), generation_config.pad_token_id)
    rows, ids, mask, length = torch.arange(len(input_ids), device=input_ids.device), input_ids, attention_mask, 0
    while length < longest and len(rows) > 0:
        settings = copy.copy(generation_config)
        settings.max_new_tokens = min(piece, longest - length)
        width = ids.size(1)
        ids = generate(input_ids=ids, attention_mask=mask, generation_config=settings, **{CACHE: cache})
        new_ids = ids[:, width:]
        completions[rows, length : length + new_ids.size(1)] = new_ids
        length += new_ids.size(1)
        unfinished = (~torch.isin(new_ids, end_tokens).any(dim=1)).nonzero().squeeze(1)
        mask = torch.cat([mask, torch.ones_like(new_ids)], dim=1)
        if len(unfinished) < len(rows):
            rows, ids, mask = rows[unfinished], ids[unfinished], mask[unfinished]
            cache.batch_select_indices(unfinished)
    return torch.cat([input_ids, completions[:, :length]], dim=1)
