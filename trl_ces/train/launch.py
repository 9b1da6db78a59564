"""How many processes to start, and by what. The machine's own accelerate configuration is ignored.

A single process is started directly, several on a CPU by torchrun (`accelerate launch` would silently start one), all
others by `accelerate launch` with an explicit file.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from ..support.errors import UserError, kind
from ..support.imports import install_line
from ..support.yaml import read_yaml
from .checkpoints import Length, of_other_runs, way_on
from .command_line import CommandLine
from .recipe import ACCELERATE, RECIPE, RESUME, Recipe
from .shipped import find_config, shipped_files

# The entry of a training process, which joins training and Hub. Nothing here imports it.
WORKER = "trl_ces.cli.train_worker"
LAUNCHERS = ("torch.distributed.run", "accelerate.commands.launch")
# The worker checks that these are in use: some set-ups silently fall back to one process or to DDP.
CHECKED_TYPES = ("DEEPSPEED", "FSDP")
# Names the file that a worker writes once it has said why it ends: launchers hide its exit code.
SAID = "TRL_CES_SAID"
THREADS = "OMP_NUM_THREADS"
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Launch:
    """The processes over all machines, and the command that starts this machine's (0: the one with rank 0)."""

    num_processes: int
    distributed_type: str | None
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    machine_rank: int = 0

    def with_recipe(self, file: Path, checkpoint: str | bool | None) -> list[str]:
        """The command, with the flat recipe that its workers read and the checkpoint from which they go on."""
        return [*self.command, "--recipe", str(file), *([f"--{RESUME}", str(checkpoint)] if checkpoint else [])]


