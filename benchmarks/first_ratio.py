"""Measure how far the first importance ratios of a rollout deviate from 1 in bf16.

    python benchmarks/first_ratio.py
    python benchmarks/first_ratio.py --device cuda --shape 1.5b --longest 12000

The cases use different padding, and compute old log-probs in different batches. The learning rate is 0, so every ratio
should be 1. Deviations are rounding errors, because a row's log-probs depend on the other rows of the batch and on
padding. Weights and tokens are random. Lengths are typical of R1-Distill models.
"""

import argparse
import sys

import torch
from rollouts import SHAPES, TRAINERS, Workload, make_model, prompt_lengths, r1_lengths

from trl_ces import CESConfig, CESTrainer


class RecordingTrainer(CESTrainer):
    """Trainer that records abs(log ratio) for every token in the loss."""

    def _log_first_ratio(self, rows, logps):
        ratio = (logps.detach() - rows["old_per_token_logps"]).abs()
        self.ratios = [*getattr(self, "ratios", []), ratio[rows["completion_mask"].bool()].float().cpu()]


class EarlyTrainer(RecordingTrainer):
    """Trainer that computes old log-probs when TRL requests them, in batches that differ from the update's batches."""

    def _may_defer_old_logps(self):
        return False


CASES = {
    "TRL's padding": (RecordingTrainer, {"trim_padding": False, "arrange_by_length": False}),
    "trimmed padding, old log-probs when TRL requests them": (EarlyTrainer, {}),
    "trimmed padding, old log-probs in the update's batches": (RecordingTrainer, {}),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--rows", type=int, default=16, help="completions per rollout; each optimizer step uses two")
    parser.add_argument("--longest", type=int, default=400, help="length of the longest completion, in tokens")
    options = parser.parse_args(arguments)
    completions = r1_lengths(options.rows, options.longest, 0)
    prompts = prompt_lengths(options.rows, options.longest, 0)
    print("| old log-probs | tokens | largest abs(log ratio) | mean | tokens at exactly 0 |")
    print("| :--- | ---: | ---: | ---: | ---: |")
    for name, (trainer_class, settings) in CASES.items():
        model = make_model(options.shape, "sdpa", torch.bfloat16, options.longest + 400, options.device)
        TRAINERS[name] = (trainer_class, CESConfig, settings)
        steps = {"gradient_accumulation_steps": 1, "steps_per_generation": options.rows // 2}
        work = Workload(
            name, completions, prompts, 2, model, options.device, max_steps=options.rows // 2, shaping="none", **steps
        )
        work.trainer.train()
        ratios = torch.cat(work.trainer.ratios)
        print(
            f"| {name} | {ratios.numel()} | {ratios.max():.1e} | {ratios.mean():.1e} | "
            f"{(ratios == 0).float().mean():.1%} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
