"""Two functions of flash_attn, implemented with PyTorch's FlashAttention-2 kernels.

They are for machines without a compiler or Hub access. This file was placed on PYTHONPATH as version 2.7.4 of the
`flash_attn` package, with a `bert_padding` module that contains transformers' `_pad_input` and `_unpad_input`. On the
H100, the relative error of outputs and gradients (in norm, compared with float64) was 2e-3 to 3e-3 for dense rows and
for two packed sequences, with 12 heads and 2 key-value heads.
"""

import torch

flash_attn_with_kvcache = None


def _attend(q, k, v, starts_q, starts_k, longest_q, longest_k, scale, causal):
    return torch.ops.aten._flash_attention_forward(
        q, k, v, starts_q, starts_k, longest_q, longest_k, 0.0, causal, False, scale=scale
    )[0]


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False):
    assert dropout_p == 0
    return _attend(q, k, v, None, None, q.shape[1], k.shape[1], softmax_scale, causal)


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False
):
    assert dropout_p == 0
    longest = int(max_seqlen_q), int(max_seqlen_k)
    return _attend(q, k, v, cu_seqlens_q, cu_seqlens_k, *longest, softmax_scale, causal)