def make_launch(line: CommandLine, recipe: Recipe) -> Launch:
    """How to start the training; [`Launch.with_recipe`] completes the command."""
    named = line.accelerate_config
    config_file = None if named is None else find_config(named, "accelerate").resolve()
    settings = read_accelerate_config(config_file) if config_file else {}
    on_cpu = bool(recipe.training.get("use_cpu")) or settings.get("use_cpu") is True
    devices = 0 if on_cpu else device_count()
    if not on_cpu and devices == 0:
        raise UserError("This machine has no accelerator: train on its CPU with `--use_cpu true`, or start elsewhere.")
    given = settings | {name: values[0] for name, values in line.accelerate_flags.items() if values}
    machines = whole_number(given.get("num_machines", 1), "num_machines")
    rank = whole_number(given.get("machine_rank", 0), "machine_rank", least=0)
    usable = _usable(devices, recipe.env.get(VISIBLE), given.get("gpu_ids", "all"))
    processes = whole_number(given.get("num_processes", max(usable, 1)), "num_processes")
    if devices and processes > usable * machines:
        there = f"{machines} machines like this one have" if machines > 1 else "this machine has"
        if usable < devices:
            there += f", by `{VISIBLE}` or `gpu_ids`,"
        raise UserError(
            f"{processes} processes are asked for and {there} {usable * machines} accelerators: use "
            f"`--num_processes {usable * machines}`."
        )
    distributed_type = settings.get("distributed_type")
    if distributed_type == "DEEPSPEED" and find_spec("deepspeed") is None:
        raise UserError(f"{config_file} needs DeepSpeed: {install_line('deepspeed')}.")
    checked = distributed_type if distributed_type in CHECKED_TYPES else None
    worker = ["-m", WORKER, "--expect_processes", str(processes)]
    if checked is not None:
        worker += ["--expect_distributed_type", checked]
    flags = {name: values for name, values in line.accelerate_flags.items() if name != "num_processes"}
    if processes == 1 and (given.get("gpu_ids") or "all") != "all":  # as `_one_device_only`
        flags["gpu_ids"] = [str(given["gpu_ids"]).split(",")[0]]
    if config_file is None and not flags and processes == 1:
        return Launch(1, None, [sys.executable, *worker], _one_device_only(devices, recipe.env))
    if config_file is None and not flags and on_cpu:
        torchrun = ["-m", LAUNCHERS[0], "--standalone", "--nproc_per_node", str(processes)]
        return Launch(processes, None, [sys.executable, *torchrun, *worker])
    if config_file is None:
        config_file = find_config("ddp" if processes > 1 else "single", "accelerate").resolve()
    launch = ["-m", LAUNCHERS[1], "--config_file", str(config_file), "--num_processes", str(processes)]
    # quiet: no traceback of accelerate's below the worker's own message
    for name, values in (flags | {"quiet": []}).items():
        launch += [f"--{name}", *values]
    env = _all_cores(processes // machines, recipe.env, line.accelerate_flags)
    env |= _one_device_only(devices, recipe.env) if processes == 1 else {}
    if named is not None:
        is_shipped = config_file in shipped_files("accelerate").values()
        env[ACCELERATE] = config_file.stem if is_shipped else config_file.name
    return Launch(processes, checked, [sys.executable, *launch, *worker], env, rank)


def read_accelerate_config(file: Path) -> dict[str, Any]:
    settings = read_yaml(file)
    if "distributed_type" not in settings and "compute_environment" not in settings:
        raise UserError(
            f"{file} is not an accelerate configuration: it has no `distributed_type`. Create one by "
            "`accelerate config`."
        )
    return settings


def whole_number(value: Any, name: str, least: int = 1) -> int:
    if (isinstance(value, str) and value.isdecimal()) or (isinstance(value, int) and not isinstance(value, bool)):
        number = int(value)
        if number >= least:
            return number
    raise UserError(f"`{name}` is {value!r} ({kind(value)}): expected a whole number of at least {least}.")


def device_count() -> int:
    import torch

    return torch.accelerator.device_count() if torch.accelerator.is_available() else 0


def _usable(devices: int, *named: Any) -> int:
    """How many of these devices remain where some are named, as in `0,1`."""
    given = [str(names).split(",") for names in named if names not in (None, "all")]
    return min(devices, *map(len, given)) if given else devices


def _one_device_only(devices: int, env: dict[str, str]) -> dict[str, str]:
    """Hides all GPUs but one: otherwise the Trainer uses `DataParallel`, with larger batches than the recipe's."""
    if devices < 2:
        return {}
    return {VISIBLE: (os.environ | env).get(VISIBLE, "0").split(",")[0]}


def _all_cores(processes: int, *given: Mapping[str, Any]) -> dict[str, str]:
    """This machine's cores shared among its processes: accelerate would give each one, also for an offloaded Adam."""
    if any(name in settings for settings in (os.environ, *given) for name in (THREADS, "num_cpu_threads_per_process")):
        return {}
    cores = psutil.cpu_count(logical=False) or 1
    if hasattr(psutil.Process, "cpu_affinity"):  # macOS has none
        cores = min(cores, len(psutil.Process().cpu_affinity()))
    return {THREADS: str(max(1, cores // max(1, processes)))}


def _ask_workers(launcher: int) -> bool:
    """Sends SIGTERM to the training processes only; whether there are any."""
    asked = False
    for process in psutil.Process(launcher).children(recursive=True):
        with suppress(psutil.Error):
            words = process.cmdline()
            if WORKER in words and not any(module in words for module in LAUNCHERS):
                process.send_signal(signal.SIGTERM)
                asked = True
    return asked


def run_training(launch: Launch, recipe: Recipe) -> int:
    """
    Runs the training processes of this machine to their end.

    Says how to go on where a process ended without a sentence of its own: killed, or by a bug.
    """
    output_dir = Path(recipe.setting("output_dir"))
    older = of_other_runs(output_dir, recipe.setting(RESUME))
    with tempfile.TemporaryDirectory() as folder:
        said, file = Path(folder) / "said", Path(folder) / RECIPE
        file.write_text(recipe.to_yaml(), encoding="utf-8")
        code = run_child(
            launch.with_recipe(file, recipe.setting(RESUME)), {**recipe.env, **launch.env, SAID: str(said)}
        )
        if code in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM):
            return code
        if said.exists():
            return 2
    length = Length(recipe.setting("max_steps"), recipe.setting("num_train_epochs"))
    how = "was killed" if code == 128 + signal.SIGKILL else f"ended with code {code}"
    print(
        f"trl-ces train: error: the training {how}; the first error, if one was reported, is above. "
        f"{way_on(output_dir, length, older)}",
        file=sys.stderr,
    )
    return code


def run_child(command: list[str], env: dict[str, str]) -> int:
    """Runs the command, and passes Ctrl-C and SIGTERM on to all its processes."""
    child: subprocess.Popen | None = None
    received: list[int] = []

    def forward(number: int) -> None:
        if child is None or child.poll() is not None:
            return
        if number == signal.SIGTERM and _ask_workers(child.pid):
            return  # a launcher would give them seconds; they need the rest of a step
        os.killpg(child.pid, number)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        # A second Ctrl-C does not wait for the first.
        forwarded = signal.SIGKILL if received else number
        received.append(number)
        forward(forwarded)

    previous = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    code = None
    try:
        child = subprocess.Popen(command, env={**os.environ, **env}, start_new_session=True)
        if received:  # while it was started
            forward(received[-1])
        while code is None:  # a signal that comes just before a wait without end would be handled after it
            with suppress(subprocess.TimeoutExpired):
                code = child.wait(1)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if received == [signal.SIGTERM] and code == 0:
        return 0  # the workers have saved, and said how to resume
    if received:
        return 128 + received[0]
    return code if code >= 0 else 128 - code
