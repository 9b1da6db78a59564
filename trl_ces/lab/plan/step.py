"""One training step without memory: the model's own code runs on tensors that have shapes and no content.

transformers' forward, its activation checkpointing, TRL's fused LM head and autograd run under PyTorch's fake tensors,
and every storage that is made and freed is counted. No formula has to know what a layer saves, so a new architecture
or release of transformers is counted as it is. Fake tensors cannot show two things, which are written out below: the
attention kernel, which saves no (T, T) scores, and TRL's Triton kernels, which work in place.
"""

from __future__ import annotations

import json
import weakref
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any
from unittest import mock

from ...train.sizes import ModelShape

if TYPE_CHECKING:
    import torch

ATTENTION = "trl_ces_plan"


@dataclass(frozen=True)
class StepSettings:
    """What decides the memory of one forward and backward pass."""

    shape: ModelShape  # the model
    rows: int  # completions in the micro-batch
    tokens: int  # tokens per completion, prompt included
    checkpointing: bool  # `gradient_checkpointing`
    dtype: str  # of the weights in the computation, `"float32"` or `"bfloat16"`
    autocast: bool  # whether bfloat16 is computed from weights of `dtype`, as without DeepSpeed
    flash_attention: bool  # A kernel that needs no (T, T) mask. `False`: PyTorch's, which gets one
    gpu: bool  # whether TRL's LM head runs its Triton kernels or its torch loops
    lora: str | None = None  # peft's `LoraConfig` as JSON, which a cache can key. `None`: train all weights


@dataclass(frozen=True)
class StepCount:
    """What one step holds."""

    weights: int  # parameters
    trained: int  # trained parameters
    tensors: int  # tensors of weights
    largest: int  # parameters of the largest tensor, which ZeRO-3 gathers whole
    layer: int  # parameters of the largest decoder layer, which FSDP2 gathers whole
    head: int  # parameters of the LM head, which FSDP2 keeps gathered from the forward to its backward
    saved: int  # bytes that the forward saves for the backward, casts of weights included
    peak: int  # peak bytes beyond weights and gradients
    peak_with_gradients: int  # peak bytes beyond weights, where the backward allocates the gradients


@cache
def count_step(settings: StepSettings) -> StepCount:
    """Run one step on fake tensors and count its storages."""
    released, kept = _run(settings, keep_gradients=False), _run(settings, keep_gradients=True)
    return replace(released, peak_with_gradients=kept.peak)


def _run(settings: StepSettings, keep_gradients: bool) -> StepCount:
    """One step; `peak_with_gradients` is left at 0."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with torch.device("meta"):
        model = _model(settings)
    with ExitStack() as stack:
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        _fill(model)
        parameters = list(model.parameters())
        if not keep_gradients:
            for parameter in parameters:
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(_forget_gradient)
        ids = torch.zeros(settings.rows, settings.tokens, dtype=torch.long)
        counter = _storage_counter([*parameters, *model.buffers(), ids])
        if settings.gpu:
            _work_in_place(stack)
        stack.enter_context(counter)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=settings.autocast):
            outputs = model(input_ids=ids, attention_mask=ids, labels=ids, fused_lm_head=True)
        saved = counter.live
        # Both reach the loss: log-probs through the importance ratio, entropies through CES.
        (outputs.log_probs.sum() + outputs.entropy.sum()).backward()
    numbers = [parameter.numel() for parameter in parameters]
    trained = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    base = model.get_base_model() if settings.lora is not None else model
    return StepCount(
        weights=sum(numbers),
        trained=trained,
        tensors=len(numbers),
        largest=max(numbers),
        layer=max(_numbers(module) for module in _layers(base)),
        head=base.get_output_embeddings().weight.numel(),
        saved=saved,
        peak=counter.peak,
        peak_with_gradients=0,
    )


def _layers(model: Any) -> list[Any]:
    """The modules that accelerate has FSDP2 gather one at a time."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if type(module).__name__ in names] or [model]


