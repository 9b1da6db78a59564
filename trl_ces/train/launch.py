"""Start training directly (one process), with torchrun (several CPU processes) or with `accelerate launch`.

On a CPU, `accelerate launch` would silently start only one process. The machine's default accelerate configuration is
not used.
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

from ..support.errors import UserError
from ..support.imports import install_line
from ..support.locks import TRAINING_LOCK
from ..support.parent import ENDED, LAUNCHER, REPORTED, prepare_child
from ..support.yaml import read_yaml
from .arguments import RESUME, CommandLine
from .checkpoints import Length, resume_hint
from .recipe import RECIPE, Recipe, find_config

WORKER = "trl_ces.train.worker"
LAUNCHERS = ("torch.distributed.run", "accelerate.commands.launch")
THREADS, VISIBLE = "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Launch:
    """Total number of processes on all machines, and the command that starts this machine's processes."""

    num_processes: int
    distributed_type: str | None  # workers check this type, because accelerate can silently fall back to DDP
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    machine_rank: int = 0

    def with_recipe(self, file: Path, checkpoint: Path | None) -> list[str]:
        """Return the command with the path of the composed recipe and the checkpoint to resume from."""
        return [*self.command, "--recipe", str(file), *([f"--{RESUME}", str(checkpoint)] if checkpoint else [])]


