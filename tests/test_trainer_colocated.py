"""Test training with colocated vLLM, which is replaced by the stub in tests/helpers/colocated_vllm.py."""

import pytest
import torch
from colocated_vllm import ColocatedLLM, patch_colocated_vllm
from tiny import tiny_model
from trainers import prepare_trainer, tiny_trainer
from vllm_sampling import digest

PROMPTS = ["1+2=", "3+4=", "5+6=", "7+8="]
STEPS = 2


@pytest.fixture
def model(tmp_path, monkeypatch):
    patch_colocated_vllm(monkeypatch)
    tiny_model().save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def make_trainer(folder, model, lora=None, **changes):
    arguments = {"max_steps": STEPS, "ces_tau": 0.3, "learning_rate": 1e-2}
    arguments |= {"use_vllm": True, "vllm_mode": "colocate", "vllm_enable_sleep_mode": True, **changes}
    return tiny_trainer(folder, prompts=PROMPTS, more={"model": model, "peft_config": lora}, **arguments)


@pytest.mark.parametrize("sleep_mode", [True, False])
def test_each_rollout_is_sampled_from_the_weights_of_its_step(tmp_path, model, sleep_mode):
    trainer = make_trainer(tmp_path / "run", model, vllm_enable_sleep_mode=sleep_mode)
    policies = []
    step = trainer.training_step
    trainer.training_step = lambda *args: policies.append(digest(trainer.model)) or step(*args)
    trainer.train()
    assert ColocatedLLM.last.sampled_from == policies
    assert len(set(policies)) == STEPS
    # Each rollout is sampled from the current policy, so the importance ratios are 1.
    ratios = [entry["sampling/importance_sampling_ratio/mean"] for entry in trainer.state.log_history[:-1]]
    assert ratios == pytest.approx([1.0] * STEPS, abs=1e-4)


def test_the_seed_determines_the_samples(tmp_path, model):
    samples = []
    for number, seed in enumerate([1, 1, 2]):
        trainer = prepare_trainer(make_trainer(tmp_path / str(number), model, seed=seed, shuffle_dataset=False))
        samples.append(trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))["completion_ids"])
    assert torch.equal(samples[0], samples[1])
    assert samples[0].shape != samples[2].shape or not torch.equal(samples[0], samples[2])


def test_dynamic_sampling_sends_the_weights_and_sleeps_only_once(tmp_path, model):
    def rarely_correct(completions, **kwargs):
        """Return rewards that make only the first group of a round informative."""
        return [float(index == 0) for index in range(len(completions))]

    trainer = make_trainer(
        tmp_path / "run", model, max_steps=1, shaping="none", dynamic_sampling=True, dynamic_sampling_max_rounds=3
    )
    trainer.reward_funcs[0] = rarely_correct
    trainer.train()
    calls = ColocatedLLM.last.calls
    tensors = len(list(trainer.model.named_parameters()))
    rounds = calls.count("generate")
    assert rounds > 1
    assert calls[0] == calls[-1] == "sleep"  # after creation and at the end
    assert calls.count("sleep") == 2
    assert calls.count("wake weights") == calls.count("wake kv_cache") == 1
    assert calls.count("load") == tensors
    trainer.vllm_generation.generate(prompts=[[3, 4]], images=None, num_generations=1)  # vLLM can be woken again
    assert calls.count("sleep") == 3
    assert calls.count("load") == 2 * tensors
