"""Check the statements about TRL's AsyncGRPOTrainer in docs/architecture.md."""

import functools
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from trl import GRPOTrainer
from trl.experimental.async_grpo.async_grpo_trainer import AsyncGRPOTrainer, DataCollatorForRollout
from trl.experimental.async_grpo.packing import TreeRow
from trl.trainer.utils import get_callable_name

from trl_ces.rewards import accuracy_reward, boxed_accuracy_reward, get_kimi_length_reward, think_format_reward
from trl_ces.support.tested_trl import known_fingerprints


def make_batch():
    """Return a micro-batch with one prompt of two tokens and its completion of three tokens."""
    row = TreeRow()
    row.add(
        {
            "input_ids": np.array([5, 6, 7, 8, 1]),
            "completion_mask": np.array([0, 0, 1, 1, 1]),
            "old_log_probs": np.array([0.0, 0.0, -1.0, -2.0, -3.0]),
            "advantage": 0.5,
            "group_id": 3,
            "metrics": {"rewards/accuracy_reward": 1.0, "reward": 1.0},
        }
    )
    return DataCollatorForRollout(pad_token_id=0)([[row]])


def test_the_loss_reads_the_advantages_before_the_forward_pass():
    class ForwardReached(Exception):
        pass

    keys_read = []

    class RecordingDict(dict):
        def __getitem__(self, key):
            keys_read.append(key)
            return super().__getitem__(key)

    def model(**inputs):
        raise ForwardReached

    with pytest.raises(ForwardReached):
        AsyncGRPOTrainer.compute_loss(SimpleNamespace(aux_loss_enabled=False), model, RecordingDict(make_batch()))
    assert "advantages" in keys_read


def test_a_batch_has_one_advantage_per_token_and_no_rewards():
    batch = make_batch()
    assert batch["advantages"].tolist() == [[0.5, 0.5, 0.5]]
    assert batch["segment_id"].tolist() == [[0, 0, 0]]
    assert not [name for name in batch if "reward" in name or "group" in name or "correct" in name]


@pytest.mark.parametrize("reward", [accuracy_reward, boxed_accuracy_reward, think_format_reward])
def test_per_completion_rewards_can_be_pickled_for_the_rollout_worker(reward):
    prefilled = functools.partial(reward, thinking_prefilled=True)
    assert pickle.loads(pickle.dumps(prefilled)).func is reward
    assert get_callable_name(prefilled) == reward.__name__


def test_group_rewards_cannot_be_pickled_for_the_rollout_worker():
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(get_kimi_length_reward())


def test_async_grpo_defines_no_rollout_method_that_the_layers_override():
    names = {name.rpartition(".")[2] for functions in known_fingerprints().values() for name in functions}
    rollout = {name for name in names if hasattr(GRPOTrainer, name)} - {"__init__", "log", "_save_checkpoint"}
    assert len(rollout) > 8
    assert [name for name in sorted(rollout) if name in vars(AsyncGRPOTrainer)] == []
