"""Check that forward passes with and without padding return the same values in the columns that TRL reads."""

import copy
import functools
import logging
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, PrefixTuningConfig, PromptTuningConfig, get_peft_model
from tiny import tiny_model
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from trl.trainer.utils import add_fused_lm_head

from trl_ces.layers.padding import (
    PACKABLE_MODEL_TYPES,
    PackedModel,
    Span,
    TrimmedModel,
    padding_plan,
    padding_support,
    real_spans,
)


def test_spans_are_the_columns_of_real_tokens():
    mask = torch.tensor([[0, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 0, 0]])
    assert real_spans(mask) == [Span(1, 4), Span(0, 6), Span(3, 4)]


PROMPTS, COMPLETIONS = (3, 1, 5, 2), (4, 11, 2, 7)


def padded_rows(seed=0):
    """Return model arguments for four rows padded as in TRL, the spans of the rows, and a mask of scored columns."""
    generator = torch.Generator().manual_seed(seed)
    width_p, width_c = max(PROMPTS) + 2, max(COMPLETIONS) + 3  # wider than the longest row
    ids, mask = torch.zeros(2, 4, width_p + width_c, dtype=torch.long)
    for row, (prompt, completion) in enumerate(zip(PROMPTS, COMPLETIONS, strict=True)):
        real = slice(width_p - prompt, width_p + completion)
        ids[row, real] = torch.randint(2, 40, (prompt + completion,), generator=generator)
        mask[row, real] = 1
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :width_p] = -100
    arguments = {"input_ids": ids, "attention_mask": mask, "labels": labels, "fused_lm_head": True}
    return arguments, real_spans(mask), labels[:, 1:] != -100


def add_fused_head(model):
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    return model


WRAPPERS = {
    "left-aligned": TrimmedModel,
    "multiples of 8": functools.partial(TrimmedModel, multiple=8),
    "wider than the padding": functools.partial(TrimmedModel, multiple=64),
    "trimmed on the right": functools.partial(TrimmedModel, left=False),
    "trimmed to a multiple": functools.partial(TrimmedModel, multiple=4, left=False),
    "trimmed, never wider": functools.partial(TrimmedModel, multiple=64, left=False),
    "packed": PackedModel,
}


@pytest.mark.parametrize("kind", WRAPPERS)
def test_log_probs_entropies_and_gradients_match_those_of_padded_rows(kind):
    arguments, spans, scored = padded_rows()
    plain = add_fused_head(tiny_model())
    other = add_fused_head(copy.deepcopy(tiny_model()))
    unpadded = WRAPPERS[kind](other, spans)
    weight = torch.randn(scored.shape, generator=torch.Generator().manual_seed(1))
    for model in (plain, unpadded):
        outputs = model(**arguments)
        assert outputs.log_probs.shape == outputs.entropy.shape == scored.shape
        ((outputs.log_probs + 0.3 * outputs.entropy) * weight * scored).sum().backward()
        if model is plain:
            expected = outputs
    assert scored.sum() == sum(COMPLETIONS)
    assert expected.log_probs[scored].unique().numel() == sum(COMPLETIONS)  # all positions have different values
    for name in ("log_probs", "entropy"):
        actual, reference = getattr(outputs, name), getattr(expected, name)
        torch.testing.assert_close(actual[scored], reference[scored], rtol=1e-5, atol=1e-5)
    for (name, actual), reference in zip(other.named_parameters(), plain.parameters(), strict=True):
        assert (actual.grad - reference.grad).norm() < 1e-5 * reference.grad.norm(), name


def call_inner(kind, ids, mask, *multiple):
    """
    Return the arguments that the inner model receives, and the log-probs that the wrapper returns.

    The inner model returns the log-prob j + 1 in column j.
    """
    received = {}

    def inner_model(**arguments):
        received.update(arguments)
        rows, width = arguments["input_ids"].shape
        values = torch.arange(1.0, width).expand(rows, width - 1)
        return SimpleNamespace(log_probs=values, entropy=None)

    model = kind(inner_model, real_spans(mask), *multiple)
    outputs = model(input_ids=ids, attention_mask=mask, labels=ids.clone(), output_router_logits=True)
    assert outputs.entropy is None
    return received, outputs.log_probs


right_trimmed = functools.partial(TrimmedModel, left=False)
IDS = torch.tensor([[0, 5, 6, 7], [4, 3, 0, 0]])
MASK = torch.tensor([[0, 1, 1, 1], [1, 1, 0, 0]])


