"""Compare complete training steps of CESTrainer and TRL's GRPOTrainer: generation, rewards, old log-probs and update.

    OMP_NUM_THREADS=1 python benchmarks/small_step.py

The script uses the base model of the `arithmetic` recipe, and trains it first if necessary. Completions have about 24
tokens. The trainers run alternately with a learning rate of 0, so the completion length does not change. Each repeat
yields a ratio of CPU seconds. The script prints the median and range of the ratios.
"""

import argparse
import time
import warnings
from pathlib import Path

import torch
from rollouts import COMMON, TRAINERS
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from update_step import ratio

from trl_ces.lab.tasks.arithmetic import arithmetic_accuracy_reward, load_problems
from trl_ces.lab.tasks.arithmetic_model import make_base_model

COMPARED = ("trl", "none", "ces")


def make_trainer(name: str, model_dir: Path, steps: int):
    """Create a trainer from `TRAINERS` with the batch sizes of the `arithmetic` recipe."""
    trainer_class, config_class, shaping = TRAINERS[name]
    arguments = {
        "output_dir": f"runs/bench/small_step/{name}",
        "use_cpu": True,
        "num_generations": 8,
        "per_device_train_batch_size": 64,
        "steps_per_generation": 4,
        "max_completion_length": 64,
        "max_steps": steps,
        **COMMON,
        **shaping,
        **({"ces_tau": 0.2} if name == "ces" else {}),  # with 0.01, no token would be shaped
    }
    trainer = trainer_class(
        model=AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32),
        reward_funcs=arithmetic_accuracy_reward,
        args=config_class(**arguments),
        train_dataset=load_problems(num_problems=1280),
        processing_class=AutoTokenizer.from_pretrained(model_dir, padding_side="left"),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8, help="optimizer steps per repeat (4 per rollout)")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    folder = Path("runs/bench/small_step/base")
    make_base_model(str(folder))
    trainers = {name: make_trainer(name, folder, options.steps) for name in COMPARED}
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    for turn in range(options.repeats + 1):
        for name, trainer in trainers.items():
            start = time.process_time()
            trainer.train()
            if turn > 0:  # the first turn is a warm-up
                seconds[name].append(time.process_time() - start)
    for numerator, denominator in (("none", "trl"), ("ces", "none")):
        value = ratio(seconds, numerator, denominator)
        print(f"{numerator} / {denominator}, CPU time of {options.steps} complete steps: {value}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
