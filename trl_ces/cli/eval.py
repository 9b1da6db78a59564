"""`trl-ces eval`: what a model answers to benchmarks, how often it is right, and how many tokens it takes."""

import argparse
import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

from ..evaluation.models import check_model
from ..evaluation.settings import HELP, EvaluationSettings, read_settings
from ..support.errors import UserError
from ..train.shipped import find_recipe

EPILOG = """The defaults are the paper's. A run that was stopped goes on when the same line is given again.

  trl-ces eval --model deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B --benchmarks math12 --data_dir data
  trl-ces eval --model runs/ces --benchmarks aime24,gsm8k --config paper --max_problems 50
  trl-ces compare runs/evaluation/R1 runs/evaluation/DAPO runs/evaluation/CES

docs/evaluation.md lists the benchmarks and says what is measured.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UserError(f"{message[:1].upper()}{message[1:]}. `trl-ces eval --help` lists the options.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="trl-ces eval",
        usage="trl-ces eval --model MODEL --benchmarks math12|aime24,gsm8k,... [--config FILE] [options]",
        description="Draw a model's answers to benchmarks; report accuracy and mean length as the paper does.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="a YAML with these options, or a shipped one's name: paper")
    for knob in dataclasses.fields(EvaluationSettings):
        default = knob.default
        shown = knob.name not in ("model", "benchmarks", "system_prompt") and default is not None
        # A flag that is true or false may stand alone.
        words: dict[str, Any] = {"nargs": "?", "const": "true"} if isinstance(default, bool) else {}
        if knob.name == "benchmarks":
            words["nargs"] = "+"
        text = HELP[knob.name] + (f" (default {default})" if shown else "")
        parser.add_argument(
            f"--{knob.name}",
            **words,
            metavar=knob.name.rpartition("_")[2].upper(),
            help=text.replace("%", "%%"),
        )
    return parser


def run(argv: list[str]) -> int:
    """
    Evaluates and prints the table.

    Args:
        argv (`list[str]`):
            The words behind `trl-ces eval`.

    Returns:
        `int`: 0.

    Raises:
        UserError: if the input is refused, before the model's weights are loaded where that can be known.
    """
    options = vars(_parser().parse_args(argv or ["--help"]))
    file = None if options["config"] is None else find_recipe(options.pop("config"), kind="evaluation")
    given = {
        name: value if isinstance(value, list) else [value]
        for name, value in options.items()
        if name != "config" and value is not None
    }
    settings = read_settings(file, given)
    check_model(settings.model)
    folder = Path(settings.output_dir or default_folder(settings.model)).expanduser()

    from transformers.utils import logging

    from ..evaluation.run import run_evaluation
    from ..evaluation.summary import SUMMARY, results_table

    logging.disable_progress_bar()
    summary = run_evaluation(settings, folder, say=_say)
    print(results_table(summary), end="")
    print(f"\nEvery answer: {folder / 'samples.jsonl'}\nEvery number: {folder / SUMMARY}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def default_folder(model: str) -> Path:
    """`runs/evaluation/` and the model's name, for which a local directory's last two parts stand."""
    parts = [part for part in Path(model).expanduser().resolve().parts if part != "/"] if Path(model).exists() else []
    name = "/".join(parts[-2:]) or model
    return Path("runs") / "evaluation" / re.sub(r"[^0-9A-Za-z.]+", "_", name).strip("_")
