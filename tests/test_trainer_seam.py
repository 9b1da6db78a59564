"""CESTrainer at its seams with TRL and users: a lost seam, unusual rollouts, strict rewards, cost of the metrics."""

import logging
import re

import numpy
import pytest
import torch
from tiny import (
    random_script,
    scripted_accuracy_reward,
    scripted_bonus_reward,
    scripted_rollout,
    tiny_model,
    tiny_tokenizer,
)
from trainers import PROMPTS, ready, recorded, scripted_trainer, vowel_accuracy_reward
from trl import GRPOTrainer

from trl_ces import CESTrainer
from trl_ces.layers.reward_calls import REWARD_KEYWORDS
from trl_ces.layers.turns import last_turn
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
    return ready(trainer)


def four_of_each(*prompts):
    return [{"prompt": prompt} for prompt in prompts for _ in range(4)]


def test_a_trl_without_the_seam_fails_loudly_instead_of_training_on_unshaped_advantages(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path)
    batch = trainer._generate_and_score_completions(four_of_each(*PROMPTS[:2]))
    plain = GRPOTrainer._get_per_token_logps_and_entropies
    monkeypatch.setattr(CESTrainer, "_get_per_token_logps_and_entropies", plain)
    with pytest.raises(RuntimeError, match=r"trl 1\.\d+\.\d+ reads the advantages before it computes the entropies"):
        trainer._compute_loss(trainer.model, batch)


@pytest.mark.parametrize(
    ("mask", "turn"),
    [
        ([1, 1, 1], (0, 3)),
        ([1, 0, 0, 1, 1], (3, 5)),
        ([1, 0, 1, 1, 0, 0], (2, 4)),  # ends with the environment's turn
        ([0, 0], (0, 0)),
        ([], (0, 0)),
    ],
)
def test_the_last_turn_is_the_last_run_of_the_policys_tokens(mask, turn):
    assert last_turn(mask) == turn


def test_the_answer_before_an_environments_last_word_is_graded(tmp_path):
    seen = []

    def accuracy(last_turns, **kwargs):
        seen.extend(last_turns)
        return [1.0] * len(last_turns)

    def rollout(prompts, trainer):
        encode = trainer.processing_class.encode
        return {
            "prompt_ids": [encode(prompt) for prompt in prompts],
            "completion_ids": [encode("ab[x]cd[y]")] * len(prompts),
            "env_mask": [[1, 1, 0, 0, 0, 1, 1, 0, 0, 0]] * len(prompts),
            "logprobs": None,
        }

    trainer = make_trainer(tmp_path, [accuracy], rollout_func=rollout)
    trainer._generate_and_score_completions(four_of_each(PROMPTS[0]))
    assert seen == ["cd"] * 4


@pytest.mark.parametrize("container", [torch.tensor, numpy.array, tuple], ids=["tensors", "arrays", "tuples"])
def test_rollouts_of_other_sequences_are_read(tmp_path, container):
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


def test_thinking_tags_that_a_tokenizer_counts_as_special_are_kept_for_the_rewards(tmp_path):
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
    rewards = recorded(trainer, "_calculate_rewards")
    row = {name: values[0] for name, values in columns.items()}
    trainer._generate_and_score_completions([row] * 4)
    assert rewards[0].flatten().tolist() == [1.0] * 4


def test_a_reward_without_kwargs_works_as_it_does_in_grpo_trainer(tmp_path):
    def strict(prompts, completions, completion_ids, trainer_state, log_extra, log_metric, accuracy, bonus):
        return accuracy

    async def strict_async(
        prompts, completions, completion_ids, trainer_state, log_extra, log_metric, accuracy, bonus
    ):
        return bonus

    trainer = make_trainer(tmp_path, [strict, strict_async], ces_accuracy_reward="strict")
    trainer._generate_and_score_completions(four_of_each(*PROMPTS[:2]))
    rows = [row for prompt in PROMPTS[:2] for row in SCRIPT[prompt]]
    assert trainer._logs["rewards"]["strict"][0] == rows[0]["accuracy"]
    assert list(trainer._logs["rewards"]["strict_async"]) == [row["bonus"] for row in rows]


def test_a_column_of_the_data_goes_before_what_the_trainer_found_out(tmp_path):
    seen = []

    def accuracy(thinking_prefilled, **kwargs):
        seen.extend(thinking_prefilled)
        return [0.0] * len(thinking_prefilled)

    trainer = make_trainer(tmp_path, [accuracy])
    trainer._generate_and_score_completions([{"prompt": PROMPTS[0], "thinking_prefilled": True}] * 4)
    assert seen == [True] * 4


@pytest.mark.parametrize(
    ("correct", "incorrect", "said"),
    [
        (0.0, 0.4, None),
        (
            -0.4,
            -0.1,
            r"signs swapped: .* raised on correct .* lowered on wrong ones, .* AsymGRPO \(arXiv 2604.04894\)",
        ),
    ],
)
@pytest.mark.parametrize("shaping", ["ces", "none"])
def test_negative_betas_are_named_once_as_the_ablation_they_are(tmp_path, caplog, correct, incorrect, said, shaping):
    with caplog.at_level(logging.WARNING, logger="trl_ces.trainer"):
        make_trainer(tmp_path, shaping=shaping, ces_beta_correct=correct, ces_beta_incorrect=incorrect)
    messages = [record.message for record in caplog.records if record.name == "trl_ces.trainer"]
    assert len(messages) == (said is not None and shaping == "ces")
    assert all(re.search(said, text) for text in messages)


