"""Compare the functions in methods/ces.py with hand-computed values; the comments show the arithmetic."""

import math
import re

import pytest
import torch

from trl_ces.methods.ces import (
    automatic_tau,
    ces_advantages,
    conditional_entropy_shaping,
    multiplier,
    negative_beta_warning,
    selection_size,
    top_entropy_tokens,
    unshaped_rollout_warning,
    unshaped_warning,
)
from trl_ces.methods.entropy_advantage import entropy_advantage
from trl_ces.methods.groups import group_accuracy, group_counts
from trl_ces.methods.rule import entropy_in_bits


def ints(*values):
    return torch.tensor(values, dtype=torch.int64)


def bools(*values):
    return torch.tensor(values, dtype=torch.bool)


def test_a_fair_coin_has_one_bit_of_entropy():
    assert entropy_in_bits(torch.tensor([math.log(2), math.log(8)])).tolist() == pytest.approx([1.0, 3.0])


def test_group_accuracy_excludes_unscored_completions_from_both_counts():
    correct, scored = bools(1, 0, 0, 0, 1, 1), bools(1, 1, 0, 0, 1, 1)
    group_correct, group_scored = group_counts(correct, scored, group_size=3)
    assert group_correct.tolist() == [1, 1, 1, 2, 2, 2]  # the third and fourth completions are unscored
    assert group_scored.tolist() == [2, 2, 2, 2, 2, 2]
    assert group_accuracy(group_correct, group_scored).tolist() == [0.5, 0.5, 0.5, 1.0, 1.0, 1.0]


def test_an_unscored_group_has_accuracy_and_multiplier_0():
    group_correct, group_scored = group_counts(bools(0, 0), bools(0, 0), group_size=2)
    assert group_accuracy(group_correct, group_scored).tolist() == [0.0, 0.0]
    numerator, denominator = multiplier(bools(0, 0), group_correct, group_scored)
    assert numerator.tolist() == [0, 0]
    assert denominator.tolist() == [1, 1]


def test_the_multiplier_is_the_accuracy_or_its_complement():
    numerator, denominator = multiplier(bools(1, 0, 0), ints(1, 1, 1), ints(3, 3, 3))
    assert list(zip(numerator.tolist(), denominator.tolist(), strict=True)) == [(1, 3), (2, 3), (2, 3)]


def test_selection_size_is_1_for_300_tokens_at_accuracy_two_thirds():
    # floor(300 * 0.01 * (1 - 2/3)) = floor(1) = 1. In float32, 1 - 2/3 = 0.33333331, so the floor would be 0.
    assert selection_size(ints(300), 0.01, (ints(1), ints(3))).tolist() == [1]