def test_rows_are_shifted_left_and_later_columns_are_not_labels():
    received, log_probs = call_inner(TrimmedModel, IDS, MASK)
    assert received["input_ids"].tolist() == [[5, 6, 7], [4, 3, 0]]
    assert received["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert received["labels"].tolist() == [[5, 6, 7], [4, 3, -100]]
    assert log_probs.tolist() == [[0, 1, 2], [1, 2, 0]]
    # With a multiple of 2, the first row has a fourth column, which is outside the padded row.
    received, log_probs = call_inner(TrimmedModel, IDS, MASK, 2)
    assert received["input_ids"].tolist() == [[5, 6, 7, 7], [4, 3, 0, 0]]
    assert received["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 0, 0]]
    assert received["labels"].tolist() == [[5, 6, 7, -100], [4, 3, -100, -100]]
    assert log_probs.tolist() == [[0, 1, 2], [1, 2, 3]]


@pytest.mark.parametrize("kind", [TrimmedModel, right_trimmed])
def test_a_row_of_one_token_gets_a_second_column(kind):
    received, log_probs = call_inner(kind, torch.tensor([[5, 0, 0]]), torch.tensor([[1, 0, 0]]))
    assert received["input_ids"].tolist() == [[5, 0]]
    assert log_probs.tolist() == [[1, 0]]


def test_a_single_prompt_token_without_completion_has_a_gradient():
    ids, mask = torch.tensor([[0, 0, 5, 0, 0]]), torch.tensor([[0, 0, 1, 0, 0]])
    labels = torch.full_like(ids, -100)
    model = TrimmedModel(add_fused_head(tiny_model()), real_spans(mask))
    outputs = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    assert outputs.log_probs.tolist() == [[0.0] * 4]
    outputs.log_probs.sum().backward()  # DDP needs an autograd graph


def llama(**rope):
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=40, rope_parameters={"rope_theta": 1e4, **rope}, **sizes))


def test_padding_support_depends_on_the_position_encoding():
    absolute = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=40))
    recurrent = MambaForCausalLM(MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=40))
    stateful = tiny_model()  # with rotary positions
    stateful.model.layers[0]._is_stateful = True
    for model, support, reason in (
        (tiny_model(), (True, True, True), ""),
        (llama(rope_type="linear", factor=2.0), (True, True, True), ""),
        (dynamic_rope_model(), (False, False, False), "dynamic"),
        (absolute, (False, True, False), "does not use standard rotary"),
        (recurrent, (False, True, False), "recurrent"),
        (stateful, (False, True, False), "recurrent"),
    ):
        result = padding_support(model)
        assert result[:3] == support
        assert reason in result.reason
    model, rope = tiny_model(), {"rope_type": "default", "rope_theta": 1e4}
    for parameters, support in (  # configs may have separate parameters per layer type
        ({"full_attention": rope, "sliding_attention": rope}, (True, True, True)),
        ({"full_attention": rope, "sliding_attention": {**rope, "rope_type": "dynamic"}}, (False, False, False)),
        ({**rope, "rope_type": "longrope", "factors": {"short": 1.0}}, (False, False, False)),
        (
            {"full_attention": {**rope, "llama_4_scaling_beta": 0.1}, "sliding_attention": rope},
            (False, True, False),
        ),
    ):
        model.config.rope_parameters = parameters
        assert padding_support(model)[:3] == support


# Sizes of tiny models that the configs of all packed model types accept.
SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "vocab_size": 40, "pad_token_id": 0, "head_dim": 8}


