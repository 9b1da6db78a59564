"""Test CESTrainer with each kind of reward and with each term of TRL's loss that uses the advantage.

PEFT, async rewards, iterable datasets and evaluation are tested in test_trainer.py, tools in
test_compatibility_tools.py, and images in test_compatibility_vision.py.
"""

import functools
import json
import math
import statistics
from types import SimpleNamespace

import pytest
import torch
from objectives import TAU, expected_advantages, objective, shaping_of, watch_shaping
from reference import float64_copy, logps_and_bits, selection_sizes
from reference_comparison import (
    PROMPTS,
    assert_loss_and_gradients_agree,
    make_trainer,
    perturb_weights,
    reference_rows,
    rollout,
)
from tiny import random_script, scripted_accuracy_reward, tiny_model, tiny_tokenizer
from trainers import scripted_trainer, tiny_trainer, vowel_accuracy_reward, with_reference
from transformers import Qwen2Config, Qwen2ForSequenceClassification

# Reward models and kinds of reward functions.


def quality_model(tokenizer, num_labels=1):
    torch.manual_seed(11)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, num_labels=num_labels, initializer_range=0.5, pad_token_id=0,
    )  # fmt: skip
    model = Qwen2ForSequenceClassification(config).eval()
    model.config._name_or_path = "someone/quality"
    return model


@pytest.mark.parametrize("accuracy_reward", [None, "quality"])
def test_a_reward_model_may_be_the_accuracy_reward_or_an_additional_reward(tmp_path, accuracy_reward):
    script = random_script(PROMPTS, [[1, 0, 0, 1], [0, 0, 0, 1]], torch.Generator().manual_seed(1))
    tokenizer = tiny_tokenizer()
    judge = quality_model(tokenizer)
    with torch.no_grad():  # one text at a time, without padding
        texts = [
            prompt + tokenizer.decode(row["completion_ids"], skip_special_tokens=True)
            for prompt, group in script.items()
            for row in group
        ]
        scores = [judge(torch.tensor([tokenizer.encode(text)])).logits.item() for text in texts]
    threshold = statistics.median(scores) if accuracy_reward else 1.0
    trainer = scripted_trainer(
        tmp_path,
        script,
        [judge, scripted_accuracy_reward],
        more={"reward_processing_classes": [tokenizer, None]},
        max_steps=1,
        ces_accuracy_reward=accuracy_reward,
        ces_correct_threshold=threshold,
        ces_tau=0.3,
    )
    batch = rollout(trainer, script)
    assert trainer.reward_func_names == ["quality", "scripted_accuracy_reward"]
    by_function = [True, False, False, True, False, False, False, True]
    by_model = [score >= threshold for score in scores]
    assert sum(by_model) == 4 or not accuracy_reward
    assert batch["correct"].tolist() == (by_model if accuracy_reward else by_function)
    trainer._compute_loss(trainer.model, batch)
    trainer.log({})
    logged = trainer.state.log_history[-1]
    assert logged["rewards/quality/mean"] == pytest.approx(statistics.mean(scores), rel=1e-4)
    assert logged["rewards/scripted_accuracy_reward/mean"] == 0.375
    assert logged["ces/group_accuracy"] == (0.5 if accuracy_reward else 0.375)


class ExactAnswer:
    def __call__(self, completions, **kwargs):
        return [1.0] * len(completions)


def graded_accuracy(completions, level, **kwargs):
    return [float(level)] * len(completions)


@pytest.mark.parametrize(
    ("accuracy_reward", "index", "accuracy"), [(None, 1, 0.0), ("graded_accuracy", 1, 0.0), ("ExactAnswer", 0, 1.0)]
)
def test_partial_functions_and_callable_objects_are_named_as_in_trl(tmp_path, accuracy_reward, index, accuracy):
    rewards = [ExactAnswer(), functools.partial(functools.partial(graded_accuracy), level=0.5)]
    changes = {"ces_accuracy_reward": accuracy_reward, "ces_correct_threshold": 0.75}
    trainer = tiny_trainer(tmp_path, rewards, PROMPTS, max_steps=1, **changes)
    assert trainer.reward_func_names == ["ExactAnswer", "graded_accuracy"]
    assert trainer._accuracy_index == index
    trainer.train()
    assert trainer.state.log_history[0]["ces/group_accuracy"] == accuracy


