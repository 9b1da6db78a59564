"""Statistics of hand-made samples, compared with hand-computed values and an enumeration of all groups."""

import math
from itertools import combinations

import pandas as pd
import pytest

from trl_ces.lab.inspect.facts import count_pairs, group_facts, sample_facts, shorter_share
from trl_ces.lab.inspect.sampling import SampledCompletion
from trl_ces.lab.inspect.tokens import HighEntropyToken


def completion(prompt, length, ended=True):
    return SampledCompletion(prompt, [5] * length, ended, entropies=[0.0] * length, top_tokens=[])


def compute_facts(triples, **settings):
    """Compute `group_facts` from (prompt, length, correct) triples."""
    completions = [completion(prompt, length) for prompt, length, _ in triples]
    return group_facts(completions, [correct for _, _, correct in triples], **{"size": 2, "tau": 0.1, **settings})


# In prompt 0, one of four completions is correct; in prompt 1, all four are correct.
TWO_PROMPTS = [(0, 40, True), (0, 40, False), (0, 40, False), (0, 80, False), *[(1, 10, True)] * 4]


def test_shaped_share_is_the_expectation_over_groups():
    # k = floor(length / 10 * b). In prompt 0, the correct completion has b = 1/2 and k = 2. With probability 1/3, an
    # incorrect completion is grouped with the correct completion and has b = 1/2. Otherwise, b = 1. For 40 tokens,
    # k is 2 or 4. For 80 tokens, k is 4 or 8. In prompt 1, k = 1.
    expected = 2 + 2 * (2 / 3 + 2 * 4 / 3) + (4 / 3 + 2 * 8 / 3) + 4
    assert compute_facts(TWO_PROMPTS)["shaped_share"] == pytest.approx(expected / (200 + 40))
    # Without dynamic b, k is 4, 4, 4, 8 in prompt 0 and 1 in prompt 1.
    assert compute_facts(TWO_PROMPTS, dynamic_multiplier=False)["shaped_share"] == 24 / 240


def test_completions_with_a_beta_of_0_have_no_shaped_tokens():
    # As computed above, the correct completions have 2 + 4 shaped tokens.
    assert compute_facts(TWO_PROMPTS, beta_incorrect=0.0)["shaped_share"] == pytest.approx(6 / 240)
    full_share = compute_facts(TWO_PROMPTS)["shaped_share"]
    assert compute_facts(TWO_PROMPTS, beta_correct=0.0)["shaped_share"] == pytest.approx(full_share - 6 / 240)
    assert compute_facts(TWO_PROMPTS, capped=True)["shaped_share"] == full_share


def test_truncated_completions_are_excluded_if_training_masks_them():
    completions = [completion(0, 400, ended=False), *[completion(0, 5)] * 3]
    shares = [
        group_facts(completions, [False] * 4, size=2, tau=0.1, mask_truncated=masked)["shaped_share"]
        for masked in (False, True)
    ]
    assert shares == [40 / 415, 0.0]  # k = floor(0.1 * 5) = 0


def test_shares_match_an_enumeration_of_all_groups():
    """Compute Eq. 7 and TRL's advantage explicitly for every group."""
    bits = [2.0, 0.3, 1.0, 0.0, 0.7, 1.5, 0.1, 0.9, 0.2, 0.4]
    completions = [SampledCompletion(0, [5] * 10, True, bits[n:] + bits[:n], []) for n in range(6)]
    correct, size, tau, beta = [True, False, False, True, False, False], 3, 0.5, 0.8
    groups = list(combinations(range(6), size))
    shaped = equal = rewarded = 0
    for group in groups:
        count = sum(correct[member] for member in group)
        mean = count / size
        deviation = math.sqrt(sum((correct[member] - mean) ** 2 for member in group) / (size - 1))
        for member in group:
            k = math.floor(10 * tau * (count if correct[member] else size - count) / size + 1e-9)
            advantage = (correct[member] - mean) / deviation if deviation else 0.0
            top = sorted(completions[member].entropies, reverse=True)[:k]
            shaped += k
            equal += k * (count in (0, size))
            rewarded += 0 if correct[member] else sum(advantage + beta * entropy > 0 for entropy in top)
    shares = group_facts(completions, correct, size=size, tau=tau, beta_incorrect=beta)
    assert shares["shaped_share"] == pytest.approx(shaped / (10 * size * len(groups)))
    assert shares["shaped_in_equal_groups"] == pytest.approx(equal / shaped)
    assert shares["shaped_incorrect_rewarded"] == pytest.approx(rewarded / shaped)
    counts = [sum(correct[member] for member in group) for group in groups]
    assert shares["groups_all_incorrect"] == pytest.approx(counts.count(0) / len(groups))
    assert shares["groups_all_correct"] == counts.count(size) / len(groups) == 0
    assert 0 < equal < rewarded < shaped


