"""Compare the time, memory and gradients of one update with CESTrainer and with TRL's GRPOTrainer on the same rollout.

    python benchmarks/update_step.py                                   # a small model on a CPU
    python benchmarks/update_step.py --device cuda --shape 1.5b --longest 12000 --attention sdpa

The trainers run alternately. Each repeat yields a ratio, and the script prints the median and range of the ratios. On
a CPU, set OMP_NUM_THREADS=1; times are CPU seconds of this process, which other processes do not affect.
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
    parser.add_argument("--checkpointing", action="store_true", help="recompute activations in the backward pass")
    parser.add_argument("--rows", type=int, default=48, help="completions per optimizer step")
    parser.add_argument("--longest", type=int, default=750, help="length of the longest completion")
    parser.add_argument("--micro_batches", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument(
        "--vocabularies",
        type=int,
        nargs="+",
        default=[1024, 8192, 32768],
        help="vocabulary sizes to measure in the `vocabulary` part",
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="random seed for completion lengths")
    parser.add_argument("--parts", nargs="+", choices=sorted(PARTS), default=sorted(PARTS))
    parser.add_argument("--peak_of", nargs=2, metavar=("TRAINER", "ROWS"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    options.dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    return options


class Bench:
    """Create and time workloads whose trainers share one model."""

    def __init__(self, options: argparse.Namespace, vocabulary: int | None = None):
        self.options = options
        positions = options.longest + 512
        self.model = make_model(options.shape, options.attention, options.dtype, positions, options.device, vocabulary)

    @functools.cached_property
    def matrix_rate(self) -> float:
        return matrix_rate(self.options.device, self.options.dtype)

    def update_flops(self, completions: list[int]) -> float:
        """Return the minimum FLOPs of a forward and backward pass over all non-padding tokens."""
        prompts = prompt_lengths(len(completions), self.options.longest, self.options.seed)
        lengths = [prompt + completion for prompt, completion in zip(prompts, completions, strict=True)]
        config, embedding = self.model.config, self.model.get_input_embeddings().weight.numel()
        weights = sum(parameter.numel() for parameter in self.model.parameters()) - embedding
        attention = 2 * config.num_hidden_layers * config.hidden_size  # causal attention uses half of the score matrix
        return 3 * sum(2 * weights * length + attention * length**2 for length in lengths)

    def lengths(self) -> list[int]:
        return r1_lengths(self.options.rows, self.options.longest, self.options.seed)

    def workload(self, trainer: str, completions: list[int], micro_batch: int, **settings) -> Workload:
        prompts = prompt_lengths(len(completions), self.options.longest, self.options.seed)
        settings["gradient_checkpointing"] = self.options.checkpointing
        return Workload(trainer, completions, prompts, micro_batch, self.model, self.options.device, **settings)

    def time_alternately(self, workloads: dict[str, Workload]) -> dict[str, list[float]]:
        """Time the workloads in alternating turns after a warm-up turn; return each workload's times in seconds."""
        seconds: dict[str, list[float]] = {trainer: [] for trainer in workloads}
        for turn in range(self.options.repeats + 1):
            for trainer, workload in workloads.items():
                duration = workload.step()
                if turn > 0:
                    seconds[trainer].append(duration)
        return seconds


def ratio(seconds: dict[str, list[float]], numerator: str, denominator: str) -> str:
    """Format the median and range of the ratios over all turns."""
    ratios = [top / bottom for top, bottom in zip(seconds[numerator], seconds[denominator], strict=True)]
    return f"{statistics.median(ratios):.3f} [{min(ratios):.3f}, {max(ratios):.3f}]"