def _numbers(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _forget_gradient(parameter: torch.Tensor) -> None:
    parameter.grad = None


def _model(settings: StepSettings) -> Any:
    """The model as TRL prepares it: LoRA, the fused LM head, checkpointing."""
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    AttentionInterface.register(ATTENTION, _attention)
    AttentionMaskInterface.register(ATTENTION, _nothing if settings.flash_attention else _square_mask)
    model = AutoModelForCausalLM.from_config(
        settings.shape.config(), dtype=getattr(torch, settings.dtype), attn_implementation=ATTENTION
    ).train()
    base = model
    if settings.lora is not None:
        from peft import get_peft_config, get_peft_model

        lora = get_peft_config(json.loads(settings.lora))
        model = get_peft_model(model, lora, autocast_adapter_dtype=settings.autocast)
        if settings.checkpointing:
            model.enable_input_require_grads()
    add_fused_lm_head(base, outputs=("log_probs", "entropy"))
    if settings.checkpointing:
        base.gradient_checkpointing_enable()
    return model


def _fill(model: Any) -> None:
    """Replaces weights and buffers on the meta device by fake ones; tied ones stay tied."""
    import torch

    made: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for store in (module._parameters, module._buffers):
            for name, old in store.items():
                if old is not None and id(old) not in made:
                    new = torch.empty(old.shape, dtype=old.dtype)
                    is_weight = isinstance(old, torch.nn.Parameter)
                    made[id(old)] = torch.nn.Parameter(new, old.requires_grad) if is_weight else new
                if old is not None:
                    store[name] = made[id(old)]


def _work_in_place(stack: ExitStack) -> None:
    """TRL's Triton kernels overwrite the tile of logits; its torch loops copy it."""
    from trl.kernels import chunked_logprob

    for name in ("_forward_tile", "_backward_tile", "_addmm_fp32"):
        # Not a Mock: it would record its calls and so keep their tensors alive.
        stack.enter_context(mock.patch.object(chunked_logprob, name, _nothing))


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _storage_counter(known: list[torch.Tensor]) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class StorageCounter(TorchDispatchMode):
        """Bytes of live storages made by operations, without those of `known`."""

        def __init__(self) -> None:
            super().__init__()
            self.live = self.peak = 0
            # A storage's address -> the weak reference that reports its end.
            self.watched: dict[int, Any] = {tensor.untyped_storage()._cdata: None for tensor in known}

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for value in tree_leaves(result):
                if hasattr(value, "untyped_storage"):
                    self.watch(value.untyped_storage())
            return result

        def watch(self, storage: torch.UntypedStorage) -> None:
            address, size = storage._cdata, storage.nbytes()
            if address in self.watched:
                return

            def gone(_: Any) -> None:
                self.live -= size
                del self.watched[address]

            self.watched[address] = weakref.ref(storage, gone)
            self.live += size
            self.peak = max(self.peak, self.live)

    return StorageCounter()


def _square_mask(batch_size: int, q_length: int, kv_length: int, **kwargs: Any) -> torch.Tensor:
    """(B, 1, T, T) bool: what PyTorch's attention gets for padded rows, as in a rollout."""
    import torch

    return torch.empty(batch_size, 1, q_length, kv_length, dtype=torch.bool)


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Fused attention as transformers calls it; with a mask, keys and values are first repeated for every head."""
    from transformers.integrations.sdpa_attention import repeat_kv

    groups = getattr(module, "num_key_value_groups", 1)
    if attention_mask is not None and groups > 1:
        key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    return _fused_attention().apply(query, key, value, attention_mask).transpose(1, 2).contiguous(), None


@cache
def _fused_attention() -> Any:
    import torch

    class FusedAttention(torch.autograd.Function):
        """Saves query, key, value, output, a normalizer per row of scores and, in each layer, the mask as numbers."""

        @staticmethod
        def forward(ctx, query, key, value, mask):
            bias = None if mask is None else mask.to(query.dtype)
            rows, heads, tokens, _ = query.shape
            output = query.new_empty(rows, tokens, heads, value.shape[-1]).transpose(1, 2)
            normalizer = query.new_empty(rows, heads, tokens, dtype=torch.float32)
            ctx.save_for_backward(query, key, value, bias, output, normalizer)
            return output

        @staticmethod
        def backward(ctx, gradient):
            query, key, value, *_ = ctx.saved_tensors
            return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), None

    return FusedAttention
