"""Benchmark workloads: completions with R1-like lengths, models of several sizes, and trainers.

Tokens and rewards are random. Nothing is generated or graded, so the benchmarks measure only the update.
"""

import math
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import torch
from datasets import Dataset
from transformers import PrinterCallback, Qwen2Config, Qwen2ForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from trl_ces import CESConfig, CESTrainer
from trl_ces.lab.tasks.arithmetic_model import build_tokenizer

GROUP = 4
# Values: hidden size, intermediate size, layers, heads, key-value heads, vocabulary. "1.5b" is Qwen2.5-Math-1.5B.
SHAPES = {
    "tiny": (128, 512, 4, 4, 2, 1024),
    "small": (256, 1024, 6, 4, 2, 2048),
    "1.5b": (1536, 8960, 28, 12, 2, 151936),
}
# Values: trainer class, config class, shaping settings.
TRAINERS = {
    "trl": (GRPOTrainer, GRPOConfig, {}),
    "none": (CESTrainer, CESConfig, {"shaping": "none"}),
    "ces": (CESTrainer, CESConfig, {"shaping": "ces"}),
    "packed": (CESTrainer, CESConfig, {"shaping": "none", "packing": True}),
    "trimmed": (CESTrainer, CESConfig, {"shaping": "none", "packing": False}),
}
# All trainers use DAPO with a learning rate of 0, so the weights do not change. Nothing is saved or logged.
COMMON = {
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": "none",
    "save_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
    "learning_rate": 0.0,
    "epsilon_high": 0.28,
    "loss_type": "dapo",
}


def r1_lengths(rows: int, longest: int, seed: int) -> list[int]:
    """Draw completion lengths exp(N(ln 3200, 0.7)), clipped to 200..12,000 tokens, and scale by longest / 12,000."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.exp(math.log(3200) + 0.7 * torch.randn(rows, generator=generator)).clamp(200, 12_000)
    return [max(1, round(length * longest / 12_000)) for length in lengths.tolist()]


def prompt_lengths(rows: int, longest: int, seed: int) -> list[int]:
    """Draw prompt lengths of 60 to 300 tokens, equal within a group, and scale by longest / 12,000."""
    generator = torch.Generator().manual_seed(seed + 1)
    lengths = torch.randint(60, 301, (rows // GROUP,), generator=generator).tolist()
    return [max(1, round(length * longest / 12_000)) for length in lengths for _ in range(GROUP)]


def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """Return the FLOP/s of the fastest of ten large matrix multiplications."""
    size = 8192 if device == "cuda" else 1024
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    seconds, timer = [], UpdateTimer(device == "cuda")
    for _ in range(10):
        start = timer.now()
        a @ b
        seconds.append(timer.now() - start)
    return 2 * size**3 / min(seconds)


def make_model(
    shape: str, attention: str, dtype: torch.dtype, positions: int, device: str, vocabulary: int | None = None
) -> Qwen2ForCausalLM:
    """Create a Qwen2 model with random weights on `device`; `vocabulary` overrides the shape's vocabulary size."""
    hidden, intermediate, layers, heads, key_value_heads, default_vocabulary = SHAPES[shape]
    config = Qwen2Config(
        vocab_size=vocabulary or default_vocabulary,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        max_position_embeddings=positions,
        attn_implementation=attention,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        dtype=dtype,
    )
    torch.manual_seed(0)
    with torch.device(device):  # drawing 1.5 billion weights on a CPU takes half a minute
        return Qwen2ForCausalLM(config).to(dtype)


def save_random_model(folder: Path, shape: str, device: str) -> None:
    """Save a bf16 model of the given shape and a tokenizer for the arithmetic task, unless `folder` exists."""
    if not folder.exists():
        make_model(shape, "sdpa", torch.bfloat16, 4096, device).save_pretrained(folder)
        build_tokenizer().save_pretrained(folder)


