"""Forking tokens of models whose distributions are known by hand, and against a plain loop where they are not."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from bigram import ENTROPY_OF_A, EOS, PAD, bigram_model, token_of
from tiny import tiny_model, tiny_tokenizer
from transformers import GPT2Config, GPT2LMHeadModel

from trl_ces.lab.inspect import tokens as inspection
from trl_ces.lab.inspect.answers import SampledAnswer, encode_prompt, sample_answers
from trl_ces.lab.inspect.facts import count_pairs, sample_facts, shorter_share
from trl_ces.lab.inspect.settings import Sampling
from trl_ces.lab.inspect.tokens import ForkingToken, distribution_facts, forking_tokens, token_text
from trl_ces.support.errors import UserError

A, X, Y, Z, W = map(token_of, "axyzw")


def story_answers(num_samples=40, prompts=((A,),), **changes):
    settings = {"num_samples": num_samples, "tau": 0.25, "max_new_tokens": 8, "batch_size": 16, **changes}
    return sample_answers(bigram_model(), tiny_tokenizer(), [list(prompt) for prompt in prompts], Sampling(**settings))


def pairs_of(answers, correct=None):
    return list(count_pairs(answers, correct).itertuples())


def test_a_known_model_gives_a_known_fork():
    answers = story_answers(num_samples=400)
    (fork,) = pairs_of(answers, [answer.tokens[0] == Y for answer in answers])
    assert (fork.count, fork.share, fork.leads) == (400, 1.0, 1.0)
    assert fork.entropy == pytest.approx(ENTROPY_OF_A, abs=1e-5)
    assert (fork.likelier_token, fork.likelier_tokens_left, fork.likelier_correct) == (X, 2.0, 0.0)
    assert (fork.other_token, fork.other_tokens_left, fork.other_correct) == (Y, 4.0, 1.0)
    assert fork.likelier_probability == pytest.approx(0.75, abs=1e-5)
    assert fork.likelier_sampled == pytest.approx(0.75, abs=0.07)  # three standard deviations of 400 draws
    assert fork.likelier_sampled + fork.other_sampled == 1.0
    drawn = fork.other_sampled
    facts = sample_facts(answers, tau=0.25)
    length = 2 + 2 * drawn
    assert facts["mean_length"] == pytest.approx(length)
    assert facts["entropy"] == pytest.approx(ENTROPY_OF_A / length, abs=1e-5)
    assert facts["fork_entropy"] == pytest.approx(ENTROPY_OF_A, abs=1e-5)
    assert facts["too_short"] == pytest.approx(1 - drawn)  # floor(2 / 4) = 0, floor(4 / 4) = 1
    assert (facts["completions"], facts["truncated"]) == (400, 0.0)


def test_entropies_and_probabilities_are_those_at_the_temperature():
    odds = math.sqrt(3)  # at temperature 2 the odds of 3 to 1 are their root
    likelier = odds / (1 + odds)
    bits = -likelier * math.log2(likelier) - (1 - likelier) * math.log2(1 - likelier)
    answers = story_answers(num_samples=400, temperature=2.0)
    (fork,) = pairs_of(answers)
    assert fork.likelier_probability == pytest.approx(likelier, abs=1e-5)
    assert fork.entropy == pytest.approx(bits, abs=1e-5)
    assert fork.likelier_sampled == pytest.approx(likelier, abs=0.075)


def test_an_answer_that_was_cut_off_has_no_tokens_left_to_count():
    answers = story_answers(max_new_tokens=3)
    assert {(tuple(answer.tokens), answer.ended) for answer in answers} == {((X, EOS), True), ((Y, Z, W), False)}
    (fork,) = pairs_of(answers)
    assert fork.likelier_tokens_left == 2.0
    assert math.isnan(fork.other_tokens_left)
    assert sample_facts(answers, 0.25)["truncated"] == pytest.approx(fork.other_sampled)
    assert math.isnan(shorter_share(count_pairs(answers)))


def test_answers_come_in_the_order_of_the_prompts_whatever_the_batches():
    answers = story_answers(num_samples=3, prompts=((A,), (Z, A, A), (X,)), batch_size=2)
    assert [answer.prompt for answer in answers] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert all(answer.tokens == [EOS] for answer in answers[6:])
    assert all(answer.tokens[0] in (X, Y) for answer in answers[:6])


def test_the_seed_decides_the_answers_and_the_callers_random_state_stays():
    model, tokenizer = bigram_model(), tiny_tokenizer()
    state = torch.random.get_rng_state()
    first, again, other = (sample_answers(model, tokenizer, [[A]] * 20, Sampling(seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert first == again
    assert first != other


def test_the_models_own_generation_settings_do_not_count_and_stay():
    model = bigram_model()
    model.generation_config.update(do_sample=False, top_k=1, top_p=0.5, min_p=0.9, repetition_penalty=3.0)
    own = model.generation_config
    answers = sample_answers(model, tiny_tokenizer(), [[A]], Sampling(num_samples=40, max_new_tokens=8))
    assert {answer.tokens[0] for answer in answers} == {X, Y}
    assert model.generation_config is own


def gpt2():
    """Learned absolute positions: unlike rotary ones, they show any shift by padding."""
    torch.manual_seed(3)
    config = GPT2Config(
        vocab_size=len(tiny_tokenizer()), n_positions=64, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5
    )
    config.eos_token_id, config.bos_token_id = EOS, None
    return GPT2LMHeadModel(config).eval()


def by_loops(model, prompt, answer, temperature, size):
    """Entropies in bits, and the places of the `size` highest with their two likeliest tokens, one row, no padding."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + answer])).logits[0].double() / temperature
    bits, top = [], []
    for place in range(len(answer)):
        probabilities = logits[len(prompt) + place - 1].softmax(dim=0).tolist()
        bits.append(-sum(p * math.log2(p) for p in probabilities))
        order = sorted(range(len(probabilities)), key=lambda token: -probabilities[token])
        top.append([(token, probabilities[token]) for token in order[:2]])
    places = sorted(sorted(range(len(answer)), key=lambda place: (-bits[place], place))[:size])
    return bits, {place: top[place] for place in places}


