"""A trainer that is stopped and resumed, and its log."""

from datasets import Dataset
from tiny import settings, tiny_model, tiny_tokenizer

from trl_ces import CESConfig, CESTrainer

PROMPTS = [f"{a}+{b}=" for a in range(4) for b in range(4)]
TIMES = (
    "step_time",
    "train_runtime",
    "train_samples_per_second",
    "train_steps_per_second",
    "train_loss",
    "total_flos",
    "dynamic_sampling/extra_generation_time",
)


def vowel_accuracy_reward(completions, **kwargs):
    return [float(any(character in "aeiou" for character in text[:3])) for text in completions]


def make_trainer(folder, prompts=PROMPTS, more_rewards=(), **changes):
    arguments = {
        "max_steps": 8,
        "steps_per_generation": 4,
        "per_device_train_batch_size": 4,
        "save_strategy": "steps",
        "save_steps": 1,
        "ces_tau": 0.3,
        **changes,
    }
    return CESTrainer(
        model=tiny_model(),
        reward_funcs=[vowel_accuracy_reward, *more_rewards],
        args=CESConfig(**settings(folder, **arguments)),
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        eval_dataset=Dataset.from_dict({"prompt": prompts[:2]}),
        processing_class=tiny_tokenizer(),
    )


def log_of(trainer):
    def comparable(entry):
        kept = {name: value for name, value in entry.items() if name not in TIMES}
        return {name: None if value != value else value for name, value in kept.items()}  # NaN, on disk null

    return [comparable(entry) for entry in trainer.state.log_history]
