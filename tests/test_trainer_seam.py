"""Test the interface of CESTrainer with TRL and user code: changes in TRL, unusual rollouts, warnings, metrics."""

import inspect
import logging
import re

import numpy
import pytest
import torch
from datasets import Dataset
from tiny import (
    random_script,
    scripted_accuracy_reward,
    scripted_bonus_reward,
    scripted_rollout,
    settings,
    tiny_model,
    tiny_tokenizer,
)
from trainers import PROMPTS, prepare_trainer, record_results, scripted_trainer, vowel_accuracy_reward
from transformers import AddedToken
from trl import GRPOTrainer

from trl_ces import CESConfig, CESTrainer
from trl_ces.layers.reward_calls import REWARD_KEYWORDS
from trl_ces.layers.turns import last_turn, read_turns
from trl_ces.methods.ces import automatic_tau
from trl_ces.methods.metrics import SUMS
from trl_ces.rewards import accuracy_reward

SCRIPT = random_script(PROMPTS[:2], [[1, 0, 0, 1], [1, 1, 1, 1]], torch.Generator().manual_seed(1))


def make_trainer(tmp_path, rewards=None, columns=None, tokenizer=None, rollout_func=None, **changes):
    tokenizer = tokenizer or tiny_tokenizer()
    trainer = scripted_trainer(
        tmp_path,
        SCRIPT,
        rewards or [scripted_accuracy_reward, scripted_bonus_reward],
        prompts=columns or PROMPTS[:2],
        more={
            "model": tiny_model(vocabulary=len(tokenizer)),
            "processing_class": tokenizer,
            "rollout_func": rollout_func or scripted_rollout(SCRIPT, 4),
        },
        **{"ces_tau": 0.3, "max_completion_length": 40, **changes},
    )
    return prepare_trainer(trainer)


def four_copies(*prompts):
    return [{"prompt": prompt} for prompt in prompts for _ in range(4)]


def test_a_trl_version_that_reads_advantages_before_entropies_is_rejected(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path)
    batch = trainer._generate_and_score_completions(four_copies(*PROMPTS[:2]))
    plain = GRPOTrainer._get_per_token_logps_and_entropies
    monkeypatch.setattr(CESTrainer, "_get_per_token_logps_and_entropies", plain)
    with pytest.raises(RuntimeError, match=r"trl 1\.\d+\.\d+ reads the advantages before it computes the entropies"):
        trainer._compute_loss(trainer.model, batch)


@pytest.mark.parametrize(
    ("mask", "turn"),
    [
        ([1, 1, 1], (0, 3)),
        ([1, 0, 0, 1, 1], (3, 5)),
        ([1, 0, 1, 1, 0, 0], (2, 4)),  # the last tokens are from the environment
        ([0, 0], (0, 0)),
        ([], (0, 0)),
    ],
)
def test_the_last_turn_is_the_last_run_of_model_tokens(mask, turn):
    assert last_turn(mask) == turn


@pytest.mark.parametrize("container", [torch.tensor, numpy.array, tuple], ids=["tensors", "arrays", "tuples"])
def test_rollout_functions_may_return_any_sequences(tmp_path, container):
    def rollout(prompts, trainer):
        encode = trainer.processing_class.encode
        return {
            "prompt_ids": [container(encode(prompt)) for prompt in prompts],
            "completion_ids": [container(encode("ab[x]cd"))] * len(prompts),
            "env_mask": [container([1, 1, 0, 0, 0, 1, 1])] * len(prompts),
            "logprobs": None,
        }

    trainer = make_trainer(tmp_path, [vowel_accuracy_reward], rollout_func=rollout)
    trainer._generate(PROMPTS[:2])
    assert trainer._turns == {"thinking_prefilled": [False, False], "last_turns": ["cd", "cd"]}
    assert tuple(trainer._turns) == REWARD_KEYWORDS
    assert trainer._truncated([container([5, 1]), container([5])]).tolist() == [False, True]


