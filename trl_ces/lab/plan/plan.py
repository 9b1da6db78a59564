"""Plan a recipe: compute its schedule, memory and disk space, and estimate its run time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ...config import CESConfig
from ...support.errors import UserError
from ...support.hub import is_local
from ...train.data import DEFAULT_BUILDER_SAMPLES, read_rows
from ...train.launch import read_accelerate_config
from ...train.recipe import Recipe, find_config, load_recipe
from .memory import GIB, Memory, Setup, plan_memory
from .setup import make_setup, prompt_tokens, read_engine
from .sizes import Disk, Schedule, find_shape, make_schedule, plan_disk
from .step import count_step

# Dense bf16 FLOP/s and memory bandwidth in bytes/s, from NVIDIA's data sheets.
DEVICES = {
    "A800": (312e12, 2039e9),
    "A100": (312e12, 2039e9),
    "H100": (989e12, 3350e9),
    "L40S": (362e12, 864e9),
    "RTX4090": (165e12, 1008e9),
}
# High and low estimates of the utilization of these peaks, as (FLOP/s, bandwidth). experiments/h100 measured a FLOP/s
# utilization of 0.26 during an update of a 1.5B model on an H100, and Llama 3 reports 0.38 to 0.43 (arXiv 2407.21783,
# section 3.3). The bandwidth utilization is an assumption that includes the time for scheduling and sampling.
UTILIZATION = ((0.45, 0.6), (0.25, 0.25))
# Assumed number of tokens per prompt, and assumed deciles of R1's completion lengths as fractions of 12,000 tokens
# (log-normal distribution with median 3,200 and sigma 0.7).
PROMPT = 180
LENGTHS = (0.08, 0.13, 0.17, 0.20, 0.24, 0.29, 0.35, 0.43, 0.55, 1.0)


@dataclass(frozen=True)
class Plan:
    """Plan of one recipe."""

    name: str  # names of the recipe and its overlays
    config: CESConfig  # settings of the run
    model: str  # model id or path
    schedule: Schedule  # rollouts and steps
    setup: Setup  # settings that determine memory
    disk: Disk  # checkpoints
    prompt: str  # source of the prompt length
    device: str  # one of `DEVICES`

    @property
    def memory(self) -> Memory:
        return plan_memory(self.setup)

    @property
    def hours(self) -> tuple[float, float] | None:
        """Low and high run times; `None` unless vLLM is colocated on one GPU node and `rollouts` is known."""
        setup, rollouts = self.setup, self.schedule.rollouts
        if not (setup.step.gpu and setup.generation.vllm and setup.engine.nodes == 1 and rollouts):
            return None
        low, high = (rollouts * sum(phases.values()) / 3600 for phases in rollout_seconds(self))
        return low, high


def rollout_seconds(plan: Plan, lengths: Sequence[float] | None = None) -> tuple[dict[str, float], dict[str, float]]:
    """
    Estimate the seconds per rollout by phase, at high and low utilization, for completions of `lengths` tokens.

    `lengths` defaults to the lengths of R1's completions. With N completions of mean length L and mean squared length
    L2 per engine or process, P prompt tokens and W weights:

    - generation takes S = max(longest, N L / slots) decoding steps. Each step reads 2 W bytes of weights, and each
      token reads the cached keys and values of all preceding tokens: N (L P + L2 / 2) in total. The time is the number
      of bytes divided by the bandwidth.
    - log-probs and update take (2 W (P + L) + 2 layers width (P^2 + 2 P L + L2)) N FLOPs per forward pass. The time is
      the number of FLOPs divided by the FLOP/s. An update costs as much as 3 forward passes (2 with LoRA), plus 1
      with checkpointing. Old and reference log-probs cost 1 forward pass each.

    Optimizer steps, transfers between devices and to the host, checkpoints and start-up are not included.
    """
    setup, schedule, config = plan.setup, plan.schedule, plan.config
    count, engine, generation = count_step(setup.step), setup.engine, setup.generation
    lengths = lengths or [share * (config.max_completion_length or 0) for share in LENGTHS]
    mean, mean_square = fmean(lengths), fmean(length**2 for length in lengths)

    completions = schedule.completions * generation.tensor_parallel / engine.processes
    slots = min(completions, max(plan.memory.full_completions * setup.step.tokens / (PROMPT + mean / 2), 1))
    steps = max(*lengths, completions * mean / slots)
    cache_reads = generation.kv_bytes * generation.tensor_parallel * completions * (mean * PROMPT + mean_square / 2)
    bytes_read = (2 * count.base * steps + cache_reads) / generation.tensor_parallel

    text = setup.step.shape.config().get_text_config()
    attention = 2 * text.num_hidden_layers * text.hidden_size * (PROMPT**2 + 2 * PROMPT * mean + mean_square)
    forward = (2 * count.weights * (PROMPT + mean) + attention) * schedule.completions / engine.processes
    uses_correction = config.use_vllm and config.vllm_importance_sampling_correction
    logprob_passes = int(schedule.updates > 1 or uses_correction) + setup.reference
    update_passes = config.num_iterations * ((2 if setup.step.lora else 3) + setup.step.checkpointing)
    flops, bandwidth = DEVICES[plan.device]
    high, low = (
        {
            "generation": bytes_read / (bandwidth * bandwidth_share),
            "log-probs": logprob_passes * forward / (flops * flops_share),
            "update": update_passes * forward / (flops * flops_share),
        }
        for flops_share, bandwidth_share in UTILIZATION
    )
    return high, low


def plan_recipe(
    names: Sequence[str],
    overrides: dict[str, list[str]],
    *,
    gpus: int = 1,
    nodes: int | None = None,
    gpu_memory: float | None = None,
    device: str = "A800",
    accelerate_config: str | None = None,
    model_config: str | None = None,
    prompt_length: int | None = None,
    rows: int | None = None,
) -> Plan:
    """Plan a recipe; the keyword arguments are the options of `trl-ces plan`."""
    recipe = load_recipe(names, overrides)
    file = None if accelerate_config is None else find_config(accelerate_config, "accelerate")
    engine = read_engine({} if file is None else read_accelerate_config(file), gpus, nodes)
    try:
        config = recipe.check_training(gpus)
    except UserError as error:
        raise UserError(str(error).replace("--num_processes", "--gpus")) from None
    model = str(recipe.model.model_name_or_path)
    schedule = make_schedule(config, gpus, rows or _training_rows(recipe))
    shape = find_shape(model, recipe.script.model_builder, model_config)
    prompt, source = prompt_tokens(config, prompt_length)
    capacity = None if gpu_memory is None else int(gpu_memory * GIB)
    setup = make_setup(recipe, config, shape, engine, prompt, capacity)
    count = count_step(setup.step)
    sizes = {"weights": count.weights, "trained": count.trained, "width": setup.trained_bytes}
    disk = plan_disk(config, schedule.steps, **sizes, zero_stage=engine.zero_stage, fsdp=engine.fsdp)
    return Plan(" ".join(names), config, model, schedule, setup, disk, source, device)


def _training_rows(recipe: Recipe) -> int | None:
    """Return the number of training prompts, as in `load_datasets`; `None` if a Hub dataset must be downloaded."""
    script = recipe.script
    name = script.dataset_name
    if script.max_train_samples is not None or name is None:
        return script.max_train_samples or DEFAULT_BUILDER_SAMPLES
    if not (is_local(name) and Path(name).expanduser().exists()):
        return None
    held_out = 0 if script.eval_dataset_name else script.num_eval_samples or 0
    return len(read_rows(script, name, script.dataset_split).golds) - held_out
