"""`trl-ces train`: train a model from a recipe."""

import sys
from pathlib import Path
from typing import Any

from ..support.errors import UserError
from ..support.hub import try_hub_once
from ..train.arguments import ScriptArguments, read_words
from ..train.checks import check
from ..train.launch import run_training
from ..train.recipe import load_recipe, shipped_files

USAGE = """\
trl-ces train --config RECIPE [OVERLAY ...] [--accelerate_config NAME|FILE] [--FIELD VALUE ...]

Train a model from a recipe and overlays, which are applied from left to right. Each of them is a YAML file or the name
of a shipped file (`trl-ces recipes` lists the names). Every FIELD below can be set in these files or on the command
line. Flags of `accelerate launch` are passed on to it. Exit code 2 means that the input was refused, or that the run
stopped with an explanation.

  trl-ces train --config smollm2_135m
  trl-ces train --config R1-7B alp --accelerate_config zero3_offload
  trl-ces train --config my.yaml --shaping none --max_steps 100 --resume_from_checkpoint true
"""


def run(argv: list[str]) -> int:
    """Check the run without loading a model, then start the training processes."""
    if not argv:
        print(f"usage: {USAGE}\nAll fields: trl-ces train --help", file=sys.stderr)
        return 2
    if "-h" in argv or "--help" in argv:
        from trl import ModelConfig, TrlParser

        from ..config import CESConfig

        types: Any = (ScriptArguments, CESConfig, ModelConfig)
        files = ", ".join(shipped_files("accelerate"))
        print(TrlParser(types, usage=f"{USAGE}\nshipped accelerate configurations: {files}").format_help())
        return 0
    line = read_words(argv)
    recipe = load_recipe(line.config, line.overrides)
    launch = check(line, recipe)
    output_dir, script = Path(recipe.setting("output_dir")), recipe.script
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"`output_dir` {str(output_dir)!r} cannot be written ({error.strerror}): name another."
        ) from None
    if any(output_dir.glob("*.safetensors")):
        print(f"Note: {output_dir} contains a trained model, which this run will replace.", file=sys.stderr)
    if script.model_builder is None and not recipe.setting("push_to_hub"):  # offline mode would prevent the push
        try_hub_once(str(recipe.model.model_name_or_path), *([script.dataset_name] if script.dataset_name else []))
    sys.stdout.flush()
    return run_training(launch, recipe)
