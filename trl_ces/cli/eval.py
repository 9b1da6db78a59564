"""`trl-ces eval`: a model's accuracy and completion length on benchmarks."""

import dataclasses
import sys
from pathlib import Path

from ..lab.evaluation.settings import EvaluationSettings, default_folder, read_settings
from ..train.recipe import find_config, shipped_files
from .parser import Parser

EPILOG = """The defaults are the paper's. To resume a stopped run, give the same line again.

  trl-ces eval --model deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B --benchmarks math12 --data_dir data
  trl-ces eval --model runs/ces --benchmarks aime24,gsm8k --config paper --max_problems 50
  trl-ces compare runs/evaluation/R1 runs/evaluation/DAPO runs/evaluation/CES

docs/evaluation.md lists the benchmarks and says what is measured. Problems of your own are for a study, or for
`trl-ces inspect --data FILE` (docs/tutorial.md, step 9).
"""


def run(argv: list[str]) -> int:
    parser = Parser(
        "eval",
        usage="trl-ces eval --model MODEL --benchmarks math12|aime24,gsm8k,... [--config FILE] [options]",
        description="Sample a model's completions on benchmarks; report accuracy and mean length as the paper does.",
        epilog=EPILOG,
    )
    names = ", ".join(shipped_files("evaluation"))
    parser.add_argument("--config", metavar="FILE", help=f"a YAML of these options, or a shipped one's name: {names}")
    for knob in dataclasses.fields(EvaluationSettings):
        default = knob.default
        words: dict = {"nargs": "+" if knob.name == "benchmarks" else None}
        if isinstance(default, bool):
            words = {"nargs": "?", "const": "true"}  # such a flag may stand alone
        shown = knob.name not in ("model", "benchmarks", "system_prompt") and default is not None
        text = knob.metadata["help"] + (f" (default {default})" if shown else "")
        parser.add_argument(f"--{knob.name}", **words, metavar=knob.name.rpartition("_")[2].upper(), help=text)
    options = vars(parser.parse_args(argv or ["--help"]))
    config = options.pop("config")
    file = None if config is None else find_config(config, kind="evaluation")
    given = {name: [word] if isinstance(word, str) else word for name, word in options.items() if word is not None}
    settings = read_settings(file, given)
    folder = Path(settings.output_dir or default_folder(settings.model)).expanduser()

    from transformers.utils import logging

    from ..lab.evaluation.run import run_evaluation
    from ..lab.evaluation.samples import SAMPLES
    from ..lab.evaluation.summary import SUMMARY, results_table

    logging.disable_progress_bar()
    summary = run_evaluation(settings, folder, say=lambda text: print(text, file=sys.stderr, flush=True))
    print(results_table(summary), end="")
    print(f"\nAnswers: {folder / SAMPLES}\nNumbers: {folder / SUMMARY}")
    return 0
