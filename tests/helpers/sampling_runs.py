"""Make trainers with dynamic sampling, and record the batches on which they train."""

from datasets import Dataset
from tiny import scripted_rollout
from trainers import scripted_trainer
from trl import GRPOConfig

from trl_ces import CESConfig, CESTrainer

# Prompts of ten lengths, from 4 to 22 characters; the tests make two of five prompts informative.
PROMPTS = [f"{'+'.join('1' * (number % 10 + 1))}={number:02d}" for number in range(40)]


def rollout_with_logprobs(script):
    scripted = scripted_rollout(script, len(next(iter(script.values()))))
    by_ids = {tuple(row["completion_ids"]): row["logprobs"] for group in script.values() for row in group}

    def rollout(prompts, trainer):
        output = scripted(prompts, trainer)
        logprobs = [by_ids[tuple(ids)] for ids in output["completion_ids"]] if trainer.use_vllm else None
        return {**output, "logprobs": logprobs}

    return rollout


def make_trainer(tmp_path, script, prompts=None, trainer_class=CESTrainer, model=None, **changes):
    defaults = {
        "max_completion_length": 40,
        "per_device_train_batch_size": 16,
        "dynamic_sampling": True,
        "shaping": "none",
        "epsilon_high": 0.28,
    }
    prompts = prompts or list(script)
    return scripted_trainer(
        tmp_path,
        script,
        prompts=prompts,
        trainer_class=trainer_class,
        config_class=CESConfig if trainer_class is CESTrainer else GRPOConfig,
        more={
            "model": model,
            "eval_dataset": Dataset.from_dict({"prompt": prompts[:8]}),
            "rollout_func": rollout_with_logprobs(script),
        },
        **{**defaults, **changes},
    )


def record_batches(trainer, whole_groups=True):
    """
    Record the prompts of each generation batch and of each sampling round.

    A prompt is recorded once per group, or once per row if groups may be split between processes.
    """
    batches, rounds = [], []
    step = trainer.num_generations if whole_groups else 1
    generate, sample = trainer._generate_and_score_completions, trainer._sample

    def record_batch(inputs):
        batch = generate(inputs)
        if trainer.model.training:
            texts = trainer.processing_class.batch_decode(batch["prompt_ids"], skip_special_tokens=True)
            batches.append(texts[::step])
            assert texts == [text for text in batches[-1] for _ in range(step)]
        return batch

    def record_round(inputs):
        if trainer.model.training:
            rounds.append([example["prompt"] for example in inputs][::step])
        return sample(inputs)

    trainer._generate_and_score_completions, trainer._sample = record_batch, record_round
    return batches, rounds
