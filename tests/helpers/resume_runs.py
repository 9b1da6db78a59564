"""Make trainers for resume tests, and read their logs without the values that differ between runs."""

from trainers import PROMPTS, tiny_trainer, vowel_accuracy_reward

EXCLUDED = (
    "step_time",
    "train_runtime",
    "train_samples_per_second",
    "train_steps_per_second",
    "train_loss",
    "total_flos",
    "dynamic_sampling/extra_generation_time",
)


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
    return tiny_trainer(folder, [vowel_accuracy_reward, *more_rewards], prompts, **arguments)


def log_of(trainer):
    def comparable(entry):
        entries = {name: value for name, value in entry.items() if name not in EXCLUDED}
        return {name: None if value != value else value for name, value in entries.items()}  # NaN is saved as null

    return [comparable(entry) for entry in trainer.state.log_history]
