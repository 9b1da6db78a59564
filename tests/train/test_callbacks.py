"""The progress bar says how the answers are; and every metric of CES reaches the loggers under a name of its own."""

from datasets import Dataset
from tiny import settings, tiny_model, tiny_tokenizer
from transformers.integrations.integration_utils import rewrite_logs

from trl_ces import CESConfig, CESTrainer
from trl_ces.methods.metrics import CES_METRICS


def vowel_accuracy_reward(completions, **kwargs):
    return [float(any(character in "aeiou" for character in text[:3])) for text in completions]


def length_reward(completions, **kwargs):
    return [len(text) / 12 for text in completions]


def trainer_with_bar(folder, **changes):
    """Two steps of real sampling, with two rewards."""
    given = {"max_steps": 2, "disable_tqdm": False, "ces_tau": 0.3}
    return CESTrainer(
        model=tiny_model(),
        reward_funcs=[length_reward, vowel_accuracy_reward],
        args=CESConfig(**settings(folder, **{**given, **changes})),
        train_dataset=Dataset.from_dict({"prompt": [f"{a}+{b}=" for a in range(4) for b in range(4)]}),
        processing_class=tiny_tokenizer(),
    )


def test_every_metric_of_ces_goes_to_the_loggers_apart_from_evaluation(tmp_path):
    trainer = trainer_with_bar(tmp_path)
    trainer.train()
    names = rewrite_logs(trainer.state.log_history[0])
    nothing_right = {"train/ces/selected_entropy_correct"}  # a mean over nothing is left out
    assert trainer.state.log_history[0]["rewards/vowel_accuracy_reward/mean"] == 0
    assert {name for name in names if "ces/" in name} == {f"train/{name}" for name in CES_METRICS} - nothing_right
