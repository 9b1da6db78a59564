"""`trl-ces inspect`: the forking tokens of a model on a sample, to be seen before it is trained."""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..evaluation.models import check_model
from ..support.errors import UserError, first_line
from ..train.command_line import read_words
from ..train.shipped import find_recipe
from .model import load_model

if TYPE_CHECKING:
    from ..train.recipe import Recipe

NUM_PROMPTS, MAX_NEW_TOKENS, PAPER_TAU = 16, 512, 0.01
EPILOG = """Answers are sampled, and the tokens at which the model is least sure are counted by the two tokens between
which it hesitates. Give a model and prompts, or a recipe, which names both. Every field of a recipe can be given too
and overrides it (--dtype bfloat16, --system_prompt null, --prompt_column text). docs/inspect.md explains the table.

  trl-ces inspect --config arithmetic/ces
  trl-ces inspect --model runs/quickstart/base --prompt "37+48:" --tau 0.2
  trl-ces inspect --model Qwen/Qwen3-0.6B --data problems.jsonl --max_new_tokens 2048
"""


@dataclass(frozen=True)
class Job:
    """What is asked for: the command's own options, and the recipe that they stand in."""

    options: argparse.Namespace
    recipe: Recipe
    temperature: float
    max_new_tokens: int
    tau: float


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UserError(f"{message[:1].upper()}{message[1:]}. `trl-ces inspect --help` lists the options.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="trl-ces inspect",
        usage="trl-ces inspect --model MODEL --prompt TEXT | --config RECIPE | --model MODEL --data FILE  [options]",
        description="See the entropies and branch probabilities of a model's forking tokens, before training it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--model", help="a saved model's directory, a LoRA adapter's, or a Hub id; default: the recipe's")
    add("--config", help="a recipe's file or shipped name; gives what is not given here")
    add("--prompt", action="append", metavar="TEXT", help="a prompt; may be repeated")
    add("--data", metavar="FILE", help="a .json, .jsonl or .parquet file, or a data set of the Hub, with prompts")
    add("--num_prompts", type=int, metavar="N", help=f"prompts to draw from the data (default {NUM_PROMPTS})")
    add("--num_samples", type=int, default=8, metavar="N", help="answers to each prompt (default 8)")
    add("--temperature", type=float, metavar="T", help="default: the recipe's, else 1.0")
    add(
        "--max_new_tokens", type=int, metavar="N", help=f"longest answer; default: the recipe's, else {MAX_NEW_TOKENS}"
    )
    add("--tau", type=float, help=f"share of forking tokens; default: the recipe's ces_tau, else {PAPER_TAU}")
    add("--top", type=int, default=15, metavar="N", help="forks to print (default 15)")
    add("--seed", type=int, default=0, help="seed of the sampling (default 0)")
    add("--batch_size", type=int, default=32, metavar="N", help="answers generated at a time (default 32)")
    add("--output_dir", type=Path, metavar="DIR", help="write forks.csv and forks.json there, with every number")
    return parser


def run(argv: list[str]) -> int:
    """
    Samples, counts and prints.

    Args:
        argv (`list[str]`):
            The words behind `trl-ces inspect`.

    Returns:
        `int`: 0.

    Raises:
        UserError: if the input is refused, or the model or the data cannot be loaded.
    """
    if not argv:
        argv = ["--help"]
    job = read_job(argv)
    options, recipe = job.options, job.recipe
    prompts, columns = find_prompts(job)
    if options.output_dir is not None:
        _make_folder(options.output_dir)
    name, model, tokenizer = load_model(recipe, build=options.model is None)

    from ..support.prompts import build_prompt
    from .judge import judge
    from .pairs import direction, group_forks, summarize
    from .table import WIDTH, report, write_files
    from .tokens import encode_prompt, sample_answers

    if options.prompt and tokenizer.chat_template is not None:
        prompts = [build_prompt(text, recipe.script.system_prompt) for text in prompts]
    try:
        encoded = [encode_prompt(tokenizer, prompt, recipe.training.get("chat_template_kwargs")) for prompt in prompts]
    except ValueError as error:
        raise UserError(str(error)) from None
    settings: dict[str, Any] = {
        "num_samples": options.num_samples,
        "temperature": job.temperature,
        "max_new_tokens": job.max_new_tokens,
        "tau": job.tau,
        "seed": options.seed,
        "batch_size": options.batch_size,
    }
    shown = _show_progress if sys.stderr.isatty() else None
    answers = sample_answers(model, tokenizer, encoded, **settings, on_batch=shown)
    correct, reason = judge(recipe, tokenizer, prompts, columns, encoded, answers) if columns else (None, None)
    found = group_forks(answers, correct)
    facts = {"model": name, "num_prompts": len(prompts), **settings, **summarize(answers, job.tau, correct)}
    print(report(facts, found, direction(found), tokenizer, options.top))
    if reason is not None:
        print("\n" + textwrap.fill(f"Without the share of correct answers: {reason}", WIDTH))
    if options.output_dir is not None:
        files = write_files(options.output_dir, facts, found, tokenizer)
        print("\n".join(["\nEvery number, of all forks:", *(f"  {file}" for file in files)]))
    return 0


