"""What a packed forward passes to attention, and which settings exclude each other."""

import torch
from tiny import tiny_model
from trainers import ready, tiny_trainer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

BOUNDARIES = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")


def test_packed_rows_say_where_they_begin_so_that_attention_need_not_look(tmp_path):
    """What FlashAttention would otherwise derive in every layer, with a device synchronization each time."""
    seen = []

    def attention(module, query, key, value, attention_mask, **kwargs):
        seen.append({name: kwargs.get(name) for name in BOUNDARIES} | {"columns": query.size(2)})
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)

    ALL_ATTENTION_FUNCTIONS.register("recording", attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register("recording", sdpa_mask)
    model = tiny_model()
    model.config._attn_implementation = "recording"
    trainer = ready(tiny_trainer(tmp_path, more={"model": model}, padding_free=True, max_steps=1))
    rows = {
        "prompt_ids": torch.tensor([[0, 5, 6], [7, 8, 9]]),
        "prompt_mask": torch.tensor([[0, 1, 1], [1, 1, 1]]),
        "completion_ids": torch.tensor([[4, 5, 1, 0], [6, 7, 8, 1]]),
        "completion_mask": torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]),
        "advantages": torch.tensor([1.0, -1.0]),
        "num_items_in_batch": torch.tensor(7),
        "correct": torch.tensor([True, False]),
        "scored": torch.tensor([True, True]),
        "group_correct": torch.tensor([1, 1]),
        "group_scored": torch.tensor([2, 2]),
        "equal_rewards": torch.tensor([False, False]),
        "truncated": torch.tensor([False, False]),
    }
    trainer._compute_loss(trainer.model, rows)
    assert len(seen) == 2  # layers
    for layer in seen:
        assert layer["columns"] == 12
        assert layer["cu_seq_lens_q"].tolist() == layer["cu_seq_lens_k"].tolist() == [0, 5, 12]
        assert layer["cu_seq_lens_q"].dtype == torch.int32
        assert layer["cu_seq_lens_q"] is seen[0]["cu_seq_lens_q"]  # built once
        assert layer["max_length_q"] == layer["max_length_k"] == 7