@pytest.mark.parametrize("model_type", PACKABLE_MODEL_TYPES)
def test_packed_rows_of_supported_models_do_not_affect_each_other(model_type):
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **SIZES)
    model = add_fused_head(AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # make distributions less uniform, so that leakage between rows is visible
    assert padding_support(model)[:3] == (True, True, True)
    arguments, spans, scored = padded_rows()
    padded = model(**arguments).log_probs[scored]
    for unpadded in (PackedModel(model, spans), TrimmedModel(model, spans)):
        torch.testing.assert_close(unpadded(**arguments).log_probs[scored], padded, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("model_type", ["lfm2", "qwen3_next", "gpt_oss", "llama4_text"])
def test_unsupported_model_types_are_not_packed(model_type):
    model = tiny_model()
    model.config.model_type = model_type
    support = padding_support(model)
    assert support[:3] == (True, True, False)
    assert model_type in support.reason


def test_the_load_balancing_loss_of_a_mixture_of_experts_ignores_padding():
    sizes = {**SIZES, "num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True}
    torch.manual_seed(0)
    model = add_fused_head(AutoModelForCausalLM.from_config(AutoConfig.for_model("mixtral", **sizes)).eval())
    arguments, spans, _ = padded_rows()
    arguments["output_router_logits"] = True
    padded, trimmed = model(**arguments), TrimmedModel(model, spans)(**arguments)
    torch.testing.assert_close(trimmed.aux_loss, padded.aux_loss, rtol=1e-5, atol=1e-6)
    assert not torch.isclose(model(**{**arguments, "attention_mask": None}).aux_loss, padded.aux_loss, rtol=1e-5)


def with_flash(model):
    model.config._attn_implementation = "flash_attention_2"
    return model


def make_unpackable(model):
    model.config.model_type = "lfm2"
    return model


def dynamic_rope_model():
    return llama(rope_type="dynamic", factor=2.0)


NONE, TRIMMED, ALL = (False, False, False), (True, True, False), (True, True, True)


@pytest.mark.parametrize(
    ("model", "trim", "pack", "split", "plan", "logged"),
    [
        (tiny_model, True, None, False, TRIMMED, ""),  # packing needs FlashAttention
        (tiny_model, False, None, False, NONE, ""),
        (tiny_model, True, None, True, NONE, "sequences are split"),
        (tiny_model, True, True, False, ALL, "without FlashAttention"),
        (lambda: with_flash(tiny_model()), True, None, False, ALL, ""),
        (lambda: with_flash(tiny_model()), True, True, False, ALL, ""),
        (lambda: with_flash(tiny_model()), True, False, False, TRIMMED, ""),
        (lambda: with_flash(tiny_model()), False, None, False, NONE, ""),
        (lambda: with_flash(tiny_model()), True, None, True, NONE, "sequences are split"),
        (dynamic_rope_model, True, None, False, NONE, "depend on the padded length"),
        (dynamic_rope_model, False, None, False, NONE, ""),  # trimming was not requested
        # Without FlashAttention, rows are not packed, regardless of the model type.
        (lambda: make_unpackable(tiny_model()), True, None, False, TRIMMED, ""),
        (lambda: make_unpackable(with_flash(tiny_model())), True, None, False, TRIMMED, "to support packed rows"),
    ],
)
def test_settings_and_model_determine_the_plan_and_the_logged_reason(caplog, model, trim, pack, split, plan, logged):
    with caplog.at_level(logging.INFO, "trl_ces.layers.padding"):
        assert padding_plan(model(), trim, pack, split)[:3] == plan
    assert logged in caplog.text
    assert bool(caplog.records) == bool(logged)


def test_packing_is_rejected_if_rows_cannot_be_packed():
    with pytest.raises(ValueError, match=r"depend on the padded length.*packing=False"):
        padding_plan(dynamic_rope_model(), trim=True, pack=True)
    with pytest.raises(ValueError, match="sequences are split over processes"):
        padding_plan(tiny_model(), trim=True, pack=True, sequences_are_split=True)


@pytest.mark.parametrize("config", [PromptTuningConfig, PrefixTuningConfig])
def test_padding_is_kept_with_prompt_learning_adapters(config):
    model = get_peft_model(tiny_model(), config(task_type="CAUSAL_LM", num_virtual_tokens=3))
    support = padding_support(model)
    assert support[:3] == (False, False, False)
    assert "virtual tokens" in support.reason
    assert padding_support(get_peft_model(tiny_model(), LoraConfig(task_type="CAUSAL_LM")))[:3] == (True, True, True)


def test_packed_models_pass_row_boundaries_to_attention():
    """Without the boundaries, FlashAttention would compute them and synchronize the device in every layer."""
    received, names = [], ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")

    def attention(module, query, key, value, attention_mask, **kwargs):
        received.append([query.size(2), *(kwargs[name] for name in names)])
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)

    ALL_ATTENTION_FUNCTIONS.register("recording", attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register("recording", sdpa_mask)
    model = add_fused_head(tiny_model())
    model.config._attn_implementation = "recording"
    arguments, spans, _ = padded_rows()
    packed = PackedModel(model, spans)
    packed(**arguments)
    assert len(received) == 2  # one call per layer
    for tokens, starts, key_starts, longest, longest_key in received:
        assert tokens == sum(PROMPTS + COMPLETIONS)
        assert starts.tolist() == key_starts.tolist() == [0, 7, 19, 26, 35]
        assert starts.dtype == torch.int32
        assert starts is received[0][1]  # created once
        assert longest == longest_key == 12
