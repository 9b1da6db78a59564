"""`trl-ces plan`: compute the memory, disk space, schedule and run time of a recipe."""

from ..support.errors import UserError
from ..train.arguments import read_words
from .parser import Parser, count, positive

DEVICES = ("A800", "A100", "H100", "L40S", "RTX4090")
EPILOG = """\
Print the schedule of rollouts and steps, the memory per device for completions of maximum length, the disk space for
checkpoints, a rough estimate of the run time, and whether the run fits. Nothing is downloaded, except config.json for
models whose dimensions are not included in `trl-ces`.

  trl-ces plan --config R1-7B --gpus 2 --gpu_memory 80 --accelerate_config zero3_offload
"""


def run(argv: list[str]) -> int:
    """Print the plan; return 0 even if the run does not fit."""
    parser = Parser(
        "plan",
        usage="trl-ces plan --config RECIPE [OVERLAY ...] [options] [--FIELD VALUE ...]",
        description="Compute a recipe's steps, memory, disk space and run time. --FIELD VALUE overrides a field.",
        epilog=EPILOG,
    )
    add = parser.add_argument
    add("--config", required=True, nargs="+", metavar="NAME", help="a recipe and overlays, as in `trl-ces train`")
    add("--gpus", type=count, default=1, metavar="N", help="total number of devices, one process each (default: 1)")
    add("--nodes", type=count, metavar="N", help="training nodes (default: from the accelerate configuration, or 1)")
    add("--device", choices=DEVICES, type=str.upper, default="A800", help="GPU for the time estimate (default: A800)")
    add("--gpu_memory", type=positive, metavar="GIB", help="memory per device, to check whether the recipe fits")
    add("--accelerate_config", metavar="NAME", help="configuration, as in `trl-ces train` (default: ddp)")
    add("--model_config", metavar="FILE", help="config.json of a model that is not on the Hub")
    add("--prompt_length", type=count, metavar="N", help="maximum prompt length (default: from the recipe, or 512)")
    add("--rows", type=count, metavar="N", help="number of training prompts, if `max_train_samples` is not set")
    options, remaining = parser.parse_known_args(argv or ["--help"])
    line = read_words(remaining, vars(options))
    if line.accelerate_flags:
        flags = ", ".join(f"--{name}" for name in line.accelerate_flags)
        raise UserError(f"command line: `trl-ces plan` does not support {flags}; use `--gpus N` and `--nodes N`.")
    from ..lab.plan.plan import plan_recipe
    from ..lab.plan.text import plan_text

    keywords = {name: value for name, value in vars(options).items() if name != "config"}
    print(plan_text(plan_recipe(options.config, line.overrides, **keywords)))
    return 0
