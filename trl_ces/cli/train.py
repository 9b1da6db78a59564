"""`trl-ces train`: trains a model by a recipe."""

import sys

from ..support.yaml import describe_type
from ..train.arguments import ScriptArguments
from ..train.checks import check
from ..train.command_line import read_words
from ..train.launch import run_training
from ..train.recipe import load_recipe, recipe_fields
from ..train.shipped import find_recipe, shipped_files

USAGE = """usage: trl-ces train --config RECIPE [--accelerate_config NAME|FILE] [--num_processes N] [--FIELD VALUE ...]

Train a model by a recipe. RECIPE is a YAML file or the name of a shipped recipe; every FIELD below may be set in
it, or overrides it on the command line. Flags of `accelerate launch` are passed on. Exit code 2: the input was refused
and nothing was started.

  trl-ces train --config smollm2_135m/ces
  trl-ces train --config DeepSeek-R1-Distill-Qwen-7B/ces --accelerate_config zero3_offload
  trl-ces train --config my.yaml --shaping none --max_steps 100 --resume_from_checkpoint true
"""


def _help_text() -> str:
    """Usage, shipped names, then every field, CES's first."""
    recipes, launches = ", ".join(shipped_files()), ", ".join(shipped_files("accelerate"))
    lines = [USAGE, f"shipped recipes: {recipes}", f"shipped accelerate configurations: {launches}"]
    title = ""
    for entry in recipe_fields().values():
        owner = "ScriptArguments: data, rewards, batches" if entry.owner is ScriptArguments else entry.owner.__name__
        if entry.owner.__name__ == "CESConfig":
            owner = "CES" if not title or title == "CES" else "TRL's GRPOConfig"
        if owner != title:
            title = owner
            lines.append(f"\n{title}")
        default = "" if entry.default is None else f" Default: {entry.default}."
        if entry.owner is ScriptArguments and "Default" in entry.help:
            default = ""
        lines.append(f"  --{entry.name} ({describe_type(entry.hint)})\n      {entry.help}{default}")
    return "\n".join(lines)


def run(argv: list[str]) -> int:
    """Checks the run without loading a model, then starts the training processes."""
    if not argv or argv[0] in ("-h", "--help") or "--help" in argv:
        print(_help_text())
        return 0
    line = read_words(argv)
    recipe_file = None if line.config is None else find_recipe(line.config)
    recipe = load_recipe(recipe_file, line.overrides)
    launch = check(line, recipe, recipe_file)
    sys.stdout.flush()
    return run_training(launch, recipe)
