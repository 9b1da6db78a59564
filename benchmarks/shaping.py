"""Shaping alone: one pass over (B, T) against a plain copy of the bytes that it must move.

    trl-ces bench shaping
    trl-ces bench shaping --device cuda --rows 8 --tokens 12000

The forward must read the entropies (float32) and the mask (int64) and write A' (float32); the backward reads the
gradient of A' and writes that of the entropies. Most of the time goes into the sort that selects a row's k highest.
"""

import argparse
import statistics
import time

import torch

from trl_ces.methods.ces import conditional_entropy_shaping

# Bytes per token: entropies read, mask read, A' written; gradient of A' read, gradient of the entropies written.
BYTES = 4 + 8 + 4 + 4 + 4


def batch_of(rows: int, tokens: int, device: str) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    """A micro-batch as the trainer passes it: half of the completions correct, lengths from T / 10 to T."""
    generator = torch.Generator().manual_seed(0)
    correct = torch.arange(rows) % 2 == 0
    batch = {
        "advantages": torch.randn(rows, generator=generator),
        "correct": correct,
        "scored": torch.ones(rows, dtype=torch.bool),
        "group_correct": torch.full((rows,), 2),
        "group_scored": torch.full((rows,), 4),
    }
    lengths = torch.linspace(tokens / 10, tokens, rows).long()
    mask = (torch.arange(tokens) < lengths.unsqueeze(1)).long()
    entropies = torch.rand(rows, tokens, generator=generator) * mask
    return {name: values.to(device) for name, values in batch.items()}, entropies.to(device), mask.to(device)


def median_seconds(run, device: str, repeats: int) -> float:
    spent = []
    for turn in range(repeats + 3):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        if turn >= 3:
            spent.append(time.perf_counter() - start)
    return statistics.median(spent)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--tokens", type=int, default=12_000)
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args(argv)
    print("| rows x tokens | bytes | shaping | copy of the bytes | ratio |\n| ---: | ---: | ---: | ---: | ---: |")
    for rows in options.rows:
        batch, entropies, mask = batch_of(rows, options.tokens, options.device)
        entropies.requires_grad_()
        upstream = torch.ones(rows, options.tokens, device=options.device)
        settings = {"tau": 0.01, "beta_correct": 0.4, "beta_incorrect": 0.4}

        def shape(batch=batch, entropies=entropies, mask=mask, upstream=upstream, settings=settings):
            shaped = conditional_entropy_shaping(batch, entropies, mask, **settings)
            torch.autograd.grad(shaped.advantages, entropies, upstream)

        moved = rows * options.tokens * BYTES
        # A copy reads and writes each of its bytes.
        source = torch.zeros(moved // 2, dtype=torch.uint8, device=options.device)
        target = torch.empty_like(source)
        spent = median_seconds(shape, options.device, options.repeats)
        copied = median_seconds(lambda source=source, target=target: target.copy_(source), options.device, 30)
        print(
            f"| {rows} x {options.tokens} | {moved} | {1e3 * spent:.3f} ms | {1e3 * copied:.4f} ms | "
            f"{spent / copied:.0f} |"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
