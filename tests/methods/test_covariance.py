"""Clip-Cov and KL-Cov against numbers worked out by hand in the comments."""

import math
from collections import Counter

import pytest
import torch

from trl_ces.methods.clip_cov import clip_cov
from trl_ces.methods.covariance import share_of_tokens, token_covariances
from trl_ces.methods.kl_cov import kl_cov

NONE = torch.zeros(2, 3)  # entropies: neither rule reads them
# Two completions of 3 and 2 tokens. mean logp = (-1 - 2 - 3 - 4 - 5) / 5 = -3, mean A = (3 * 2 - 2 * 3) / 5 = 0.
# cov: (2, 1, 0) * 2 and (-1, -2) * -3. The last place is padding, with whatever a model makes of it.
LOGPS = torch.tensor([[-1.0, -2.0, -3.0], [-4.0, -5.0, -900.0]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])
ADVANTAGES = torch.tensor([2.0, -3.0])
COVARIANCES = [4.0, 2.0, 0.0, 3.0, 6.0]
RANGE = {"epsilon_low": 0.2, "epsilon_high": 0.28}


def micro_batch(**changes):
    return {"advantages": ADVANTAGES, "logps": LOGPS, "old_logps": LOGPS, **changes}


def places(selected):
    return [tuple(place) for place in selected.nonzero().tolist()]


def test_covariances_are_centred_on_the_means_over_the_tokens_of_the_mask():
    assert token_covariances(ADVANTAGES, LOGPS, MASK)[MASK == 1].tolist() == COVARIANCES


def test_means_weigh_tokens_not_completions():
    # A completion of 1 and one of 3 tokens: mean A = (4 - 3 * 0) / 4 = 1, mean logp = -8 / 4 = -2.
    logps = torch.tensor([[-8.0, -7.0, -7.0], [0.0, 0.0, 0.0]])
    mask = torch.tensor([[1, 0, 0], [1, 1, 1]])
    found = token_covariances(torch.tensor([4.0, 0.0]), logps, mask)
    assert found.tolist() == [[-18.0, -15.0, -15.0], [-2.0, -2.0, -2.0]]


def test_covariances_carry_no_gradient_and_do_not_read_padding():
    logps = LOGPS.clone().requires_grad_()
    assert not token_covariances(ADVANTAGES, logps, MASK).requires_grad
    logps = torch.where(MASK.bool(), LOGPS, math.nan)
    assert token_covariances(ADVANTAGES, logps, MASK)[MASK == 1].tolist() == COVARIANCES


def test_without_a_token_in_the_loss_nothing_is_chosen():
    nothing = torch.zeros_like(MASK)
    for rule, settings in ((clip_cov, {"low": -9.0, "high": 9.0, **RANGE}), (kl_cov, {"coef": 1.0})):
        shaped = rule(micro_batch(), NONE, nothing, ratio=0.5, **settings)
        assert not shaped.selected.any()
        assert torch.equal(shaped.advantages, ADVANTAGES.unsqueeze(1).expand(2, 3))
    assert token_covariances(ADVANTAGES, LOGPS, nothing).isfinite().all()


def test_a_single_token_has_no_covariance_and_is_chosen():
    one = {"advantages": torch.tensor([2.0]), "logps": torch.tensor([[-1.0]]), "old_logps": torch.tensor([[-1.5]])}
    mask = torch.ones(1, 1)
    assert token_covariances(one["advantages"], one["logps"], mask).tolist() == [[0.0]]
    assert places(kl_cov(one, mask, mask, ratio=0.1, coef=1.0).selected) == [(0, 0)]
    assert places(clip_cov(one, mask, mask, ratio=0.1, low=-1.0, high=1.0, epsilon_low=0.2, epsilon_high=1.0).selected)


@pytest.mark.parametrize(
    ("share", "count"),
    [(0.1, 1), (0.2, 1), (0.399999999, 1), (0.4, 2), (0.6, 3), (0.8, 4), (1.0, 5)],  # floor(5 share), at least 1
)
def test_the_share_is_an_exact_floor_and_at_least_one(share, count):
    chosen = share_of_tokens(torch.arange(6.0).view(2, 3), MASK.bool(), MASK, share)
    assert chosen.sum() == count
    assert places(chosen) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)][-count:]


def test_n_counts_the_tokens_of_the_mask_and_ties_go_to_the_earlier():
    mask = torch.ones(1, 10, dtype=torch.int64)
    candidates = torch.tensor([[False] * 5 + [True] * 5])
    assert places(share_of_tokens(torch.zeros(1, 10), candidates, mask, 0.3)) == [(0, 5), (0, 6), (0, 7)]
    assert share_of_tokens(torch.zeros(1, 10), candidates, mask, 0.9).sum() == 5  # no more than there are