def test_special_thinking_tags_are_kept_for_rewards(tmp_path):
    tokenizer = tiny_tokenizer("{{ messages[0]['content'] }}<think>", markers=["<think>", "</think>"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>"]})

    def rollout(prompts, trainer):
        return {
            "prompt_ids": [tokenizer.encode("7<think>")] * len(prompts),
            "completion_ids": [tokenizer.encode(r"a</think>\boxed{7}<eos>")] * len(prompts),
            "logprobs": None,
        }

    columns = {"prompt": [[{"role": "user", "content": "7"}]], "solution": ["7"]}
    trainer = make_trainer(tmp_path, [accuracy_reward], columns, tokenizer, rollout)
    rewards = record_results(trainer, "_calculate_rewards")
    row = {name: values[0] for name, values in columns.items()}
    trainer._generate_and_score_completions([row] * 4)
    assert rewards[0].flatten().tolist() == [1.0] * 4


def test_special_tokens_without_a_name_are_removed_for_rewards_as_in_trl():
    tokenizer = tiny_tokenizer(markers=["<end_of_turn>"])
    tokenizer.add_tokens([AddedToken("<end_of_turn>", special=True)])
    ids = tokenizer.encode("ab<end_of_turn>")
    assert tokenizer.decode(ids, skip_special_tokens=True) == "ab"
    assert read_turns([[5]], [ids], None, tokenizer)["last_turns"] == ["ab"]


def test_dataset_columns_take_precedence_over_the_trainers_keywords(tmp_path):
    received = []

    def accuracy(thinking_prefilled, **kwargs):
        received.extend(thinking_prefilled)
        return [0.0] * len(thinking_prefilled)

    trainer = make_trainer(tmp_path, [accuracy])
    trainer._generate_and_score_completions([{"prompt": PROMPTS[0], "thinking_prefilled": True}] * 4)
    assert received == [True] * 4


@pytest.mark.parametrize(
    ("changes", "warnings"), [({"ces_beta_correct": -0.4}, 1), ({"ces_beta_correct": -0.4, "shaping": "none"}, 0)]
)
def test_negative_betas_cause_one_warning_only_with_ces(tmp_path, caplog, changes, warnings):
    make_trainer(tmp_path, **changes)
    assert caplog.text.count("`ces_beta_correct` is -0.4: it raises the entropy of correct completions") == warnings


def test_a_tau_that_shapes_no_token_causes_a_warning(tmp_path, caplog):
    make_trainer(tmp_path, ces_tau=0.001, max_steps=2).train()
    assert caplog.text.count("No token will be shaped: a completion of at most 40 tokens") == 1
    assert "first rollout's" not in caplog.text


def test_a_first_rollout_too_short_for_tau_causes_one_warning(tmp_path, caplog):
    rows = [{"completion_ids": [2] * 30, "accuracy": float(row % 2), "bonus": 0.0} for row in range(4)]
    script = {"1+2=": rows, "3+4=": rows}
    changes = {"max_completion_length": 40, "max_steps": 2, "per_device_train_batch_size": 4, "ces_tau": 0.03}
    scripted_trainer(tmp_path, script, [scripted_accuracy_reward], **changes).train()
    assert caplog.text.count("CES shapes tokens in 0 of the first rollout's 4 completions") == 1


def test_auto_tau_is_computed_from_the_first_rollout_without_changing_the_config(tmp_path, caplog):
    config = CESConfig(**settings(tmp_path, ces_tau="auto", max_steps=2, max_completion_length=150))
    data = Dataset.from_dict({"prompt": PROMPTS})
    trainer = CESTrainer(
        tiny_model(), vowel_accuracy_reward, config, train_dataset=data, processing_class=tiny_tokenizer()
    )
    trainer.train()
    means = [entry["completions/mean_length"] for entry in trainer.state.log_history[:2]]
    assert trainer.args.ces_tau == automatic_tau(means[0]) != automatic_tau(means[1])
    assert (
        caplog.text.count(f"`ces_tau: auto` resolved to {trainer.args.ces_tau:g}: 2 / {means[0]:.0f} tokens, from")
        == 1
    )
    assert "shaping two tokens" not in caplog.text
    assert config.ces_tau == "auto"


def test_auto_tau_of_short_completions_causes_a_warning(tmp_path, caplog):
    trainer = make_trainer(tmp_path, ces_tau="auto", max_steps=1)
    trainer.train()
    assert trainer.args.ces_tau == 0.05
    assert re.search(
        r"resolved to 0\.05: .* Under 40 tokens, shaping two tokens needs a `ces_tau` above 0\.05", caplog.text
    )


def test_an_evaluation_before_the_first_rollout_computes_its_own_tau(tmp_path):
    script = {
        prompt: [{"completion_ids": [2] * length, "accuracy": float(row % 2), "bonus": 0.0} for row in range(4)]
        for prompt, length in {"1+2=": 40, "3+4=": 120}.items()
    }
    changes = {"max_steps": 1, "per_device_train_batch_size": 4, "shuffle_dataset": False, "ces_tau": "auto"}
    trainer = scripted_trainer(tmp_path, script, [scripted_accuracy_reward], max_completion_length=120, **changes)
    trainer.evaluate()
    assert trainer.args.ces_tau == "auto"
    assert trainer.state.log_history[-1]["eval_ces/selected_tokens"] == 0.5  # mean of floor(0.5) and floor(1.5)
    trainer.train()
    assert trainer.args.ces_tau == automatic_tau(40) == 0.05


@pytest.mark.parametrize(
    ("value", "changes", "warns"),
    [
        (-1.0, {}, True),
        (3.0, {}, True),
        (1.0, {}, False),
        (None, {}, False),
        (0.35, {"ces_correct_threshold": 0.3}, False),
        (3.0, {"ces_accuracy_reward": "graded"}, False),
    ],
)
def test_a_graded_accuracy_reward_without_settings_causes_one_warning(tmp_path, caplog, value, changes, warns):
    def graded(completions, **kwargs):
        return [value] * len(completions)

    trainer = make_trainer(tmp_path, [graded], **changes)
    with caplog.at_level(logging.WARNING, logger="trl_ces"):
        for _ in range(2):
            trainer._generate_and_score_completions(four_copies(PROMPTS[0]))
    messages = [record.message for record in caplog.records if "ces_correct_threshold" in record.message]
    assert len(messages) == warns
    assert all(f"the reward function graded, which returned {value:g}" in text for text in messages)


def test_a_completion_that_ends_in_padding_is_not_truncated(tmp_path):
    trainer = make_trainer(tmp_path)
    examples = [{"prompt": PROMPTS[0], "accuracy": 0, "bonus": 0}] * 4
    trainer._calculate_rewards(examples, [PROMPTS[0]] * 4, [""] * 4, [[5, 1], [5, 0], [5, 6], []])
    assert trainer._facts["truncated"].tolist() == [False, False, True, True]


def test_metrics_need_one_all_reduce_per_optimizer_step(tmp_path, monkeypatch):
    trainer = make_trainer(
        tmp_path, max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=4, logging_steps=3
    )
    shapes, reduce = [], trainer.accelerator.reduce

    def record_shape(tensor, *args, **kwargs):
        shapes.append(tuple(tensor.shape))
        return reduce(tensor, *args, **kwargs)

    monkeypatch.setattr(trainer.accelerator, "reduce", record_shape)
    trainer.train()
    assert shapes.count((len(SUMS),)) == 3
    assert trainer.state.log_history[0]["ces/group_accuracy"] == 0.75


def test_an_evaluation_between_micro_batches_does_not_change_training_metrics(tmp_path):
    trainer = make_trainer(tmp_path, gradient_accumulation_steps=2, per_device_train_batch_size=4)
    batch = trainer._generate_and_score_completions(four_copies(*PROMPTS[:2]))
    trainer.accelerator.gradient_state._set_sync_gradients(False)
    trainer._compute_loss(trainer.model, batch)
    trainer.model.eval()
    trainer._compute_loss(trainer.model, batch)  # an evaluation while gradients are not synchronized
    trainer.model.train()
    trainer.accelerator.gradient_state._set_sync_gradients(True)
    trainer._compute_loss(trainer.model, batch)
    completions = SUMS.index("completions")
    counts = {mode: [total[completions].item() for total in totals] for mode, totals in trainer._ces_totals.items()}
    assert counts == {"train": [16.0], "eval": [8.0]}


def test_the_constructor_has_the_parameters_of_trl():
    assert list(inspect.signature(CESTrainer.__init__).parameters) == (
        list(inspect.signature(GRPOTrainer.__init__).parameters)
    )


def detach_entropies(trainer, monkeypatch):
    """Detach the entropies, as in TRL 1.9 and earlier."""
    upstream = GRPOTrainer._get_per_token_logps_and_entropies

    def with_detached_entropies(self, *args, **kwargs):
        logps, entropies, aux_loss = upstream(self, *args, **kwargs)
        return logps, None if entropies is None else entropies.detach(), aux_loss

    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", with_detached_entropies)


def test_entropies_without_a_gradient_raise_an_error(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path)
    detach_entropies(trainer, monkeypatch)
    with pytest.raises(RuntimeError, match=r"carry no gradient.*w/o Entropy Gradient.*`ces_entropy_gradient=False`"):
        trainer.train()


@pytest.mark.parametrize("changes", [{"ces_entropy_gradient": False}, {"shaping": "entropy_advantage"}], ids=str)
def test_entropies_without_a_gradient_are_accepted_if_no_gradient_is_needed(tmp_path, monkeypatch, changes):
    trainer = make_trainer(tmp_path, max_steps=1, **changes)
    detach_entropies(trainer, monkeypatch)
    trainer.train()
    assert trainer.state.global_step == 1
