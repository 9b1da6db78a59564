"""Check that CESTrainer rejects unsupported models, tokenizers and metrics."""

import functools
from functools import partial

import pytest
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from tiny import save_tiny, tiny_model, tiny_tokenizer
from trainers import tiny_trainer, vowel_accuracy_reward, weights

LORA = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
WITH_EVALUATION = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}


@pytest.fixture
def folder(tmp_path):
    """Save a base model in `base` and an adapter in `adapter`."""
    save_tiny(tmp_path / "base")
    model = tiny_model()
    model.name_or_path = str(tmp_path / "base")
    get_peft_model(model, LORA).save_pretrained(tmp_path / "adapter")
    return tmp_path


def frozen_model():
    model = tiny_model()
    model.requires_grad_(False)
    return model


@pytest.mark.parametrize("shaping", ["ces", "none"])
def test_a_frozen_model_is_rejected(tmp_path, shaping):
    with pytest.raises(ValueError, match=r"weights of the model are frozen.*nothing is trainable.*is_trainable=True"):
        tiny_trainer(tmp_path, shaping=shaping, more={"model": frozen_model()})


@pytest.mark.parametrize("beta", [0.0, 0.1])  # with a KL term, TRL adds a trainable copy of the adapter
def test_a_frozen_adapter_is_rejected_and_a_trainable_adapter_is_trained(folder, beta):
    policies = [
        PeftModel.from_pretrained(tiny_model(), folder / "adapter", is_trainable=trainable)
        for trainable in (False, True)
    ]
    with pytest.raises(ValueError, match=r"nothing is trainable.*is_trainable=True"):
        tiny_trainer(folder, beta=beta, more={"model": policies[0]})
    trainer = tiny_trainer(folder, beta=beta, more={"model": policies[1]}, max_steps=1, ces_tau=1.0)
    before = weights(trainer)
    trainer.train()
    assert any("lora" in name and not value.equal(before[name]) for name, value in weights(trainer).items())


def test_a_frozen_model_may_have_a_new_adapter_or_one_trainable_layer(tmp_path):
    tiny_trainer(tmp_path, more={"model": frozen_model(), "peft_config": LORA})
    model = frozen_model()
    model.lm_head.requires_grad_(True)
    tiny_trainer(tmp_path, more={"model": model})


def test_the_error_for_an_adapter_directory_names_its_base_model(folder):
    with pytest.raises(
        ValueError, match=r"adapter' is an adapter .* for .*base: merge the adapter with `merge_and_unload`"
    ):
        tiny_trainer(folder, more={"model": str(folder / "adapter")})


@pytest.mark.parametrize("peft_config", [None, LORA], ids=["plain", "adapter"])
def test_a_tokenizer_larger_than_the_embedding_is_rejected(tmp_path, peft_config):
    more = {"peft_config": peft_config, "processing_class": tiny_tokenizer(markers=["<think>", "</think>"])}
    first = len(tiny_tokenizer())
    with pytest.raises(
        ValueError, match=rf"2 tokens without an embedding \(the first is '<think>' with id {first}; .*resize"
    ):
        tiny_trainer(tmp_path, more=more)


def test_a_larger_embedding_and_an_image_token_are_accepted(tmp_path):
    tiny_trainer(tmp_path, more={"model": tiny_model(vocabulary=len(tiny_tokenizer()) + 8)})
    tokenizer = tiny_tokenizer(markers=["<image>"])
    tokenizer.image_token = "<image>"
    tiny_trainer(tmp_path, more={"processing_class": tokenizer})


@pytest.mark.parametrize("name", ["train_dataset", "eval_dataset"])
def test_a_dataset_without_a_prompt_column_is_rejected(tmp_path, name):
    data = Dataset.from_dict({"question": ["1 + 1"] * 4, "solution": ["2"] * 4})
    with pytest.raises(
        ValueError, match=rf"`{name}` has no `prompt` column. Its columns are \['question', 'solution'"
    ):
        tiny_trainer(tmp_path, more={name: data})


def solution_reward(prompts, completions, solution, thinking_prefilled, weight=1.0, **kwargs):
    return [weight] * len(completions)


