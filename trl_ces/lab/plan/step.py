"""Measure the memory of one training step by running the model on tensors with shapes but no data.

transformers' forward, its activation checkpointing, TRL's fused LM head and autograd run on PyTorch's fake tensors,
and every allocated and freed storage is counted. No formula depends on what a layer saves, so new architectures and
transformers releases are counted correctly. Two parts are replaced below, because fake tensors do not represent them:
the attention kernel, which saves no (T, T) scores, and TRL's Triton kernels, which work in place.
"""

from __future__ import annotations

import json
import weakref
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest import mock

import torch
from peft import get_peft_config, get_peft_model
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM
from transformers.integrations.sdpa_attention import repeat_kv
from trl.kernels import chunked_logprob
from trl.trainer.utils import add_fused_lm_head

from .sizes import ModelShape

ATTENTION = "trl_ces_plan"


@dataclass(frozen=True)
class StepSettings:
    """Settings that determine the memory of one forward and backward pass."""

    shape: ModelShape  # the model
    rows: int  # completions per micro-batch
    tokens: int  # tokens per row, including the prompt
    checkpointing: bool  # `gradient_checkpointing`
    dtype: str  # dtype of the weights in the computation, `"float32"` or `"bfloat16"`
    autocast: bool  # whether autocast computes in bfloat16; not used with DeepSpeed or FSDP2
    flash_attention: bool  # whether the attention kernel needs no (T, T) mask, unlike PyTorch's kernel
    gpu: bool  # whether TRL's LM head runs its Triton kernels instead of its torch loops
    lora: str | None = None  # peft's `LoraConfig` as JSON, which is hashable; `None` trains all weights


@dataclass(frozen=True)
class StepCount:
    """Parameter counts of the model, and bytes of one step's tensors."""

    weights: int  # parameters
    trained: int  # trained parameters
    largest: int  # parameters of the largest tensor, which ZeRO-3 gathers in full
    layer: int  # parameters of the largest decoder layer, which FSDP2 gathers in full
    head: int  # parameters of the LM head, which FSDP2 keeps gathered until its backward pass
    saved: int  # bytes that the forward pass saves for the backward pass, including cast weights
    peak: int  # peak bytes beyond weights and gradients
    peak_with_gradients: int  # peak bytes beyond weights if the backward pass allocates the gradients

    @property
    def base(self) -> int:
        """Number of parameters without adapters, equal to the number of weights that TRL sends to vLLM."""
        return self.weights - self.trained or self.weights


@cache
def count_step(settings: StepSettings) -> StepCount:
    """Run one step on fake tensors and count its storages."""
    count = _run(settings, keep_gradients=False)
    return replace(count, peak_with_gradients=_run(settings, keep_gradients=True).peak)


def _run(settings: StepSettings, keep_gradients: bool) -> StepCount:
    """Run and count one step, without setting `peak_with_gradients`."""
    with torch.device("meta"):
        model = _model(settings)
    with ExitStack() as stack:
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        _replace_meta_tensors(model)
        parameters = list(model.parameters())
        if not keep_gradients:
            for parameter in parameters:
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(lambda weight: setattr(weight, "grad", None))
        ids = torch.zeros(settings.rows, settings.tokens, dtype=torch.long)
        counter = _StorageCounter([*parameters, *model.buffers(), ids])
        if settings.gpu:
            # TRL's Triton kernels overwrite the tile of logits, but TRL's torch loops copy it. Replace the loops'
            # functions with a function that does nothing. A Mock would keep the tensors of its calls alive.
            for name in ("_forward_tile", "_backward_tile", "_addmm_fp32"):
                stack.enter_context(mock.patch.object(chunked_logprob, name, _do_nothing))
        stack.enter_context(counter)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=settings.autocast):
            outputs = model(input_ids=ids, attention_mask=ids, labels=ids, fused_lm_head=True)
        saved = counter.live
        # The loss depends on log-probs through the importance ratio, and on entropies through CES.
        (outputs.log_probs.sum() + outputs.entropy.sum()).backward()
    base = model.get_base_model() if settings.lora is not None else model
    # accelerate configures FSDP2 to gather these modules one at a time.
    names = set(getattr(base, "_no_split_modules", None) or ())
    layers = [module for module in base.modules() if type(module).__name__ in names] or [base]
    return StepCount(
        weights=sum(parameter.numel() for parameter in parameters),
        trained=sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        largest=max(parameter.numel() for parameter in parameters),
        layer=max(sum(parameter.numel() for parameter in layer.parameters()) for layer in layers),
        head=base.get_output_embeddings().weight.numel(),
        saved=saved,
        peak=counter.peak,
        peak_with_gradients=0,
    )


def _model(settings: StepSettings) -> Any:
    """Build the model as TRL does, with LoRA, the fused LM head and checkpointing."""
    AttentionInterface.register(ATTENTION, _attention)
    AttentionMaskInterface.register(ATTENTION, _do_nothing if settings.flash_attention else _square_mask)
    model = AutoModelForCausalLM.from_config(
        settings.shape.config(), dtype=getattr(torch, settings.dtype), attn_implementation=ATTENTION
    ).train()
    base = model
    if settings.lora is not None:
        lora = get_peft_config(json.loads(settings.lora))
        model = get_peft_model(model, lora, autocast_adapter_dtype=settings.autocast)
        if settings.checkpointing:
            model.enable_input_require_grads()
    add_fused_lm_head(base, outputs=("log_probs", "entropy"))
    if settings.checkpointing:
        base.gradient_checkpointing_enable()
    return model


def _replace_meta_tensors(model: Any) -> None:
    """Replace meta-device weights and buffers with fake tensors, keeping tied weights tied."""
    replacements: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, old in tensors.items():
                if old is not None and id(old) not in replacements:
                    new = torch.empty(old.shape, dtype=old.dtype)
                    is_weight = isinstance(old, torch.nn.Parameter)
                    replacements[id(old)] = torch.nn.Parameter(new, old.requires_grad) if is_weight else new
                if old is not None:
                    tensors[name] = replacements[id(old)]


def _do_nothing(*args: Any, **kwargs: Any) -> None:
    return None


class _StorageCounter(TorchDispatchMode):
    """Count the bytes of live storages created by operations, excluding the storages of `known`."""

    def __init__(self, known: list[torch.Tensor]) -> None:
        super().__init__()
        self.live = self.peak = 0
        # Storage address -> weak reference that calls `on_release`.
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

        def on_release(_: Any) -> None:
            self.live -= size
            del self.watched[address]

        self.watched[address] = weakref.ref(storage, on_release)
        self.live += size
        self.peak = max(self.peak, self.live)


def _square_mask(batch_size: int, q_length: int, kv_length: int, **kwargs: Any) -> torch.Tensor:
    """Return the (B, 1, T, T) bool mask that PyTorch's attention receives for padded rows, as in a rollout."""
    return torch.empty(batch_size, 1, q_length, kv_length, dtype=torch.bool)


def _attention(module, query, key, value, attention_mask, **kwargs):
    """Run fused attention as transformers does; with a mask, first repeat keys and values for every head."""
    groups = getattr(module, "num_key_value_groups", 1)
    if attention_mask is not None and groups > 1:
        key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    return _FusedAttention.apply(query, key, value, attention_mask).transpose(1, 2).contiguous(), None


class _FusedAttention(torch.autograd.Function):
    """Save query, key, value, output, a normalizer per row of scores and, in each layer, a floating-point mask."""

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
