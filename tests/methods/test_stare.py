"""STARE by hand: which tokens of a micro-batch are amplified, and when."""

import pytest
import torch

from trl_ces.methods.stare import control, rule, stare

# Tokens of A > 0, by surprisal: 1.2 (4), 3.1 (3), 1.1 (2), 3.2 (1), 1.3 (0.5). The last place is padding.
LOGPS = torch.tensor([[-2.0, -4.0, -0.5], [-9.0, -9.0, -900.0], [-3.0, -1.0, -900.0]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 0]])
BATCH = {"advantages": torch.tensor([2.0, -3.0, 1.0]), "logps": LOGPS}
PLAIN = [[2.0, 2.0, 2.0], [-3.0, -3.0, -3.0], [1.0, 1.0, 1.0]]


def shaped(ratio=0.4, state=None, batch=BATCH, mask=MASK):
    found = stare(batch, LOGPS, mask, ratio=ratio, weight=1.5, target=0.3, state={} if state is None else state)
    return found.advantages.tolist(), found.selected.nonzero().tolist()


@pytest.mark.parametrize(
    ("ratio", "places"),
    [
        (0.000000001, [[0, 1]]),  # rounded up
        (0.2, [[0, 1]]),
        (0.21, [[0, 1], [2, 0]]),
        (0.6, [[0, 0], [0, 1], [2, 0]]),
        (1.0, [[0, 0], [0, 1], [0, 2], [2, 0], [2, 1]]),
    ],
)
def test_the_most_surprising_tokens_of_good_completions_are_amplified(ratio, places):
    advantages, selected = shaped(ratio)
    assert selected == places
    expected = [[1.5 * value if [row, place] in places else value for place, value in enumerate(values)]
                for row, values in enumerate(PLAIN)]  # fmt: skip
    assert advantages == expected


@pytest.mark.parametrize(("entropy", "opened"), [(0.29, True), (0.3, False), (0.31, False), (None, True)])
def test_the_gate_is_open_below_the_target_and_until_an_entropy_is_known(entropy, opened):
    state = {}
    if entropy is not None:
        control(state, 9.0, ratio=0.4, weight=1.5, target=0.3)
        control(state, entropy, ratio=0.4, weight=1.5, target=0.3)
    advantages, selected = shaped(state=state)
    assert bool(selected) == opened
    assert (advantages == PLAIN) == (not opened)


def test_without_a_good_completion_nothing_changes():
    worse = {**BATCH, "advantages": torch.tensor([0.0, -3.0, -1.0])}
    assert shaped(batch=worse)[1] == []
    assert shaped(mask=torch.zeros_like(MASK))[1] == []


def test_the_settings_are_the_papers():
    assert rule.read({}, lambda name, why: None) == {"ratio": 0.1, "weight": 1.1, "target": 0.3}
    for name, wrong in (("ratio", 0.0), ("weight", 0.99), ("weight", float("inf")), ("target", 0.0)):
        refused = []
        rule.read({name: wrong}, lambda name, why, said=refused: said.append(name))
        assert refused == [name]
    for name, right in (("weight", 1.0), ("target", 0.01), ("ratio", 1.0)):
        rule.read({name: right}, lambda name, why: pytest.fail(why))