def test_a_dataset_without_a_column_that_a_reward_requires_is_rejected(tmp_path):
    columns = {"prompt": ["1 + 1"] * 4, "answer": ["2"] * 4}
    with pytest.raises(ValueError, match=r"solution_reward needs the column `solution`, but .*: rename"):
        tiny_trainer(tmp_path, solution_reward, columns)

    with pytest.raises(ValueError, match=r"needs the column `prompt`, but .* only .*, prompts, .*: use `prompts`"):
        tiny_trainer(tmp_path, lambda prompt, completions: [0.0] * len(completions))
    complete = Dataset.from_dict({**columns, "solution": ["2"] * 4})
    for eval_data in (Dataset.from_dict(columns), {"some": complete, "other": Dataset.from_dict(columns)}):
        with pytest.raises(ValueError, match=r"`solution`, but .* with `eval_dataset`"):
            tiny_trainer(tmp_path, solution_reward, more={"train_dataset": complete, "eval_dataset": eval_data})

    @functools.wraps(solution_reward)
    def wrapped_reward(completions, answer, **kwargs):
        return solution_reward(completions=completions, solution=answer, **kwargs)

    tiny_trainer(tmp_path, wrapped_reward, columns)
    transformed = Dataset.from_dict(columns).with_transform(lambda rows: {**rows, "solution": rows["answer"]})
    for data in (complete, transformed):
        tiny_trainer(
            tmp_path, [solution_reward, vowel_accuracy_reward], more={"train_dataset": data, "eval_dataset": data}
        )


def test_an_empty_list_of_rewards_is_rejected(tmp_path):
    with pytest.raises(ValueError, match="`reward_funcs` is empty: pass at least one reward function"):
        tiny_trainer(tmp_path, [])


@pytest.mark.parametrize("metric", ["eval_ces/group_accuracy", "completions/min_terminated_length"])
def test_metrics_that_every_evaluation_logs_are_accepted(tmp_path, metric):
    tiny_trainer(tmp_path, metric_for_best_model=metric, greater_is_better=True, **WITH_EVALUATION)


@pytest.mark.parametrize("metric", ["eval_accuracy", "rewards/vowel_accuracy/mean", "eval_runtime"])
def test_a_metric_that_is_not_logged_is_rejected(tmp_path, metric):
    with pytest.raises(ValueError, match=r"do not log: choose one of eval_rewards/vowel_accuracy_reward/mean"):
        tiny_trainer(tmp_path, metric_for_best_model=metric, greater_is_better=True, **WITH_EVALUATION)


def with_parameter(completions, log_metric=None, **kwargs):
    return vowel_accuracy_reward(completions)


def with_keyword(completions, **kwargs):
    kwargs["log_metric"]("mine", 1.0)
    return vowel_accuracy_reward(completions)


class CallableReward:
    __name__ = "callable_reward"

    def __call__(self, completions, log_metric=None, **kwargs):
        return vowel_accuracy_reward(completions)


@pytest.mark.parametrize("reward", [with_parameter, with_keyword, partial(with_parameter), CallableReward()])
def test_metrics_that_a_reward_function_logs_are_accepted(tmp_path, reward):
    tiny_trainer(tmp_path, reward, metric_for_best_model="mine", greater_is_better=True, **WITH_EVALUATION)


def test_the_best_model_and_the_plateau_scheduler_follow_a_reward(tmp_path):
    changes = {"lr_scheduler_type": "reduce_lr_on_plateau", "load_best_model_at_end": True, "max_steps": 2}
    metric = "eval_rewards/vowel_accuracy_reward/mean"
    trainer = tiny_trainer(tmp_path, metric_for_best_model=metric, ces_tau=0.3, **WITH_EVALUATION, **changes)
    trainer.train()
    values = [entry[metric] for entry in trainer.state.log_history if metric in entry]
    assert trainer.state.best_metric == max(values)
    assert trainer.lr_scheduler.mode == "max"


def test_every_accepted_metric_is_logged_by_an_evaluation(tmp_path):
    from trl_ces.support.settings import _LOGGED

    trainer = tiny_trainer(tmp_path)
    assert {f"eval_{name}" for name in _LOGGED} <= trainer.evaluate().keys()
