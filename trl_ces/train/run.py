"""Run one training process for a recipe that `trl-ces train` has already checked."""

import errno
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from accelerate import PartialState
from accelerate.utils import gather_object
from jinja2 import TemplateError
from safetensors import SafetensorError
from transformers.trainer_callback import ProgressCallback
from trl import get_peft_config, get_quantization_config

from ..config import CESConfig
from ..layers.reward_calls import RewardError
from ..methods.group_reward import accuracy_reward_index
from ..support.errors import UserError, hub_errors
from ..support.files import write_text
from ..support.hub import nearest_model
from ..support.locks import TRAINING_LOCK, lock_file, write_pid
from ..trainer import CESTrainer
from .arguments import START
from .callbacks import ProgressWithMetrics, RunFiles, SaveOnSigterm
from .card import ADAPTER, write_card, write_facts
from .checkpoints import Length, resume_hint
from .data import check_rows, load_datasets
from .lookup import find_reward_functions, model_path
from .push import Push
from .recipe import RECIPE, Recipe
from .resume import list_changes
from .server import server_failure

SETTINGS_ERRORS = (ValueError, ImportError)  # raised by TRL and transformers for invalid settings


class StoppedTraining(UserError):
    """Training failure that may occur on a single rank, so every rank prints its own message."""


def train(recipe: Recipe, num_processes: int, distributed_type: str | None) -> None:
    """Lock `output_dir`, load data and model, train, save, and push the model if `push_to_hub` is set."""
    config = recipe.training_config(num_processes)
    if config.world_size != num_processes:
        raise UserError(
            f"Expected {num_processes} processes, found {config.world_size}: check `--num_processes` and the "
            "accelerate configuration."
        )
    state = PartialState()
    if state.is_main_process:
        lock = lock_file(Path(recipe.setting("output_dir")) / TRAINING_LOCK)  # held until this function returns
        write_pid(lock, os.getpid())
    push = Push(config) if config.push_to_hub else None
    if push is not None and state.is_main_process:
        push.open()
    trainer = make_trainer(recipe, config, state)
    actual_type = trainer.accelerator.distributed_type.value
    if distributed_type not in (None, actual_type):
        raise UserError(
            f"The accelerate configuration requests {distributed_type}, but the run uses {actual_type}: check "
            "`use_cpu` in the configuration."
        )
    if not config.disable_tqdm:
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(ProgressWithMetrics(accuracy_reward_name(trainer)))
    if train_to_end(trainer, recipe):
        save(trainer, recipe, None if push is None else push.repo_id)
        if push is not None and state.is_main_process:
            push.upload()