def test_an_unscored_batch_does_not_change_the_weights(tmp_path):
    def unscored(completions, **kwargs):
        return [None] * len(completions)

    trainer = tiny_trainer(tmp_path, unscored, PROMPTS, max_steps=1, ces_tau=1.0)
    trainer.train()
    for name, start in tiny_model().state_dict().items():
        assert torch.equal(trainer.model.state_dict()[name], start), name
    logged = trainer.state.log_history[0]
    assert (logged["loss"], logged["ces/selected_tokens"], logged["ces/zero_selected_share"]) == (0, 0, 1)
    assert "ces/group_accuracy" not in logged


@pytest.mark.parametrize("labels", [2, 3])
def test_a_reward_model_with_several_labels_is_rejected(tmp_path, labels):
    judge = quality_model(tiny_tokenizer(), num_labels=labels)
    judge.save_pretrained(tmp_path / "judge")
    for reward in (judge, str(tmp_path / "judge")):
        with pytest.raises(ValueError, match=r"reward model .* not have exactly one label.*`num_labels=1`"):
            tiny_trainer(tmp_path, [reward, vowel_accuracy_reward])


@pytest.mark.parametrize("key", ["id2label", "num_labels"])
def test_a_reward_model_can_be_loaded_from_a_path(tmp_path, key):
    quality_model(tiny_tokenizer()).save_pretrained(tmp_path / "judge")
    file = tmp_path / "judge" / "config.json"
    config = json.loads(file.read_text())
    labels = {name: config.pop(name, None) for name in ("id2label", "label2id", "num_labels")}
    config |= {"num_labels": 1} if key == "num_labels" else {"id2label": labels["id2label"]}
    file.write_text(json.dumps(config))
    tiny_tokenizer().save_pretrained(tmp_path / "judge")
    trainer = tiny_trainer(tmp_path, [str(tmp_path / "judge"), vowel_accuracy_reward])
    assert trainer.reward_func_names[0] == "judge"


def test_a_reward_model_without_a_head_is_rejected(tmp_path):
    tiny_model().save_pretrained(tmp_path / "judge")  # TRL would add a random head
    with pytest.raises(ValueError, match=r"reward model .* not have exactly one label"):
        tiny_trainer(tmp_path, [str(tmp_path / "judge"), vowel_accuracy_reward])


# Terms of TRL's loss that use the advantage.


LOSS_TERMS: dict[str, dict] = {
    "reward_weights": {"reward_weights": [0.5, 2.0]},
    "scale_rewards none": {"scale_rewards": "none"},
    "scale_rewards batch": {"scale_rewards": "batch"},
    "normalize_then_sum": {"multi_objective_aggregation": "normalize_then_sum"},
    "reference model": {"beta": 0.3},
    "two-sided clip": {"delta": 1.4, "steps_per_generation": 2, "per_device_train_batch_size": 4},
}


