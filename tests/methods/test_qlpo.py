"""QLPO's selection against a loop over one group at a time, and what its draws depend on."""

import math
import random
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from length_rules import groups_of

from trl_ces.methods.qlpo import qlpo_draws, qlpo_rejected


def kept_by_hand(rewards, lengths, draws, keep, preferred):
    """Places of those kept; rewards 1, 0 or None."""
    known = [place for place, reward in enumerate(rewards) if reward is not None]
    right = [place for place in known if rewards[place] == 1]
    wrong = [place for place in known if rewards[place] == 0]
    keep = min(keep, len(known))
    of_right = math.floor(Fraction(keep * len(right), len(known)) + Fraction(1, 2)) if known else 0
    kept = []
    for members, count, sign in ((right, of_right, 1), (wrong, keep - of_right, -1)):
        members = sorted(members, key=lambda place: (sign * lengths[place], place))
        middle = math.ceil(len(members) / 2)
        halves = [sorted(half, key=lambda place: draws[place]) for half in (members[:middle], members[middle:])]
        first = min(math.ceil(Fraction(str(preferred)) * count), middle)
        rest = min(count - first, len(halves[1]))
        kept += halves[0][: count - rest] + halves[1][:rest]
    return sorted(kept)


def test_each_group_keeps_those_that_a_loop_keeps():
    generator = random.Random(0)
    for _ in range(400):
        size, keep = generator.randint(1, 16), generator.randint(1, 16)
        preferred = generator.choice([0.5, 0.75, 0.7, 1.0])
        kinds = generator.choice([[1.0, 0.0], [1.0, 0.0, None], [1.0], [0.0], [None], [1.0, 1.0, 1.0, 0.0]])
        rows = [
            ([generator.choice(kinds) for _ in range(size)], [generator.randint(1, 12) for _ in range(size)])
            for _ in range(3)
        ]
        draws = [[generator.random() for _ in range(size)] for _ in rows]
        rejected = qlpo_rejected(groups_of(rows), torch.tensor(draws, dtype=torch.float64), keep, preferred)
        found = [[place for place in range(size) if not row[place]] for row in rejected.tolist()]
        assert found == [kept_by_hand(*row, own, keep, preferred) for row, own in zip(rows, draws, strict=True)]


def test_eight_of_sixteen_are_three_quarters_short_correct_and_long_wrong():
    groups = groups_of([([1.0] * 8 + [0.0] * 8, [*range(1, 9), *range(1, 9)])])
    kept = ~qlpo_rejected(groups, torch.rand(1, 16), 8, 0.75)[0]
    assert [int(kept[first : first + 4].sum()) for first in (0, 4, 8, 12)] == [3, 1, 1, 3]


def test_every_completion_of_a_half_is_drawn_alike():
    groups = groups_of([([1.0] * 8 + [0.0] * 8, [*range(1, 9), *range(1, 9)])])
    counts = torch.zeros(16)
    for seed in range(2000):
        counts += ~qlpo_rejected(groups, qlpo_draws(groups, seed), 8, 0.75)[0]
    expected = 2000 * torch.tensor([0.75] * 4 + [0.25] * 8 + [0.75] * 4)
    assert (counts - expected).abs().max() < 100  # five standard deviations


@pytest.mark.parametrize("changed", ["seed", "prompts", "lengths"])
def test_draws_are_those_of_the_rollout(changed):
    groups, seed = groups_of([([1.0, 0.0], [5, 6]), ([1.0, 1.0], [7, 8])]), 3
    first = qlpo_draws(groups, seed)
    torch.rand(1)  # another state of the global generator
    assert torch.equal(qlpo_draws(groups, seed), first)
    if changed == "seed":
        seed = 4
    else:
        groups = replace(groups, **{changed: getattr(groups, changed) + 1})
    assert not torch.equal(qlpo_draws(groups, seed), first)
