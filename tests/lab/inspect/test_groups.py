"""Shares of equal groups and of shaped tokens, against numbers computed by hand and by listing every group."""

import math
from itertools import combinations

import pytest

from trl_ces.lab.inspect.answers import SampledAnswer
from trl_ces.lab.inspect.facts import group_facts
from trl_ces.lab.inspect.settings import Sampling
from trl_ces.train.recipe import make_recipe


def answer(prompt, length):
    return SampledAnswer(prompt, tokens=[5] * length, ended=True, entropies=[0.0] * length, forks=[])


def facts_of(judged, **settings):
    """Of (prompt, length, verdict)."""
    answers = [answer(prompt, length) for prompt, length, _ in judged]
    return group_facts(answers, [verdict for _, _, verdict in judged], **{"size": 2, "tau": 0.1, **settings})


# Prompt 0 has one correct completion of four, prompt 1 four of four.
TWO_PROMPTS = [(0, 40, True), (0, 40, False), (0, 40, False), (0, 80, False), *[(1, 10, True)] * 4]


def test_the_shaped_share_is_expected_over_the_rest_of_the_group():
    """
    k = floor(len / 10 * b). In prompt 0 the correct completion always has a = 1/2: k = 2. A wrong one meets it with
    probability 1/3, b = 1/2, and else a wrong one, b = 1: k = 2 or 4 of 40 tokens, 4 or 8 of 80. In prompt 1, k = 1.
    """
    expected = 2 + 2 * (2 / 3 + 2 * 4 / 3) + (4 / 3 + 2 * 8 / 3) + 4
    assert facts_of(TWO_PROMPTS)["shaped_share"] == pytest.approx(expected / (200 + 40))
    # Without dynamic b: 4 + 4 + 4 + 8 and four times 1.
    assert facts_of(TWO_PROMPTS, dynamic_multiplier=False)["shaped_share"] == 24 / 240


def test_cut_off_completions_count_for_nothing_where_training_masks_them():
    answers = [SampledAnswer(0, [5] * 400, ended=False, entropies=[0.0] * 400, forks=[]), *[answer(0, 5)] * 3]
    shares = [
        group_facts(answers, [False] * 4, size=2, tau=0.1, mask_truncated=masked)["shaped_share"]
        for masked in (False, True)
    ]
    assert shares == [40 / 415, 0.0]  # k = floor(0.1 * 5) = 0


def test_what_teaches_nothing_and_what_rewards_mistakes_is_counted_in_every_group():
    """Listed, with Eq. 7 and TRL's advantage written out."""
    bits = [2.0, 0.3, 1.0, 0.0, 0.7, 1.5, 0.1, 0.9, 0.2, 0.4]
    answers = [SampledAnswer(0, [5] * 10, True, bits[n:] + bits[:n], []) for n in range(6)]
    verdicts, size, tau, beta = [True, False, False, True, False, False], 3, 0.5, 0.8
    shaped = equal = rewarded = 0
    for group in combinations(range(6), size):
        right = sum(verdicts[one] for one in group)
        rewards = [float(verdicts[one]) for one in group]
        mean = sum(rewards) / size
        deviation = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / (size - 1))
        for one, reward in zip(group, rewards, strict=True):
            k = math.floor(10 * tau * (right if verdicts[one] else size - right) / size + 1e-9)
            advantage = (reward - mean) / deviation if deviation else 0.0
            top = sorted(answers[one].entropies, reverse=True)[:k]
            shaped += k
            equal += k * (right in (0, size))
            rewarded += 0 if verdicts[one] else sum(advantage + beta * entropy > 0 for entropy in top)
    found = group_facts(answers, verdicts, size=size, tau=tau, beta_incorrect=beta)
    assert found["shaped_in_equal_groups"] == pytest.approx(equal / shaped)
    assert found["shaped_incorrect_rewarded"] == pytest.approx(rewarded / shaped)
    assert 0 < equal < rewarded < shaped


def test_shares_agree_with_every_group_listed():
    judged = [(0, length, length % 3 == 0) for length in (31, 33, 36, 47, 50, 51, 64)]
    groups = list(combinations(judged, 4))
    shaped = tokens = 0
    for group in groups:
        right = sum(verdict for _, _, verdict in group)
        for _, length, verdict in group:
            shaped += length * 17 * (right if verdict else 4 - right) // (100 * 4)
            tokens += length
    found = facts_of(judged, size=4, tau=0.17)
    assert found["shaped_share"] == pytest.approx(shaped / tokens)
    right = [sum(verdict for _, _, verdict in group) for group in groups]
    assert found["groups_all_incorrect"] == pytest.approx(right.count(0) / len(groups))
    assert found["groups_all_correct"] == pytest.approx(right.count(4) / len(groups))


def test_the_floor_is_exact():
    """300 tokens at tau 0.01 and b = 1 - 2/3 are one token and 100 at 0.29 are 29; as floats, both fall just short."""
    found = facts_of([(0, 300, True), (0, 300, True), (0, 300, False)], size=3, tau=0.01)
    assert found["shaped_share"] == (2 + 2 + 1) / 900
    assert facts_of([(0, 100, True)] * 2, tau=0.29)["shaped_share"] == 0.29


def test_answers_without_a_verdict_make_no_group_and_prompts_with_too_few_are_left_out():
    unknown = [(0, 500, None), (2, 500, True), (3, 500, None)]
    assert facts_of([*TWO_PROMPTS, *unknown]) == facts_of(TWO_PROMPTS)


def test_without_groups_there_are_no_shares():
    found = facts_of(TWO_PROMPTS, size=5)
    assert all(math.isnan(found[name]) for name in ("groups_all_incorrect", "groups_all_correct", "shaped_share"))
    nothing = group_facts([answer(0, 10)] * 4, None, size=2, tau=0.1)
    assert math.isnan(nothing["shaped_share"])


def test_a_recipes_whole_group_is_drawn():
    given = {"model_name_or_path": "m", "dataset_name": "d", "output_dir": "out"}
    recipes = make_recipe(given, "a"), make_recipe(given | {"num_generations": 16}, "b")
    assert [Sampling.of_recipe(recipe).num_samples for recipe in recipes] == [8, 16]
