"""Compare the planned and measured memory of training steps, for small models on a CPU or larger models on a GPU.

    python benchmarks/memory.py
    python benchmarks/memory.py --device cuda

In each case, CESTrainer trains a random model for two steps on full-length completions, in a separate process. The
script compares the estimate of `trl_ces/lab/plan` with the measured peak. On a GPU, this is the peak of PyTorch's
allocator. On a CPU (Linux only), it is the peak of resident memory minus the resident memory before the model was
created. The CPU cases take a few minutes on one core.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from trl_ces.lab.plan.sizes import KNOWN_SHAPES, ModelShape, shape_of

MIB = 2**20
QWEN = shape_of("qwen2", False, 512, 1536, 8, 8, 2, 32000)
# The vocabulary size equals the width of TRL's logits tile. With a smaller vocabulary, only part of the tile would be
# resident in memory.
LLAMA = shape_of("llama", True, 256, 1024, 12, 4, 4, 32768)
FOUR_ROWS = {"max_completion_length": 736, "per_device_train_batch_size": 4}
# Each case has a name, a shape and the recipe fields that differ from BASE.
CASES = [
    ("Qwen2, 57 M", QWEN, {}),
    ("Qwen2, 57 M", QWEN, {"gradient_checkpointing": True}),
    ("Qwen2, 57 M, 2 micro-batches", QWEN, {"gradient_accumulation_steps": 2}),
    ("Qwen2, 57 M, bf16", QWEN, {"bf16": True}),
    ("Qwen2, 57 M, bf16", QWEN, {"bf16": True, "gradient_checkpointing": True}),
    ("Qwen2, 57 M, LoRA", QWEN, {"use_peft": True, "lora_r": 16}),
    ("Llama, 21 M, tied", LLAMA, FOUR_ROWS),
    ("Llama, 21 M, tied", LLAMA, {**FOUR_ROWS, "gradient_checkpointing": True}),
    ("Qwen2, 57 M, long", QWEN, {"max_completion_length": 1504, "gradient_checkpointing": True}),
]
# The sizes are from config.json of Qwen2.5-0.5B and Qwen2.5-Math-1.5B. The GPU cases need up to 80 GB of memory.
HALF_BILLION = shape_of("qwen2", True, 896, 4864, 24, 14, 2, 151936)
R1_1_5B = KNOWN_SHAPES["deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"]
LONG = {"bf16": True, "gradient_checkpointing": True, "max_completion_length": 12_000}
CUDA_CASES = [
    ("Qwen2, 57 M", QWEN, {"bf16": True}),
    ("Llama, 21 M, tied", LLAMA, FOUR_ROWS),
    ("Qwen2, 0.5 B, tied", HALF_BILLION, {"bf16": True, "max_completion_length": 2016}),
    ("Qwen2, 0.5 B, tied", HALF_BILLION, LONG),
    ("Qwen2, 1.5 B", R1_1_5B, LONG),
    ("Qwen2, 1.5 B, LoRA", R1_1_5B, {**LONG, "use_peft": True, "lora_r": 16}),
]
PROMPT = 32
BASE = {
    "model_name_or_path": "unused",
    "dataset_builder": "trl_ces.lab.tasks.arithmetic.make_datasets",
    "use_cpu": True,
    "bf16": False,
    "dtype": "float32",
    "gradient_checkpointing": False,
    "num_generations": 2,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 1,
    "max_completion_length": 480,
    "max_steps": 2,
    "learning_rate": 1e-5,
    "ces_tau": 0.1,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
}


def recipe_of(fields, output, device):
    from transformers.utils import is_flash_attn_2_available

    from trl_ces.train.recipe import make_recipe

    settings = {**BASE, **fields, "use_cpu": device == "cpu", "output_dir": output}
    # With sdpa, the plan would include an attention mask, which trimmed rows do not need.
    if device == "cuda" and fields.get("bf16") and is_flash_attn_2_available(kernels_fallback_ok=True):
        settings["attn_implementation"] = "flash_attention_2"
    settings["steps_per_generation"] = 2 * settings["gradient_accumulation_steps"]
    return make_recipe(settings, "benchmarks/memory.py")


def planned_bytes(shape, fields, device):
    """Return the planned memory in bytes, excluding the reserve."""
    from trl_ces.lab.plan.memory import Engine, plan_memory
    from trl_ces.lab.plan.setup import make_setup

    recipe = recipe_of(fields, "unused", device)
    memory = plan_memory(
        make_setup(recipe, recipe.check_training(1), ModelShape(json.dumps(shape)), Engine(1), PROMPT)
    )
    return memory.training - memory.parts["reserve (estimate)"]


def resident_bytes(name):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name}.")


def train(shape, fields, output, device):
    """Train, and return the peak of PyTorch's allocator or, on a CPU, the increase in resident memory, in bytes."""
    import torch
    from datasets import Dataset
    from transformers import AutoConfig, AutoModelForCausalLM
    from trl import get_peft_config

    from trl_ces import CESTrainer
    from trl_ces.lab.tasks.arithmetic_model import build_tokenizer

    recipe = recipe_of(fields, output, device)
    config, tokenizer = recipe.training_config(1), build_tokenizer()
    length = config.max_completion_length

    def rollout(prompts, trainer):
        # The first prompt is shorter than the other prompts, so that rows need padding, as in training.
        ids = [[3] * (PROMPT if number else PROMPT // 2) for number in range(len(prompts))]
        return {"prompt_ids": ids, "completion_ids": [[4] * length for _ in prompts], "logprobs": None}

    def accuracy_reward(completions, **kwargs):
        return [float(number % 2) for number in range(len(completions))]

    warm_up = torch.nn.Linear(64, 64)
    warm_up(torch.ones(1, 64)).sum().backward()
    before = resident_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(**shape), dtype=torch.float32, attn_implementation=recipe.attention
    )
    trainer = CESTrainer(
        model=model,
        reward_funcs=accuracy_reward,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": [f"{n}=" for n in range(16)]}),
        processing_class=tokenizer,
        rollout_func=rollout,
        peft_config=get_peft_config(recipe.model),
    )
    trainer.train()
    assert trainer.state.global_step == config.max_steps
    return torch.cuda.max_memory_allocated() if device == "cuda" else resident_bytes("VmHWM") - before


def measure_case(number, device):
    # Make glibc return large blocks immediately, so that freed memory is not counted.
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "TRL_EXPERIMENTAL_SILENCE": "1",
    }
    command = [sys.executable, __file__, "--measure", str(number), "--device", device]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if finished.returncode:
        print(finished.stderr[-3000:], file=sys.stderr, flush=True)
        return None
    return int(finished.stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--measure", type=int, help="measure only this case in this process, and print the peak in bytes"
    )
    parser.add_argument("--cases", type=int, nargs="*", help="numbers of the cases to run (default: all)")
    options = parser.parse_args()
    cases = CASES if options.device == "cpu" else CUDA_CASES
    if options.measure is not None:
        _, shape, fields = cases[options.measure]
        with tempfile.TemporaryDirectory() as output:
            print(train(shape, fields, output, options.device))
        return
    header = ("model", "rows x tokens", "checkpointing", "plan (MiB)", "measured (MiB)", "deviation")
    print_row(header)
    print_row([":---", *["---:"] * (len(header) - 1)])
    for number in options.cases if options.cases is not None else range(len(cases)):
        name, shape, fields = cases[number]
        plan, peak = planned_bytes(shape, fields, options.device), measure_case(number, options.device)
        settings = {**BASE, **fields}
        rows = f"{settings['per_device_train_batch_size']} x {PROMPT + settings['max_completion_length']}"
        deviation = "failed" if peak is None else f"{100 * (plan / peak - 1):+.1f} %"
        peak_mib = "" if peak is None else f"{peak / MIB:,.0f}"
        print_row(
            [
                name,
                rows,
                "yes" if settings["gradient_checkpointing"] else "no",
                f"{plan / MIB:,.0f}",
                peak_mib,
                deviation,
            ]
        )


def print_row(cells):
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