def make_launch(line: CommandLine, recipe: Recipe) -> Launch:
    """Build the launch settings of a run; [`Launch.with_recipe`] completes the command."""
    name = line.accelerate_config
    config_file = None if name is None else find_config(name, "accelerate").resolve()
    settings = read_accelerate_config(config_file) if config_file else {}
    on_cpu = bool(recipe.training.get("use_cpu")) or settings.get("use_cpu") is True
    devices = 0 if on_cpu else device_count()
    if not on_cpu and devices == 0:
        raise UserError("This machine has no accelerator: pass `--use_cpu true`, or use a machine with a GPU.")
    flags = dict(line.accelerate_flags)
    values = settings | {flag: words[0] for flag, words in flags.items() if words}
    machines = whole_number(values.get("num_machines", 1), "num_machines")
    rank = whole_number(values.get("machine_rank", 0), "machine_rank", minimum=0)
    visible_ids = recipe.env.get(VISIBLE)
    num_usable = min(devices, len(visible_ids.split(","))) if visible_ids else devices
    processes = whole_number(values.get("num_processes", max(num_usable, 1)), "num_processes")
    if devices and processes > num_usable * machines:
        raise UserError(
            f"`num_processes` is {processes}, but {machines} x {num_usable} accelerators are usable: pass "
            f"`--num_processes {num_usable * machines}`."
        )
    distributed_type = settings.get("distributed_type")
    if distributed_type == "DEEPSPEED" and find_spec("deepspeed") is None:
        raise UserError(f"{config_file} needs DeepSpeed: run `{install_line('deepspeed')}`.")
    expected_type = distributed_type if distributed_type in ("DEEPSPEED", "FSDP") else None
    # `-P` keeps files in the working directory from shadowing standard modules such as `secrets`.
    python = [sys.executable, "-P"]
    worker = ["-m", WORKER, "--expect_processes", str(processes)]
    worker += ["--expect_distributed_type", expected_type] if expected_type else []
    flags.pop("num_processes", None)
    env: dict[str, str] = {}
    if processes == 1 and devices > 1:  # the Trainer would use `DataParallel`, which multiplies the batch size
        env[VISIBLE] = (os.environ | recipe.env).get(VISIBLE, "0").split(",")[0]
    if config_file is None and not flags and processes == 1:
        return Launch(1, None, [*python, *worker], env)
    if config_file is None and not flags and on_cpu:
        torchrun = ["-m", LAUNCHERS[0], "--standalone", "--nproc_per_node", str(processes), "--no-python"]
        return Launch(processes, None, [*python, *torchrun, *python, "-u", *worker])
    if config_file is None:
        config_file = find_config("ddp" if processes > 1 else "single", "accelerate").resolve()
    launch = ["-m", LAUNCHERS[1], "--config_file", str(config_file), "--num_processes", str(processes)]
    # `quiet` suppresses accelerate's traceback. Without `no_python`, accelerate would start the worker without `-P`.
    for flag, words in (flags | {"quiet": [], "no_python": []}).items():
        launch += [f"--{flag}", *words]
    env |= _share_cores(processes // machines, recipe.env, line.accelerate_flags)
    return Launch(processes, expected_type, [*python, *launch, *python, "-u", *worker], env, rank)


def read_accelerate_config(file: Path) -> dict[str, Any]:
    """Read an accelerate configuration."""
    settings = read_yaml(file)
    if "distributed_type" not in settings and "compute_environment" not in settings:
        raise UserError(f"{file} is not an accelerate configuration: create one with `accelerate config`.")
    return settings


def whole_number(value: Any, name: str, minimum: int = 1) -> int:
    """Parse a whole number from an accelerate file or flag."""
    if not str(value).isdecimal() or len(str(value)) > 9 or int(value) < minimum:
        raise UserError(f"`{name}` is {value!r:.50}: expected a whole number of at least {minimum}.")
    return int(value)


def device_count() -> int:
    """Return the number of accelerators on this machine."""
    import torch

    return torch.accelerator.device_count() if torch.accelerator.is_available() else 0


def _share_cores(processes: int, *settings: Mapping[str, Any]) -> dict[str, str]:
    """Divide this machine's cores among its processes; accelerate would give each process only one core."""
    names = (THREADS, "num_cpu_threads_per_process")
    if any(name in mapping for mapping in (os.environ, *settings) for name in names):
        return {}
    cores = psutil.cpu_count(logical=False) or 1
    if hasattr(psutil.Process, "cpu_affinity"):  # not available on macOS
        cores = min(cores, len(psutil.Process().cpu_affinity()))
    return {THREADS: str(max(1, cores // max(1, processes)))}


def run_training(launch: Launch, recipe: Recipe, checkpoint: Path | None = None) -> int:
    """Run this machine's training processes, and print how to resume if a process is killed or fails."""
    output_dir, signals = Path(recipe.setting("output_dir")), list[int]()
    start_time = (output_dir / TRAINING_LOCK).stat().st_mtime  # same clock as the checkpoints' modification times
    with tempfile.TemporaryDirectory() as folder:
        error_file, file = Path(folder) / "reported", Path(folder) / RECIPE
        file.write_text(recipe.to_yaml(), encoding="utf-8")
        env = {**recipe.env, **launch.env, REPORTED: str(error_file)}
        code, end_file = run_child(launch.with_recipe(file, checkpoint), env, signals), Path(folder) / ENDED
        if signals or (code == 0 and end_file.exists()):
            return code if end_file.exists() else code or 128 + signals[0]
        if error_file.exists():
            return 2
    length = Length(recipe.setting("max_steps"), recipe.setting("num_train_epochs"))
    outcome = "was killed" if code == 128 + signal.SIGKILL else f"ended with code {code}"
    outcome += "" if code else " before the model was saved (did a reward function call `os._exit`?)"
    print(
        f"trl-ces train: error: training {outcome}; see the first error above, if any. "
        f"{resume_hint(output_dir, length, start_time, checkpoint)}",
        file=sys.stderr,
    )
    return code or 1


def run_child(command: list[str], env: dict[str, str], signals: list[int] | None = None) -> int:
    """Run a command, and kill it if this process ends; forward and record Ctrl-C, SIGTERM and SIGHUP."""
    child: subprocess.Popen | None = None
    signals = [] if signals is None else signals

    def forward(number: int) -> None:
        if child is None or child.poll() is not None:
            return
        if number == signal.SIGKILL or not _stop_workers(child.pid, number):
            # Do not send SIGINT, because the launcher would print a traceback.
            os.killpg(child.pid, signal.SIGTERM if number == signal.SIGTERM else signal.SIGKILL)
        elif number == signal.SIGINT:
            print("\nStopping after the current step. Press Ctrl-C again to stop immediately.", file=sys.stderr)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        signal_to_send = signal.SIGKILL if signals else number  # a second Ctrl-C kills the processes
        signals.append(number)
        forward(signal_to_send)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup` ignores SIGHUP
        numbers.append(signal.SIGHUP)
    previous = {number: signal.signal(number, on_signal) for number in numbers}
    env = {**os.environ, **env, LAUNCHER: str(os.getpid())}
    code = None
    try:
        child = subprocess.Popen(command, env=env, start_new_session=True, preexec_fn=prepare_child)
        if signals:  # a signal arrived while the child was starting
            forward(signals[-1])
        while code is None:  # wait with a timeout, because a signal may arrive just before the wait
            with suppress(subprocess.TimeoutExpired):
                code = child.wait(1)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if signals == [signal.SIGTERM] and code == 0:
        return 0  # the workers have saved a checkpoint and printed how to resume
    if signals:
        return 128 + signals[0]
    return code if code >= 0 else 128 - code


def _stop_workers(launcher: int, number: int) -> bool:
    """Signal the workers but not the launcher, because a signaled launcher kills them; return whether any exist."""
    any_exists = False
    for process in [psutil.Process(launcher), *psutil.Process(launcher).children(recursive=True)]:
        with suppress(psutil.Error):
            words = process.cmdline()
            if WORKER in words and not any(module in words for module in LAUNCHERS):
                process.send_signal(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
                any_exists = True
    return any_exists
