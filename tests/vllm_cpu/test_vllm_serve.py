"""Test the real `vllm serve` on a CPU: health check, generation, and the weight sync error expected without CUDA.

Other tests use the stand-in in tests/helpers/vllm_server.py.
"""

import os
import shlex
import signal
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
import requests
import torch
from processes import environment, free_port
from server_runs import server_recipe
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.generation.vllm_client import VLLMClient

from trl_ces.lab.tasks import smollm2
from trl_ces.support.errors import UserError
from trl_ces.train.server import check_server, server_command

# The server compiles the model, which takes minutes on two cores.
pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]
SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}


def recipe_of(model, port, **changes):
    address = {"vllm_server_host": "127.0.0.1", "vllm_server_port": port, "vllm_server_timeout": 900.0}
    return server_recipe(model, **{**address, "vllm_max_model_length": 256, **changes})


def register_as_vllm(folder):
    """Write metadata that registers `vllm-cpu` as the `vllm` distribution, which `vllm serve` looks up."""
    version = distribution("vllm-cpu").version
    info = folder / f"vllm-{version}+cpu.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    return str(folder)


def log_probs(model, prompt, ids):
    """Return the log-probs that transformers computes for `ids` after `prompt`, at temperature 1."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1)[range(len(ids)), ids].tolist()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Start a server on a free port with the command from the error messages; return a recipe that uses it."""
    folder = tmp_path_factory.mktemp("served")
    recipe = recipe_of(smollm2.fetch(), free_port())
    variable, _, *args = shlex.split(server_command(recipe))
    paths = [register_as_vllm(folder / "named"), environment()["PYTHONPATH"]]
    variables = {**environment(**SETTINGS), "PYTHONPATH": os.pathsep.join(paths), **dict([variable.split("=")])}
    command = [str(Path(sys.executable).with_name("vllm")), *args, "--dtype", "float32"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=variables, stdout=log, stderr=log, start_new_session=True)
    try:
        check_server(recipe)
        yield recipe
    except UserError as error:
        pytest.fail(f"{error}\n{(folder / 'log').read_text()[-3000:]}")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_real_server_passes_the_check_and_supports_weight_transfer(server):
    check_server(server)
    port = server.setting("vllm_server_port")
    info = requests.get(f"http://127.0.0.1:{port}/server_info?config_format=json", timeout=10).json()
    assert info["vllm_config"]["weight_transfer_config"]["backend"] == "nccl"


def test_trls_client_generates_but_cannot_sync_weights_without_cuda(server):
    client = VLLMClient(base_url=f"http://127.0.0.1:{server.setting('vllm_server_port')}")
    tokenizer = AutoTokenizer.from_pretrained(server.model.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(server.model.model_name_or_path, dtype=torch.float32)
    prompts = [tokenizer.encode(text) for text in ("Tom had 9 nuts and ate 2.", "7 + 5 =")]
    output = client.generate(prompts, n=2, max_tokens=12, temperature=1.0)
    assert output["prompt_ids"] == prompts
    repeated = [prompt for prompt in prompts for _ in range(2)]
    columns = (output["completion_ids"], output["logprobs"], output["logprob_token_ids"])
    for prompt, ids, logprobs, tokens in zip(repeated, *columns, strict=True):
        assert [token for (token, *_) in tokens] == ids
        expected = log_probs(model, prompt, ids)
        assert [value for (value, *_) in logprobs] == pytest.approx(expected, abs=0.01)
    with pytest.raises(NotImplementedError, match="needs a CUDA device, got 'cpu'"):
        client.init_communicator(device="cpu")
