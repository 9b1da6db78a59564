"""Measure the seconds of each phase of a recipe's rollout, and its memory beside that of `trl-ces plan`.

    python benchmarks/step.py --device cuda --config R1-1.5B
    python benchmarks/step.py --device cuda --config R1-1.5B --model_name_or_path FOLDER --dataset_name FILE   # no Hub

Trains two rollouts in one process and reports the second. Memory is all that is in use on the device; on a CPU, the
process's.
"""

import argparse
import time
from collections import Counter

import psutil
import torch
from accelerate import PartialState
from transformers import TrainerCallback

from trl_ces.lab.plan.memory import GIB
from trl_ces.lab.plan.plan import plan_recipe
from trl_ces.support.tables import markdown
from trl_ces.train.command_line import read_words
from trl_ces.train.recipe import load_recipe
from trl_ces.train.run import make_trainer

SENT = "weights to vLLM"


class Clock(TrainerCallback):
    """Seconds by phase, without those of phases inside it, and the most bytes in use at a phase's ends."""

    def __init__(self, trainer, updates):
        self.seconds, self.memory, self.running, self.since = Counter(), Counter(), ["rest"], time.time()
        self.updates = updates
        watched = [(trainer, "_generate_single_turn", "generation"), (trainer, "_save_checkpoint", "checkpoint")]
        watched += [(trainer, "_get_per_token_logps_and_entropies", ""), (trainer.accelerator, "backward", "update")]
        if trainer.use_vllm:
            vllm = trainer.vllm_generation
            watched += [(vllm, "sync_weights", SENT), (vllm.llm, "sleep", SENT), (vllm.llm, "wake_up", SENT)]
        for owner, name, term in watched:
            setattr(owner, name, self.timed(getattr(owner, name), term))
        trainer.add_callback(self)

    def turn(self, term=None):
        """Count the time since the last turn; then begin `term`, or end the innermost phase."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            free, whole = torch.cuda.mem_get_info()
        used = whole - free if torch.cuda.is_available() else psutil.Process().memory_info().rss
        now, until = time.time(), self.running[-1]
        self.seconds[until] += now - self.since
        self.memory[until], self.since = max(self.memory[until], used), now
        self.running = [*self.running, term] if term else self.running[:-1]

    def timed(self, act, term):
        def run(*args, **kwargs):
            self.turn(term or ("update" if torch.is_grad_enabled() else "old log-probs"))
            result = act(*args, **kwargs)
            self.turn()
            return result

        return run

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        self.turn("optimizer")

    def on_optimizer_step(self, args, state, control, **kwargs):
        self.turn()

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.updates:  # the first rollout warms up
            self.seconds, self.since = Counter(), time.time()


def table(plan, seconds, memory):
    """Format the seconds of each phase, and measured beside planned peaks of memory."""
    phases = ["generation", "old log-probs", "update", "optimizer", SENT, "checkpoint", "rest"]
    rows = [(f"{phase}, s", "", f"{seconds[phase]:.1f}") for phase in phases]
    for name, held in (("training", max(memory["update"], memory["optimizer"])), ("generating", memory["generation"])):
        rows += [(f"{name}, GiB", f"{getattr(plan.memory, name) / GIB:.1f}", f"{held / GIB:.1f}")]
    return markdown(("a rollout", "planned", "measured"), rows)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--config", nargs="+", required=True, metavar="NAME", help="as for `trl-ces train`")
    options, rest = parser.parse_known_args(argv)
    given, changes = {"prompt_length": 64}, {"report_to": ["none"], **read_words(rest).overrides}
    if options.device == "cuda":
        given["gpu_memory"] = torch.cuda.get_device_properties(0).total_memory / GIB
    plan = plan_recipe(options.config, changes, **given)
    changes["max_steps"] = [str(2 * plan.schedule.updates)]
    recipe = load_recipe(options.config, changes)
    trainer = make_trainer(recipe, recipe.training_config(1), PartialState())
    clock = Clock(trainer, plan.schedule.updates)
    trainer.train()
    print(table(plan, clock.seconds, clock.memory))


if __name__ == "__main__":
    main()
