"""The entropy that controllers see, and what they move; that a resumed run goes on from it is in test_resume.py."""

import json

import pytest
import torch
from entropy_control_processes import controlled, logged
from processes import run_processes
from trainers import tiny_trainer, vowel_accuracy_reward, weights
from trl import GRPOTrainer

from trl_ces.layers import EntropyControl
from trl_ces.methods.repo_r import control


class Alone(EntropyControl, GRPOTrainer):
    pass


def moved_by_hand(entropies, target, delta, highest, bound=0.28):
    found = []
    for entropy in entropies:
        bound += delta if entropy < target else -delta if entropy > target else 0
        bound = min(max(bound, 0.0), highest)
        found.append(bound)
    return found


def make_trainer(folder, **changes):
    arguments = {"max_steps": 12, "steps_per_generation": 4, "per_device_train_batch_size": 4, **changes}
    return tiny_trainer(folder, [vowel_accuracy_reward], trainer_class=Alone, shaping="none", **arguments)


@pytest.mark.parametrize(("delta", "highest"), [(0.01, 1.0), (0.3, 0.5)])
def test_the_clip_bound_moves_towards_the_target_once_a_step(tmp_path, delta, highest):
    plain = make_trainer(tmp_path / "plain", learning_rate=1e-3)
    plain.train()
    target = sum(sorted(logged(plain, "entropy"))[5:7]) / 2  # a step on the target itself would go by rounding
    changes = {"epsilon_high_target_entropy": target, "epsilon_high_delta": delta, "epsilon_high_max": highest}
    trainer = make_trainer(tmp_path / "moved", learning_rate=1e-3, **changes)
    trainer.train()
    found = logged(trainer, "clip_ratio/epsilon_high")
    assert found == pytest.approx(moved_by_hand(logged(trainer, "entropy"), target, delta, highest))
    assert trainer.epsilon_high == found[-1]
    assert max(found) > 0.28 > min(found)
    if highest < 1:
        assert {0.0, highest} <= set(found)
        assert any(not torch.equal(value, weights(plain)[name]) for name, value in weights(trainer).items())


def test_the_bound_is_the_one_that_trl_clips_by(tmp_path):
    """A bound of 0 clips whatever has risen."""
    shares = {}
    for target in (0.0, 100.0):
        changes = {"epsilon_high_delta": 9.0, "epsilon_high_max": 9.0, "learning_rate": 1e-2}
        trainer = make_trainer(tmp_path / str(target), epsilon_high_target_entropy=target, **changes)
        trainer.train()
        shares[target] = sum(logged(trainer, "clip_ratio/high_mean")[1:])
    assert shares[0.0] > 0.5
    assert shares[100.0] == 0.0


def test_a_rule_sees_the_mean_over_the_tokens_of_a_rollout(tmp_path):
    seen, trainer = controlled(tmp_path, per_device_train_batch_size=6, steps_per_generation=2)
    assert len(seen) == 3
    state, zetas = {}, []
    for entropy in seen:
        control(state, entropy, zeta=0.3, target=None)
        zetas.append(state["zeta"])
    assert logged(trainer, "repo_r/zeta") == zetas
    assert len(set(zetas)) > 1
    by_step = logged(trainer, "entropy")
    for rollout, entropy in enumerate(seen):  # a mean over tokens lies between those of the two steps
        steps = by_step[2 * rollout : 2 * rollout + 2]
        assert min(steps) - 1e-6 <= entropy <= max(steps) + 1e-6


def test_a_resumed_run_starts_from_its_own_bound_where_none_was_moved(tmp_path):
    controlled = {"epsilon_high": 0.5, "epsilon_high_target_entropy": 0.2}
    found = []
    for before in ({}, {**controlled, "epsilon_high": 0.3}):
        trainer = make_trainer(tmp_path, **controlled)
        trainer._recall(make_trainer(tmp_path, **before)._remembered())
        found.append(trainer.epsilon_high)
    assert found == [0.5, 0.3]


@pytest.mark.parametrize(("accumulated", "used"), [(1, 3), (2, 3), (3, 2), (4, 2)])
def test_a_rule_moves_after_the_step_in_which_a_rollout_ends(tmp_path, accumulated, used):
    trainer = make_trainer(tmp_path, gradient_accumulation_steps=accumulated, steps_per_generation=used)
    moved, ends = [], []
    trainer._control_rule = lambda entropy: moved.append(trainer._step)
    for trainer._step in range(accumulated, 13, accumulated):
        trainer._entropy_sums = torch.tensor([1.0, 1.0], dtype=torch.float64)
        trainer._step_has_ended()
        ends += [trainer._step] if trainer._step // used > (trainer._step - accumulated) // used else []
    assert moved == ends


def test_the_mean_is_over_tokens_in_the_loss(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.model.train()
    masks = [torch.tensor([[1, 1, 0], [1, 0, 0]]), torch.tensor([[1, 1, 1], [1, 1, 1]])]
    nats = [torch.tensor([[1.0, 2.0, float("nan")], [6.0, 50.0, 50.0]]), torch.full((2, 3), 4.0)]
    seen = []
    trainer._control_rule = seen.append
    for mask, entropies, tools in zip(
        masks, nats, ({}, {"tool_mask": torch.tensor([[1, 1, 0], [0, 0, 0]])}), strict=True
    ):
        trainer._entropy_mask = mask * tools.get("tool_mask", 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", lambda *_, of=entropies: (None, of, None))
            trainer._get_per_token_logps_and_entropies()
    trainer._step = 4
    trainer._step_has_ended()
    assert seen == [pytest.approx((1 + 2 + 6 + 4 + 4) / 5)]
    trainer._step_has_ended()  # nothing since
    assert len(seen) == 1


# Groups of four on processes of six or three rows.
@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_controllers_move_alike_on_every_process_and_as_on_one(tmp_path, processes):
    entropies, trainer = controlled(tmp_path / "one")
    run_processes("entropy_control_processes.py", tmp_path / "several", processes, timeout=240)
    for rank in range(processes):
        there = json.loads((tmp_path / "several" / f"rank{rank}.json").read_text())
        assert there["entropies"] == pytest.approx(entropies, rel=1e-5)
        assert there["state"] == pytest.approx([trainer.epsilon_high, trainer._rule_state["zeta"]])
        for name in ("clip_ratio/epsilon_high", "repo_r/zeta"):
            assert rank or there[name] == pytest.approx(logged(trainer, name)), name
