"""Start the stand-in for `vllm serve` in a process or a thread, and make trainers use the vLLM stub."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from urllib.request import Request, urlopen

from processes import HERE, environment, free_port

from trl_ces.train.recipe import make_recipe

STUB = HERE.parent / "vllm_stub"
# The flags of `trl_ces.train.server.server_command`.
FLAGS = (
    "--weight-transfer-config",
    '{"backend": "nccl"}',
    "--logprobs-mode",
    "processed_logprobs",
    "--max-logprobs",
    "-1",
    "--generation-config",
    "vllm",
)


def server_recipe(model, **changes):
    """Make a validated recipe for a small run with a server."""
    fields = {
        "model_name_or_path": str(model),
        "output_dir": "out",
        "dataset_name": "arithmetic",
        "use_vllm": True,
        "vllm_mode": "server",
        "vllm_group_port": free_port(),
        "max_completion_length": 200,
        **changes,
    }
    return make_recipe(fields, "recipe.yaml")


def stub_environment(**changes):
    """Return an environment in which `import vllm` imports tests/vllm_stub."""
    variables = environment(**changes)
    return {**variables, "PYTHONPATH": os.pathsep.join([str(STUB), variables["PYTHONPATH"]])}


class StandInClient:
    """Client of a running stand-in server."""

    def __init__(self, url, process=None):
        self.url, self.process = url, process

    def request(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(self.url + path, data), timeout=60) as response:
            return json.load(response)

    def fail(self, path, fault, skip=0, times=1):
        """Let `skip` requests to `path` pass, then make the next `times` fail with `fault` (vllm_server.py)."""
        self.request("/stand_in/faults", {"path": path, "what": fault, "skip": skip, "times": times})

    def clear_faults(self):
        """Remove all faults."""
        self.request("/stand_in/faults", {})

    def log(self, path=""):
        return [entry for entry in self.request("/stand_in/log") if path in entry["path"]]


def use_vllm_stub(monkeypatch, any_device=True):
    """
    Make TRL's client in this process use tests/vllm_stub, even if TRL was imported without vLLM.

    With `any_device=False`, TRL still rejects devices other than CUDA.
    """
    import trl.generation.vllm_client as client
    import trl.generation.vllm_generation as generation

    monkeypatch.syspath_prepend(STUB)
    original = client.VLLMClient.init_communicator
    monkeypatch.setattr(client.VLLMClient, "init_communicator", original)
    from vllm import sampling_params  # noqa: F401  this import disables TRL's device check
    from vllm.distributed.weight_transfer.nccl_common import trainer_init
    from vllm.distributed.weight_transfer.packed_tensor import packed_nccl_broadcast_producer
    from vllm.utils.network_utils import get_ip

    if not any_device:
        client.VLLMClient.init_communicator = original
    names = {"get_ip": get_ip, "open_trainer_endpoint": trainer_init}
    names |= {"packed_nccl_broadcast_producer": packed_nccl_broadcast_producer}
    names |= {"_HAS_STATEFUL_TRAINER_ENGINE": True, "_HAS_RESET_PREFIX_CACHE_SUCCESS": True}
    for name, value in names.items():
        monkeypatch.setattr(client, name, value, raising=False)
    for module in (client, generation):
        monkeypatch.setattr(module, "is_vllm_available", lambda *_, **__: True)
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        monkeypatch.setitem(sys.modules, name, sys.modules.pop(name))  # monkeypatch removes them after the test


@contextmanager
def serve_in_process(model, *flags, port=0, development=True, folder=None):
    """Start a stand-in server in a separate process; `flags` replace `FLAGS` if given."""
    variables = environment(VLLM_SERVER_DEV_MODE="1" if development else "0")
    command = [sys.executable, str(HERE / "vllm_server.py"), "serve", str(model), "--host", "127.0.0.1"]
    process = subprocess.Popen(
        [*command, "--port", str(port), *(flags or FLAGS)], env=variables, stdout=subprocess.PIPE, text=True
    )
    try:
        started = process.stdout.readline()
        match = re.search(r"http://\S+", started)
        assert match, f"the stand-in printed {started!r} instead of its URL"
        yield StandInClient(match[0], process)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@contextmanager
def serve_in_thread(model, *flags, development=True):
    """Start a stand-in server in a thread, which is faster than a process; yield its client and the server."""
    import vllm_server

    options = vllm_server.arguments(["serve", str(model), "--host", "127.0.0.1", "--port", "0", *(flags or FLAGS)])
    server = vllm_server.Server(options, development)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield StandInClient(f"http://127.0.0.1:{server.server_port}"), server
    finally:
        server.shutdown()
        server.server_close()
