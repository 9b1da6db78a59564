"""Shard a model over two CPU processes as accelerate does with FSDP2. Started by test_fsdp2.py; not a test file.

accelerate supports FSDP2 only on GPUs, so this script calls accelerate's `fsdp2_prepare_model` directly.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from peft import LoraConfig, get_peft_model
from plan_steps import allocator_peak
from transformers import AutoConfig, AutoModelForCausalLM
from trl.generation.vllm_generation import VLLMGeneration
from trl.trainer.utils import add_fused_lm_head

from trl_ces.layers.upstream import keep_float32_outputs


def make_sharded_model(shape, lora, dtype):
    """Make the model as `trl-ces train` does, and shard it as accelerate does with FSDP2 and bf16."""
    base = AutoModelForCausalLM.from_config(AutoConfig.for_model(**shape), dtype=getattr(torch, dtype)).train()
    model = get_peft_model(base, LoraConfig(**lora)) if lora else base
    add_fused_lm_head(base, outputs=("log_probs", "entropy"))
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        reshard_after_forward=True,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=list(base._no_split_modules),
        cpu_ram_efficient_loading=False,
    )
    plugin.set_mixed_precision("bf16")
    keep_float32_outputs(plugin)
    accelerator = SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin),
        mixed_precision="bf16",
        torch_device_mesh=None,
        is_main_process=dist.get_rank() == 0,
        device=torch.device("cpu"),
    )
    return fsdp2_prepare_model(accelerator, model)


def step(model, ids):
    outputs = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids, fused_lm_head=True)
    (outputs.log_probs.sum() + outputs.entropy.sum()).backward()
    return sorted({str(outputs.log_probs.dtype), str(outputs.entropy.dtype)})


def count_sent_weights(model, lora):
    """Count the weights that TRL would send to vLLM, by dtype."""
    generation = VLLMGeneration.__new__(VLLMGeneration)
    generation.accelerator = SimpleNamespace(device=torch.device("cpu"))
    if lora:
        model.merge_adapter()
    numbers = Counter()
    for _, tensor in generation._iter_fsdp2_params(model):
        numbers[str(tensor.dtype)] += tensor.numel()
    return numbers


def local_bytes(tensors):
    """Sum the bytes of this process's shards by dtype."""
    sizes = Counter()
    for tensor in tensors:
        sizes[str(tensor.dtype)] += tensor.to_local().numel() * tensor.element_size()
    return sizes


def main(output, processes, shape, lora, dtype, rows, tokens):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = make_sharded_model(json.loads(shape), json.loads(lora), dtype)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], foreach=False)
    ids = torch.zeros(int(rows), int(tokens), dtype=torch.long)
    gathered = set()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda module, _: gathered.add(str(module.weight.dtype)))
    facts = {"outputs": step(model, ids), "processes": dist.get_world_size(), "gathered": sorted(gathered)}
    facts["gradients"] = local_bytes(p.grad for p in model.parameters() if p.grad is not None)
    optimizer.step()
    optimizer.zero_grad()
    facts["weights"] = local_bytes(model.parameters())
    moments = [value for state in optimizer.state.values() for value in state.values() if value.dim() > 0]
    facts["optimizer"] = local_bytes(moments)
    facts["peak"] = allocator_peak(lambda: step(model, ids))
    facts["sent"] = count_sent_weights(model, json.loads(lora))
    if dist.get_rank() == 0:
        Path(output, "facts.json").write_text(json.dumps(facts))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