def test_clip_cov_takes_the_gradient_from_the_tokens_between_the_bounds():
    # cov (4, 2, 0) and (3, 6): above 2 and below 6 lie the first of either.
    shaped = clip_cov(micro_batch(), NONE, MASK, ratio=1.0, low=2.0, high=6.0, **RANGE)
    assert places(shaped.selected) == [(0, 0), (1, 0)]
    assert shaped.advantages.tolist() == [[0.0, 2.0, 2.0], [0.0, -3.0, -3.0]]


@pytest.mark.parametrize("scale", [1.0, 0.25])  # of the advantages, and thus of the covariances
def test_clip_cov_leaves_to_the_clip_what_is_clipped(scale):
    def drawn(first_ratio, fourth_ratio, **changes):
        old = LOGPS - torch.tensor([[math.log(first_ratio), 0.0, 0.0], [math.log(fourth_ratio), 0.0, 0.0]])
        batch = micro_batch(old_logps=old, advantages=scale * ADVANTAGES)
        options = {"ratio": 1.0, "low": 2.0 * scale, "high": 6.0 * scale, **RANGE, **changes}
        return places(clip_cov(batch, NONE, MASK, **options).selected)

    # Both candidates are beyond the range: 1.3 > 1 + 0.28 with A > 0, 0.7 < 1 - 0.2 with A < 0.
    assert drawn(1.3, 0.7) == []
    assert drawn(1.3, 0.7, epsilon_high=0.31) == [(0, 0)]
    assert drawn(1.3, 0.7, epsilon_low=0.31) == [(1, 0)]
    assert drawn(0.7, 1.3) == [(0, 0), (1, 0)]  # on these sides of 1 the clip does not act
    assert drawn(1.0, 1.0, epsilon_low=0.0, epsilon_high=0.0) == [(0, 0), (1, 0)]  # at its border neither


@pytest.mark.parametrize("ratio", [1.3, 0.7])
def test_where_the_advantage_is_zero_nothing_is_clipped(ratio):
    # mean A = -3 * 2 / 5 = -1.2: cov (2, 1, 0) * 1.2 and (-1, -2) * -1.8, of which 2.4 is between 2 and 3.
    old = LOGPS - torch.tensor([[math.log(ratio), 0.0, 0.0], [0.0, 0.0, 0.0]])
    batch = micro_batch(advantages=torch.tensor([0.0, -3.0]), old_logps=old)
    assert places(clip_cov(batch, NONE, MASK, ratio=1.0, low=2.0, high=3.0, **RANGE).selected) == [(0, 0)]


def test_clip_cov_draws_each_candidate_equally_often_and_the_same_from_one_seed():
    def drawn(seed):
        torch.manual_seed(seed)
        return places(clip_cov(micro_batch(), NONE, MASK, ratio=0.4, low=1.0, high=9.0, **RANGE).selected)

    # 4 candidates, floor(0.4 * 5) = 2 drawn: each pair of six with probability 1/6. 600 draws: 100 +- 9.
    counts = Counter(tuple(drawn(seed)) for seed in range(600))
    assert len(counts) == 6
    assert all(60 < count < 140 for count in counts.values())
    assert [drawn(seed) for seed in range(5)] == [drawn(seed) for seed in range(5)]


def test_kl_cov_prices_the_distance_from_the_old_policy_where_covariance_is_highest():
    # cov (4, 2, 0) and (3, 6); floor(0.4 * 5) = 2: the first token and the fifth. Ratios e^0.5 and e^-0.25, coef 2:
    # 2 - 2 * 0.5 / e^0.5 and -3 - 2 * 0.25 / e^-0.25.
    old = LOGPS - torch.tensor([[0.5, 0.7, 0.7], [0.7, -0.25, -800.0]])
    shaped = kl_cov(micro_batch(old_logps=old), NONE, MASK, ratio=0.4, coef=2.0)
    assert places(shaped.selected) == [(0, 0), (1, 1)]
    expected = [[2 - 1 / math.exp(0.5), 2.0, 2.0], [-3.0, -3 - 0.5 / math.exp(-0.25), -3.0]]
    torch.testing.assert_close(shaped.advantages, torch.tensor(expected))