def _show_progress(done: int, of: int) -> None:
    print(f"\r{done} of {of} answers", end="\n" if done == of else "", file=sys.stderr, flush=True)


def read_job(argv: list[str]) -> Job:
    """
    Sorts the words into the command's own options and a recipe with its overrides, and checks them.

    Raises:
        UserError: naming the option, its value and the way out.
    """
    options, rest = _parser().parse_known_args(argv)
    line = read_words(rest)
    if line.accelerate_flags or line.accelerate_config:
        flag = next(iter(line.accelerate_flags), "accelerate_config")
        raise UserError(f"`--{flag}` is for training: `trl-ces inspect` runs in one process.")
    for name in ("num_prompts", "num_samples", "max_new_tokens", "top", "batch_size"):
        value = vars(options)[name]
        if value is not None and value < 1:
            raise UserError(f"`--{name}` is {value}: it must be at least 1.")
    recipe_file = None if options.config is None else find_recipe(options.config)
    overrides = _recipe_overrides(options, line.overrides)

    from ..train.recipe import load_recipe

    recipe = load_recipe(recipe_file, overrides)
    if options.model is not None or recipe.script.model_builder is None:
        check_model(str(recipe.model.model_name_or_path))
    if options.config is None and "reward_funcs" not in overrides:
        # The default rewards would grade the answers by a measure that nobody chose.
        recipe = replace(recipe, script=replace(recipe.script, reward_funcs=[]))
    training = recipe.training
    temperature = training.get("temperature", 1.0) if options.temperature is None else options.temperature
    if not 0 < temperature < math.inf:
        raise UserError(f"The temperature is {temperature}: `--temperature` must be above 0, 1.0 leaves it out.")
    tau = float(training.get("ces_tau", PAPER_TAU) if options.tau is None else options.tau)
    _check_tau(tau)
    longest = options.max_new_tokens or training.get("max_completion_length") or MAX_NEW_TOKENS
    return Job(options, recipe, temperature, longest, tau)


def _recipe_overrides(options: argparse.Namespace, given: dict[str, list[str]]) -> dict[str, list[str]]:
    """The recipe's fields that the command's own options stand for, beside those that are given by name."""
    overrides = dict(given)
    if options.model is not None:
        overrides["model_name_or_path"] = [options.model]
    if options.data is not None:
        overrides["dataset_name"] = [options.data]
    if options.prompt and not all(text.strip() for text in options.prompt):
        raise UserError("A `--prompt` is empty: write what the model is to answer.")
    if options.prompt and (options.data is not None or "dataset_name" in given):
        raise UserError("`--prompt` and data are both given: prompts come from one of them, so remove the other.")
    if options.config is None:
        if "model_name_or_path" not in overrides:
            raise UserError("No model is named: give `--model`, a directory or a Hub id, or `--config`, a recipe.")
        if not options.prompt and "dataset_name" not in overrides:
            raise UserError("There are no prompts: give `--prompt`, `--data`, a file, or `--config`, a recipe.")
        # Training wants float32 weights under its optimizer; to be looked at, a model is taken as it was saved.
        overrides.setdefault("dtype", ["auto"])
    if options.prompt and options.config is None:
        overrides["dataset_name"] = ["arithmetic"]  # a recipe must name data; these are not read
    overrides.setdefault("output_dir", ["unused"])  # and where to save
    return overrides


def _check_tau(tau: float) -> None:
    from ..methods.ces import MAX_TAU_DECIMALS

    if not 0 <= tau <= 1:
        raise UserError(f"tau is {tau}: it is a share of tokens and `--tau` lies in [0, 1]; the paper uses 0.01.")
    if (Fraction(repr(tau)) * 10**MAX_TAU_DECIMALS).denominator != 1:
        raise UserError(f"tau is {tau}: `--tau` takes at most {MAX_TAU_DECIMALS} decimals; round it.")


def find_prompts(job: Job) -> tuple[list[Any], dict[str, list[Any]]]:
    """
    The prompts, and the other columns of their data where answers are to be judged (empty where they are not).

    Raises:
        UserError: if the data cannot be read.
    """
    if job.options.prompt:
        return job.options.prompt, {}

    from datasets.exceptions import DatasetGenerationError

    from ..train.data import MADE_HERE, load_datasets
    from ..train.sources import is_local, read_rows

    script = job.recipe.script
    name = str(script.dataset_name)
    wanted = job.options.num_prompts or min(NUM_PROMPTS, script.max_train_samples or NUM_PROMPTS)
    try:
        if name not in MADE_HERE and is_local(name) and job.options.num_prompts is None:
            wanted = min(wanted, len(read_rows(script, name, script.dataset_split).golds))
        few = replace(script, max_train_samples=wanted, num_eval_samples=None, eval_dataset_name=None)
        data, _ = load_datasets(few, say=lambda text: None)
    except UserError:
        raise
    except (OSError, ValueError, DatasetGenerationError) as error:
        raise UserError(f"The data {name} cannot be read ({first_line(error)}): check the file.") from error
    columns = {column: list(data[column]) for column in data.column_names if column != "prompt"}
    has_reward = script.reward_funcs or script.reward_model_name_or_path
    return list(data["prompt"]), columns if has_reward else {}


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"`--output_dir` {str(folder)!r} cannot be made ({error.strerror}): name another.") from None
