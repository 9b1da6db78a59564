"""Collect versions and devices for bug reports and model cards."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("trl", "transformers", "torch", "datasets", "accelerate", "peft", "deepspeed", "vllm", "math-verify")
MISSING = "not installed"


def environment() -> dict[str, str]:
    """Return versions and device descriptions by name, in the order in which `trl-ces env` prints them."""
    import torch

    from .. import __version__

    facts = {"trl_ces": __version__}
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = MISSING
    facts |= {"python": platform.python_version(), "platform": platform.platform()}
    facts |= {"CPU cores": str(os.cpu_count()), "torch threads": str(torch.get_num_threads())}
    if not torch.cuda.is_available():
        accelerator = torch.accelerator.current_accelerator()
        return facts | {"devices": "CPU only" if accelerator is None else str(accelerator)}
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        facts[f"GPU {index}"] = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    return facts | {"CUDA": str(torch.version.cuda)}
