"""`trl-ces train`: train a model from a recipe."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..support.errors import UserError
from ..support.hub import try_hub_once
from ..support.locks import TRAINING_LOCK
from ..support.parent import prepare_child
from ..train.arguments import CommandLine, ScriptArguments, read_words
from ..train.checkpoints import STATE
from ..train.checks import check
from ..train.launch import VISIBLE, make_launch, run_training
from ..train.recipe import Recipe, load_recipe, shipped_files
from ..train.resume import check_output_dir

USAGE = """\
trl-ces train --config RECIPE [OVERLAY ...] [--accelerate_config NAME|FILE] [--FIELD VALUE ...]

Train a model from a recipe and overlays, which are applied from left to right. Each name is a YAML file or a shipped
file (`trl-ces recipes` lists the shipped files). Every FIELD below can be set in these files or on the command line.
The flags of `accelerate launch` are also accepted. Exit code 2 means that the input is invalid, or that the run
stopped with an error message.

  trl-ces train --config smollm2_135m
  trl-ces train --config R1-7B alp --accelerate_config zero3_offload
  trl-ces train --config R1-7B --smoke  # check that the run works, with two steps and short completions
  trl-ces train --config my.yaml --shaping none --max_steps 100 --resume_from_checkpoint true
"""

SMOKE, SMOKE_TOKENS = "--smoke", 512  # at the paper's tau, up to five tokens of a 512-token completion are shaped
SMOKE_FIELDS = (
    "--max_steps 2 --logging_steps 1 --save_strategy no --load_best_model_at_end false --push_to_hub false "
    "--eval_strategy no --eval_on_start false --num_eval_samples null --eval_dataset_name null "
    "--lr_scheduler_type constant --resume_from_checkpoint null --report_to none"  # some schedulers need evaluations
)
# Unlike torch's counters, `memory.used` includes vLLM, NCCL and other processes.
MEMORY_QUERY = "nvidia-smi --query-gpu=memory.used,memory.total --format=csv,noheader,nounits --loop-ms=200"


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
    words = [word for word in argv if word != SMOKE]
    line = read_words(words, [SMOKE.strip("-")])
    recipe = load_recipe(line.config, line.overrides)
    return _start(line, recipe) if words == argv else _smoke(line, recipe, words)


def _start(line: CommandLine, recipe: Recipe) -> int:
    """Check a run and start its training processes."""
    os.environ.update(recipe.env)  # modules that the checks import may read `env`
    launch = make_launch(line, recipe)
    checkpoint = check(recipe, launch)
    output_dir, script = Path(recipe.setting("output_dir")), recipe.script
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        (output_dir / TRAINING_LOCK).touch()
    except OSError as error:
        raise UserError(
            f"`output_dir` {str(output_dir)!r} cannot be written to ({error.strerror}): choose another directory."
        ) from None
    check_output_dir(recipe)
    if any(output_dir.glob("*.safetensors")):
        print(f"Note: {output_dir} contains a trained model, which this run will replace.", file=sys.stderr)
    # Offline mode would prevent the push. `HF_ENDPOINT` from `env` would not affect this process.
    needs_hub = script.model_builder is None and not recipe.setting("push_to_hub")
    if needs_hub and not {"HF_ENDPOINT", "HF_HUB_OFFLINE"} & recipe.env.keys():
        try_hub_once(str(recipe.model.model_name_or_path), *([script.dataset_name] if script.dataset_name else []))
    print(end="", flush=True)
    return run_training(launch, recipe, checkpoint)


def _smoke(line: CommandLine, recipe: Recipe, words: list[str]) -> int:
    """Take two optimizer steps with short completions in a temporary folder; print peak memory and next checks."""
    limit = recipe.setting("max_completion_length") or SMOKE_TOKENS
    tokens, on_gpu = min(limit, SMOKE_TOKENS), shutil.which("nvidia-smi") and not recipe.setting("use_cpu")
    output_dir = Path(recipe.setting("output_dir"))
    disk = next(path for path in (output_dir, *output_dir.parents) if path.is_dir())
    visible = (os.environ | recipe.env | make_launch(line, recipe).env).get(VISIBLE)
    try:
        temporary = TemporaryDirectory(dir=disk, prefix="smoke-")
    except OSError as error:
        raise UserError(f"{disk} cannot be written to ({error.strerror}): choose another `output_dir`.") from None
    with temporary as folder, (Path(folder) / "memory.csv").open("w+") as memory:
        settings = [*SMOKE_FIELDS.split(), "--max_completion_length", str(tokens), "--output_dir", folder]
        smoke_line = read_words([*words, *settings])
        command = [*MEMORY_QUERY.split(), *([f"--id={visible}"] if visible else [])]
        query = subprocess.Popen(command, stdout=memory, preexec_fn=prepare_child) if on_gpu else None
        try:
            code = _start(smoke_line, load_recipe(smoke_line.config, smoke_line.overrides))
        finally:
            if query:
                query.terminate()
                query.wait()
        if code or not (Path(folder) / STATE).exists():  # the run was stopped, or this is not the first machine
            return code
        memory.seek(0)
        samples = [tuple(map(int, row)) for row in re.findall(r"^(\d+), (\d+)$", memory.read(), re.MULTILINE)]
    print(f"\nSmoke run: two optimizer steps with completions of at most {tokens} tokens. No files were kept.")
    if samples:
        used, total = (size / 1024 for size in max(samples))
        print(f"Peak memory per GPU: {used:.1f} of {total:.1f} GiB, {_plan_summary(line, recipe, total)}.")
    elif on_gpu:
        print("The peak memory could not be read, because `nvidia-smi` does not report memory for these GPUs.")
    print(f"Check next:\n- Any warnings above: {tokens} tokens may be too few for correct or shaped completions")
    if line.config:
        fields = {name: values for name, values in line.overrides.items() if name != "output_dir"}
        arguments = [*line.config, *(word for name, values in fields.items() for word in (f"--{name}", *values))]
        print(f"- Whether the model solves some of the problems: trl-ces inspect --config {shlex.join(arguments)}")
    print(f"Then start the run: trl-ces train {shlex.join(words)}")
    return 0


def _plan_summary(line: CommandLine, recipe: Recipe, gpu_memory: float) -> str:
    """Describe the planned peak memory per GPU for completions of maximum length."""
    from ..lab.plan.plan import plan_recipe

    gpus, file = make_launch(line, recipe).num_processes, line.accelerate_config
    try:
        plan = plan_recipe(line.config, line.overrides, gpus=gpus, accelerate_config=file, gpu_memory=gpu_memory)
    except UserError as error:
        return f"no plan available ({error})"
    return f"planned {plan.memory.peak / 2**30:.1f} GiB for completions of {plan.config.max_completion_length} tokens"
