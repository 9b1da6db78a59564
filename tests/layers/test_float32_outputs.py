"""FSDP2 hands out log-probs and entropies as TRL computes them. tests/lab/plan/test_fsdp2.py runs two processes."""

from types import SimpleNamespace

import torch
from accelerate.utils import FullyShardedDataParallelPlugin
from trl import GRPOTrainer

from trl_ces import CESTrainer
from trl_ces.layers.upstream import keep_outputs


def fsdp2():
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    plugin.set_mixed_precision("bf16")
    return plugin


def test_accelerate_would_cast_outputs_to_bfloat16():
    """The reason for the layer: remove it once this fails."""
    assert fsdp2().mixed_precision_policy.output_dtype is torch.bfloat16


def test_the_trainer_keeps_outputs_and_nothing_else_changes(monkeypatch):
    def accelerator_of(plugin):
        def create(self):
            self.accelerator = SimpleNamespace(state=SimpleNamespace(**plugin))

        monkeypatch.setattr(GRPOTrainer, "create_accelerator_and_postprocess", create)
        trainer = object.__new__(CESTrainer)
        trainer.create_accelerator_and_postprocess()

    plugin = fsdp2()
    accelerator_of({"fsdp_plugin": plugin})
    policy = plugin.mixed_precision_policy
    assert (policy.param_dtype, policy.reduce_dtype, policy.output_dtype) == (torch.bfloat16, torch.bfloat16, None)
    accelerator_of({})  # no FSDP


def test_a_plugin_without_a_policy_stays_as_it_is():
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    keep_outputs(plugin)
    assert plugin.mixed_precision_policy is None
