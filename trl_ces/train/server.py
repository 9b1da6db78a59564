"""vLLM's own server, for `vllm_mode: server`: the command that starts it, and its check before a run.

TRL's client talks to `vllm serve` and sends the weights through vLLM's weight-transfer engine.
"""

import shlex
import socket
import time
from typing import Any
from urllib.parse import urlsplit

from ..support.errors import UserError, first_line
from .recipe import Recipe

DEFAULT_PORT = 8000  # of `vllm serve`
RETRY_SECONDS = 2.0
REQUEST_SECONDS = 10.0  # for one request of the check
REQUEST_FAILED = "Request failed: "  # how TRL's client begins the message of a bare Exception


def server_url(recipe: Recipe) -> str:
    """Return the server's address, as TRL's client takes it."""
    given = recipe.setting("vllm_server_base_url")
    if given is None:
        return f"http://{recipe.setting('vllm_server_host')}:{recipe.setting('vllm_server_port')}"
    try:
        parts = urlsplit(given)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # http://host:80x, http://[::1
        is_address = False
    if not is_address:
        raise UserError(f"`vllm_server_base_url` is {given!r}: write it as http://HOST:{DEFAULT_PORT}.")
    return given.rstrip("/")


def server_command(recipe: Recipe) -> str:
    """Return the command that starts the recipe's server, to be run on the server's machine."""
    words = ["vllm", "serve", str(recipe.model.model_name_or_path)]
    words += ["--weight-transfer-config", '{"backend": "nccl"}']
    words += ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"]
    port = urlsplit(server_url(recipe)).port or DEFAULT_PORT
    for flag, value, default in (
        ("--max-model-len", recipe.setting("vllm_max_model_length"), None),
        ("--port", port, DEFAULT_PORT),
        ("--revision", recipe.model.model_revision, "main"),
        ("--model-impl", recipe.setting("vllm_model_impl"), "vllm"),
    ):
        words += [flag, str(value)] if value != default else []
    words += ["--trust-remote-code"] if recipe.setting("trust_remote_code") else []
    return f"VLLM_SERVER_DEV_MODE=1 {shlex.join(words)}"


def check_server(recipe: Recipe) -> None:
    """
    Wait for the recipe's server up to `vllm_server_timeout`, and check that it can serve this run.

    For the machine with rank 0, whose process is the only one that talks to the server.
    """
    port = recipe.setting("vllm_group_port")
    try:
        socket.create_server(("", port)).close()
    except (OSError, OverflowError) as error:  # the second for a port above 65535
        raise UserError(f"`vllm_group_port` {port} cannot be opened here ({error}): set it to a free port.") from None
    _wait_for_health(recipe)
    models = _get("v1/models", recipe)
    if models.status_code == 401:
        raise _refusal("requires an API key, which TRL's client does not send (`--api-key`, VLLM_API_KEY)", recipe)
    info = _get("server_info?config_format=json", recipe)
    if info.status_code == 404:
        raise _refusal("does not expose its development endpoints, through which weights are sent", recipe)
    try:
        card, config = models.json()["data"][0], info.json()["vllm_config"]
        served, length, mode = card["root"], card["max_model_len"], config["model_config"]["logprobs_mode"]
        transfer = config["weight_transfer_config"]
    except (ValueError, LookupError, TypeError):
        raise _refusal("is not vLLM's, or of another version than TRL supports", recipe) from None
    wanted, completion = str(recipe.model.model_name_or_path), recipe.setting("max_completion_length")
    # The same model may have another path on the server's machine, so only the last part of its name must agree.
    if recipe.script.model_builder is None and served.rstrip("/").split("/")[-1] != wanted.rstrip("/").split("/")[-1]:
        raise _refusal(f"serves {served!r}, and `model_name_or_path` is {wanted!r}", recipe)
    if (transfer or {}).get("backend") != "nccl":
        raise _refusal(f"has another weight-transfer engine than NCCL ({transfer})", recipe)
    if length < (recipe.setting("vllm_max_model_length") or 0):
        raise _refusal(f"takes {length} tokens, fewer than `vllm_max_model_length`", recipe)
    if completion is not None and length <= completion:
        raise _refusal(
            f"takes {length} tokens and `max_completion_length` is {completion}: raise `--max-model-len`",
            recipe,
        )
    if mode != "processed_logprobs" and recipe.setting("vllm_importance_sampling_correction"):
        raise _refusal(f"runs with `--logprobs-mode {mode}`, which biases the importance sampling", recipe)


def served_length(recipe: Recipe) -> int:
    """Return the tokens of prompt and completion that the recipe's running server takes."""
    return int(_get("v1/models", recipe).json()["data"][0]["max_model_len"])


def server_failure(error: BaseException, recipe: Recipe) -> str | None:
    """Return a sentence for an error that TRL's client raised because of the server; `None` for any other error."""
    if not recipe.setting("use_vllm") or recipe.setting("vllm_mode") != "server":
        return None
    import requests

    if isinstance(error, requests.exceptions.ReadTimeout):
        return str(_refusal(f"did not respond for {recipe.setting('ddp_timeout')} s (`ddp_timeout`)", recipe))
    if isinstance(error, requests.exceptions.RequestException):
        return str(_refusal(f"is gone ({type(error).__name__})", recipe))
    if type(error) is Exception and str(error).startswith(REQUEST_FAILED):
        return str(_refusal(f"refused a request ({first_line(error).removeprefix(REQUEST_FAILED)})", recipe))
    return None


def _refusal(problem: str, recipe: Recipe) -> UserError:
    return UserError(
        f"The vLLM server at {server_url(recipe)} {problem}: look at its log, and start it with "
        f"`{server_command(recipe)}`."
    )


def _wait_for_health(recipe: Recipe) -> None:
    import requests

    url, seconds = server_url(recipe), recipe.setting("vllm_server_timeout")
    end, waits = time.monotonic() + seconds, False
    while True:
        try:
            status = requests.get(f"{url}/health", timeout=REQUEST_SECONDS).status_code
        except requests.exceptions.RequestException:
            status = 0
        if status == 200:
            return
        if 400 <= status < 500:
            raise _refusal(f"is not vLLM's (status {status} of /health)", recipe)
        left = end - time.monotonic()
        if left <= 0:
            raise _refusal(f"cannot be reached after {seconds:g} s (`vllm_server_timeout`)", recipe)
        if not waits:
            print(f"Waiting up to {seconds:g} s for the vLLM server at {url}.", flush=True)
            waits = True
        time.sleep(min(RETRY_SECONDS, left))


def _get(path: str, recipe: Recipe) -> Any:
    import requests

    try:
        return requests.get(f"{server_url(recipe)}/{path}", timeout=REQUEST_SECONDS)
    except requests.exceptions.RequestException:
        raise _refusal("was healthy and does not respond now", recipe) from None
