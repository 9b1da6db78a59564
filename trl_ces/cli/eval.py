"""`trl-ces eval`: measure a model's accuracy and completion length on benchmarks."""

import dataclasses
import sys
from pathlib import Path

from ..lab.evaluation.settings import EvaluationSettings, default_folder, read_settings
from ..support.hub import expand_home
from ..train.recipe import find_config, shipped_files
from .parser import Parser

EPILOG = """The defaults are the paper's settings. To resume a stopped run, repeat the same command.

  trl-ces eval --model deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B --benchmarks math12 --data_dir data
  trl-ces eval --model runs/ces --data test.jsonl --max_new_tokens 1024
  trl-ces eval --model runs/ces --benchmarks aime24,gsm8k --config paper --max_problems 50

docs/evaluation.md lists the benchmarks and describes the metrics.
"""


def run(argv: list[str]) -> int:
    """Evaluate the model and print its results table."""
    parser = Parser(
        "eval",
        usage="trl-ces eval --model MODEL --benchmarks math12|gsm8k,... | --data FILE [--config FILE] [options]",
        description="Sample completions for benchmarks, and report accuracy and mean length as in the paper.",
        epilog=EPILOG,
    )
    names = ", ".join(shipped_files("evaluation"))
    parser.add_argument("--config", metavar="FILE", help=f"YAML file with these options, or a shipped file ({names})")
    for setting in dataclasses.fields(EvaluationSettings):
        name, default, text = setting.name, setting.default, setting.metadata["help"]
        if default not in (None, "", dataclasses.MISSING) and name != "system_prompt":
            text += f" (default {default})"
        # The value of a Boolean flag is optional.
        nargs = "+" if name == "benchmarks" else "?" if isinstance(default, bool) else None
        metavar = name.rpartition("_")[2].upper()
        parser.add_argument(
            f"--{name}", nargs=nargs, const="true" if nargs == "?" else None, metavar=metavar, help=text
        )
    options = vars(parser.parse_args(argv or ["--help"]))
    config = options.pop("config")
    given = {name: text for name, text in options.items() if text is not None}
    settings = read_settings(config and find_config(config, kind="evaluation"), given)
    folder = Path(expand_home(settings.output_dir or default_folder(settings.model)))

    from transformers.utils import logging

    from ..lab.evaluation.results import SUMMARY, results_table
    from ..lab.evaluation.run import run_evaluation
    from ..lab.evaluation.samples import SAMPLES

    logging.disable_progress_bar()
    summary = run_evaluation(settings, folder, report=lambda text: print(text, file=sys.stderr, flush=True))
    print(results_table(summary), end="")
    print(f"\nCompletions: {folder / SAMPLES}\nNumbers: {folder / SUMMARY}")
    return 0
