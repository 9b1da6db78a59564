"""Adapt the shipped accelerate configurations to a CPU, and allow FSDP2 on a CPU."""

import yaml
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from accelerate.utils.launch import prepare_multi_gpu_env
from processes import HERE

ACCELERATE = HERE.parents[1] / "recipes" / "accelerate"
FSDP2 = ACCELERATE / "fsdp2.yaml"


def write_cpu_config(name, folder):
    """Write a copy of an accelerate configuration that uses the CPU and float32, so that weights can be compared."""
    settings = yaml.safe_load((ACCELERATE / f"{name}.yaml").read_text())
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({**settings, "use_cpu": True, "mixed_precision": "no"}))
    return file


def launched_environment():
    """Return the environment variables that accelerate's launcher derives from fsdp2.yaml."""
    args = ["--config_file", str(FSDP2), "--num_processes", "2", "--main_process_port", "0", "script.py"]
    arguments, _, _ = _validate_launch_command(launch_command_parser().parse_args(args))
    variables = prepare_multi_gpu_env(arguments)
    names = [name for name in variables if name.startswith("FSDP_") or name == "ACCELERATE_USE_FSDP"]
    return {name: variables[name] for name in names}


def allow_fsdp_on_cpu():
    """Patch accelerate to allow FSDP on a CPU."""
    init = AcceleratorState.__init__

    def with_fsdp(self, *args, fsdp_plugin=None, **kwargs):
        init(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type, self.fsdp_plugin = DistributedType.FSDP, fsdp_plugin
            PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            if self._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self._mixed_precision)

    AcceleratorState.__init__ = with_fsdp
