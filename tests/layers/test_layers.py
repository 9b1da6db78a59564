"""Check that each layer works alone on GRPOTrainer, and that `Shaping` matches CESTrainer without other layers."""

import pytest
import torch
from resume_runs import log_of
from tiny import AS_TRL
from trainers import (
    assert_bitwise_equal,
    assert_weights_changed,
    short_reward,
    tiny_trainer,
    vowel_accuracy_reward,
    weights,
)
from trl import GRPOTrainer
from unpadded_runs import CASES, assert_same_gradients, train

from trl_ces import CESTrainer
from trl_ces.layers import (
    Correctness,
    DynamicSampling,
    ExactResume,
    FiniteSteps,
    GroupRewards,
    RealTokens,
    RewardCalls,
    UpstreamFixes,
)
from trl_ces.layers.reward_calls import RewardError
from trl_ces.rewards import get_alp_length_reward
from trl_ces.trainer import Shaping


def with_layer(layer):
    return type("Alone", (layer, GRPOTrainer), {})


def make_trainer(trainer_class, folder, reward=short_reward, **changes):
    arguments = {"max_steps": 8, "steps_per_generation": 4, "per_device_train_batch_size": 4, "shaping": "none"}
    arguments |= changes
    return tiny_trainer(folder, [vowel_accuracy_reward, reward], trainer_class=trainer_class, **arguments)


def make_and_train(trainer_class, folder, *reward, **changes):
    trainer = make_trainer(trainer_class, folder, *reward, **changes)
    trainer.train()
    assert_weights_changed(trainer)
    return trainer


@pytest.mark.parametrize("case", ["on-policy", "off-policy, old log-probs", "pieces"])
def test_real_tokens_alone_matches_the_gradients_of_trl(tmp_path, case):
    _, padded = train(GRPOTrainer, tmp_path / "trl", **{**CASES[case], "max_tokens_per_micro_batch": None})
    _, record = train(with_layer(RealTokens), tmp_path / "ours", **CASES[case])
    assert_same_gradients(padded, record)
    assert record.positions() < 0.8 * padded.positions()


def test_exact_resume_alone_matches_the_uninterrupted_run(tmp_path):
    runs = {}
    for trainer_class in (with_layer(ExactResume), GRPOTrainer):
        folder = tmp_path / trainer_class.__name__
        full = make_and_train(trainer_class, folder, save_strategy="steps", save_steps=1)
        resumed = make_trainer(trainer_class, folder / "resumed")
        resumed.train(resume_from_checkpoint=str(folder / "checkpoint-6"))  # inside the second rollout
        runs[trainer_class] = full, resumed
    (full, resumed), (full_trl, resumed_trl) = runs.values()
    assert_bitwise_equal(weights(full), weights(resumed))
    assert log_of(resumed) == log_of(full)
    expected = weights(full_trl)  # TRL's resumed run differs
    assert any(not torch.equal(value, expected[name]) for name, value in weights(resumed_trl).items())


def test_dynamic_sampling_alone_fills_batches_with_informative_groups(tmp_path):
    trainer = make_and_train(with_layer(DynamicSampling), tmp_path, dynamic_sampling=True, max_steps=4)
    entry = trainer.state.log_history[0]
    assert entry["dynamic_sampling/rounds"] > 1
    assert entry["dynamic_sampling/uninformative_groups"] == 0


def test_finite_steps_alone_skips_a_step_with_a_nonfinite_gradient(tmp_path):
    trainer = make_trainer(with_layer(FiniteSteps), tmp_path, max_steps=2, max_nonfinite_steps=2)
    compute, calls = trainer._compute_loss, []

    def poisoned(model, inputs):
        calls.append(len(calls))
        return compute(model, inputs) * (float("nan") if len(calls) == 1 else 1.0)

    trainer._compute_loss = poisoned
    trainer.train()
    assert [entry.get("nonfinite_steps") for entry in trainer.state.log_history if "loss" in entry] == [1.0, 1.0]
    assert (tmp_path / "_nonfinite" / "step-1-process-0.safetensors").is_file()
    assert all(value.isfinite().all() for value in weights(trainer).values())
    assert_weights_changed(trainer)


def test_group_rewards_alone_matches_ces_trainer(tmp_path):
    reward = get_alp_length_reward(beta=0.5)
    runs = [
        make_and_train(each, tmp_path, reward, max_steps=2, **AS_TRL)
        for each in (with_layer(GroupRewards), CESTrainer)
    ]
    assert_bitwise_equal(*map(weights, runs))


def test_reward_calls_alone_stops_at_an_invalid_reward(tmp_path):
    def broken_reward(completions, last_turns, **kwargs):
        assert [isinstance(text, str) for text in last_turns] == [True] * len(completions)
        return [float("inf")] * len(completions)

    with pytest.raises(RewardError, match="broken_reward"):
        make_trainer(with_layer(RewardCalls), tmp_path, broken_reward).train()


@pytest.mark.parametrize("layer", [Correctness, UpstreamFixes])
def test_an_inactive_layer_is_bitwise_identical_to_grpo_trainer(tmp_path, layer):
    runs = [make_and_train(trainer_class, tmp_path, max_steps=2) for trainer_class in (with_layer(layer), GRPOTrainer)]
    assert_bitwise_equal(*map(weights, runs))


@pytest.mark.parametrize("shaping", ["ces", "entropy_advantage", "none"])
def test_shaping_alone_matches_ces_trainer_with_other_layers_off(tmp_path, shaping):
    changes = {"shaping": shaping, "ces_tau": 0.3, **AS_TRL}
    runs = [make_and_train(trainer_class, tmp_path, **changes) for trainer_class in (with_layer(Shaping), CESTrainer)]
    assert_bitwise_equal(*map(weights, runs))
    assert log_of(runs[0]) == log_of(runs[1])


def test_the_state_of_each_layer_has_defaults_without_init():
    """Check the defaults, because TRL's tests create a trainer with `__new__`."""
    trainer = CESTrainer.__new__(CESTrainer)
    names = ["sampler", "round", "replay", "expects_old_logps", "defers_old_logps", "loss_rows", "train_sampler"]
    names += ["rule", "loss_inputs", "nonfinite_steps", "nonfinite_in_a_row", "in_tool_loop"]
    assert not any(getattr(trainer, f"_{name}") for name in names)


def test_the_models_sampling_defaults_are_replaced_without_a_warning(tmp_path):
    trainer, configs = tiny_trainer(tmp_path, trainer_class=with_layer(RewardCalls)), []
    trainer.model.generation_config.top_k = 3
    trainer.model.register_forward_pre_hook(lambda model, _: configs.append(model.generation_config))
    trainer._generate(["1+1="] * 4)
    assert [config.top_k for config in configs] == [0] * len(configs) != []
    configs[0].validate(strict=True)  # transformers would warn about each problem
    assert trainer.model.generation_config.top_k == 3
