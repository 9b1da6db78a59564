"""`trl-ces train`: checks all that can be checked without loading a model, then starts the training processes."""

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..checkpoints import is_at_its_end, newest_checkpoint, read_state
from ..script_arguments import ScriptArguments
from ..strict import RecipeError, describe
from .command_line import CommandLine, find_recipe, read_words, shipped_files
from .launch import LaunchPlan, plan_launch, run_child

if TYPE_CHECKING:
    from ..recipe import Recipe

USAGE = """usage: trl-ces train --config RECIPE [--accelerate_config NAME|FILE] [--num_processes N] [--FIELD VALUE ...]

Train a model by a recipe. RECIPE is a YAML file or the name of a shipped recipe; every FIELD below may stand in it,
and overrides it on the command line. Flags of `accelerate launch` are passed on. Exit code 2: the input was refused
and nothing was started.

  trl-ces train --config smollm2_135m/ces
  trl-ces train --config DeepSeek-R1-Distill-Qwen-7B/ces --accelerate_config zero3_offload
  trl-ces train --config my.yaml --shaping none --max_steps 100 --resume_from_checkpoint true
"""


def help_text() -> str:
    """What `trl-ces train --help` prints: usage, shipped names, then every field, CES's first."""
    from ..recipe import recipe_fields

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
        lines.append(f"  --{entry.name} ({describe(entry.hint)})\n      {entry.help}{default}")
    return "\n".join(lines)


def run(argv: list[str]) -> int:
    """
    Checks, then trains.

    Args:
        argv (`list[str]`):
            The words behind `trl-ces train`.

    Returns:
        `int`: the training's exit code.

    Raises:
        RecipeError: if the input is refused; nothing has been started or written then.
    """
    if not argv or argv[0] in ("-h", "--help") or "--help" in argv:
        print(help_text())
        return 0
    # What needs no library first: a wrong file name is told at once.
    recipe_file = None
    for place, word in enumerate(argv):
        if word == "--config" and place + 1 < len(argv):
            recipe_file = find_recipe(argv[place + 1])
        elif word.startswith("--config="):
            recipe_file = find_recipe(word.partition("=")[2])
    from ..recipe import load_recipe

    line = read_words(argv)
    recipe = load_recipe(recipe_file, line.overrides)
    plan = check(line, recipe, recipe_file)
    sys.stdout.flush()
    return run_child(plan.command, {**recipe.env, **plan.env})


def check(line: CommandLine, recipe: "Recipe", recipe_file: Path | None) -> LaunchPlan:
    """Every check that needs neither a model nor the network.

    Args:
        line ([`CommandLine`]):
            The sorted words.
        recipe ([`Recipe`]):
            The recipe with the words' overrides.
        recipe_file (`Path`, *optional*):
            Its file, which the training processes read again.

    Returns:
        [`LaunchPlan`]

    Raises:
        RecipeError: naming the field, its value and the way out.
    """
    from ..data import check_source
    from ..reward_lookup import find_reward_functions, import_function

    plan = plan_launch(line, recipe, recipe_file)
    recipe.check_training(plan.num_processes)
    training = recipe.training
    find_reward_functions(recipe.script, training.get("max_completion_length", 512))
    if recipe.script.model_builder is not None:
        import_function(recipe.script.model_builder, "model_builder")
    else:
        _check_model_path(str(recipe.model.model_name_or_path))
    if training.get("use_vllm") and training.get("vllm_mode", "colocate") == "colocate" and find_spec("vllm") is None:
        raise RecipeError('`use_vllm` is true and vLLM is missing: pip install "trl_ces[vllm]", or set it to false.')
    _check_evaluation(recipe.script, training.get("eval_strategy", "no"))
    _check_output_dir(Path(training["output_dir"]).expanduser())
    _check_resume(training.get("resume_from_checkpoint"), Path(training["output_dir"]))
    check_source(recipe.script)
    return plan


def _check_model_path(name: str) -> None:
    if name.startswith((".", "/", "~")) and not (Path(name).expanduser() / "config.json").is_file():
        raise RecipeError(
            f"`model_name_or_path` {name!r} holds no config.json: name a saved model's directory or a Hub id."
        )


def _check_output_dir(output_dir: Path) -> None:
    """Tries to write in the nearest folder that exists, leaving nothing: not to be found out after hours."""
    folder = next(path for path in (output_dir.absolute(), *output_dir.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise RecipeError(
            f"`output_dir` {str(output_dir)!r} cannot be written in {folder} ({error.strerror}): name another."
        ) from None


def _check_evaluation(script: ScriptArguments, strategy: str) -> None:
    has_data = script.num_eval_samples is not None or script.eval_dataset_name is not None
    if strategy != "no" and not has_data:
        raise RecipeError(
            f"`eval_strategy` is {strategy!r} without data: set `num_eval_samples` or `eval_dataset_name`."
        )
    if strategy == "no" and has_data:
        raise RecipeError(
            "Evaluation data are given and `eval_strategy` is no: set it to steps or epoch, or remove them."
        )


def _check_resume(value: str | bool | None, output_dir: Path) -> None:
    if not value:
        return
    if value is True:
        if newest_checkpoint(output_dir) is None:
            raise RecipeError(
                f"`resume_from_checkpoint` is true and {output_dir} holds no whole checkpoint with steps left: start "
                "without it."
            )
        return
    state = read_state(Path(value))
    if state is None:
        raise RecipeError(
            f"`resume_from_checkpoint` {value!r} holds no whole trainer_state.json: name a checkpoint-N directory."
        )
    if is_at_its_end(state):
        raise RecipeError(
            f"`resume_from_checkpoint` {value!r} is at the end of its run, step {state['global_step']}: it holds the "
            "trained model, nothing is left to do."
        )