def test_selection_size_is_the_exact_floor_up_to_12000_tokens():
    lengths = torch.arange(12001)
    for tau, hundredths in ((0.01, 1), (0.05, 5), (0.29, 29)):
        for correct in range(13):
            k = selection_size(lengths, tau, (torch.full_like(lengths, correct), torch.full_like(lengths, 12)))
            assert k.tolist() == [length * hundredths * correct // 1200 for length in range(12001)]


def test_without_a_multiplier_a_constant_share_of_tokens_is_selected():
    assert selection_size(ints(99, 100, 250), 0.01).tolist() == [0, 1, 2]
    assert selection_size(ints(99, 100, 250), 0.005).tolist() == [0, 0, 1]


def test_tau_0_selects_no_token_and_tau_1_selects_every_token():
    assert selection_size(ints(7, 0), 0.0, (ints(4, 4), ints(4, 4))).tolist() == [0, 0]
    assert selection_size(ints(7, 0), 1.0, (ints(4, 4), ints(4, 4))).tolist() == [7, 0]


def test_long_completions_and_long_decimals_do_not_overflow():
    # 9,000,000 * 0.123456789 * 1/2 = 555,555.55
    assert selection_size(ints(9_000_000), 0.123456789, (ints(512), ints(1024))).tolist() == [555_555]


def test_k_tokens_are_selected_and_earlier_tokens_win_ties():
    entropies = torch.tensor([[1.0, 3.0, 3.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    selected = top_entropy_tokens(entropies, torch.ones(2, 5), ints(2, 3))
    assert selected.tolist() == [[False, True, True, False, False], [True, True, True, False, False]]


def test_the_sign_of_the_shaping_depends_on_correctness():
    shaped = ces_advantages(
        advantages=torch.tensor([1.0, -1.0]),
        entropies=torch.tensor([[2.0, 0.5], [2.0, 0.5]]),
        selected=torch.tensor([[True, False], [True, False]]),
        correct=bools(1, 0),
        beta_correct=0.4,
        beta_incorrect=0.5,
    )
    assert shaped.tolist() == [[pytest.approx(0.2), 1.0], [0.0, -1.0]]  # 1 - 0.4 * 2 and -1 + 0.5 * 2


def test_gradient_flows_to_selected_entropies_only():
    entropies = torch.tensor([[2.0, 0.5], [2.0, 0.5]], requires_grad=True)
    selected = torch.tensor([[True, False], [False, True]])
    ces_advantages(torch.zeros(2), entropies, selected, bools(1, 0), 0.4, 0.3).sum().backward()
    assert entropies.grad.tolist() == [[pytest.approx(-0.4), 0.0], [0.0, pytest.approx(0.3)]]


def test_the_cap_limits_shaping_and_gradients_of_incorrect_completions():
    entropies = torch.tensor([[2.0, 1.0, 0.5]] * 3, requires_grad=True)
    selected = torch.ones(3, 3, dtype=torch.bool)
    shaped = ces_advantages(torch.tensor([1.0, -1.0, 0.0]), entropies, selected, bools(1, 0, 0), -0.4, 0.5, 2.0)
    # Incorrect: at most |A| / 2, here 0.5, which equals 0.5 * 1 bit. If A is 0, the cap is 0. Correct: no cap.
    expected = torch.tensor([[1.8, 1.4, 1.2], [-0.5, -0.5, -0.75], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(shaped.detach(), expected)
    shaped.sum().backward()
    torch.testing.assert_close(entropies.grad, torch.tensor([[0.4, 0.4, 0.4], [0.0, 0.0, 0.5], [0.0, 0.0, 0.0]]))


def test_the_cap_on_correct_completions_limits_the_decrease():
    # kappa = 2. A = 1: 1 - min(0.4 H, 0.5). A = 0 or below: the bound is 0. Incorrect: no cap.
    entropies = torch.tensor([[2.0, 1.25, 0.5]] * 4, requires_grad=True)
    selected = torch.ones(4, 3, dtype=torch.bool)
    shaped = ces_advantages(
        torch.tensor([1.0, 0.0, -1.0, -1.0]), entropies, selected, bools(1, 1, 1, 0), 0.4, 0.4, cap_correct=2.0
    )
    expected = torch.tensor([[0.5, 0.5, 0.8], [0.0] * 3, [-1.0] * 3, [-0.2, -0.5, -0.8]])
    torch.testing.assert_close(shaped.detach(), expected)
    shaped.sum().backward()
    expected = torch.tensor([[0.0, 0.0, -0.4], [0.0] * 3, [0.0] * 3, [0.4] * 3])
    torch.testing.assert_close(entropies.grad, expected)


def test_capped_shaping_never_moves_an_advantage_across_0():
    # This includes incorrect completions with A > 0 (from a format reward) and correct completions with A < 0.
    generator = torch.Generator().manual_seed(0)
    advantages = 3 * torch.randn(64, generator=generator)
    entropies, selected = 9 * torch.rand(64, 17, generator=generator), torch.rand(64, 17, generator=generator) < 0.5
    correct = torch.rand(64, generator=generator) < 0.5
    shaped = ces_advantages(advantages, entropies, selected, correct, 0.7, 0.7, cap_incorrect=1.0, cap_correct=1.0)
    highest, lowest = advantages.clamp(min=0).unsqueeze(1), advantages.clamp(max=0).unsqueeze(1)
    assert (shaped[~correct] <= highest[~correct]).all()
    assert (shaped[correct] >= lowest[correct]).all()
    assert (shaped[~correct] > advantages[~correct].unsqueeze(1)).any()


def micro_batch(**changes):
    """Return two completions of one group with four tokens each; the first is correct."""
    return {
        "advantages": torch.tensor([0.7, -0.7]),
        "correct": bools(1, 0),
        "scored": bools(1, 1),
        "group_correct": ints(1, 1),
        "group_scored": ints(2, 2),
        **changes,
    }


NATS = math.log(2) * torch.tensor([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]])  # 1 to 4 bits


def test_algorithm_1_matches_values_computed_by_hand():
    # tau 0.5, b = 1/2: k = floor(4 * 0.5 * 0.5) = 1: the 4-bit token. 0.7 - 0.1 * 4 = 0.3 and -0.7 + 0.2 * 4 = 0.1
    shaped = conditional_entropy_shaping(
        micro_batch(), NATS, torch.ones(2, 4), tau=0.5, beta_correct=0.1, beta_incorrect=0.2
    )
    assert shaped.selected.int().tolist() == [[0, 0, 0, 1], [1, 0, 0, 0]]
    expected = torch.tensor([[0.7, 0.7, 0.7, 0.3], [0.1, -0.7, -0.7, -0.7]])
    torch.testing.assert_close(shaped.advantages, expected)


@pytest.mark.parametrize(("betas", "selected"), [((0.1, 0.0), [[3], []]), ((0.0, 0.2), [[], [0]])])
def test_no_token_is_selected_where_beta_is_0(betas, selected):
    names = dict(zip(("beta_correct", "beta_incorrect"), betas, strict=True))
    shaped = conditional_entropy_shaping(micro_batch(), NATS, torch.ones(2, 4), tau=0.5, **names)
    assert [row.nonzero().flatten().tolist() for row in shaped.selected] == selected


def test_without_dynamic_multiplier_k_depends_only_on_length_and_tau():
    # k = floor(4 * 0.5) = 2
    shaped = conditional_entropy_shaping(
        micro_batch(),
        NATS,
        torch.ones(2, 4),
        tau=0.5,
        beta_correct=0.1,
        beta_incorrect=0.2,
        dynamic_multiplier=False,
    )
    assert shaped.selected.int().tolist() == [[0, 0, 1, 1], [1, 1, 0, 0]]


def test_without_entropy_gradient_advantages_are_equal_but_detached():
    nats = NATS.clone().requires_grad_()
    options = {"tau": 0.5, "beta_correct": 0.1, "beta_incorrect": 0.2}
    attached = conditional_entropy_shaping(micro_batch(), nats, torch.ones(2, 4), **options)
    detached = conditional_entropy_shaping(micro_batch(), nats, torch.ones(2, 4), entropy_gradient=False, **options)
    assert torch.equal(attached.advantages, detached.advantages)
    assert attached.advantages.requires_grad
    assert not detached.advantages.requires_grad


def test_unscored_and_masked_completions_are_not_shaped():
    batch = micro_batch(scored=bools(1, 0))  # b of the second completion is 1/2
    # The first completion is truncated and masked; the second is unscored.
    mask = torch.tensor([[0, 0, 0, 0], [1, 1, 1, 1]])
    shaped = conditional_entropy_shaping(batch, NATS, mask, tau=1.0, beta_correct=0.1, beta_incorrect=0.2)
    assert not shaped.selected.any()
    assert torch.equal(shaped.advantages, batch["advantages"].unsqueeze(1).expand(2, 4))


def test_tool_output_is_neither_counted_nor_selected():
    # In the first row, the policy generated 2 of 4 tokens, so k = floor(2 * 1 * 1/2) = 1: the higher-entropy token.
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    shaped = conditional_entropy_shaping(micro_batch(), NATS, mask, tau=1.0, beta_correct=0.1, beta_incorrect=0.2)
    assert shaped.selected.int().tolist() == [[0, 1, 0, 0], [1, 1, 0, 0]]


def test_entropy_advantage_is_capped_and_never_flips_the_sign():
    # alpha 0.4 per nat, kappa 2. A = 1: min(0.4 * 0.5, 0.5) = 0.2 and min(0.4 * 5, 0.5) = 0.5. A = -1: -0.8, -0.5
    nats = torch.tensor([[0.5, 5.0], [0.5, 5.0], [0.5, 5.0]])
    batch = {"advantages": torch.tensor([1.0, -1.0, 0.0, 1.0])}
    nats = torch.cat([nats, torch.tensor([[0.5, 5.0]])])  # the second token of the last row is tool output
    mask = torch.tensor([[1, 1], [1, 1], [1, 1], [1, 0]])
    shaped = entropy_advantage(batch, nats, mask, alpha=0.4, kappa=2.0)
    torch.testing.assert_close(shaped.advantages, torch.tensor([[1.2, 1.5], [-0.8, -0.5], [0.0, 0.0], [1.2, 1.0]]))


def test_entropy_advantage_keeps_every_sign_and_grows_with_the_entropy():
    # Check bounds instead of the formula: A' is between A and A + |A| / kappa.
    generator = torch.Generator().manual_seed(0)
    for kappa in (1.001, 2.0, 50.0):
        advantages = torch.randn(64, generator=generator, dtype=torch.float64) * 3
        advantages[:4] = 0.0
        nats = 20 * torch.rand(64, 33, generator=generator, dtype=torch.float64) ** 4
        shaped = entropy_advantage(
            {"advantages": advantages}, nats, torch.ones(64, 33), alpha=7.0, kappa=kappa
        ).advantages
        assert torch.equal(shaped.sign(), advantages.sign().unsqueeze(1).expand(64, 33))
        increase = shaped - advantages.unsqueeze(1)
        assert (increase >= 0).all()
        assert (increase <= advantages.abs().unsqueeze(1) / kappa + 1e-12).all()
        order = nats.argsort(dim=1)
        assert (increase.gather(1, order).diff(dim=1) >= 0).all()


def test_entropy_advantage_is_detached():
    nats = torch.ones(1, 2, requires_grad=True)
    shaped = entropy_advantage({"advantages": torch.ones(1)}, nats, torch.ones(1, 2), alpha=0.4, kappa=2.0)
    assert not shaped.advantages.requires_grad


@pytest.mark.parametrize(
    ("correct", "incorrect", "parts"),
    [
        (-0.4, -0.4, ["are negative", "raise the entropy of correct completions and lower", "2604.04894"]),
        (-0.4, 0.0, ["`ces_beta_correct` is -0.4", "of correct completions; CES lowers"]),
        (-0.4, 0.4, ["`ces_beta_correct` is -0.4: it raises the entropy of correct completions; CES lowers"]),
        (0.0, -0.4, ["`ces_beta_incorrect` is -0.4", "of wrong completions; CES raises"]),
        (0.4, -0.4, ["`ces_beta_incorrect` is -0.4: it lowers the entropy of wrong completions; CES raises"]),
        (0.0, 0.0, []),
        (0.4, 0.4, []),
    ],
)
def test_negative_betas_cause_a_warning(correct, incorrect, parts):
    warning = negative_beta_warning(correct, incorrect)
    assert [part for part in parts if part not in warning] == []
    assert bool(warning) == bool(parts)


@pytest.mark.parametrize(
    ("length", "tau"), [(3983, 0.01), (200, 0.01), (70, 0.0286), (40, 0.05), (25, 0.05), (2, 0.05), (0, 0.05)]
)
def test_automatic_tau_selects_two_tokens_unless_clamped(length, tau):
    assert automatic_tau(length) == tau


@pytest.mark.parametrize(
    ("tau", "longest", "warning"),
    [
        (0.01, 99, "at most 99 tokens .* `ces_tau` 0.01 .* Set `ces_tau` to `auto`.$"),
        (0.01, 100, "^$"),
        (0.0, 9, "^$"),
    ],
)
def test_completions_too_short_for_tau_cause_a_warning(tau, longest, warning):
    assert re.search(warning, unshaped_warning(tau, longest))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        # One of the groups is correct in 1 of 5, the other in 3 of 5 completions. b is 0.2 once, 0.8 four times, 0.6
        # three times and 0.4 twice, and length * b 100 times as much.
        ({"tau": 0.01}, [" 0 of the first rollout's 10 completions", "`ces_tau: 0.0167`"]),
        ({"tau": 0.0125}, []),  # 100 tokens with b = 0.8 are enough
        ({"tau": 0.01, "dynamic_multiplier": False}, []),
        ({"tau": 0.0166, "beta_incorrect": 0.0}, [" 0 of the first rollout's 4 correct completions", ": 0.0167`"]),
        ({"tau": 0.0167, "beta_incorrect": 0.0}, []),  # 100 tokens with b = 0.6
        ({"tau": 0.001, "beta_correct": 0.0}, [" 0 of the first rollout's 6 incorrect completions", ": 0.0125`"]),
        ({"tau": 0.001, "beta_correct": 0.0, "beta_incorrect": 0.0}, []),
        ({"tau": 0.0}, []),
    ],
)
def test_a_rollout_in_which_few_completions_are_shaped_causes_a_warning(changes, parts):
    correct = torch.tensor([1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0]).bool()
    facts = {
        "correct": correct,
        "scored": torch.tensor([1] * 10 + [0] * 2).bool(),
        "group_correct": ints(*[1] * 5, *[3] * 5, 0, 0),
        "group_scored": ints(*[5] * 10, 0, 0),
    }
    lengths = ints(*[100] * 10, 10**6, 10**6)  # unscored completions do not count
    settings = {"tau": 0.01, "beta_correct": 0.4, "beta_incorrect": 0.4, "dynamic_multiplier": True}
    warning = unshaped_rollout_warning(facts, lengths, settings | changes)
    assert [part for part in parts if part not in warning] == []
    assert bool(warning) == bool(parts)


@pytest.mark.parametrize(
    ("number", "length", "has_warning"),
    [(0, 10, True), (0, 20, True), (0, 21, True), (1, 90, True), (2, 30, False), (20, 10, False)],
)
def test_the_rollout_warning_starts_below_a_tenth_and_its_tau_shapes_half_of_the_completions(
    number, length, has_warning
):
    facts = {"correct": torch.ones(20).bool(), "scored": torch.ones(20).bool()}
    facts |= {"group_correct": ints(*[4] * 20), "group_scored": ints(*[4] * 20)}
    lengths = ints(*[4000] * number, *[length] * (20 - number))
    settings = {"tau": 0.01, "beta_correct": 0.4, "beta_incorrect": 0.4, "dynamic_multiplier": True}
    warning = unshaped_rollout_warning(facts, lengths, settings)
    assert (f" {number} of" in warning) == bool(warning) == has_warning
    assert ("can diverge" in warning) == (has_warning and length <= 20)  # one token in 20 is a tau of 0.05
    assert "can diverge" not in unshaped_rollout_warning(facts, lengths, settings | {"beta_incorrect": -0.4})
    if has_warning:
        tau = float(re.search("`ces_tau: (.+?)`", warning)[1])
        assert tau > settings["tau"]
        assert (selection_size(lengths, tau) > 0).sum() >= 10


@pytest.mark.parametrize(
    ("tau", "longest", "is_too_short"),
    [(0.01, 39, True), ("auto", 19, True), ("auto", 20, False), (0.01, None, False), ("auto", None, False)],
)
def test_the_warning_for_completions_under_40_tokens_names_the_tau_for_two_tokens(tau, longest, is_too_short):
    warning = unshaped_warning(tau, longest)
    advice = "Under 40 tokens, shaping two tokens needs a `ces_tau` above 0.05, with which a weak model can diverge."
    assert warning.endswith(advice) == is_too_short
    assert ("Set `ces_tau` to `auto`." in warning) == (longest == 39)
    assert bool(warning) == is_too_short


def test_earlier_tokens_win_ties_at_the_threshold_in_every_row():
    # Compare with Python's stable sort. With five values in 300 positions, nearly every threshold is a tie.
    generator = torch.Generator().manual_seed(1)
    entropies = torch.randint(0, 5, (64, 300), generator=generator).float()
    mask = torch.rand(64, 300, generator=generator) < 0.7
    sizes = torch.randint(0, 101, (64,), generator=generator)
    expected = torch.zeros_like(mask)
    for row, size in enumerate(sizes.tolist()):
        places = [place for place in range(300) if mask[row, place]]
        expected[row, sorted(places, key=lambda place: -entropies[row, place].item())[:size]] = True
    assert torch.equal(top_entropy_tokens(entropies, mask.long(), sizes, largest=100), expected)
    assert torch.equal(top_entropy_tokens(entropies, mask.long(), sizes), expected)
