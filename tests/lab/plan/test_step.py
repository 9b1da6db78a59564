"""Bytes counted on fake tensors, compared with PyTorch's allocator and with hand-computed values."""

import json
from contextlib import nullcontext

import pytest
import torch
from plan_steps import SMALL, allocator_peak, step
from transformers import AutoConfig, AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

from trl_ces.lab.plan.step import count_step


def measure_peak(settings):
    """Return the peak bytes of PyTorch's CPU allocator during a real step."""
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(**json.loads(settings.shape.settings)), dtype=getattr(torch, settings.dtype)
    ).train()
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    if settings.checkpointing:
        model.gradient_checkpointing_enable()
    ids = torch.zeros(settings.rows, settings.tokens, dtype=torch.long)
    mask = torch.ones_like(ids)
    mask[0, :9] = 0  # a padded row, as in a rollout

    def run_step():
        with torch.autocast("cpu", torch.bfloat16) if settings.autocast else nullcontext():
            outputs = model(input_ids=ids, attention_mask=mask, labels=ids, fused_lm_head=True)
        (outputs.log_probs.sum() + outputs.entropy.sum()).backward()

    return allocator_peak(run_step)


STEPS = {
    "default": {},
    "checkpointing": {"checkpointing": True},
    "long": {"tokens": 900, "rows": 1},
    "long, checkpointing": {"tokens": 900, "rows": 1, "checkpointing": True},
    "bfloat16 autocast": {"autocast": True},
    "llama, tied, large vocabulary": {
        "shape": {**SMALL, "model_type": "llama", "vocab_size": 40000, "tie_word_embeddings": True}
    },
}


@pytest.mark.parametrize("case", STEPS)
def test_the_counted_peak_matches_the_allocators_peak(case):
    settings = step(**STEPS[case])
    assert count_step(settings).peak_with_gradients == pytest.approx(measure_peak(settings), rel=0.05)


def test_flash_attention_needs_neither_masks_nor_repeated_heads():
    square = 2 * 256 * 256
    full_mask, flash = count_step(step()), count_step(step(flash_attention=True))
    # Otherwise, each of the four layers saves a float32 mask and the keys and values of two repeated heads.
    repeated_heads = 2 * 2 * 256 * 2 * 32 * 4
    assert full_mask.saved - flash.saved == 4 * (4 * square + repeated_heads)


def test_the_lm_head_computes_in_place_on_a_gpu():
    wide = {**SMALL, "vocab_size": 32768, "num_hidden_layers": 1}
    cpu, gpu = (count_step(step(wide, gpu=on, tokens=512)) for on in (False, True))
    tile = 2 * 511 * 32768 * 4
    assert cpu.peak - gpu.peak > 2 * tile
    # Apart from the saved activations, the peak is mainly one tile of logits and the gradient of the LM head.
    head = tile + 32768 * 128 * 4
    assert head < gpu.peak - gpu.saved < 1.05 * head


LORA = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "target_modules": ["q_proj", "v_proj"]}


def test_lora_trains_only_the_adapters():
    count = count_step(step(lora=json.dumps(LORA)))
    # r x (in + out): q 128 -> 128, v 128 -> 64, four layers
    assert count.trained == 4 * 4 * (128 + 128 + 128 + 64)
    full = count_step(step())
    assert count.weights == full.weights + count.trained
    assert full.trained == full.weights
    assert count.base == full.base == full.weights


def test_lora_dropout_saves_a_mask_and_the_dropped_input():
    plain, dropped = (count_step(step(lora=json.dumps({**LORA, "lora_dropout": p}))).saved for p in (0.0, 0.1))
    # Each adapter saves a mask (one or four bytes per element) and the float32 input after dropout.
    inputs = 4 * 2 * 2 * 256 * 128  # layers, adapters per layer, input shape
    assert inputs <= dropped - plain <= 8 * inputs
