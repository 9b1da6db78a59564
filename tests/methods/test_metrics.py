"""Compare the logged metrics of a micro-batch with values computed by hand."""

import math

import pytest
import torch

from trl_ces.methods.ces import conditional_entropy_shaping
from trl_ces.methods.entropy_advantage import entropy_advantage
from trl_ces.methods.metrics import SUMS, ces_metrics, ces_sums, selection_metrics, selection_sums
from trl_ces.methods.rule import ShapedAdvantages


def hand_made_micro_batch():
    batch = {
        "advantages": torch.tensor([1.0, -1.0, 2.0]),
        "correct": torch.tensor([True, False, False]),
        "scored": torch.tensor([True, True, False]),
        "group_correct": torch.tensor([1, 1, 1]),
        "group_scored": torch.tensor([2, 2, 2]),
        "equal_rewards": torch.tensor([False, True, True]),
        "truncated": torch.tensor([False, True, False]),
    }
    bits = torch.tensor([[5.0, 1.0], [2.0, 3.0], [0.0, 0.0]])
    mask = torch.tensor([[1, 1], [1, 1], [1, 0]])
    selected = torch.tensor([[True, False], [True, True], [False, False]])
    shaped = torch.tensor([[-1.0, 1.0], [-0.5, 0.5], [2.0, -9.0]])  # the last token is outside the mask
    return batch, bits * math.log(2), mask, ShapedAdvantages(shaped, selected)


def test_metrics_match_values_computed_by_hand():
    metrics = ces_metrics(ces_sums(*hand_made_micro_batch()).tolist())
    assert metrics == {
        "ces/group_accuracy": pytest.approx(0.5),  # over the two scored completions
        "ces/selected_tokens": pytest.approx(1.0),  # (1 + 2 + 0) / 3
        "ces/zero_selected_share": pytest.approx(1 / 3),
        "ces/selected_entropy_correct": pytest.approx(5.0),
        "ces/selected_entropy_incorrect": pytest.approx(2.5),
        "ces/shaping_to_advantage": pytest.approx((2 + 0.5 + 1.5) / 6),  # |A| is 1 at four tokens and 2 at one
        "ces/sign_flip_share": pytest.approx(2 / 3),  # two of three selected tokens: 1 -> -1 and -1 -> 0.5
        "ces/shaped_share_equal_reward_groups": pytest.approx(2 / 3),
        "ces/shaped_share_truncated": pytest.approx(2 / 3),
    }


def test_micro_batches_are_weighted_by_their_tokens():
    sums = ces_sums(*hand_made_micro_batch())
    batch, nats, mask, shaped = hand_made_micro_batch()
    unshaped = ces_sums(batch, nats, mask, ShapedAdvantages(shaped.advantages, torch.zeros_like(shaped.selected)))
    metrics = ces_metrics((sums + unshaped).tolist())
    assert metrics["ces/selected_tokens"] == pytest.approx(0.5)
    assert metrics["ces/selected_entropy_correct"] == pytest.approx(5.0)


def test_a_metric_with_denominator_0_is_nan():
    metrics = ces_metrics([0.0] * len(SUMS))
    assert all(math.isnan(value) for value in metrics.values())


def test_other_rules_log_the_share_of_selected_tokens():
    *_, mask, shaped = hand_made_micro_batch()
    assert selection_metrics("my_rule", selection_sums(mask, shaped).tolist()) == {"my_rule/selected_share": 3 / 5}
    assert math.isnan(selection_metrics("my_rule", [0.0, 0.0])["my_rule/selected_share"])


def test_shaping_and_sums_do_not_read_values_on_the_host():
    """The meta device has no values: an op that reads a value or has a value-dependent shape raises an error."""
    batch, nats, mask, _ = hand_made_micro_batch()
    batch = {name: value.to("meta") for name, value in batch.items()}
    nats, mask = nats.to("meta"), mask.to("meta")
    options = {"tau": 0.3, "beta_correct": 0.4, "beta_incorrect": 0.4}
    shaped = conditional_entropy_shaping(batch, nats, mask, **options)
    assert ces_sums(batch, nats, mask, shaped).shape == (len(SUMS),)
    assert entropy_advantage(batch, nats, mask, alpha=0.4, kappa=2.0).advantages.shape == (3, 2)
    with pytest.raises(NotImplementedError, match="meta"):
        nats[mask == 1].sum()  # an op that this test would detect