@pytest.mark.parametrize(
    ("value", "changes", "warned"),
    [
        (0.35, {}, True),
        (3.0, {}, True),
        (1.0, {}, False),
        (None, {}, False),
        (0.35, {"ces_correct_threshold": 0.3}, False),
        (0.35, {"ces_accuracy_reward": "graded"}, False),
    ],
)
def test_a_reward_that_is_not_0_or_1_is_warned_of_once_unless_it_was_chosen(tmp_path, caplog, value, changes, warned):
    def graded(completions, **kwargs):
        return [value] * len(completions)

    trainer = make_trainer(tmp_path, [graded], **changes)
    with caplog.at_level(logging.WARNING, logger="trl_ces"):
        for _ in range(2):
            trainer._generate_and_score_completions(four_of_each(PROMPTS[0]))
    messages = [record.message for record in caplog.records if "ces_correct_threshold" in record.message]
    assert len(messages) == warned
    assert all(f"the reward function graded, which returned {value:g}" in text for text in messages)


def test_a_completion_that_ends_in_padding_is_not_truncated(tmp_path):
    trainer = make_trainer(tmp_path)
    examples = [{"prompt": PROMPTS[0], "accuracy": 0, "bonus": 0}] * 4
    trainer._calculate_rewards(examples, [PROMPTS[0]] * 4, [""] * 4, [[5, 1], [5, 0], [5, 6], []])
    assert trainer._verdict_rows["truncated"].tolist() == [False, False, True, True]


def test_the_metrics_cost_one_all_reduce_for_each_optimizer_step(tmp_path, monkeypatch):
    trainer = make_trainer(
        tmp_path, max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=4, logging_steps=3
    )
    reduced, reduce = [], trainer.accelerator.reduce

    def counted(tensor, *args, **kwargs):
        reduced.append(tuple(tensor.shape))
        return reduce(tensor, *args, **kwargs)

    monkeypatch.setattr(trainer.accelerator, "reduce", counted)
    trainer.train()
    assert reduced.count((len(SUMS),)) == 3
    assert trainer.state.log_history[0]["ces/group_accuracy"] == 0.75


@pytest.mark.parametrize("shaping", ["clip_cov", "kl_cov"])
def test_the_share_of_tokens_that_a_covariance_rule_takes_is_logged(tmp_path, shaping):
    # One token of each micro-batch: at most 0.0002 of its tokens, and any covariance qualifies.
    no_clip = {"epsilon": 1.0, "epsilon_high": 1e6} if shaping == "kl_cov" else {}
    changes = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_iterations": 2, **no_clip}
    bounds = {"clip_cov_low": -1e9, "clip_cov_high": 1e9, "learning_rate": 1e-9}
    trainer = make_trainer(tmp_path, shaping=shaping, max_steps=2, logging_steps=2, **bounds, **changes)
    trainer.train()
    tokens = sum(len(row["completion_ids"]) for group in SCRIPT.values() for row in group)
    # 2 steps x 2 micro-batches, over the tokens of 2 steps.
    assert trainer.state.log_history[0][f"{shaping}/selected_share"] == pytest.approx(4 / (2 * tokens))
    assert not any(name.startswith("ces/") for name in trainer.state.log_history[0])


def test_an_evaluation_between_micro_batches_mixes_with_no_training_metric(tmp_path):
    trainer = make_trainer(tmp_path, gradient_accumulation_steps=2, per_device_train_batch_size=4)
    batch = trainer._generate_and_score_completions(four_of_each(*PROMPTS[:2]))
    trainer.accelerator.gradient_state._set_sync_gradients(False)
    trainer._compute_loss(trainer.model, batch)
    trainer.model.eval()
    trainer._compute_loss(trainer.model, batch)  # evaluated although no gradient is due
    trainer.model.train()
    trainer.accelerator.gradient_state._set_sync_gradients(True)
    trainer._compute_loss(trainer.model, batch)
    completions = SUMS.index("completions")
    counted = {mode: [total[completions].item() for total in totals] for mode, totals in trainer._ces_totals.items()}
    assert counted == {"train": [16.0], "eval": [8.0]}


def test_help_shows_trls_parameters():
    import inspect

    assert list(inspect.signature(CESTrainer.__init__).parameters) == (
        list(inspect.signature(GRPOTrainer.__init__).parameters)
    )


def detach_entropies(trainer, monkeypatch):
    """Detaches the entropies, as TRL 1.9 and before did."""
    upstream = GRPOTrainer._get_per_token_logps_and_entropies

    def under_no_grad(self, *args, **kwargs):
        logps, entropies, aux_loss = upstream(self, *args, **kwargs)
        return logps, None if entropies is None else entropies.detach(), aux_loss

    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", under_no_grad)


def test_entropies_without_a_gradient_are_refused_since_loss_and_metrics_would_not_show_it(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path)
    detach_entropies(trainer, monkeypatch)
    with pytest.raises(RuntimeError, match=r"carry no gradient.*w/o Entropy Gradient.*`ces_entropy_gradient=False`"):
        trainer.train()


@pytest.mark.parametrize("changes", [{"ces_entropy_gradient": False}, {"shaping": "entropy_advantage"}], ids=str)
def test_entropies_without_a_gradient_serve_where_none_is_wanted(tmp_path, monkeypatch, changes):
    trainer = make_trainer(tmp_path, max_steps=1, **changes)
    detach_entropies(trainer, monkeypatch)
    trainer.train()
    assert trainer.state.global_step == 1