@pytest.mark.parametrize("case", LOSS_TERMS)
def test_ces_works_with_all_advantages_and_loss_terms_of_trl(tmp_path, case):
    script = random_script(PROMPTS, [[1, 0, 0, 1], [0, 0, 0, 1]], torch.Generator().manual_seed(1))
    policy = with_reference(tiny_model(), tmp_path)
    trainer = make_trainer(tmp_path, script, model=policy, ces_tau=float(TAU), **LOSS_TERMS[case])
    batch = rollout(trainer, script)
    shaping, options, scale = watch_shaping(trainer), {}, 1
    if case == "reference model":
        options = {"kl": 0.3, "ref": float64_copy(trainer.model)}
    if case == "two-sided clip":
        options = {"delta": 1.4, "old": float64_copy(trainer.model)}
        scale = 2  # one call contains the rows of both steps
    if options:
        perturb_weights(trainer.model)
    loss = trainer._compute_loss(trainer.model, batch)

    rows = reference_rows(trainer, script)
    entries = [row for group in script.values() for row in group]
    advantages = expected_advantages(case, [row["accuracy"] for row in entries], [row["bonus"] for row in entries])
    assert batch["advantages"].tolist() == pytest.approx(advantages, abs=1e-5)
    model = float64_copy(trainer.model)
    for index, (row, size) in enumerate(zip(rows, selection_sizes(rows, 4, TAU), strict=True)):
        with torch.no_grad():
            expected = [float(value) for value in shaping_of(row, logps_and_bits(model, row, 1.0)[1], size)]
        assert shaping[0][index, : len(expected)].tolist() == pytest.approx(expected, abs=1e-5)
        assert shaping[0][index, len(expected) :].abs().sum() == 0
    expected = scale * objective([model] * 8, rows, advantages, **options)
    if options:
        default = scale * objective([model] * 8, rows, advantages, old=options.get("old"))
        assert abs(default.item() - expected.item()) > 1e-3, "the test needs a case that changes the loss"
    assert_loss_and_gradients_agree(trainer, loss, model, expected)


@pytest.mark.parametrize("mode", ["token_truncate", "sequence_truncate", "token_mask", "sequence_mask"])
def test_vllms_importance_weights_multiply_the_shaped_advantage(tmp_path, mode):
    """Use scripted completions and log-probs, because vLLM itself needs a GPU."""
    script = random_script(PROMPTS, [[1, 0, 0, 1], [0, 0, 0, 1]], torch.Generator().manual_seed(1))
    trainer = make_trainer(
        tmp_path, script, ces_tau=float(TAU), vllm_importance_sampling_mode=mode, vllm_importance_sampling_clip_max=1.5
    )
    rows = reference_rows(trainer, script)
    model = float64_copy(trainer.model)
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        noise = [(0.3 * torch.randn(len(row["mask"]), generator=generator)).tolist() for row in rows]
        exact_logps = [[logp.item() for logp in logps_and_bits(model, row, 1.0)[0]] for row in rows]
    sampled_logps = [[p + e for p, e in zip(*pair, strict=True)] for pair in zip(exact_logps, noise, strict=True)]
    rollout_func = trainer.rollout_func
    trainer.rollout_func = lambda prompts, trainer: {**rollout_func(prompts, trainer), "logprobs": sampled_logps}
    trainer.use_vllm, trainer._last_loaded_step = True, 0  # as if the sampler had the current weights
    batch = rollout(trainer, script)
    loss = trainer._compute_loss(trainer.model, batch)

    weights = []
    for errors in noise:
        per_token = [sum(errors)] * len(errors) if mode.startswith("sequence") else errors
        above_bound = 1.5 if mode.endswith("truncate") else 0.0
        weights.append([math.exp(-e) if math.exp(-e) <= 1.5 else above_bound for e in per_token])
    columns = 1 if mode.startswith("sequence") else batch["completion_ids"].size(1)
    assert batch["importance_sampling_ratio"].shape == (8, columns)
    assert len({weight for row in weights for weight in row} & {0.0, 1.5}) == 1, (
        "the test needs weights above the bound"
    )
    entries = [row for group in script.values() for row in group]
    advantages = expected_advantages(mode, [row["accuracy"] for row in entries], [row["bonus"] for row in entries])
    expected = objective([model] * 8, rows, advantages, weights=weights)
    assert_loss_and_gradients_agree(trainer, loss, model, expected)


def test_evaluation_with_continuous_batching_logs_metrics(tmp_path):
    """Replace only paged attention, which needs a GPU; the rest of TRL's code path runs."""
    model = tiny_model()
    model.generate_batch = lambda prompts, **kwargs: {
        index: SimpleNamespace(generated_tokens=[5 + index % 7, 6, 1]) for index, _ in enumerate(prompts)
    }
    changes = {"use_transformers_continuous_batching": True, "eval_strategy": "steps", "eval_steps": 1}
    trainer = tiny_trainer(tmp_path, max_steps=2, more={"model": model}, **changes)
    trainer.train()
    assert sum("eval_entropy" in entry for entry in trainer.state.log_history) == 2
