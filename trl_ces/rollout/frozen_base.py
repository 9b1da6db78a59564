"""Keeps the frozen base under an adapter as it was loaded, through every sync of the weights to vLLM.

Leans on TRL calling the model's `merge_adapter` before and `unmerge_adapter` after it reads the weights.
"""

from collections.abc import Iterator
from typing import Any

import torch
from accelerate.utils import is_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer

from .layer import Layer


class FrozenBase(Layer):
    """
    The base of a LoRA run in bfloat16 or float16 does not drift.

    For a sync peft adds the adapter to the base, and subtracts it afterwards. In 16 bits both round, and the errors of
    all syncs of a run add up. Here the weights wait in host memory, as many bytes as the adapted layers have, and come
    back.

    Under ZeRO-3 nothing is kept: what is done to gathered weights is dropped with them.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.use_vllm and is_peft_model(self.vllm_generation.model):
            restore_after_merge(self.vllm_generation.model)


def restore_after_merge(model: Any) -> None:
    """
    Has `unmerge_adapter` bring back the bits that were there before `merge_adapter`.

    Args:
        model (`PeftModel`): Changed in place.
    """
    merge, unmerge = model.merge_adapter, model.unmerge_adapter
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def merge_adapter(*args: Any, **kwargs: Any) -> None:
        kept[:] = [(weight, weight.detach().to("cpu", copy=True)) for weight in _rounded(model)]
        merge(*args, **kwargs)

    def unmerge_adapter() -> None:
        unmerge()
        for weight, before in kept:
            weight.data.copy_(before)
        kept.clear()

    model.merge_adapter, model.unmerge_adapter = merge_adapter, unmerge_adapter


def _rounded(model: Any) -> Iterator[torch.Tensor]:
    """Weights and biases under adapters that are kept whole in 16 bits."""
    for module in model.modules():
        if isinstance(module, BaseTunerLayer):
            for weight in module.get_base_layer().parameters(recurse=False):
                if weight.dtype in (torch.bfloat16, torch.float16) and not hasattr(weight, "ds_id"):
                    yield weight