PROMPTS = [[5, 6, 7, 8, 9, 10], [11], [12, 13, 14]]
ANSWERS = [[20, 21, EOS], [22, 23, 24, 25, 26, 27, 28, 29, 30, 31], [17, 18, 19, 20, 21, 22, EOS]]


@pytest.mark.parametrize("make", [tiny_model, gpt2])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("limits", [(2**29, 256), (1, 3)])
def test_padding_changes_no_number(make, temperature, limits, monkeypatch):
    monkeypatch.setattr(inspection, "LOGITS_AT_A_TIME", limits[0])
    monkeypatch.setattr(inspection, "POSITIONS_AT_A_TIME", limits[1])
    model = make().eval()
    with torch.no_grad():
        found = forking_tokens(model, PROMPTS, ANSWERS, temperature=temperature, tau=0.3, pad=PAD)
    for prompt, answer, (entropies, forks), size in zip(PROMPTS, ANSWERS, found, [1, 3, 2], strict=True):
        bits, top = by_loops(model, prompt, answer, temperature, size)
        assert entropies == pytest.approx(bits, abs=1e-4)
        assert [fork.place for fork in forks] == list(top)
        for fork in forks:
            assert fork.pair == tuple(token for token, _ in top[fork.place])
            assert fork.probabilities == pytest.approx([p for _, p in top[fork.place]], abs=1e-5)
            assert (fork.entropy, fork.sampled) == (entropies[fork.place], answer[fork.place])


@pytest.mark.parametrize("make", [tiny_model, gpt2])
def test_prompts_of_different_lengths_are_answered_as_alone(make):
    model, tokenizer = make(), tiny_tokenizer()
    nearly_greedy = Sampling(num_samples=1, temperature=1e-4, max_new_tokens=10)
    together = sample_answers(model, tokenizer, PROMPTS, nearly_greedy)
    alone = [sample_answers(model, tokenizer, [prompt], nearly_greedy)[0] for prompt in PROMPTS]
    assert [answer.tokens for answer in together] == [answer.tokens for answer in alone]


def test_a_token_that_cannot_come_adds_no_entropy():
    entropies, probabilities, tokens = distribution_facts(torch.tensor([[0.0, -math.inf, 0.0, 0.0, 0.0]]), 1.0)
    assert entropies.tolist() == [2.0]
    assert probabilities.tolist() == [[0.25, 0.25]]
    assert 1 not in tokens


def test_entropies_of_bfloat16_logits_are_computed_in_float32():
    logits = torch.linspace(-3, 3, 5000).to(torch.bfloat16)
    exact = logits.double().softmax(dim=0)
    entropies, _, _ = distribution_facts(logits.unsqueeze(0), 1.0)
    assert entropies.item() == pytest.approx(-(exact * exact.log2()).sum().item(), abs=1e-4)


def fork(place, pair, probabilities, entropy, sampled):
    return ForkingToken(place, pair, probabilities, entropy, sampled)


