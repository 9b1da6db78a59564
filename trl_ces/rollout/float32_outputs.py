"""Keeps log-probs and entropies in float32 under FSDP2.

Overrides of transformers: `create_accelerator_and_postprocess`.
"""

from dataclasses import replace
from typing import Any

from torch.distributed.fsdp import MixedPrecisionPolicy

from .layer import Layer


class Float32Outputs(Layer):
    """
    Log-probs and entropies in float32 under FSDP2, as under every other engine.

    With `bf16` accelerate has FSDP2 cast a model's outputs to bfloat16, and TRL's model returns log-probs and
    entropies. With 8 bits, importance ratios are off by percents and entropies tie where Eq. 5 ranks them.
    """

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        keep_outputs(getattr(self.accelerator.state, "fsdp_plugin", None))


def keep_outputs(plugin: Any) -> None:
    """
    Stops FSDP2 from casting outputs; layers are still gathered and computed in the policy's dtypes.

    Args:
        plugin (`FullyShardedDataParallelPlugin`, *optional*): Changed in place. `None`, and FSDP1's, stay as they are.
    """
    policy = None if plugin is None else plugin.mixed_precision_policy
    if isinstance(policy, MixedPrecisionPolicy):
        plugin.mixed_precision_policy = replace(policy, output_dtype=None)
