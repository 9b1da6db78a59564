"""Each layer works alone over GRPOTrainer; CESTrainer without layers equals CESTrainer with their switches off."""

import pytest
import torch
from resume_runs import log_of
from tiny import AS_TRL
from trainers import assert_same_bits, assert_weights_moved, short_reward, tiny_trainer, vowel_accuracy_reward, weights
from trl import GRPOTrainer
from unpadded_runs import CASES, assert_same_gradients, train

from trl_ces import CESTrainer
from trl_ces.layers import (
    Correctness,
    DynamicSampling,
    ExactResume,
    FiniteSteps,
    Float32Outputs,
    FrozenBase,
    GroupFilter,
    GroupRewards,
    KnownHead,
    ModeAfterGeneration,
    OffloadedAdam,
    RealTokens,
    RewardCalls,
    ServerTimeout,
    ToolRounds,
)
from trl_ces.layers.reward_calls import RewardError
from trl_ces.rewards import get_alp_length_reward
from trl_ces.trainer import Shaping


def alone(layer):
    return type("Alone", (layer, GRPOTrainer), {})


def make_trainer(trainer_class, folder, reward=short_reward, **changes):
    arguments = {"max_steps": 8, "steps_per_generation": 4, "per_device_train_batch_size": 4, **changes}
    return tiny_trainer(folder, [vowel_accuracy_reward, reward], trainer_class=trainer_class, **arguments)


@pytest.mark.parametrize("case", ["on-policy", "off-policy, old log-probs", "pieces"])
def test_real_tokens_alone_take_trls_gradients(tmp_path, case):
    _, padded = train(GRPOTrainer, tmp_path / "trl", **{**CASES[case], "max_tokens_per_micro_batch": None})
    _, record = train(alone(RealTokens), tmp_path / "ours", **CASES[case])
    assert_same_gradients(padded, record)
    assert record.positions() < 0.8 * padded.positions()


def test_exact_resume_alone_goes_on_bit_for_bit(tmp_path):
    changes = {"shaping": "none", "save_strategy": "steps", "save_steps": 1}
    whole = make_trainer(alone(ExactResume), tmp_path / "whole", **changes)
    whole.train()
    assert_weights_moved(whole)
    resumed = make_trainer(alone(ExactResume), tmp_path / "resumed", **changes)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-6"))  # inside the second rollout
    assert_same_bits(weights(whole), weights(resumed))
    assert log_of(resumed) == log_of(whole)


def test_trl_alone_does_not_go_on_bit_for_bit(tmp_path):
    """If TRL saved its rollouts, the test above would prove nothing, and ExactResume could go."""

    changes = {"shaping": "none", "save_strategy": "steps", "save_steps": 1}
    whole = make_trainer(GRPOTrainer, tmp_path / "whole", **changes)
    whole.train()
    resumed = make_trainer(GRPOTrainer, tmp_path / "resumed", **changes)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-6"))
    assert any(not torch.equal(value, weights(resumed)[name]) for name, value in weights(whole).items())


def test_dynamic_sampling_alone_fills_batches_with_groups_that_teach(tmp_path):
    trainer = make_trainer(alone(DynamicSampling), tmp_path, shaping="none", dynamic_sampling=True, max_steps=4)
    trainer.train()
    entry = trainer.state.log_history[0]
    assert entry["dynamic_sampling/rounds"] > 1
    assert entry["dynamic_sampling/uninformative_groups"] == 0
    assert_weights_moved(trainer)


def test_finite_steps_alone_skip_a_step_whose_gradient_is_not_finite(tmp_path):
    trainer = make_trainer(alone(FiniteSteps), tmp_path, shaping="none", max_steps=2, max_nonfinite_steps=2)
    compute, calls = trainer._compute_loss, []

    def poisoned(model, inputs):
        calls.append(len(calls))
        return compute(model, inputs) * (float("nan") if len(calls) == 1 else 1.0)

    trainer._compute_loss = poisoned
    trainer.train()
    assert [entry.get("nonfinite_steps") for entry in trainer.state.log_history if "loss" in entry] == [1.0, 1.0]
    assert (tmp_path / "_nonfinite" / "step-1-process-0.safetensors").is_file()
    assert all(value.isfinite().all() for value in weights(trainer).values())
    assert_weights_moved(trainer)


@pytest.mark.parametrize(
    ("layer", "reward", "changes"),
    [(GroupFilter, short_reward, {"gfpo_keep": 2}), (GroupRewards, get_alp_length_reward(beta=0.5), {})],
)
def test_a_layer_of_verdicts_alone_trains_as_in_the_whole(tmp_path, layer, reward, changes):
    runs = []
    for trainer_class in (alone(layer), CESTrainer):
        trainer = make_trainer(trainer_class, tmp_path, reward, shaping="none", max_steps=2, **changes, **AS_TRL)
        trainer.train()
        runs.append(weights(trainer))
    assert_same_bits(*runs)
    if changes:  # and not as without it
        trainer = make_trainer(GRPOTrainer, tmp_path, reward, shaping="none", max_steps=2, **changes, **AS_TRL)
        trainer.train()
        assert any(not torch.equal(value, runs[0][name]) for name, value in weights(trainer).items())


def test_reward_calls_alone_stop_at_a_bad_reward(tmp_path):
    def broken_reward(completions, last_turns, **kwargs):
        assert [isinstance(text, str) for text in last_turns] == [True] * len(completions)
        return [float("inf")] * len(completions)

    with pytest.raises(RewardError, match="broken_reward"):
        make_trainer(alone(RewardCalls), tmp_path, broken_reward, shaping="none").train()


def test_each_layers_state_is_there_without_init():
    """As TRL's own tests make a trainer."""
    trainer = CESTrainer.__new__(CESTrainer)
    names = ["sampler", "round", "replay", "asks_for_old", "scores_later", "scored_rows", "train_sampler", "rule"]
    names += ["loss_inputs", "nonfinite_steps", "nonfinite_in_a_row", "in_tool_loop"]
    assert not any(getattr(trainer, f"_{name}") for name in names)


UNASKED = [Correctness, ServerTimeout, ModeAfterGeneration, ToolRounds, Float32Outputs, KnownHead]
UNASKED += [OffloadedAdam, FrozenBase]


@pytest.mark.parametrize("layer", UNASKED)
def test_a_layer_that_nothing_asks_for_alone_is_trls_trainer_bit_for_bit(tmp_path, layer):
    runs = []
    for trainer_class in (alone(layer), GRPOTrainer):
        trainer = make_trainer(trainer_class, tmp_path, shaping="none", max_steps=2)
        trainer.train()
        runs.append(trainer)
    assert_weights_moved(runs[0])
    assert_same_bits(weights(runs[0]), weights(runs[1]))


@pytest.mark.parametrize("shaping", ["ces", "entropy_advantage", "none"])
def test_without_the_layers_training_is_that_with_their_switches_off_bit_for_bit(tmp_path, shaping):
    runs = []
    for trainer_class in (alone(Shaping), CESTrainer):
        trainer = make_trainer(trainer_class, tmp_path, shaping=shaping, ces_tau=0.3, **AS_TRL)
        trainer.train()
        runs.append(trainer)
    assert_weights_moved(runs[0])
    assert_same_bits(weights(runs[0]), weights(runs[1]))
    assert log_of(runs[0]) == log_of(runs[1])
