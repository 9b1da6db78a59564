"""Sampling and entropies, compared with known statistics of a model and with plain loops over single rows."""

import math
from types import SimpleNamespace

import pytest
import torch
from bigram import EOS, PAD, bigram_model, token_of
from tiny import tiny_model, tiny_tokenizer
from transformers import GPT2Config, GPT2LMHeadModel

from trl_ces.lab.inspect import tokens as tokens_module
from trl_ces.lab.inspect.facts import count_pairs, sample_facts
from trl_ces.lab.inspect.sampling import encode_prompt, sample_completions
from trl_ces.lab.inspect.settings import Sampling
from trl_ces.lab.inspect.tokens import distribution_facts, high_entropy_tokens, token_text
from trl_ces.support.errors import UserError

A, X, Y, Z, W = map(token_of, "axyzw")


def sample_bigram(num_samples=40, prompts=([A],), **changes):
    settings = {"num_samples": num_samples, "tau": 0.25, "max_new_tokens": 8, "batch_size": 16, **changes}
    return sample_completions(bigram_model(), tiny_tokenizer(), prompts, Sampling(**settings))


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_statistics_match_the_bigram_model(temperature):
    odds = 3 ** (1 / temperature)
    likelier = odds / (1 + odds)
    bits = -likelier * math.log2(likelier) - (1 - likelier) * math.log2(1 - likelier)
    completions = sample_bigram(num_samples=400, temperature=temperature)
    (pair,) = count_pairs(completions, [completion.tokens[0] == Y for completion in completions]).itertuples()
    assert (pair.count, pair.share, pair.leads) == (400, 1.0, 1.0)
    assert pair.entropy == pytest.approx(bits, abs=1e-5)
    assert (pair.likelier_token, pair.likelier_tokens_left, pair.likelier_correct) == (X, 2.0, 0.0)
    assert (pair.other_token, pair.other_tokens_left, pair.other_correct) == (Y, 4.0, 1.0)
    assert pair.likelier_probability == pytest.approx(likelier, abs=1e-5)
    assert pair.likelier_sampled == pytest.approx(likelier, abs=0.075)  # three standard deviations of 400 draws
    assert pair.likelier_sampled + pair.other_sampled == 1.0
    facts = sample_facts(completions, tau=0.25)
    length = 2 + 2 * pair.other_sampled
    assert facts["mean_length"] == pytest.approx(length)
    assert facts["entropy"] == pytest.approx(bits / length, abs=1e-5)
    assert facts["top_entropy"] == pytest.approx(bits, abs=1e-5)
    assert facts["too_short"] == pytest.approx(pair.likelier_sampled)  # floor(2 / 4) = 0, floor(4 / 4) = 1
    assert (facts["completions"], facts["truncated"]) == (400, 0.0)


def test_completions_keep_the_order_of_the_prompts():
    completions = sample_bigram(num_samples=3, prompts=([A], [Z, A, A], [X]), batch_size=2)
    assert [completion.prompt for completion in completions] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert all(completion.tokens[0] in (X, Y) for completion in completions[:6])
    assert all(completion.tokens == [EOS] for completion in completions[6:])


