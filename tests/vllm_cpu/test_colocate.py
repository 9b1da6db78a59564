"""Test colocated vLLM on a CPU, where the first rollout works but the weight sync fails.

vLLM's CPU backend repacks its weights and discards the original tensors, which TRL's weight sync would overwrite. The
sync therefore needs a GPU, and these tests cover only the steps before the sync.
"""

import os

import pytest
import torch
from datasets import Dataset

from trl_ces import CESConfig, CESTrainer
from trl_ces.lab.tasks import smollm2

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

QUESTIONS = ["What is 7 + 5?", "What is 3 + 4?"]


def alternating_accuracy_reward(completions, **kwargs):
    return [float(number % 2) for number in range(len(completions))]


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    os.environ.update(
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_LOGGING_LEVEL="ERROR",
        VLLM_NO_USAGE_STATS="1",
        VLLM_ENABLE_V1_MULTIPROCESSING="0",  # keep the engine in this process, where TRL expects it
    )
    args = CESConfig(
        output_dir=str(tmp_path_factory.mktemp("colocate")),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        logging_steps=1,
        num_generations=4,
        per_device_train_batch_size=8,
        max_completion_length=24,
        max_steps=1,
        ces_tau=0.2,
        learning_rate=1e-5,
        use_vllm=True,
        vllm_mode="colocate",
        vllm_max_model_length=256,
        vllm_gpu_memory_utilization=0.1,
        vllm_importance_sampling_correction=True,
        vllm_importance_sampling_mode="token_truncate",
        model_init_kwargs={"dtype": "float32"},
    )
    rows = [{"prompt": [{"role": "user", "content": question}]} for question in QUESTIONS]
    trainer = CESTrainer(
        model=smollm2.fetch(),
        reward_funcs=[alternating_accuracy_reward],
        args=args,
        train_dataset=Dataset.from_list(rows),
    )
    return trainer


def test_the_weight_sync_fails_on_a_cpu(trainer):
    # When the sync no longer fails, replace this test with a run of several rollouts.
    with pytest.raises(AttributeError, match="'Parameter' object has no attribute 'weight_loader'"):
        trainer.vllm_generation.sync_weights()


def test_ces_trains_on_vllms_first_rollout_with_importance_sampling_weights(trainer, monkeypatch):
    # vLLM has loaded the same weights from disk, so the first rollout does not need a sync.
    monkeypatch.setattr(trainer.vllm_generation, "sync_weights", lambda: None)
    batch = {}
    compute_loss = trainer._compute_loss

    def record_batch(model, inputs):
        batch.update(inputs)
        return compute_loss(model, inputs)

    monkeypatch.setattr(trainer, "_compute_loss", record_batch)
    before = {name: weight.clone() for name, weight in trainer.model.named_parameters()}
    trainer.train()
    mask = batch["completion_mask"].bool()
    difference = (batch["sampling_per_token_logps"] - batch["old_per_token_logps"])[mask].abs()
    assert 0 < difference.mean() < 0.1  # vLLM computes in bfloat16
    ratio = batch["importance_sampling_ratio"]
    expected = torch.exp(batch["old_per_token_logps"] - batch["sampling_per_token_logps"]).clamp(max=3.0)
    torch.testing.assert_close(ratio[mask], expected[mask])
    (entry,) = [entry for entry in trainer.state.log_history if "ces/selected_tokens" in entry]
    assert entry["ces/selected_tokens"] > 0
    assert any(not torch.equal(weight, before[name]) for name, weight in trainer.model.named_parameters())