class UpdateTimer(TrainerCallback):
    """
    Time the update: ordering and padding of rows, forward and backward passes, and the optimizer step.

    On a GPU, times are wall-clock seconds. On a CPU, times are CPU seconds of this process, which other processes do
    not affect.
    """

    def __init__(self, cuda: bool):
        self.cuda, self.seconds, self.positions, self.gradients, self.keep = cuda, 0.0, 0, {}, False

    def now(self) -> float:
        if self.cuda:
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()

    def begin(self) -> None:
        """Start the clock. The reward function calls this method."""
        self.positions = 0
        self.started = self.now()

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if self.keep:
            self.gradients = {
                name: value.grad.to("cpu", torch.float32, copy=True) for name, value in model.named_parameters()
            }

    def on_optimizer_step(self, args, state, control, **kwargs):
        self.seconds = self.now() - self.started


class Workload:
    """Trainer that repeats an optimizer step on a fixed rollout with groups of four completions."""

    def __init__(self, trainer_name, completions, prompts, micro_batch, model, device, **settings: Any):
        trainer_class, config_class, shaping = TRAINERS[trainer_name]
        generator = torch.Generator().manual_seed(2)
        vocabulary = model.config.vocab_size

        def tokens(length):
            return torch.randint(2, vocabulary, (length,), generator=generator).tolist()

        prompt_ids = {row // GROUP: tokens(prompts[row]) for row in range(0, len(completions), GROUP)}
        rows = [[*tokens(length - 1), 1] for length in completions]
        correct = torch.randint(0, 2, (len(completions),), generator=generator).float().tolist()
        self.timer = UpdateTimer(device == "cuda")

        def rollout(prompts, trainer):
            groups = [int(prompt) for prompt in prompts]  # TRL repeats each prompt for its group
            order = [group * GROUP + position % GROUP for position, group in enumerate(groups)]
            return {
                "prompt_ids": [prompt_ids[group] for group in groups],
                "completion_ids": [rows[row] for row in order],
                "logprobs": None,
                "correctness": [correct[row] for row in order],
            }

        def accuracy_reward(correctness, **kwargs):
            self.timer.begin()
            return correctness

        arguments = {
            "output_dir": tempfile.mkdtemp(prefix="trl_ces_bench_"),
            "use_cpu": device == "cpu",
            "max_steps": 1,
            "max_completion_length": max(completions),
            "num_generations": GROUP,
            "per_device_train_batch_size": micro_batch,
            "gradient_accumulation_steps": len(completions) // micro_batch,
            "shuffle_dataset": False,
            **COMMON,
            **shaping,
            **settings,
        }
        if config_class is GRPOConfig:
            arguments = {name: value for name, value in arguments.items() if name in GRPOConfig.__dataclass_fields__}
        self.trainer = trainer_class(
            model=model,
            reward_funcs=accuracy_reward,
            args=config_class(**arguments),
            train_dataset=Dataset.from_dict({"prompt": [str(group) for group in prompt_ids]}),
            processing_class=build_tokenizer(),  # only the padding id 0 and the EOS id 1 are used
            rollout_func=rollout,
            callbacks=[self.timer],
        )
        self.trainer.remove_callback(PrinterCallback)

    def step(self, keep_gradients: bool = False) -> float:
        """Run one optimizer step and return the duration of the update in seconds."""
        self.timer.keep = keep_gradients
        torch.manual_seed(0)  # with this seed, TRL shuffles the rows in the same order for all trainers

        def count(module, inputs, output):
            self.timer.positions += output.last_hidden_state.shape[:2].numel()

        hook = self.trainer.model.model.register_forward_hook(count)
        self.trainer.train()
        hook.remove()
        return self.timer.seconds

    def peak_memory(self) -> int:
        """Run a step and return the peak memory minus the memory in use before the step, in bytes."""
        if self.timer.cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            self.step()
            return torch.cuda.max_memory_allocated() - before
        before = psutil.Process().memory_info().rss
        with open("/proc/self/clear_refs", "w") as file:  # reset the peak (Linux)
            file.write("5")
        self.step()
        with open("/proc/self/status") as file:
            peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
        return peak - before
