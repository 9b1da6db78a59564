"""`trl-ces plan`: what a recipe asks of its machines, before anyone rents them."""

from argparse import ArgumentTypeError
from functools import partial

from ..support.errors import UserError
from ..train.arguments import read_words
from .parser import Parser, count

EPILOG = """\
Prints completions, prompts and steps of a rollout, steps in all, and how far off-policy they are; memory of each
device by part at the longest completions, and the disk that checkpoints take; hours by phase, predicted; whether it
fits, and what to change if not. With a vLLM server also what it holds, and who waits for whom. Nothing is loaded or
downloaded except, for a model that is not known here, its config.json.

  trl-ces plan --config R1-7B --gpus 2 --gpu_memory 80 --accelerate_config zero3_offload
"""


def run(argv: list[str]) -> int:
    """Print the plan; returns 0, whether it fits or not."""
    options, rest = _parser().parse_known_args(argv or ["--help"])
    line = read_words(rest, vars(options))
    if line.accelerate_flags:
        flags = ", ".join(f"--{name}" for name in line.accelerate_flags)
        raise UserError(
            f"command line: {flags} changes no plan: give the processes with `--gpus`, the machines with `--nodes`."
        )
    from ..lab.plan.plan import plan_recipe, with_lora
    from ..lab.plan.text import text

    given = {name: value for name, value in vars(options).items() if name != "config"}
    plan = plan_recipe(options.config, line.overrides, **given)
    print(text(plan, with_lora(plan, options.config, line.overrides, **given)))
    return 0


def _parser() -> Parser:
    parser = Parser(
        "plan",
        usage="trl-ces plan --config RECIPE [OVERLAY ...] [options] [--FIELD VALUE ...]",
        description="Work out a recipe's steps, memory, disk and hours. --FIELD VALUE overrides one of its fields.",
        epilog=EPILOG,
    )
    add = parser.add_argument
    add("--config", required=True, nargs="+", metavar="NAME", help="a recipe and overlays, as for `trl-ces train`")
    add("--gpus", type=count, default=1, metavar="N", help="processes on all nodes, one per device (default: 1)")
    add("--nodes", type=count, metavar="N", help="machines that train (default: the accelerate file's, or 1)")
    add("--server_gpus", type=count, metavar="N", help="devices of the vLLM server, for a recipe in server mode")
    add("--bandwidth", type=_gbit, metavar="GBIT", help="of a node's network, in Gbit/s (default: 100 to 400)")
    gpus = "for the hours: A800 (default), A100, H100, L40S or RTX4090"
    add("--device", metavar="NAME", type=str.upper, default="A800", help=gpus)
    add("--gpu_memory", type=_gib, metavar="GIB", help="memory of each device, to see whether the recipe fits")
    add("--accelerate_config", metavar="NAME", help="as for `trl-ces train` (default: ddp)")
    add("--model_config", metavar="FILE", help="config.json of a model that is neither known here nor on the Hub")
    add(
        "--prompt_length", type=count, metavar="N", help="tokens of the longest prompt (default: the recipe's, or 512)"
    )
    add("--rows", type=count, metavar="N", help="training prompts, if the recipe has no `max_train_samples`")
    return parser


def _above_zero(word: str, unit: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if 0 < number < float("inf"):
        return number
    raise ArgumentTypeError(f"{word!r} is not a number of {unit} above 0")


_gib, _gbit = (partial(_above_zero, unit=unit) for unit in ("GiB", "Gbit/s"))