def make_trainer(recipe: Recipe, config: CESConfig, state: PartialState) -> CESTrainer:
    """Create the trainer of a recipe, including its data and model."""
    train_dataset, eval_dataset = load_datasets(recipe.script, report=partial(print, flush=True))
    check_rows(len(train_dataset), cast(int, config.generation_batch_size) // cast(int, config.num_generations))
    with state.local_main_process_first():  # a `model_builder` may write files
        model = model_path(recipe)
    try:
        return CESTrainer(
            model=model,
            reward_funcs=cast(Any, find_reward_functions(recipe)),
            args=config,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            peft_config=get_peft_config(recipe.model),
            quantization_config=get_quantization_config(recipe.model),
        )
    except Exception as error:
        # Hide the traceback of common errors: missing model or package, ambiguous accuracy reward, unreachable Hub.
        server_problem = server_failure(error, recipe)
        if os.environ.get("TRL_CES_DEBUG") or not (
            server_problem or isinstance(error, (*hub_errors(), *SETTINGS_ERRORS))
        ):
            raise
        is_hub_error = isinstance(error, hub_errors())
        reward = recipe.script.reward_model_name_or_path
        names = f"`model_name_or_path` {model!r}" + (f" or `reward_model_name_or_path` {reward!r}" if reward else "")
        prefix, hint = (f"{names}: ", nearest_model(model)) if is_hub_error else ("", "")
        raise UserError(server_problem or f"{prefix}{error} (TRL_CES_DEBUG=1 prints the traceback){hint}") from error


def accuracy_reward_name(trainer: CESTrainer) -> str | None:
    """Return the name of the accuracy reward, or `None` if it cannot be determined."""
    try:
        names = trainer.reward_func_names
        return names[accuracy_reward_index(names, cast(CESConfig, trainer.args).ces_accuracy_reward)]
    except ValueError:
        return None


def train_to_end(trainer: CESTrainer, recipe: Recipe) -> bool:
    """Train, or resume from the recipe's checkpoint; return `False` if a signal ended training early."""
    output_dir, is_main = Path(str(trainer.args.output_dir)), trainer.accelerator.is_main_process
    start: Any = trainer.args.resume_from_checkpoint
    checkpoint = Path(start) if start else None
    length = Length(trainer.args.max_steps, trainer.args.num_train_epochs)
    # The modification time of the lock file is from the same clock as the modification times of the checkpoints.
    hint = partial(resume_hint, output_dir, length, (output_dir / TRAINING_LOCK).stat().st_mtime, checkpoint)
    if len(names := set(gather_object([checkpoint and checkpoint.name]))) > 1:
        raise UserError(f"The machines resume from different checkpoints ({names}): copy the newest to all machines.")
    if checkpoint and is_main:
        print(f"Resuming from {checkpoint}.", flush=True)
    changes = list_changes(checkpoint, recipe, cast(CESConfig, trainer.args)) if checkpoint else []
    write = partial(_write_files, trainer, recipe, changes)
    overwrite = recipe.script.overwrite_output_dir and not checkpoint
    trainer.add_callback(RunFiles(trainer.accelerator, write, overwrite))
    stop = SaveOnSigterm(trainer.accelerator, (signal.SIGINT, signal.SIGTERM))
    trainer.add_callback(stop)
    try:
        _check_prompts(trainer)
        trainer.train(resume_from_checkpoint=start)
    except Exception as error:
        problem = _known_problem(error, recipe)
        if problem is None:
            raise
        raise StoppedTraining(f"{problem} {hint()}") from error
    if not stop.stopped or trainer.state.global_step >= trainer.state.max_steps:
        return True
    if is_main:
        step, name = trainer.state.global_step, signal.Signals(stop.signalled or signal.SIGTERM).name
        print(f"Stopped by {name} after step {step}. {hint()}", flush=True)
    return False


def save(trainer: CESTrainer, recipe: Recipe, repo: str | None = None) -> None:
    """Save the model, state and card in `output_dir`, and print the code that loads the model. Call on every rank."""
    output_dir = Path(str(trainer.args.output_dir))
    trainer.save_model(str(output_dir))
    trainer.save_state()
    if not trainer.is_world_process_zero():
        return
    if missing := write_card(output_dir, repo or output_dir.resolve().name):
        print(missing, flush=True)
    saved_files = sorted(file.name for file in output_dir.iterdir() if file.is_file() and file.name[0] != ".")
    note = "  # an adapter; requires peft" if ADAPTER in saved_files else ""
    print(
        f"\nSaved in {output_dir}: {', '.join(saved_files)}.\nLoad the model:\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        f'model = AutoModelForCausalLM.from_pretrained("{output_dir}"){note}\n'
        f'tokenizer = AutoTokenizer.from_pretrained("{output_dir}")',
        flush=True,
    )


def _write_files(trainer: CESTrainer, recipe: Recipe, changes: list[Any], folder: Path) -> None:
    """Write run.json and recipe.yaml. Call this after the first rollout, which may set `ces_tau`."""
    args = cast(CESConfig, trainer.args)
    write_facts(folder, args, accuracy_reward_name(trainer), changes)
    given = {name: value for name, value in recipe.given.items() if name not in START}
    given |= {"ces_tau": args.ces_tau} if "ces_tau" in given else {}
    write_text(folder / RECIPE, replace(recipe, given=given).to_yaml())


def _check_prompts(trainer: CESTrainer) -> None:
    """Raise `UserError` if prompts leave no room for a completion, because colocated vLLM would truncate them."""
    config, tokenizer = trainer.args, cast(Any, trainer.processing_class)
    completion = config.max_completion_length
    is_colocated = config.use_vllm and config.vllm_mode == "colocate"
    if not is_colocated or completion is None or hasattr(tokenizer, "image_processor"):
        return
    length = trainer.vllm_generation.llm.llm_engine.model_config.max_model_len
    template_kwargs = {
        "add_generation_prompt": True,
        "return_dict": True,
        **cast(dict, config.chat_template_kwargs or {}),
    }
    for data in filter(None, (trainer.train_dataset, trainer.eval_dataset)):
        prompts = list(data["prompt"])
        is_text = isinstance(prompts[0], str)
        ids = (tokenizer(prompts) if is_text else tokenizer.apply_chat_template(prompts, **template_kwargs))[
            "input_ids"
        ]
        too_long = [row for row, tokens in enumerate(ids) if len(tokens) + completion > length]
        if too_long:
            raise UserError(
                f"{len(too_long)} of {len(prompts)} prompts are too long for vLLM. The first is row "
                f"{data[too_long[0]].get('_row', too_long[0])}, where {len(ids[too_long[0]])} prompt tokens plus "
                f"`max_completion_length` ({completion}) exceed vLLM's limit of {length} tokens. Raise "
                "`vllm_max_model_length`, or remove these rows."
            )


def _known_problem(error: Exception, recipe: Recipe) -> str | None:
    """Explain an external failure in one sentence, or return `None` if the traceback should be printed."""
    if isinstance(error, RewardError):
        return str(error)
    server_problem = server_failure(error, recipe)
    if server_problem is not None:
        return server_problem
    if isinstance(error, TemplateError):
        return (
            f"The chat template of {recipe.model.model_name_or_path} rejects the prompts ({error}): if the template "
            "does not support system messages, pass `--system_prompt null`."
        )
    # `torch.save` raises a RuntimeError without the operating system's message.
    disk_errors = (*map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)), "unexpected pos")
    if isinstance(error, (OSError, RuntimeError, SafetensorError)) and any(text in str(error) for text in disk_errors):
        return f"The disk that holds {recipe.setting('output_dir')} is full ({error})."
    return None
