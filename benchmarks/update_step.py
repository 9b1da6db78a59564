"""Compare the update of one optimizer step between CESTrainer and TRL's GRPOTrainer on the same rollout.

    python benchmarks/update_step.py                                   # a small model on this CPU
    python benchmarks/update_step.py --device cuda --shape 1.5b --longest 12000 --attention sdpa

Trainers take turns. Each repeat yields a ratio; the median and range of the ratios are printed. On a CPU, times are
CPU seconds of this process, so other processes do not count; run it with OMP_NUM_THREADS=1.
"""

import argparse
import functools
import json
import os
import platform
import statistics
import subprocess
import sys
import warnings

import torch
from rollouts import (
    SHAPES,
    Workload,
    make_model,
    matrix_rate,
    prompt_lengths,
    r1_lengths,
)

COMPARED = ("trl", "none", "ces")


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="tiny")
    parser.add_argument("--attention", default="sdpa", help="attn_implementation")
    parser.add_argument("--checkpointing", action="store_true", help="recompute activations in the backward")
    parser.add_argument("--rows", type=int, default=48, help="completions per optimizer step")
    parser.add_argument("--longest", type=int, default=750, help="length of the longest completion (12,000 / 16)")
    parser.add_argument("--micro_batches", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument(
        "--vocabularies", type=int, nargs="+", default=[1024, 8192, 32768], help="sizes for the part `vocabulary`"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the lengths")
    parser.add_argument("--parts", nargs="+", choices=sorted(PARTS), default=sorted(PARTS))
    parser.add_argument("--peak_of", nargs=2, metavar=("TRAINER", "ROWS"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    options.dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    return options


class Bench:
    """Make the workloads of one run; all trainers share one model."""

    def __init__(self, options: argparse.Namespace, vocabulary: int | None = None):
        self.options = options
        positions = options.longest + 512
        self.model = make_model(options.shape, options.attention, options.dtype, positions, options.device, vocabulary)

    @functools.cached_property
    def matrix_rate(self) -> float:
        return matrix_rate(self.options.device, self.options.dtype)

    def update_flops(self, completions: list[int]) -> float:
        """Return the minimum FLOPs of a forward and a backward over the real tokens."""
        prompts = prompt_lengths(len(completions), self.options.longest, self.options.seed)
        lengths = [one + other for one, other in zip(prompts, completions, strict=True)]
        config, embedding = self.model.config, self.model.get_input_embeddings().weight.numel()
        weights = sum(parameter.numel() for parameter in self.model.parameters()) - embedding
        attention = 2 * config.num_hidden_layers * config.hidden_size  # causal attention needs half of the square
        return 3 * sum(2 * weights * length + attention * length**2 for length in lengths)

    def lengths(self) -> list[int]:
        return r1_lengths(self.options.rows, self.options.longest, self.options.seed)

    def workload(self, who: str, completions: list[int], micro_batch: int, **settings) -> Workload:
        prompts = prompt_lengths(len(completions), self.options.longest, self.options.seed)
        settings["gradient_checkpointing"] = self.options.checkpointing
        return Workload(who, completions, prompts, micro_batch, self.model, self.options.device, **settings)

    def in_turn(self, workloads: dict[str, Workload]) -> dict[str, list[float]]:
        """Time the workloads in turn and return the seconds of each; the first turn is a warm-up."""
        seconds: dict[str, list[float]] = {who: [] for who in workloads}
        for turn in range(self.options.repeats + 1):
            for who, workload in workloads.items():
                spent = workload.step()
                if turn > 0:
                    seconds[who].append(spent)
        return seconds


def ratio(seconds: dict[str, list[float]], above: str, below: str) -> str:
    """Format the median and range of the ratios of all turns."""
    ratios = [one / other for one, other in zip(seconds[above], seconds[below], strict=True)]
    return f"{statistics.median(ratios):.3f} [{min(ratios):.3f}, {max(ratios):.3f}]"


def line(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def peak(options: argparse.Namespace, who: str, rows: int) -> int:
    """Measure a step's peak memory in bytes, in a separate process."""
    words = [sys.executable, __file__, "--peak_of", who, str(rows)]
    for name in ("device", "shape", "attention", "rows", "longest", "seed"):
        words += [f"--{name}", str(getattr(options, name))]
    words += ["--checkpointing"] * options.checkpointing
    # Make glibc return freed tensors immediately, so that the peak does not depend on the heap's layout.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    finished = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return json.loads(finished.stdout.splitlines()[-1])


def unequal(bench: Bench) -> None:
    """Compare time and gradients with TRL's at R1-like lengths, by micro-batch size."""
    options, lengths = bench.options, bench.lengths()
    mean = sum(lengths) / len(lengths)
    print(f"\n{len(lengths)} completions of {mean:.0f} tokens on average, {max(lengths)} at most\n")
    columns = ["rows of a micro-batch", "none / TRL, time", "ces / none, time"]
    columns += ["padding, TRL", "padding, none", "gradients apart", "tokens/s, none", "of the matrix rate"]
    line(*columns)
    line(*["---:"] * len(columns))
    for rows in options.micro_batches:
        workloads = {who: bench.workload(who, lengths, rows) for who in COMPARED}
        tokens = sum(lengths) + sum(prompt_lengths(len(lengths), options.longest, options.seed))
        gradients = []
        for who in ("trl", "none"):
            workloads[who].step(keep_gradients=True)
            gradients.append(workloads[who].phase.gradients)
        seconds = bench.in_turn(workloads)
        padding = {who: f"{100 * (1 - tokens / workloads[who].phase.positions):.1f} %" for who in ("trl", "none")}
        line(
            rows,
            ratio(seconds, "none", "trl"),
            ratio(seconds, "ces", "none"),
            padding["trl"],
            padding["none"],
            f"{relative_difference(*gradients):.1e}",
            f"{tokens / statistics.median(seconds['none']):.0f}",
            f"{100 * bench.update_flops(lengths) / statistics.median(seconds['none']) / bench.matrix_rate:.0f} %",
        )


def memory(bench: Bench) -> None:
    """Compare peak memory of a step, without the model, at R1-like lengths; each peak in a separate process."""
    print("\nPeak memory of a step\n")
    line("rows of a micro-batch", "TRL", "none / TRL", "ces / none")
    line(*["---:"] * 4)
    for rows in bench.options.micro_batches:
        peaks = {who: peak(bench.options, who, rows) for who in COMPARED}
        none = peaks["none"]
        line(rows, f"{peaks['trl'] / 2**20:.0f} MiB", f"{none / peaks['trl']:.3f}", f"{peaks['ces'] / none:.3f}")


def relative_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Return the norm of the difference over the norm of `one`, treating all gradients as one vector."""
    apart = sum((one[name] - other[name]).double().square().sum() for name in one)
    return float((apart / sum(value.double().square().sum() for value in one.values())).sqrt())


def equal(bench: Bench) -> None:
    """Compare times with TRL's on completions of equal length, which have no padding to save."""
    length = bench.options.longest // 3
    workloads = {who: bench.workload(who, [length] * bench.options.rows, 2) for who in ("trl", "none")}
    seconds = bench.in_turn(workloads)
    print(
        f"\n{length} tokens per completion, 2 rows per micro-batch: none / TRL, time {ratio(seconds, 'none', 'trl')}"
    )


def packed(bench: Bench) -> None:
    """Compare rows packed into one sequence with rows padded to the longest of a micro-batch, at R1-like lengths."""
    workloads = {who: bench.workload(who, bench.lengths(), 2) for who in ("packed", "trimmed")}
    seconds = bench.in_turn(workloads)
    print(f"\nR1-like lengths, 2 rows per micro-batch: packed / trimmed, time {ratio(seconds, 'packed', 'trimmed')}")


def vocabulary(bench: Bench) -> None:
    """Measure the cost of the entropy's gradient by vocabulary size."""
    options = bench.options
    print(f"\nCost of the entropy's gradient by vocabulary size, hidden size {bench.model.config.hidden_size}\n")
    line("vocabulary", "ces / none, time")
    line(*["---:"] * 2)
    for size in options.vocabularies:
        one = Bench(options, size)
        workloads = {who: one.workload(who, one.lengths(), 2) for who in ("none", "ces")}
        seconds = one.in_turn(workloads)
        line(size, ratio(seconds, "ces", "none"))


PARTS = {
    "unequal": unequal,
    "memory": memory,
    "equal": equal,
    "packed": packed,
    "vocabulary": vocabulary,
}


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    warnings.filterwarnings("ignore")  # TRL's experimental rollout function, transformers' renamings
    bench = Bench(options)
    if options.peak_of:
        who, rows = options.peak_of
        workload = bench.workload(who, bench.lengths(), int(rows))
        if options.device == "cuda":
            workload.step()  # excludes the one-time set-up of libraries
        # On a CPU, measure the first step: memory that it leaves allocated would hide the needs of a later step.
        print(json.dumps(workload.peak_memory()))
        return 0
    name = torch.cuda.get_device_name() if options.device == "cuda" else f"{platform.machine()} CPU"
    parameters = sum(parameter.numel() for parameter in bench.model.parameters())
    print(
        f"{name}, {torch.get_num_threads()} thread(s), torch {torch.__version__}, Qwen2 of shape {options.shape} "
        f"({parameters / 1e6:.1f} million weights), {str(options.dtype).removeprefix('torch.')}, "
        f"{options.attention} attention, {options.repeats} repeats; product of large matrices: "
        f"{bench.matrix_rate / 1e12:.3g} TFLOP/s"
    )
    for part in options.parts:
        PARTS[part](bench)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
