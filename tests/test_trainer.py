"""Test complete runs of CESTrainer: bitwise equality with TRL, logs, rejected settings, and saved files."""

import math
import re
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from tiny import AS_TRL, random_script, settings, tiny_model, tiny_tokenizer
from torch.utils._python_dispatch import TorchDispatchMode
from trainers import (
    PROMPTS,
    assert_bitwise_equal,
    assert_weights_changed,
    prepare_trainer,
    scripted_trainer,
    short_reward,
    tiny_trainer,
    vowel_accuracy_reward,
    weights,
)
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

from trl_ces import CESConfig, CESTrainer
from trl_ces.methods.group_reward import accuracy_reward_index
from trl_ces.methods.metrics import CES_METRICS


def make_and_train(trainer_class, config_class, tmp_path, peft_config=None, dataset=None, **changes):
    """Train with real sampling, by default for ten optimizer steps with four steps per generation batch."""
    defaults = {"max_steps": 10, "steps_per_generation": 4, "epsilon_high": 0.28, "ces_tau": 0.3}
    trainer = tiny_trainer(
        tmp_path,
        [vowel_accuracy_reward, short_reward],
        trainer_class=trainer_class,
        config_class=config_class,
        more={"peft_config": peft_config, **({"train_dataset": dataset} if dataset else {})},
        **{**defaults, **changes},
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize("accumulation", [1, 2])
def test_shaping_none_and_tau_0_are_bitwise_identical_to_trl(tmp_path, accumulation):
    changes = {"gradient_accumulation_steps": accumulation, "steps_per_generation": 4 * accumulation}
    upstream = make_and_train(GRPOTrainer, GRPOConfig, tmp_path, **changes)
    none = make_and_train(CESTrainer, CESConfig, tmp_path, shaping="none", **AS_TRL, **changes)
    tau_zero = make_and_train(CESTrainer, CESConfig, tmp_path, ces_tau=0.0, **AS_TRL, **changes)
    shaped = make_and_train(CESTrainer, CESConfig, tmp_path, **AS_TRL, **changes)
    assert_weights_changed(upstream)
    assert_bitwise_equal(weights(upstream), weights(none))
    assert_bitwise_equal(weights(upstream), weights(tau_zero))
    assert not torch.equal(weights(upstream)["lm_head.weight"], weights(shaped)["lm_head.weight"])


def test_a_grpo_config_trains_like_the_corresponding_ces_config(tmp_path):
    plain = make_and_train(CESTrainer, GRPOConfig, tmp_path, max_steps=4)
    full = make_and_train(CESTrainer, CESConfig, tmp_path, max_steps=4, ces_tau=0.01)
    assert plain.args.shaping == "ces"
    assert_bitwise_equal(weights(plain), weights(full))


def test_the_ces_defaults_are_used_without_args(tmp_path, monkeypatch):
    class CpuConfig(CESConfig):
        def __init__(self, output_dir):
            super().__init__(output_dir, use_cpu=True, bf16=False)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("trl_ces.trainer.CESConfig", CpuConfig)
    model = tiny_model()
    model.config._name_or_path = "someone/tiny"
    trainer = CESTrainer(
        model,
        vowel_accuracy_reward,
        train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
        processing_class=tiny_tokenizer(),
    )
    assert isinstance(trainer.args, CESConfig)
    assert Path(trainer.args.output_dir) == Path("tiny-CES").absolute()
    assert (trainer.args.ces_tau, trainer.epsilon_high) == (0.01, 0.28)


def test_logged_metrics_match_the_rollout(tmp_path):
    """With tau 1, every row has selected tokens, so the metrics depend only on the script."""
    accuracies = [[1, 1, 1, 0], [1, 1, 1, 1]]
    script = random_script(PROMPTS[:2], accuracies, torch.Generator().manual_seed(2), truncated=(3,))
    for group in script.values():
        for row in group:
            row["bonus"] = 0.0
    trainer = scripted_trainer(tmp_path, script, max_steps=1, ces_tau=1.0)
    trainer.train()
    logged = trainer.state.log_history[0]
    mixed, solved = ([len(row["completion_ids"]) for row in script[prompt]] for prompt in PROMPTS[:2])
    # For correct completions, b = a: 3/4 and 1. For the incorrect completion, b = 1 - 3/4.
    sizes = [math.floor(length * 3 / 4) for length in mixed] + solved
    sizes[3] = mixed[3] // 4
    assert set(CES_METRICS) <= set(logged)
    assert logged["ces/group_accuracy"] == pytest.approx((4 * 0.75 + 4 * 1.0) / 8)
    assert logged["ces/selected_tokens"] == pytest.approx(sum(sizes) / 8)
    assert logged["ces/zero_selected_share"] == 0
    assert logged["ces/shaped_share_equal_reward_groups"] == pytest.approx(sum(solved) / sum(sizes))
    assert logged["ces/shaped_share_truncated"] == pytest.approx(sizes[3] / sum(sizes))
    assert 0 < logged["ces/selected_entropy_correct"] < math.log2(len(tiny_tokenizer()))
    assert logged["ces/shaping_to_advantage"] > 0
    assert 0 < logged["ces/sign_flip_share"] < 1


def test_ces_adds_no_forward_pass(tmp_path):
    counts = {}
    for shaping in ("none", "ces"):
        trainer = tiny_trainer(tmp_path, max_steps=4, steps_per_generation=2, shaping=shaping)
        calls = []
        trainer.model.model.register_forward_hook(lambda *_, calls=calls: calls.append(torch.is_grad_enabled()))
        trainer.generation_config.max_new_tokens = trainer.generation_config.min_new_tokens = 5
        trainer.train()
        counts[shaping] = (calls.count(True), calls.count(False))
    assert counts["ces"] == counts["none"]
    assert counts["ces"][0] == 4


def test_shaping_adds_no_device_synchronization(tmp_path):
    """Count the operations that read a value (item, bool) or have a value-dependent output shape (nonzero)."""
    synchronizing = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default}

    class CountSynchronizations(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += func in synchronizing
            return func(*args, **(kwargs or {}))

    counts = {}
    for shaping, changes in (("none", {}), ("ces", {}), ("trl", {"shaping": "none", **AS_TRL})):
        trainer = prepare_trainer(tiny_trainer(tmp_path, **{"shaping": shaping, **changes}))
        batch = trainer._generate_and_score_completions([{"prompt": prompt} for prompt in PROMPTS[:2] for _ in "1234"])
        with CountSynchronizations() as mode:
            trainer._compute_loss(trainer.model, batch).backward()
        counts[shaping] = mode.count
    assert counts["ces"] == counts["none"] > 0
    assert counts["none"] <= counts["trl"] + 1  # one more read, for the row spans


def test_evaluation_logs_its_own_metrics(tmp_path):
    changes = {"per_device_eval_batch_size": 4, "num_generations_eval": 2, "max_steps": 4, "eval_steps": 2}
    trainer = make_and_train(CESTrainer, CESConfig, tmp_path, eval_strategy="steps", **changes)
    evaluations = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    assert len(evaluations) == 2
    for entry in evaluations:
        assert math.isfinite(entry["eval_loss"])
        assert {f"eval_{name}" for name in CES_METRICS} <= set(entry)
        assert entry["eval_ces/group_accuracy"] == pytest.approx(entry["eval_rewards/vowel_accuracy_reward/mean"])
    assert not any(trainer._ces_totals.values())


def test_logs_of_a_run_with_evaluation_have_the_same_keys_as_in_trl(tmp_path):
    changes = {"max_steps": 6, "eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 8}
    ces = make_and_train(CESTrainer, CESConfig, tmp_path / "ces", shaping="none", **AS_TRL, **changes)
    upstream = make_and_train(GRPOTrainer, GRPOConfig, tmp_path / "trl", **changes)
    keys = [[set(entry) - {"step_time"} for entry in trainer.state.log_history] for trainer in (ces, upstream)]
    assert keys[0] == keys[1]


def test_accumulated_micro_batches_match_the_weights_of_one_batch(tmp_path):
    script = random_script(PROMPTS[:4], [[1, 0, 0, 1]] * 4, torch.Generator().manual_seed(4))
    results = []
    for batch_size, accumulation in ((16, 1), (2, 8)):
        trainer = scripted_trainer(
            tmp_path,
            script,
            max_steps=3,
            per_device_train_batch_size=batch_size,
            gradient_accumulation_steps=accumulation,
            ces_tau=0.3,
            optim="sgd",
            learning_rate=0.1,
        )
        trainer.train()
        results.append((weights(trainer), trainer.state.log_history[0]))
    (one, logged), (many, logged_many) = results
    for name, value in one.items():
        torch.testing.assert_close(value, many[name], rtol=1e-5, atol=1e-6)
    for name in CES_METRICS:  # these sums do not depend on the split into micro-batches
        assert logged[name] == pytest.approx(logged_many[name], rel=1e-5), name


def test_lora_trains_only_the_adapter_and_the_adapter_reloads(tmp_path):
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    trainer = make_and_train(CESTrainer, CESConfig, tmp_path, peft_config=lora, max_steps=4)
    start, end = tiny_model().state_dict(), trainer.model.state_dict()
    adapters = [name for name in end if "lora_B" in name]
    assert adapters
    assert all(end[name].abs().sum() > 0 for name in adapters)  # lora_B starts at zero
    assert torch.equal(
        end["base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight"],
        start["model.layers.0.self_attn.q_proj.weight"],
    )
    trainer.save_model(str(tmp_path / "adapter"))
    reloaded = PeftModel.from_pretrained(tiny_model(), tmp_path / "adapter")
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        assert torch.equal(reloaded(ids).logits, trainer.model.eval()(ids).logits)


def test_the_saved_model_reloads_and_its_card_cites_the_paper(tmp_path):
    trainer = make_and_train(CESTrainer, CESConfig, tmp_path, max_steps=2, save_strategy="steps", save_steps=2)
    trainer.save_model(str(tmp_path / "final"))
    reloaded = AutoModelForCausalLM.from_pretrained(tmp_path / "final", dtype=torch.float32)
    assert_bitwise_equal(weights(trainer), reloaded.state_dict())
    card = (tmp_path / "README.md").read_text()
    assert "2605.19358" in card
    assert "Conditional Entropy Shaping" in card


def test_the_card_of_a_run_without_ces_does_not_cite_ces(tmp_path):
    trainer = make_and_train(CESTrainer, CESConfig, tmp_path, shaping="none", max_steps=1)
    trainer.create_model_card()
    card = (tmp_path / "README.md").read_text()
    assert "GRPO" in card
    assert "2605.19358" not in card
    assert not re.search(r"^- ces$", card, re.M)


def test_an_iterable_dataset_trains(tmp_path):
    stream = Dataset.from_dict({"prompt": PROMPTS}).to_iterable_dataset()
    trainer = make_and_train(CESTrainer, CESConfig, tmp_path, dataset=stream, max_steps=2)
    assert_weights_changed(trainer)


def test_async_rewards_and_a_threshold_determine_correctness(tmp_path):
    async def graded_accuracy(completions, **kwargs):
        return [0.5 if index % 2 else 0.2 for index in range(len(completions))]

    trainer = tiny_trainer(tmp_path, [short_reward, graded_accuracy], max_steps=1, ces_correct_threshold=0.5)
    trainer.train()
    assert trainer.state.log_history[0]["ces/group_accuracy"] == 0.5


@pytest.mark.parametrize(
    ("names", "name", "index"),
    [
        (["anything"], None, 0),
        (["format", "my_accuracy_reward"], None, 1),
        (["format", "Accuracy"], None, 1),
        (["accuracy", "exact"], "exact", 1),
    ],
)
def test_the_accuracy_reward_is_found_by_name(names, name, index):
    assert accuracy_reward_index(names, name) == index


@pytest.mark.parametrize(
    ("names", "name", "sentence"),
    [
        (["format", "length"], None, "0 of the rewards (format, length) have 'accuracy' in their name"),
        (
            ["accuracy_a", "accuracy_b"],
            None,
            "2 of the rewards (accuracy_a, accuracy_b) have 'accuracy' in their name",
        ),
        (["format", "length"], "exact", "0 of the rewards (format, length) are named 'exact'"),
        (["exact", "exact"], "exact", "2 of the rewards (exact, exact) are named 'exact'"),
    ],
)
def test_the_error_for_an_ambiguous_accuracy_reward_lists_the_names(names, name, sentence):
    with pytest.raises(ValueError) as error:
        accuracy_reward_index(names, name)
    assert sentence in str(error.value)
    assert str(error.value).count(".") == 1  # one sentence


def test_an_unknown_reward_name_is_rejected_before_the_model_is_loaded(tmp_path):
    with pytest.raises(ValueError, match=r"0 of the rewards .* are named 'exact': set `ces_accuracy_reward` "):
        CESTrainer(
            "no/such-model",
            reward_funcs=[vowel_accuracy_reward],
            args=CESConfig(**settings(tmp_path, ces_accuracy_reward="exact")),
        )


def test_a_missing_chat_template_is_rejected_before_the_model_is_loaded(tmp_path):
    data = Dataset.from_dict({"prompt": [[{"role": "user", "content": "1+1="}]] * 4})
    more = {"train_dataset": data, "processing_class": tiny_tokenizer(chat_template=None)}
    with pytest.raises(ValueError, match=r"no/such-model has no chat template, .* set `prompt_template`"):
        tiny_trainer(tmp_path, more={**more, "model": "no/such-model"})
    more["rollout_func"] = lambda prompts, trainer: None  # a rollout_func may ignore the template
    assert tiny_trainer(tmp_path, more=more).rollout_func is more["rollout_func"]


@pytest.mark.parametrize("shaping", ["none", "entropy_advantage"])
def test_other_shaping_rules_need_no_accuracy_reward(tmp_path, shaping):
    def style(completions, **kwargs):
        return [float(len(text)) for text in completions]

    trainer = tiny_trainer(tmp_path, [style, short_reward], max_steps=1, shaping=shaping)
    trainer.train()
    assert_weights_changed(trainer)
