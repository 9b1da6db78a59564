"""Measure the time and memory of each phase of a recipe's rollout, and compare them with `trl-ces plan`.

    python benchmarks/step.py --device cuda --config R1-1.5B
    python benchmarks/step.py --device cuda --config R1-1.5B --model_name_or_path FOLDER --dataset_name FILE  # offline

The script trains on two rollouts in one process. It compares the times of the second rollout with the planned times
for the same completion lengths. Memory is the total in use on the device. On a CPU, the planned times are for an A800.
"""

import argparse
import time
from collections import Counter
from pathlib import Path

import psutil
import torch
from accelerate import PartialState
from rollouts import SHAPES, save_random_model
from transformers import TrainerCallback

from trl_ces.lab.evaluation.tables import markdown
from trl_ces.lab.plan.memory import GIB
from trl_ces.lab.plan.plan import DEVICES, plan_recipe, rollout_seconds
from trl_ces.lab.plan.text import format_range
from trl_ces.train.arguments import read_words
from trl_ces.train.recipe import load_recipe
from trl_ces.train.run import make_trainer

WEIGHT_SYNC = "weights to vLLM"


class Clock(TrainerCallback):
    """Record the time of each phase, excluding nested phases, and the peak memory, sampled at phase changes."""

    def __init__(self, trainer, updates):
        self.seconds, self.memory, self.phases, self.last_switch = Counter(), Counter(), ["rest"], time.time()
        self.updates, self.lengths = updates, []
        methods = [(trainer, "_generate_single_turn", "generation"), (trainer, "_save_checkpoint", "checkpoint")]
        methods += [(trainer, "_get_per_token_logps_and_entropies", ""), (trainer.accelerator, "backward", "update")]
        if trainer.use_vllm:
            vllm = trainer.vllm_generation
            methods += [
                (vllm, "sync_weights", WEIGHT_SYNC),
                (vllm.llm, "sleep", WEIGHT_SYNC),
                (vllm.llm, "wake_up", WEIGHT_SYNC),
            ]
        for owner, name, phase in methods:
            setattr(owner, name, self.wrap(getattr(owner, name), phase))
        trainer.add_callback(self)

    def switch(self, phase=None):
        """Credit the current phase with the time since the last call, and end it. Begin `phase`, if given."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            free, total = torch.cuda.mem_get_info()
        memory_in_use = total - free if torch.cuda.is_available() else psutil.Process().memory_info().rss
        now, current = time.time(), self.phases[-1]
        self.seconds[current] += now - self.last_switch
        self.memory[current], self.last_switch = max(self.memory[current], memory_in_use), now
        self.phases = [*self.phases, phase] if phase else self.phases[:-1]

    def wrap(self, function, phase):
        def run(*args, **kwargs):
            self.switch(phase or ("update" if torch.is_grad_enabled() else "log-probs"))
            result = function(*args, **kwargs)
            self.switch()
            if phase == "generation":
                self.lengths = [len(ids) for ids in result[0]]
            return result

        return run

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        self.switch("optimizer")

    def on_optimizer_step(self, args, state, control, **kwargs):
        self.switch()

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.updates:  # the first rollout is a warm-up
            print(
                "First rollout, seconds:",
                {phase: round(seconds, 1) for phase, seconds in self.seconds.items()},
                flush=True,
            )
            self.seconds, self.last_switch = Counter(), time.time()


def table(plan, seconds, memory, lengths):
    """Format planned and measured times and memory peaks; report deviations of up to 10 % as "as planned"."""
    fast, slow = rollout_seconds(plan, lengths)
    comparisons = [(f"{phase}, s", fast[phase], slow[phase], seconds[phase]) for phase in fast]
    for name, peak in (("training", max(memory["update"], memory["optimizer"])), ("generating", memory["generation"])):
        comparisons += [(f"{name}, GiB", *2 * [getattr(plan.memory, name) / GIB], peak / GIB)]
    rows = []
    for name, low, high, value in comparisons:
        ratio = value / (min(max(value, low), high) or 1e-3)  # relative to the nearer end of the planned range
        result = "as planned" if 0.9 <= ratio <= 1.1 else f"{ratio:.2f} x the plan" if value else "not measured"
        rows.append((name, format_range(low, high, 1), f"{value:.1f}", result))
    rows += [
        (f"{phase}, s", "-", f"{seconds[phase]:.1f}", "not in the plan")
        for phase in ("optimizer", WEIGHT_SYNC, "checkpoint")
    ]
    return markdown(("per rollout", f"planned ({plan.device})", "measured", "result"), rows)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--config", nargs="+", required=True, metavar="NAME", help="recipe and overlays")
    parser.add_argument("--random_shape", choices=SHAPES, help="first save a random model in `model_name_or_path`")
    parser.add_argument(
        "--accelerate_config", help="configuration file for `accelerate launch`; also used for the plan"
    )
    options, remaining_arguments = parser.parse_known_args(argv)
    plan_options = {"prompt_length": 64, "accelerate_config": options.accelerate_config}
    changes = {"report_to": ["none"], **read_words(remaining_arguments).overrides}
    if options.device == "cuda":
        device_name = torch.cuda.get_device_name().replace(" ", "")
        plan_options["gpu_memory"] = torch.cuda.get_device_properties(0).total_memory / GIB
        plan_options["device"] = next((name for name in DEVICES if name in device_name), "A800")
    if options.random_shape and "model_name_or_path" not in changes:
        parser.error("--random_shape needs --model_name_or_path FOLDER, where the model will be saved.")
    if options.random_shape:
        [folder] = changes["model_name_or_path"]
        save_random_model(Path(folder), options.random_shape, options.device)
        plan_options["model_config"] = folder
    elif options.device == "cuda":
        del plan_options["prompt_length"]  # the plan measures or estimates the prompt length
    plan = plan_recipe(options.config, changes, **plan_options)
    changes["max_steps"] = [str(2 * plan.schedule.updates)]
    recipe = load_recipe(options.config, changes)
    trainer = make_trainer(recipe, recipe.training_config(1), PartialState())
    clock = Clock(trainer, plan.schedule.updates)
    trainer.train()
    print(table(plan, clock.seconds, clock.memory, clock.lengths))
    print(f"Rewards, data loading and logging took {clock.seconds['rest']:.1f} s.")


if __name__ == "__main__":
    main()
