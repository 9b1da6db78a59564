"""REPO-R by hand, and its controller against a loop."""

import random

import pytest
import torch

from trl_ces.methods.repo_r import control, repo_r, rule

LOGPS = torch.tensor([[-1.0, -4.0, -20.0], [-1.0, -4.0, -20.0], [-1.0, -4.0, -20.0]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 1], [1, 1, 0]])
BATCH = {"advantages": torch.tensor([2.0, -2.0, 0.0]), "logps": LOGPS}


@pytest.mark.parametrize(
    ("zeta", "rows"),
    [
        (0.1, [[2.2, 2.8, 6.0], [-1.8, -1.2, 0.0], [0.0, 0.0, 0.0]]),  # -2 (1 - 2) would be 2
        (-0.1, [[1.8, 1.2, 0.0], [-2.2, -2.8, -6.0], [0.0, 0.0, 0.0]]),
    ],
)
def test_surprise_scales_the_advantage_and_never_turns_it(zeta, rows):
    found = repo_r(BATCH, LOGPS, MASK, zeta=zeta, target=None, state={})
    torch.testing.assert_close(found.advantages, torch.tensor(rows))
    assert found.selected.tolist() == [[True] * 3, [True] * 3, [False] * 3]
    again = repo_r(BATCH, LOGPS, MASK, zeta=0.5, target=None, state={"zeta": zeta})
    assert torch.equal(again.advantages, found.advantages)


def test_what_the_mask_hides_and_certain_tokens_keep_their_advantage():
    certain = {**BATCH, "logps": LOGPS.clone().fill_(0.0)}
    assert not repo_r(certain, LOGPS, MASK, zeta=0.1, target=None, state={}).selected.any()
    hidden = repo_r(BATCH, LOGPS, torch.zeros_like(MASK), zeta=0.1, target=None, state={})
    assert torch.equal(hidden.advantages, BATCH["advantages"].unsqueeze(1).expand(3, 3))


def zetas_by_hand(entropies, zeta, target):
    goal, found = entropies[0] if target is None else target, []
    for entropy in entropies:
        size, sign = abs(zeta), 1 if zeta > 0 else -1
        wanted = 1 if entropy < goal else -1
        if entropy == goal:
            pass
        elif sign == wanted:
            size = min(1.0, 2 * size)
        else:
            size = size / 2
            if size < 1e-4:
                size, sign = 1e-4, wanted
        zeta = sign * size
        found.append(zeta)
    return found


@pytest.mark.parametrize(("zeta", "target"), [(0.01, None), (-0.01, None), (1.0, 0.5), (1e-4, 0.5), (-1e-4, 0.7)])
def test_the_controller_doubles_halves_and_turns_as_a_loop(zeta, target):
    generator, state, found = random.Random(0), {}, []
    entropies = [0.6, *(0.6 + 0.2 * generator.choice([-1, -1, -1, 0, 1]) for _ in range(20))]
    entropies += [0.9] * 40 + [0.1] * 40
    for entropy in entropies:
        control(state, entropy, zeta=zeta, target=target)
        found.append(state["zeta"])
    assert found == zetas_by_hand(entropies, zeta, target)
    assert (min(found), max(found)) == (-1.0, 1.0)
    assert state["target"] == (0.6 if target is None else target)


def test_a_target_that_is_given_to_a_resumed_run_holds():
    state = {"target": 0.6, "zeta": 0.01}
    control(state, 0.7, zeta=0.01, target=0.8)
    assert state == {"target": 0.8, "zeta": 0.02}


def test_the_settings_have_their_ranges():
    assert rule.read({}, lambda name, why: None) == {"zeta": 0.01, "target": None}
    for name, wrong in (("zeta", 0.0), ("zeta", 1.01), ("zeta", -9e-5), ("target", -0.1), ("target", float("inf"))):
        refused = []
        rule.read({name: wrong}, lambda name, why, said=refused: said.append(name))
        assert refused == [name]
    for name, right in (("zeta", -1.0), ("zeta", 1e-4), ("target", 0.0)):
        rule.read({name: right}, lambda name, why: pytest.fail(why))
