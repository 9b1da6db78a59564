"""Estimate, without measuring, where the time of a training step goes on GPUs that are not here.

    python benchmarks/step_model.py
    python benchmarks/step_model.py --recipe R1-1.5B --gpus 4

Arithmetic over the machine's data sheet. Completion lengths are drawn as in update_step.py; further assumptions are
in `Machine` and are printed. Each phase is bound by one resource: decoding by memory bandwidth (weights and cached
keys), forwards and backwards by FLOP/s, synchronisation by the link between GPUs.
"""

import argparse
import statistics
import sys
from dataclasses import dataclass, fields
from pathlib import Path

from trl_ces.lab.plan.shapes import find_shape
from trl_ces.layers.arrangement import arrange
from trl_ces.train.recipe import load_recipe

sys.path.insert(0, str(Path(__file__).parent))
from rollouts import forward_flops, prompt_lengths, r1_lengths


@dataclass(frozen=True)
class Machine:
    """A800 80GB SXM (NVIDIA's data sheet: 312 TFLOP/s bf16, 2,039 GB/s, NVLink 400 GB/s both ways), and guesses."""

    flops: float = 312e12  # bf16, dense
    bytes_per_s: float = 2039e9
    link_bytes_per_s: float = 200e9  # one way
    flops_share: float = 0.40  # assumed: of the peak, in forwards and backwards
    bytes_share: float = 0.60  # assumed: of the peak, in decoding
    link_share: float = 0.60  # assumed
    token_overhead_s: float = 0.002  # assumed: scheduling and sampling per decoding step
    sync_s: float = 3.0  # assumed: sleep, wake-up and load of the generation engine per rollout
    verdicts_per_s: float = 200.0  # long answers on two cores; benchmarks/grading.py measures more


def decode_seconds(lengths: list[int], weights: int, kv_bytes: int, prompt: float, machine: Machine) -> float:
    """One engine decodes these completions as one batch until the longest has ended."""
    seconds, bandwidth = 0.0, machine.bytes_per_s * machine.bytes_share
    for token in range(max(lengths)):
        alive = sum(length > token for length in lengths)
        read = 2 * weights + alive * (prompt + token) * kv_bytes
        seconds += read / bandwidth + machine.token_overhead_s
    return seconds


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", nargs="+", default=["R1-7B"])
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    recipe, machine = load_recipe(options.recipe), Machine()
    config = recipe.training_fields(options.gpus)
    shape = find_shape(str(recipe.model.model_name_or_path)).config()
    weights = parameters(shape)
    group, longest = config["num_generations"], config["max_completion_length"]
    per_gpu, accumulation = config["per_device_train_batch_size"], config["gradient_accumulation_steps"]
    micro_batches = config["steps_per_generation"]
    responses = per_gpu * micro_batches * options.gpus
    rollouts = recipe.script.max_train_samples * config.get("num_train_epochs", 1) * group / responses

    completions = r1_lengths(responses, longest, options.seed)
    prompts = prompt_lengths(responses, longest, options.seed)
    totals = [one + other for one, other in zip(prompts, completions, strict=True)]
    head = shape.hidden_size // shape.num_attention_heads
    kv_bytes = 2 * shape.num_hidden_layers * shape.num_key_value_heads * head * 2

    shares = [completions[gpu :: options.gpus] for gpu in range(options.gpus)]
    mean_prompt = statistics.mean(prompts)
    generation = max(decode_seconds(share, weights, kv_bytes, mean_prompt, machine) for share in shares)
    grading = responses / machine.verdicts_per_s

    def training(forwarded) -> tuple[float, float]:
        """Seconds of old log-probs and of the update; `forwarded(rows)` are the lengths that a forward computes."""
        forward = 0.0
        for start in range(0, responses, per_gpu * accumulation * options.gpus):
            step = totals[start : start + per_gpu * accumulation * options.gpus]
            placed = arrange(step, options.gpus, accumulation)
            for meeting in zip(*placed, strict=True):  # ZeRO-3: the slowest process holds up the others
                rows = [[step[row] for row in batch] for batch in meeting]
                forward += max(
                    forward_flops(forwarded(r), weights, shape.num_hidden_layers, shape.hidden_size) for r in rows
                )
        seconds = forward / (machine.flops * machine.flops_share)
        # Each pass gathers the weights that the other GPUs hold.
        gather = 2 * weights * (options.gpus - 1) / options.gpus / (machine.link_bytes_per_s * machine.link_share)
        # Forward, the checkpointed forward again, and a backward of two forwards.
        return seconds + micro_batches * gather, 4 * seconds + 3 * micro_batches * gather

    padded = max(prompts) + max(completions)
    print(f"A model of {options.recipe} on {options.gpus} GPUs; nothing here was measured on them.")
    print(", ".join(f"{entry.name} {getattr(machine, entry.name):g}" for entry in fields(machine)))
    share = 100 * (1 - sum(totals) / (responses * padded))
    print(
        f"{weights / 1e9:.2f} billion weights; {responses} responses a rollout, {statistics.mean(completions):.0f} "
        f"tokens on average, {max(completions)} at most; {rollouts:.0f} rollouts; {share:.0f} % of TRL's token "
        "positions are padding\n"
    )
    print("| seconds of a rollout | TRL's padding | without |\n| --- | ---: | ---: |")
    packs = "flash" in str(recipe.attention)
    columns = [
        training(lambda rows: [padded] * len(rows)),
        training(lambda rows: rows if packs else [max(rows)] * len(rows)),
    ]
    needs_old = config["steps_per_generation"] > accumulation
    phases = {
        "generation": [generation] * 2,
        "grading": [grading] * 2,
        "old log-probs": [column[0] * needs_old for column in columns],
        "update": [column[1] for column in columns],
        "weights to the engine": [machine.sync_s + 2 * weights / machine.link_bytes_per_s] * 2,
    }
    for name, seconds in phases.items():
        print(f"| {name} | " + " | ".join(f"{value:.1f}" for value in seconds) + " |")
    sums = [sum(values[side] for values in phases.values()) for side in range(2)]
    print("| all | " + " | ".join(f"{value:.0f}" for value in sums) + " |")
    print("| the run, hours | " + " | ".join(f"{value * rollouts / 3600:.1f}" for value in sums) + " |")
    first = max(phases, key=lambda name: phases[name][1])
    print(f"\nWithout padding {100 * phases[first][1] / sums[1]:.0f} % of the time is {first}.")
    half = sorted(completions)[len(completions) // 2]
    short = max(
        decode_seconds([min(n, 2 * half) for n in share], weights, kv_bytes, mean_prompt, machine) for share in shares
    )
    print(
        f"Answers cut at twice the median ({2 * half} tokens) would take {100 * (1 - short / generation):.0f} % off "
        "generation: the longest answer holds up all others."
    )
    return 0


def parameters(config) -> int:
    """Number of parameters, counted on the meta device."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return sum(value.numel() for value in AutoModelForCausalLM.from_config(config).parameters())


if __name__ == "__main__":
    raise SystemExit(main())