def test_kl_cov_times_the_ratio_has_the_gradient_of_ratio_a_minus_the_penalty():
    # d/dlogp [ratio A - coef |x|] = ratio A - coef sign(x), x = logp - old: 2 e^0.5 - 2 and -3 e^-0.25 + 2.
    logps = LOGPS.clone().requires_grad_()
    old = LOGPS - torch.tensor([[0.5, 0.0, 0.0], [0.0, -0.25, -800.0]])
    batch = micro_batch(logps=logps, old_logps=old)
    shaped = kl_cov(batch, NONE, MASK, ratio=0.4, coef=2.0)
    (torch.where(MASK.bool(), torch.exp(logps - old) * shaped.advantages, 0.0)).sum().backward()
    expected = [[2 * math.exp(0.5) - 2, 2.0, 2.0], [-3.0, -3 * math.exp(-0.25) + 2, 0.0]]
    torch.testing.assert_close(logps.grad, torch.tensor(expected))


def test_kl_cov_of_the_policy_that_sampled_is_no_penalty_and_has_no_gradient():
    logps = LOGPS.clone().requires_grad_()
    shaped = kl_cov(micro_batch(logps=logps, old_logps=LOGPS), NONE, MASK, ratio=1.0, coef=1.0)
    assert torch.equal(shaped.advantages, ADVANTAGES.unsqueeze(1).expand(2, 3))
    shaped.advantages.sum().backward()
    assert not logps.grad.any()


def test_a_log_ratio_whose_inverse_overflows_has_no_penalty_and_the_last_before_it_the_whole():
    # d/dx [coef |x|] = -2 for x < 0, and of -ratio A nearly nothing. e^89 is no float32, and 89 e^84 is none either.
    logps = torch.tensor([[-64.0, -64.1, -89.0, -84.0, -500.0]]).requires_grad_()
    batch = {"advantages": torch.tensor([2.0]), "logps": logps, "old_logps": torch.zeros(1, 5)}
    shaped = kl_cov(batch, NONE, torch.ones(1, 5), ratio=1.0, coef=2.0)
    losses = -torch.exp(logps) * shaped.advantages
    torch.testing.assert_close(losses, torch.tensor([[128.0, 0.0, 0.0, 0.0, 0.0]]), rtol=1e-4, atol=1e-9)
    losses.sum().backward()
    torch.testing.assert_close(logps.grad, torch.tensor([[-2.0, 0.0, 0.0, 0.0, 0.0]]), rtol=1e-4, atol=1e-9)
    assert places(shaped.selected) == [(0, 0)]


def test_rounding_makes_no_covariance_of_one_advantage():
    # The sum of 0.866 over the tokens, by their number, is rarely 0.866. A completion without a token has no say.
    generator = torch.Generator().manual_seed(0)
    for length in range(280, 320):
        logps = -5 * torch.rand(3, length, generator=generator)
        mask = torch.ones(3, length)
        mask[2] = 0
        advantages = torch.tensor([0.866, 0.866, -0.5])
        assert not token_covariances(advantages, logps, mask)[:2].any()
        batch = {"advantages": advantages, "logps": logps, "old_logps": logps - 0.1}
        assert places(kl_cov(batch, NONE, mask, ratio=0.002, coef=1.0).selected) == [(0, 0)]


@pytest.mark.parametrize("delta", [math.inf, 4.0, 1.1, 0.5])  # TRL recommends above 1 + epsilon; it takes any
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_what_clip_cov_draws_is_where_trls_loss_has_a_gradient(delta, advantage):
    ratios = [0.3, 0.6, 0.79, 0.81, 0.99, 1.05, 1.2, 1.27, 1.29, 3.9, 4.1, 50.0]
    logps = torch.tensor([[math.log(ratio) for ratio in ratios], [0.0] * len(ratios)]).requires_grad_()
    importance = torch.exp(logps)
    clipped = torch.clamp(importance, 1 - 0.2, 1 + 0.28)
    # From GRPOTrainer._compute_loss, with the two-sided clip.
    loss = -torch.min(torch.clamp(importance, max=delta) * advantage, clipped * advantage)
    loss[0].sum().backward()
    batch = {"advantages": torch.tensor([advantage, 0.0]), "logps": logps, "old_logps": torch.zeros(2, len(ratios))}
    mask = torch.ones(2, len(ratios))
    shaped = clip_cov(batch, NONE, mask, ratio=1.0, low=-9.0, high=9.0, **RANGE, delta=delta)
    assert shaped.selected[0].tolist() == (logps.grad[0] != 0).tolist()


def test_neither_rule_reads_a_value_on_the_host():
    """The meta device has no values: any op that reads one, or whose shape depends on one, raises."""
    batch = {name: value.to("meta") for name, value in micro_batch().items()}
    entropies, mask = NONE.to("meta"), MASK.to("meta")
    assert clip_cov(batch, entropies, mask, ratio=0.2, low=1.0, high=5.0, **RANGE).advantages.shape == (2, 3)
    assert kl_cov(batch, entropies, mask, ratio=0.2, coef=1.0).advantages.shape == (2, 3)
