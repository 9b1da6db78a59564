"""Record the settings that the launcher passes to the training script. Not a test file."""

import json
import os
import sys
from pathlib import Path

from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin

if __name__ == "__main__":
    info = {"threads": os.environ["OMP_NUM_THREADS"], "processes": os.environ.get("WORLD_SIZE", "1")}
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        plugin = DeepSpeedPlugin()
        info |= {"zero": plugin.zero_stage, "optimizer device": plugin.offload_optimizer_device}
        info |= {"save 16-bit": plugin.zero3_save_16bit_model, "precision": os.environ["ACCELERATE_MIXED_PRECISION"]}
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        plugin = FullyShardedDataParallelPlugin()
        info |= {"fsdp": plugin.fsdp_version, "state dict": plugin.state_dict_type.name}
        info |= {"reshards": plugin.reshard_after_forward, "precision": os.environ["ACCELERATE_MIXED_PRECISION"]}
    Path(os.environ["PROBE"], f"{os.environ.get('RANK', '0')}.json").write_text(json.dumps([info, sys.argv[1:]]))
