"""`trl-ces inspect`: a model's forking tokens on a sample, before it is trained."""

from dataclasses import asdict, fields
from pathlib import Path

from ..lab.inspect.settings import NUM_PROMPTS, Prompts, Sampling, read_prompts, recipe_to_sample
from ..methods.ces import AUTO
from ..support.errors import UserError
from ..train.arguments import read_words
from .parser import Parser, count, path

EPILOG = """Samples completions and counts the tokens at which the model is least sure by the two tokens between which
it hesitates. Where a reward says which ones are correct, it also prints how many groups would be all wrong or all
correct, and how many tokens CES would shape. Give a model and prompts, or a recipe, which names both. Every field of a
recipe can be given too and overrides it (--dtype bfloat16, --system_prompt null, --prompt_column text). docs/report.md
explains the table.

  trl-ces inspect --config arithmetic
  trl-ces inspect --model runs/quickstart/base --prompt "37+48:" --tau 0.2
  trl-ces inspect --model Qwen/Qwen3-0.6B --data problems.jsonl --max_new_tokens 2048
"""


def run(argv: list[str]) -> int:
    """Samples, counts and prints; returns 0, or 1 where the recipe's reward fails."""
    parser = Parser(
        "inspect",
        usage="trl-ces inspect --model MODEL --prompt TEXT | --config RECIPE | --model MODEL --data FILE  [options]",
        description="Show a model's accuracy and its forking tokens, before training it.",
        epilog=EPILOG,
    )
    add = parser.add_argument
    add("--model", help="directory of a saved model or a LoRA adapter, or a Hub id; default: the recipe's")
    add("--config", nargs="+", default=[], metavar="NAME", help="a recipe, and overlays, for what is not given here")
    add("--prompt", action="append", metavar="TEXT", help="a prompt; may be repeated")
    add("--data", metavar="FILE", help="prompts: a .json, .jsonl or .parquet file, or a Hub data set")
    add("--num_prompts", type=count, metavar="N", help=f"prompts to draw from the data (default {NUM_PROMPTS})")
    add("--num_samples", type=count, metavar="N", help=f"completions per prompt (default {Sampling.num_samples})")
    add("--temperature", type=float, metavar="T", help=f"default: the recipe's, else {Sampling.temperature}")
    longest = f"longest completion; default: the recipe's, else {Sampling.max_new_tokens}"
    add("--max_new_tokens", type=count, metavar="N", help=longest)
    forks = "share of forking tokens, or auto: 4 / mean length; default: the recipe's ces_tau, else"
    add("--tau", type=tau, metavar="TAU", help=f"{forks} {Sampling.tau}")
    add("--top", type=count, default=15, metavar="N", help="pairs to print (default 15)")
    add("--seed", type=int, help=f"seed of the sampling (default {Sampling.seed})")
    add("--batch_size", type=count, metavar="N", help=f"completions drawn together (default {Sampling.batch_size})")
    add("--output_dir", type=path, metavar="DIR", help="also write every number there, in forks.json")
    options, rest = parser.parse_known_args(argv or ["--help"])
    line = read_words(rest, vars(options))
    if line.accelerate_flags or line.accelerate_config:
        flag = next(iter(line.accelerate_flags), "accelerate_config")
        raise UserError(f"`--{flag}` is for training: `trl-ces inspect` runs in one process.")
    recipe = recipe_to_sample(
        options.config, line.overrides, model=options.model, data=options.data, prompts=options.prompt
    )
    sampling = Sampling.of_recipe(recipe, **{field.name: getattr(options, field.name) for field in fields(Sampling)})
    asked = Prompts(options.prompt, typed=True) if options.prompt else read_prompts(recipe, options.num_prompts)
    folder = options.output_dir
    if folder is not None:
        _make(folder)

    from ..lab.inspect.facts import count_pairs, group_facts, sample_facts
    from ..lab.inspect.sampling import sample_recipe
    from ..lab.inspect.table import pairs_report, write_file

    sample = sample_recipe(recipe, asked, sampling, build=options.model is None)
    share = sampling.share([len(answer.tokens) for answer in sample.answers])
    pairs = count_pairs(sample.answers, sample.correct)
    facts = {"model": sample.name, "num_prompts": len(asked.prompts), **asdict(sampling), "tau": share}
    facts |= sample_facts(sample.answers, share, sample.correct)
    facts |= group_facts(
        sample.answers,
        sample.correct,
        size=recipe.setting("num_generations"),
        tau=share,
        beta_incorrect=0 if recipe.setting("ces_cap_incorrect") else recipe.setting("ces_beta_incorrect"),
        dynamic_multiplier=recipe.setting("ces_dynamic_multiplier"),
        mask_truncated=recipe.setting("mask_truncated_completions"),
    )
    print(pairs_report(facts, pairs, sample.tokenizer, options.top, sample.reason))
    if folder is not None:
        print(f"\nEvery number, of all forks: {write_file(folder, facts, pairs, sample.tokenizer)}")
    return 1 if (sample.reason or "").startswith("The reward function ") else 0  # it failed, as it would in training


def tau(word: str) -> float | str:
    """Type of `--tau`."""
    return word if word == AUTO else float(word)


def _make(folder: Path) -> None:
    """Makes `--output_dir` before anything is sampled."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"`--output_dir` {folder} cannot be made ({error.strerror}): name another.") from None