def test_seed_determines_the_completions_and_the_random_state_is_restored():
    model, tokenizer, state = bigram_model(), tiny_tokenizer(), torch.random.get_rng_state()
    first, same, other = (sample_completions(model, tokenizer, [[A]] * 20, Sampling(seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert first == same != other


def test_generation_config_of_the_model_is_ignored_and_unchanged():
    model = bigram_model()
    model.generation_config.update(
        do_sample=False, top_k=1, top_p=0.5, min_p=0.9, repetition_penalty=3.0, eos_token_id=[Z]
    )
    config = model.generation_config
    completions = sample_completions(model, tiny_tokenizer(), [[A]], Sampling(num_samples=40, max_new_tokens=8))
    # Only `eos_token_id` of the generation config is used, in addition to the tokenizer's EOS token.
    assert {(tuple(completion.tokens), completion.ended) for completion in completions} == {
        ((X, EOS), True),
        ((Y, Z), True),
    }
    assert model.generation_config is config


def gpt2():
    """Make a model with absolute position embeddings, because rotary embeddings hide shifts due to padding."""
    torch.manual_seed(3)
    config = GPT2Config(
        vocab_size=len(tiny_tokenizer()), n_positions=64, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5
    )
    config.eos_token_id, config.bos_token_id = EOS, None
    return GPT2LMHeadModel(config).eval()


def compute_with_loops(model, prompt, completion, temperature, size):
    """Compute the entropies of a row in bits, and the two most likely tokens at the `size` highest entropies."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + completion])).logits[0].double() / temperature
    bits, top = [], []
    for position in range(len(completion)):
        probabilities = logits[len(prompt) + position - 1].softmax(dim=0).tolist()
        bits.append(-sum(p * math.log2(p) for p in probabilities))
        order = sorted(range(len(probabilities)), key=lambda token: -probabilities[token])
        top.append([(token, probabilities[token]) for token in order[:2]])
    positions = sorted(sorted(range(len(completion)), key=lambda position: (-bits[position], position))[:size])
    return bits, {position: top[position] for position in positions}


PROMPTS = [[5, 6, 7, 8, 9, 10], [11], [12, 13, 14]]
COMPLETIONS = [[20, 21, EOS], [22, 23, 24, 25, 26, 27, 28, 29, 30, 31], [17, 18, 19, 20, 21, 22, EOS]]


@pytest.mark.parametrize("make", [tiny_model, gpt2])
@pytest.mark.parametrize(("temperature", "limits"), [(1.0, (2**29, 256)), (0.7, (1, 3))])
def test_padding_does_not_change_results(make, temperature, limits, monkeypatch):
    monkeypatch.setattr(tokens_module, "LOGITS_PER_FORWARD", limits[0])
    monkeypatch.setattr(tokens_module, "POSITIONS_PER_CHUNK", limits[1])
    model = make().eval()
    with torch.no_grad():
        results = high_entropy_tokens(model, PROMPTS, COMPLETIONS, temperature=temperature, tau=0.3, pad=PAD)
    for prompt, completion, (entropies, tokens), size in zip(PROMPTS, COMPLETIONS, results, [1, 3, 2], strict=True):
        bits, top = compute_with_loops(model, prompt, completion, temperature, size)
        assert entropies == pytest.approx(bits, abs=1e-4)
        assert [token.position for token in tokens] == list(top)
        for token in tokens:
            assert token.pair == tuple(token_id for token_id, _ in top[token.position])
            assert token.probabilities == pytest.approx([p for _, p in top[token.position]], abs=1e-5)
            assert (token.entropy, token.sampled) == (entropies[token.position], completion[token.position])


def test_entropies_are_exact_with_impossible_tokens_and_bfloat16_logits():
    entropies, probabilities, tokens = distribution_facts(torch.tensor([[0.0, -math.inf, 0.0, 0.0, 0.0]]), 1.0)
    assert entropies.tolist() == [2.0]
    assert probabilities.tolist() == [[0.25, 0.25]]
    assert 1 not in tokens
    logits = torch.linspace(-3, 3, 5000).to(torch.bfloat16)
    exact = logits.double().softmax(dim=0)
    entropies, _, _ = distribution_facts(logits.unsqueeze(0), 1.0)
    assert entropies.item() == pytest.approx(-(exact * exact.log2()).sum().item(), abs=1e-4)


def test_token_text_shows_white_space_and_partial_characters():
    tokenizer = tiny_tokenizer()
    ids = [*tokenizer.convert_tokens_to_ids([" ", "a"]), EOS, 9999]
    assert [token_text(tokenizer, token) for token in ids] == [" ", "a", "<eos>", "<9999>"]
    for entry, decoded, expected in (
        ("▁the", "the", " the"),
        ("▁", "", " "),
        ("Ġthe", " the", " the"),
        ("âĢ", "\ufffd", "âĢ"),
    ):
        tokenizer = SimpleNamespace(
            convert_ids_to_tokens=lambda token, entry=entry: entry, decode=lambda ids, text=decoded, **options: text
        )
        assert token_text(tokenizer, 7) == expected


def test_the_chat_template_is_applied_only_to_messages():
    tokenizer = tiny_tokenizer()
    assert tokenizer.decode(encode_prompt(tokenizer, "1+1=")) == "1+1="
    assert tokenizer.decode(encode_prompt(tokenizer, [{"role": "user", "content": "hi"}])) == "[uhi][a"
    with pytest.raises(UserError, match="no chat template"):
        encode_prompt(tiny_tokenizer(chat_template=None), [{"role": "user", "content": "hi"}])
    with pytest.raises(UserError, match="'' has no tokens"):
        encode_prompt(tokenizer, "")
