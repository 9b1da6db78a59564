"""`trl-ces train`: trains a model by a recipe."""

import sys
from pathlib import Path

from ..support.hub import try_hub_once
from ..support.yaml import describe_type
from ..train.arguments import ScriptArguments
from ..train.checks import check
from ..train.command_line import read_words
from ..train.launch import run_training
from ..train.recipe import load_recipe, recipe_fields
from ..train.shipped import shipped_files

EXAMPLES = """\
  trl-ces train --config smollm2_135m
  trl-ces train --config R1-7B alp --accelerate_config zero3_offload
  trl-ces train --config my.yaml --shaping none --max_steps 100 --resume_from_checkpoint true
"""
USAGE = f"""usage: trl-ces train --config RECIPE [OVERLAY ...] [--accelerate_config NAME|FILE] [--FIELD VALUE ...]

Train a model by a recipe, changed by overlays from left to right. Each is a YAML file or the name of a shipped one
(`trl-ces recipes` lists them); every FIELD below may be set there, or overrides it on the command line. Flags of
`accelerate launch` are passed on. Exit code 2: the input was refused, or the run stopped with
a sentence that says why.

{EXAMPLES}"""


def _help_text() -> str:
    """Usage, then every field, CES's first."""
    lines = [USAGE, f"shipped accelerate configurations: {', '.join(shipped_files('accelerate'))}"]
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
    if not argv:
        print(USAGE.partition("\n\n")[0] + f"\n\n{EXAMPLES}\nAll fields: trl-ces train --help", file=sys.stderr)
        return 2
    if argv[0] in ("-h", "--help") or "--help" in argv:
        print(_help_text())
        return 0
    line = read_words(argv)
    recipe = load_recipe(line.config, line.overrides)
    launch = check(line, recipe)
    output_dir, script = Path(recipe.setting("output_dir")), recipe.script
    if any(output_dir.glob("*.safetensors")):
        print(f"Note: {output_dir} holds a trained model, which this run will replace.", file=sys.stderr)
    if script.model_builder is None and not recipe.setting("push_to_hub"):  # offline, nothing would be pushed later
        try_hub_once(str(recipe.model.model_name_or_path), *([script.dataset_name] if script.dataset_name else []))
    sys.stdout.flush()
    return run_training(launch, recipe)
