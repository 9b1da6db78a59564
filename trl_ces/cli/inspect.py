"""`trl-ces inspect`: show a model's accuracy, entropies and high-entropy tokens before training."""

from dataclasses import fields, replace

from ..lab.inspect.settings import NUM_PROMPTS, Prompts, Sampling, read_prompts, recipe_to_sample
from ..support.errors import UserError
from ..support.files import write_text
from ..train.arguments import read_words
from .parser import Parser, count, number_or_text, path

EPILOG = """Recipe fields are also accepted, such as --dtype bfloat16 or --system_prompt null.

  trl-ces inspect --config arithmetic --html page.html --compare runs/arithmetic
  trl-ces inspect --model Qwen/Qwen3-0.6B --data problems.jsonl --max_new_tokens 2048
"""


def run(argv: list[str]) -> int:
    """Sample completions and report on them; return 1 if a reward function of the recipe fails, else 0."""
    usage = "trl-ces inspect --config RECIPE | --model MODEL --data FILE | --model MODEL --prompt TEXT  [options]"
    parser = Parser("inspect", usage=usage, description="Show a model's accuracy and entropies.", epilog=EPILOG)
    add = parser.add_argument
    add("--model", help="directory of a saved model or a LoRA adapter, or a Hub id (default: the recipe's model)")
    add("--config", nargs="+", default=[], metavar="NAME", help="recipe and overlays, which set the defaults")
    add("--prompt", action="append", metavar="TEXT", help="a prompt; repeat the flag for several prompts")
    add("--data", metavar="FILE", help="source of prompts: a .json, .jsonl or .parquet file, or a dataset on the Hub")
    add("--num_prompts", type=count, metavar="N", help=f"number of prompts to draw (default {NUM_PROMPTS})")
    add("--num_samples", type=count, metavar="N", help="completions per prompt (default: num_generations, at least 8)")
    add("--temperature", type=float, metavar="T", help="sampling temperature (default: the recipe's, or 1)")
    add("--max_new_tokens", type=count, metavar="N", help="tokens per completion (default: the recipe's, or 512)")
    add("--tau", type=number_or_text, help="share of high-entropy tokens, or auto (default: the recipe's, or 0.01)")
    add("--top", type=count, default=15, metavar="N", help="number of token pairs to print (default 15)")
    add("--seed", type=int, help="sampling seed (default 0)")
    add("--batch_size", type=count, metavar="N", help="completions per batch (default 32)")
    add("--output_dir", type=path, metavar="DIR", help="also write all numbers to DIR/inspect.json")
    add("--html", type=path, metavar="FILE", help="also write an HTML page of completions and their shaped tokens")
    add("--compare", metavar="MODEL", help="second model to show next to the first model on the HTML page")
    options, remaining = parser.parse_known_args(argv or ["--help"])
    line = read_words(remaining, vars(options))
    if line.accelerate_flags or line.accelerate_config:
        raise UserError("`trl-ces inspect` runs in one process: remove the flags of `accelerate launch`.")
    if options.compare and not options.html:
        raise UserError("`--compare` adds a second model to the HTML page: also pass `--html FILE`.")
    sources = {"data": options.data, "prompts": options.prompt}
    recipe = recipe_to_sample(options.config, line.overrides, model=options.model, **sources)
    other = options.compare and recipe_to_sample(options.config, line.overrides, model=options.compare, **sources)
    settings = Sampling.from_recipe(recipe, **{field.name: getattr(options, field.name) for field in fields(Sampling)})
    prompts = Prompts(options.prompt, typed=True) if options.prompt else read_prompts(recipe, options.num_prompts)
    numbers = options.output_dir and options.output_dir / "inspect.json"
    for file in filter(None, (numbers, options.html)):
        file.parent.mkdir(parents=True, exist_ok=True)
    from ..lab.inspect import facts, html, sampling, table

    sample = sampling.sample_recipe(recipe, prompts, settings, build=options.model is None)
    statistics, pairs = (
        facts.all_facts(recipe, sample, settings),
        facts.count_pairs(sample.completions, sample.correct),
    )
    print(table.report(statistics, pairs, sample.tokenizer, options.top, sample.reason))
    if numbers:
        table.write_numbers(numbers, statistics, pairs, sample.tokenizer)
        print(f"\nAll numbers: {numbers}")
    if options.html:
        sampling_settings = replace(settings, tau=statistics["tau"])
        samples = [sample, *([sampling.sample_recipe(other, prompts, sampling_settings)] if other else [])]
        write_text(options.html, html.render_page(recipe, samples, statistics["tau"]))
        print(f"\nCompletions: {options.html}")
    return 1 if (sample.reason or "").startswith("The reward function ") else 0  # training would also fail
