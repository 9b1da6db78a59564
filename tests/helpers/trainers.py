"""Make trainers for the tiny model, and check their weights."""

import torch
from datasets import Dataset
from tiny import (
    scripted_accuracy_reward,
    scripted_bonus_reward,
    scripted_rollout,
    settings,
    tiny_model,
    tiny_tokenizer,
)

from trl_ces import CESConfig, CESTrainer

PROMPTS = [f"{a}+{b}=" for a in range(4) for b in range(4)]


def vowel_accuracy_reward(completions, **kwargs):
    """Return 1.0 if the first three characters include a vowel, as in about half of all random completions."""
    return [float(any(character in "aeiou" for character in text[:3])) for text in completions]


def short_reward(completions, **kwargs):
    return [float(len(text) < 8) for text in completions]


def tiny_trainer(
    folder,
    rewards=vowel_accuracy_reward,
    prompts=PROMPTS,
    trainer_class=CESTrainer,
    config_class=CESConfig,
    more=None,
    **changes,
):
    """Make a trainer from `prompts` (strings or columns), trainer arguments `more` and config fields `changes`."""
    arguments, fields = settings(folder, **changes), config_class.__dataclass_fields__
    data = Dataset.from_dict(prompts if isinstance(prompts, dict) else {"prompt": prompts})
    more = {"train_dataset": data, "eval_dataset": data, "processing_class": tiny_tokenizer(), **(more or {})}
    return trainer_class(
        more.pop("model", None) or tiny_model(),
        rewards,
        config_class(**{name: value for name, value in arguments.items() if name in fields}),
        **more,
    )


def scripted_trainer(folder, script, rewards=(scripted_accuracy_reward, scripted_bonus_reward), more=None, **changes):
    """Make a [`tiny_trainer`] whose completions, accuracies and bonuses come from `script`."""
    more = {"rollout_func": scripted_rollout(script, changes.get("num_generations", 4)), **(more or {})}
    return tiny_trainer(folder, list(rewards), changes.pop("prompts", list(script)), more=more, **changes)


def prepare_trainer(trainer):
    """Prepare the trainer to generate a rollout or compute a loss outside `train`."""
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    return trainer


def record_results(trainer, name):
    """Return a list that collects the return values of a method of the trainer."""
    results, method = [], getattr(trainer, name)

    def record(*args, **kwargs):
        results.append(method(*args, **kwargs))
        return results[-1]

    setattr(trainer, name, record)
    return results


def with_reference(model, folder):
    """Save the model in `folder` so that TRL loads it as the reference model."""
    model.save_pretrained(folder / "start")
    model.config._name_or_path = str(folder / "start")
    return model


def weights(trainer):
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


def assert_bitwise_equal(weights, other):
    assert weights.keys() == other.keys()
    for name, value in weights.items():
        assert torch.equal(value, other[name]), name


def assert_weights_changed(trainer):
    start = tiny_model().state_dict()
    assert any(not torch.equal(value, start[name]) for name, value in trainer.model.state_dict().items())