def test_floor_is_exact():
    """300 * 0.01 * (1 - 2/3) gives k = 1 and 100 * 0.29 gives k = 29, although the float products are smaller."""
    triples = [(0, 300, True), (0, 300, True), (0, 300, False)]
    assert compute_facts(triples, size=3, tau=0.01)["shaped_share"] == (2 + 2 + 1) / 900
    assert compute_facts([(0, 100, True)] * 2, tau=0.29)["shaped_share"] == 0.29


def test_unscored_completions_and_prompts_with_too_few_completions_are_excluded():
    assert compute_facts([*TWO_PROMPTS, (0, 500, None), (2, 500, True), (3, 500, None)]) == compute_facts(TWO_PROMPTS)
    facts = compute_facts(TWO_PROMPTS, size=5)
    assert all(math.isnan(facts[name]) for name in ("groups_all_incorrect", "groups_all_correct", "shaped_share"))
    assert math.isnan(group_facts([completion(0, 10)] * 4, None, size=2, tau=0.1)["shaped_share"])


def example_completions():
    """Make three completions with the token pairs (5, 6) and (7, 8). Either token of (5, 6) can be more likely."""
    first = [HighEntropyToken(0, (5, 6), (0.8, 0.2), 1.0, 5)]
    second = [HighEntropyToken(1, (6, 5), (0.6, 0.5), 0.5, 6), HighEntropyToken(2, (7, 8), (0.7, 0.1), 0.3, 7)]
    third = [HighEntropyToken(1, (5, 6), (0.7, 0.1), 0.5, 5), HighEntropyToken(2, (7, 8), (0.5, 0.4), 0.1, 8)]
    return [
        SampledCompletion(0, [5, 9, 9, 1], True, [1.0, 0, 0, 0], first),
        SampledCompletion(0, [9, 6, 7, 1], True, [0, 0.5, 0.3, 0], second),
        SampledCompletion(1, [9, 5, 8, 9, 9], False, [0, 0.5, 0.1, 0, 0], third),
    ]


def test_positions_are_grouped_by_unordered_pair():
    first, second = count_pairs(example_completions(), [True, False, None]).itertuples()
    assert (first.count, first.share) == (3, 0.6)
    assert first.entropy == pytest.approx(2 / 3)
    assert first.leads == pytest.approx(0.75)  # token 5 is more likely at positions with 1.5 of 2 bits
    assert first.likelier_token == 5
    assert first.likelier_probability == pytest.approx((0.8 + 0.5 + 0.7) / 3)
    assert first.likelier_sampled == pytest.approx(2 / 3)
    assert first.likelier_tokens_left == 4.0  # the third completion did not end
    assert first.likelier_correct == 1.0  # the third completion is unscored
    assert first.other_probability == pytest.approx((0.2 + 0.6 + 0.1) / 3)
    assert (first.other_sampled, first.other_tokens_left, first.other_correct) == (pytest.approx(1 / 3), 3.0, 0.0)
    assert (second.likelier_token, second.likelier_tokens_left) == (7, 2.0)
    assert math.isnan(second.other_tokens_left)
    assert sample_facts(example_completions(), 0.2, [True, False, None])["accuracy"] == 0.5
    assert math.isnan(sample_facts(example_completions(), 0.2)["accuracy"])


def test_shorter_share_is_weighted_by_count_and_entropy():
    columns = {
        "count": [10, 2, 4, 8],
        "entropy": [0.6, 1.0, 0.5, 0.25],  # bits: 6 shorter; 1.5 longer and 0.5 shorter; 2 unknown; 2 equal
        "leads": [1.0, 0.75, 1.0, 0.75],
        "likelier_tokens_left": [4.0, 9.0, 3.0, 4.0],
        "other_tokens_left": [20.0, 5.0, math.nan, 4.0],
    }
    assert shorter_share(pd.DataFrame(columns)) == pytest.approx(6.5 / 10)
    certain = [HighEntropyToken(0, (5, 6), (1.0, 0.0), 0.0, 5)]
    assert math.isnan(shorter_share(count_pairs([SampledCompletion(0, [5, 1], True, [0, 0], certain)])))