def line(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def peak(options: argparse.Namespace, trainer: str, rows: int) -> int:
    """Return a step's peak memory in bytes, measured in a separate process."""
    args = [sys.executable, __file__, "--peak_of", trainer, str(rows)]
    for name in ("device", "shape", "attention", "rows", "longest", "seed"):
        args += [f"--{name}", str(getattr(options, name))]
    args += ["--checkpointing"] * options.checkpointing
    # Make glibc return freed tensors immediately, so that the peak does not depend on the heap's layout.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    finished = subprocess.run(args, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return json.loads(finished.stdout.splitlines()[-1])


def mixed_lengths(bench: Bench) -> None:
    """For each micro-batch size, compare the time and gradients of CESTrainer and TRL at R1-like lengths."""
    options, lengths = bench.options, bench.lengths()
    mean = sum(lengths) / len(lengths)
    print(f"\n{len(lengths)} completions of {mean:.0f} tokens on average, {max(lengths)} at most\n")
    columns = ["rows per micro-batch", "none / TRL, time", "ces / none, time"]
    columns += ["padding, TRL", "padding, none", "relative gradient difference", "tokens/s, none", "% of matmul peak"]
    line(*columns)
    line(*["---:"] * len(columns))
    for rows in options.micro_batches:
        workloads = {trainer: bench.workload(trainer, lengths, rows) for trainer in COMPARED}
        tokens = sum(lengths) + sum(prompt_lengths(len(lengths), options.longest, options.seed))
        gradients = []
        for trainer in ("trl", "none"):
            workloads[trainer].step(keep_gradients=True)
            gradients.append(workloads[trainer].timer.gradients)
        seconds = bench.time_alternately(workloads)
        padding = {
            trainer: f"{100 * (1 - tokens / workloads[trainer].timer.positions):.1f} %" for trainer in ("trl", "none")
        }
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
    """Compare the peak memory of a step at R1-like lengths, excluding the model's memory; one process per trainer."""
    print("\nPeak memory of a step\n")
    line("rows per micro-batch", "TRL", "none / TRL", "ces / none")
    line(*["---:"] * 4)
    for rows in bench.options.micro_batches:
        peaks = {trainer: peak(bench.options, trainer, rows) for trainer in COMPARED}
        none = peaks["none"]
        line(rows, f"{peaks['trl'] / 2**20:.0f} MiB", f"{none / peaks['trl']:.3f}", f"{peaks['ces'] / none:.3f}")


def relative_difference(expected: dict[str, torch.Tensor], actual: dict[str, torch.Tensor]) -> float:
    """Return the norm of `expected` - `actual` over all gradients, divided by the norm of `expected`."""
    difference = sum((expected[name] - actual[name]).double().square().sum() for name in expected)
    return float((difference / sum(value.double().square().sum() for value in expected.values())).sqrt())


def equal_lengths(bench: Bench) -> None:
    """Compare the time of CESTrainer and TRL for completions of equal length, which need no padding."""
    length = bench.options.longest // 3
    workloads = {trainer: bench.workload(trainer, [length] * bench.options.rows, 2) for trainer in ("trl", "none")}
    seconds = bench.time_alternately(workloads)
    print(
        f"\n{length} tokens per completion, 2 rows per micro-batch: none / TRL, time {ratio(seconds, 'none', 'trl')}"
    )


def packed(bench: Bench) -> None:
    """Compare the times of packed rows and of rows padded to the longest row, at R1-like lengths."""
    workloads = {trainer: bench.workload(trainer, bench.lengths(), 2) for trainer in ("packed", "trimmed")}
    seconds = bench.time_alternately(workloads)
    print(f"\nR1-like lengths, 2 rows per micro-batch: packed / trimmed, time {ratio(seconds, 'packed', 'trimmed')}")


def vocabulary(bench: Bench) -> None:
    """Measure the cost of the entropy gradient for each vocabulary size."""
    options = bench.options
    print(f"\nCost of the entropy gradient by vocabulary size, hidden size {bench.model.config.hidden_size}\n")
    line("vocabulary", "ces / none, time")
    line(*["---:"] * 2)
    for size in options.vocabularies:
        bench_of_size = Bench(options, size)
        workloads = {
            trainer: bench_of_size.workload(trainer, bench_of_size.lengths(), 2) for trainer in ("none", "ces")
        }
        seconds = bench_of_size.time_alternately(workloads)
        line(size, ratio(seconds, "ces", "none"))


PARTS = {
    "mixed_lengths": mixed_lengths,
    "memory": memory,
    "equal_lengths": equal_lengths,
    "packed": packed,
    "vocabulary": vocabulary,
}


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    # TRL warns about its experimental rollout function, and transformers warns about deprecated names.
    warnings.filterwarnings("ignore")
    bench = Bench(options)
    if options.peak_of:
        trainer, rows = options.peak_of
        workload = bench.workload(trainer, bench.lengths(), int(rows))
        if options.device == "cuda":
            workload.step()  # warm-up, so that one-time library setup is not measured
        # On a CPU, measure the first step, because later steps reuse memory that the first step leaves allocated.
        print(json.dumps(workload.peak_memory()))
        return 0
    name = torch.cuda.get_device_name() if options.device == "cuda" else f"{platform.machine()} CPU"
    parameters = sum(parameter.numel() for parameter in bench.model.parameters())
    print(
        f"{name}, {torch.get_num_threads()} thread(s), torch {torch.__version__}, Qwen2 of shape {options.shape} "
        f"({parameters / 1e6:.1f} million parameters), {str(options.dtype).removeprefix('torch.')}, "
        f"{options.attention} attention, {options.repeats} repeats; large matrix multiplication: "
        f"{bench.matrix_rate / 1e12:.3g} TFLOP/s"
    )
    for part in options.parts:
        PARTS[part](bench)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
