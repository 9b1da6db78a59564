"""The size of a checkpoint, against one that the Trainer wrote, and how many there are at a time."""

import pytest
from peft import LoraConfig
from tiny import random_script, scripted_accuracy_reward, settings
from torch import Generator
from trainers import scripted_trainer

from trl_ces import CESConfig
from trl_ces.train.sizes import Disk, plan_disk


def size_of(folder):
    """Bytes of weights and optimizer: of the files whose size grows with the model."""
    return sum(file.stat().st_size for name in ("*.safetensors", "optimizer.pt") for file in folder.glob(name))


@pytest.mark.parametrize("adapter", [False, True])
def test_a_checkpoint_is_as_large_as_planned(tmp_path, adapter):
    prompts = [f"{n}+{n}=" for n in range(8)]
    script = random_script(prompts, [[1, 0, 0, 1]] * 8, Generator().manual_seed(1), lengths=(2, 4))
    saves = {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 1, "max_steps": 2}
    more = {"peft_config": LoraConfig(r=64, target_modules="all-linear") if adapter else None}
    trainer = scripted_trainer(tmp_path, script, [scripted_accuracy_reward], more=more, **saves)
    trainer.train()
    numbers = [parameter.numel() for parameter in trainer.model.parameters()]
    trained = [parameter.numel() for parameter in trainer.model.parameters() if parameter.requires_grad]
    disk = plan_disk(trainer.args, 2, weights=sum(numbers), trained=sum(trained), width=4)
    assert disk.checkpoint == 12 * sum(trained)
    assert (disk.saves, disk.most) == (2, 2)
    left = tmp_path / "checkpoint-2"
    headers = 40_000  # names of tensors, and the rollout's own file
    assert disk.checkpoint < size_of(left) < disk.checkpoint + headers


@pytest.mark.parametrize(
    ("engine", "bytes_of_a_weight"),
    [
        ({}, 4 + 8),
        ({"width": 2}, 2 + 4),
        ({"zero_stage": 2}, 2 + 2 + 12),
        ({"zero_stage": 3}, 2 + 12),
        ({"fsdp": True}, 4 + 4 + 8),
    ],
)
def test_engines_write_what_their_source_says(tmp_path, engine, bytes_of_a_weight):
    config = CESConfig(**settings(tmp_path, save_strategy="steps"))
    disk = plan_disk(config, 100, weights=1000, trained=1000, **{"width": 4, **engine})
    assert disk.checkpoint == 1000 * bytes_of_a_weight
    only = CESConfig(**settings(tmp_path, save_strategy="steps", save_only_model=True))
    assert plan_disk(only, 100, weights=1000, trained=1000, **{"width": 4, **engine}).checkpoint == disk.model


@pytest.mark.parametrize(
    ("fields", "steps", "saves"),
    [
        ({"save_strategy": "no"}, 100, 0),
        ({"save_strategy": "steps", "save_steps": 240}, 2496, 11),
        ({"save_strategy": "steps", "save_steps": 0.1}, 50, 10),
        ({"save_strategy": "steps"}, None, None),
        ({"save_strategy": "epoch", "num_train_epochs": 2.5}, None, 3),
        ({"save_strategy": "epoch", "max_steps": 6}, 6, None),
    ],
)
def test_the_number_of_checkpoints_follows_from_the_settings(tmp_path, fields, steps, saves):
    config = CESConfig(**settings(tmp_path, **fields))
    assert plan_disk(config, steps, weights=10, trained=10, width=4).saves == saves


@pytest.mark.parametrize(
    ("saves", "limit", "most", "peak"),
    [
        (11, 2, 3, 300),  # two are kept, and a third is written before the first is deleted
        (11, None, 11, 1110),  # all are kept, and the model at the end
        (2, 2, 2, 210),
        (0, None, 0, 10),
        (None, 2, 3, 300),
        (None, None, None, 110),
    ],
)
def test_the_peak_is_one_more_than_is_kept(saves, limit, most, peak):
    disk = Disk(model=10, checkpoint=100, saves=saves, limit=limit)
    assert (disk.most, disk.peak) == (most, peak)
