"""Check that removing ended completions from the batch preserves greedy completions and the sampling distribution."""

import math
from types import SimpleNamespace

import pytest
import torch
from bigram import EOS, PAD, bigram_model, token_of
from peft import PromptTuningConfig, get_peft_model
from tiny import tiny_model
from trainers import short_reward, tiny_trainer
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
)
from trl import GRPOTrainer

from trl_ces import CESTrainer
from trl_ces.layers import EndedRows
from trl_ces.layers.ended_rows import TEXT_INPUTS, can_drop_rows, generate_in_pieces

SMALL = {
    "vocab_size": 12, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "initializer_range": 0.6, "pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": None,
}  # fmt: skip
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL)),
    "sliding window": lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=6)),
}
PROMPTS = [[5, 6, 7, 8, 9], [4], [7, 3], [2, 2, 2], [9, 8, 7], [3, 4, 5, 6], [6], [8, 8, 5]]


def pad_left(prompts):
    width = max(map(len, prompts))
    ids = torch.tensor([[PAD] * (width - len(prompt)) + prompt for prompt in prompts])
    return ids, (ids != PAD).long()


def config(**changes):
    return GenerationConfig(
        **{"max_new_tokens": 40, "do_sample": False, "pad_token_id": PAD, "eos_token_id": [EOS, 11], **changes}
    )


@pytest.mark.parametrize("piece", [1, 5, 64])
@pytest.mark.parametrize("name", MODELS)
def test_greedy_completions_match_generate(name, piece):
    torch.manual_seed(2)
    model = MODELS[name]().eval()
    assert can_drop_rows(model)
    ids, mask = pad_left(PROMPTS)
    expected = model.generate(input_ids=ids, attention_mask=mask, generation_config=config())
    output = generate_in_pieces(model.generate, model.config, ids, mask, config(), piece)
    ended = torch.isin(expected[:, ids.size(1) :], torch.tensor([EOS, 11])).any(dim=1)
    assert 0 < ended.sum() < len(PROMPTS), "the test needs rows that end and rows that do not"
    assert output[:, : expected.size(1)].tolist() == expected.tolist()
    assert (output[:, expected.size(1) :] == PAD).all()


def test_all_rows_may_end_in_the_first_piece_or_never():
    model = bigram_model()
    ids = torch.tensor([[token_of("w")]] * 3)
    output = generate_in_pieces(model.generate, model.config, ids, ids * 0 + 1, config(eos_token_id=[EOS]))
    assert output.tolist() == [[token_of("w"), EOS]] * 3
    endless = bigram_model({"a": {"a": 1.0}})
    ids = torch.tensor([[token_of("a")]] * 3)
    output = generate_in_pieces(endless.generate, endless.config, ids, ids * 0 + 1, config(max_new_tokens=7), 3)
    assert output.tolist() == [[token_of("a")] * 8] * 3


def test_sampling_follows_the_models_distribution():
    """At every step, P(a) = 1/4 and P(end) = 3/4, so the lengths are geometric with mean 4/3."""
    model = bigram_model({"a": {"a": 0.25, "<eos>": 0.75}})
    ids = torch.full((4000, 1), token_of("a"))
    torch.manual_seed(0)
    sampling = config(do_sample=True, top_k=0, top_p=1.0, temperature=1.0, eos_token_id=[EOS])
    output = generate_in_pieces(model.generate, model.config, ids, ids * 0 + 1, sampling, 1)
    lengths = (output[:, 1:] != PAD).sum(dim=1).double()
    deviation = math.sqrt(0.25) / 0.75 / math.sqrt(4000)
    assert abs(lengths.mean().item() - 4 / 3) < 4 * deviation
    share = (lengths == 2).double().mean().item()  # 1/4 x 3/4
    assert abs(share - 3 / 16) < 4 * math.sqrt(3 / 16 * 13 / 16 / 4000)


def test_models_that_cannot_drop_rows_are_detected():
    mamba = MambaForCausalLM(MambaConfig(vocab_size=12, hidden_size=16, num_hidden_layers=1, state_size=4))
    longrope = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "rope_theta": 10000.0}
    longrope["original_max_position_embeddings"] = 32
    phi = Phi3ForCausalLM(Phi3Config(**SMALL, max_position_embeddings=64, rope_parameters=longrope))
    prompt_tuned = get_peft_model(tiny_model(), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))
    assert [can_drop_rows(model) for model in (mamba, phi, prompt_tuned, tiny_model())] == [False] * 3 + [True]


class Plain(EndedRows, GRPOTrainer):
    pass


def make_trainer(trainer_class, folder, **changes):
    changes = {"max_completion_length": 40, **changes}
    return tiny_trainer(folder, short_reward, trainer_class=trainer_class, **changes)


def lengths_and_rows(trainer):
    """Return the completion lengths of a rollout, and the number of rows in each call of the model's `generate`."""
    policy, rows = trainer.accelerator.unwrap_model(trainer.model), []
    original = type(policy).generate

    def count_rows(self, **inputs):
        rows.append(len(inputs["input_ids"]))
        return original(self, **inputs)

    prompts = [[5, 6], [7]] * 8
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(policy), "generate", count_rows)
        torch.manual_seed(0)
        completions, _ = trainer._generate_single_turn(prompts, None, {}, 1)
    assert "generate" not in vars(policy)  # the patch is removed
    return [len(ids) for ids in completions], rows


@pytest.mark.parametrize("trainer_class", [Plain, CESTrainer])
def test_the_trainer_generates_without_ended_rows(tmp_path, trainer_class):
    lengths, rows = lengths_and_rows(make_trainer(trainer_class, tmp_path, shaping="none"))
    assert rows == [sum(length > 16 * call for length in lengths) for call in range(len(rows))]
    assert len(rows) > 1
    assert rows[-1] < rows[0] == 16


def test_a_custom_generate_method_is_called_as_in_trl(tmp_path):
    trainer, calls = make_trainer(CESTrainer, tmp_path, shaping="none"), []
    original = trainer.model.generate

    def generate(**inputs):
        calls.append(inputs.keys())
        return original(**inputs)

    trainer.model.generate = generate
    for _ in range(2):
        trainer._generate_single_turn([[5, 6], [7]], None, {}, 1)
    assert calls == [TEXT_INPUTS, TEXT_INPUTS]
    assert trainer.model.generate is generate


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"trim_padding": False, "packing": False}, {}),
        ({"generation_kwargs": {"min_new_tokens": 2}}, {}),
        ({"cache_implementation": "dynamic"}, {}),
        ({}, {"_dist": SimpleNamespace(is_zero3=True, is_fsdp=False)}),
        ({}, {"_dist": SimpleNamespace(is_zero3=False, is_fsdp=True)}),
        ({}, {"use_vllm": True}),
        ({}, {"_is_vlm": True}),
    ],
    ids=str,
)
def test_rows_are_not_dropped_with_unsupported_settings(tmp_path, changes, fields):
    trainer = make_trainer(Plain, tmp_path, shaping="none", **changes)
    assert trainer._may_drop_rows() == (changes == {})
    for name, value in fields.items():
        setattr(trainer, name, value)
    assert not trainer._may_drop_rows()