def hand_made():
    """Three completions: a fork of 5 and 6 whose lead changes from place to place, and one of 7 and 8."""
    first = [fork(0, (5, 6), (0.8, 0.2), 1.0, 5)]
    second = [fork(1, (6, 5), (0.6, 0.5), 0.5, 6), fork(2, (7, 8), (0.7, 0.1), 0.3, 7)]
    third = [fork(1, (5, 6), (0.7, 0.1), 0.5, 5), fork(2, (7, 8), (0.5, 0.4), 0.1, 8)]
    return [
        SampledAnswer(0, [5, 9, 9, 1], True, [1.0, 0, 0, 0], first),
        SampledAnswer(0, [9, 6, 7, 1], True, [0, 0.5, 0.3, 0], second),
        SampledAnswer(1, [9, 5, 8, 9, 9], False, [0, 0.5, 0.1, 0, 0], third),
    ]


def test_places_are_grouped_by_their_pair_in_either_order():
    first, second = pairs_of(hand_made(), [True, False, None])
    assert (first.count, first.share) == (3, 0.6)
    assert first.entropy == pytest.approx(2 / 3)
    assert first.leads == pytest.approx(0.75)  # 1.5 of 2 bits where 5 is the likelier one there, too
    assert first.likelier_token == 5
    assert first.likelier_probability == pytest.approx((0.8 + 0.5 + 0.7) / 3)
    assert first.likelier_sampled == pytest.approx(2 / 3)
    assert first.likelier_tokens_left == 4.0  # the third completion did not end
    assert first.likelier_correct == 1.0  # and could not be scored
    assert first.other_probability == pytest.approx((0.2 + 0.6 + 0.1) / 3)
    assert (first.other_sampled, first.other_tokens_left, first.other_correct) == (pytest.approx(1 / 3), 3.0, 0.0)
    assert (second.likelier_token, second.likelier_tokens_left) == (7, 2.0)
    assert math.isnan(second.other_tokens_left)
    assert sample_facts(hand_made(), 0.2, [True, False, None])["accuracy"] == 0.5
    assert math.isnan(sample_facts(hand_made(), 0.2)["accuracy"])


def test_the_shorter_branch_is_weighted_by_count_and_entropy_and_follows_the_lead_at_each_place():
    columns = {
        "count": [10, 2, 4, 8],
        "entropy": [0.6, 1.0, 0.5, 0.25],  # 6 bits: shorter; 1.5 bits longer, 0.5 shorter; 2: unknown; 2: equal
        "leads": [1.0, 0.75, 1.0, 0.75],
        "likelier_tokens_left": [4.0, 9.0, 3.0, 4.0],
        "other_tokens_left": [20.0, 5.0, math.nan, 4.0],
    }
    assert shorter_share(pd.DataFrame(columns)) == pytest.approx(6.5 / 10)


def test_a_model_without_any_doubt_leads_nowhere():
    sure = [SampledAnswer(0, [5, 1], True, [0, 0], [fork(0, (5, 6), (1.0, 0.0), 0.0, 5)])]
    assert math.isnan(shorter_share(count_pairs(sure)))


def test_white_space_shows_in_a_tokens_text():
    tokenizer = tiny_tokenizer()
    ids = [*tokenizer.convert_tokens_to_ids([" ", "\n", "a"]), EOS, 9999]
    assert [token_text(tokenizer, token) for token in ids] == ["' '", "'\\n'", "'a'", "'<eos>'", "<9999>"]


@pytest.mark.parametrize(
    ("entry", "decoded", "shown"),
    [("▁the", "the", "' the'"), ("▁", "", "' '"), ("Ġthe", " the", "' the'"), ("âĢ", "\ufffd", "'âĢ'")],
)
def test_the_texts_of_other_tokenizers_tell_their_tokens_apart(entry, decoded, shown):
    tokenizer = SimpleNamespace(convert_ids_to_tokens=lambda token: entry, decode=lambda ids, **options: decoded)
    assert token_text(tokenizer, 7) == shown


def test_a_text_is_encoded_as_it_stands_and_messages_by_the_chat_template():
    tokenizer = tiny_tokenizer()
    assert tokenizer.decode(encode_prompt(tokenizer, "1+1=")) == "1+1="
    assert tokenizer.decode(encode_prompt(tokenizer, [{"role": "user", "content": "hi"}])) == "[uhi][a"
    with pytest.raises(UserError, match="no chat template"):
        encode_prompt(tiny_tokenizer(chat_template=None), [{"role": "user", "content": "hi"}])
    with pytest.raises(UserError, match="'' has no tokens"):
        encode_prompt(tokenizer, "")


def test_every_end_token_of_the_model_or_the_tokenizer_ends_an_answer():
    model = bigram_model()
    model.generation_config.eos_token_id = [Z]
    answers = sample_answers(model, tiny_tokenizer(), [[A]], Sampling(num_samples=40, max_new_tokens=8))
    assert {(tuple(answer.tokens), answer.ended) for answer in answers} == {((X, EOS), True), ((Y, Z), True)}
