"""vLLM's own server, which generates in `vllm_mode: server`: the command that starts it, and its check before a run.

TRL's client talks to `vllm serve` and sends the weights through vLLM's weight-transfer engine.
"""

import errno
import os
import shlex
import socket
import time
from typing import Any
from urllib.parse import urlsplit

from ..support.errors import UserError, first_line
from .recipe import Recipe

DEFAULT_PORT = 8000  # of `vllm serve`
RETRY_SECONDS = 2.0
ANSWER_SECONDS = 10.0  # for one request of the check
REQUEST_FAILED = "Request failed: "  # how TRL's client begins the message of a bare Exception


def server_url(recipe: Recipe) -> str:
    """The server's address, as TRL's client takes it."""
    given = recipe.setting("vllm_server_base_url")
    if given is None:
        return f"http://{recipe.setting('vllm_server_host')}:{recipe.setting('vllm_server_port')}"
    try:
        parts = urlsplit(given)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # http://host:80x, http://[::1
        fits = False
    if not fits:
        raise UserError(f"`vllm_server_base_url` is {given!r}: write it as http://HOST:{DEFAULT_PORT}.")
    return given.rstrip("/")


def server_command(recipe: Recipe) -> str:
    """The command that starts the recipe's server, to be run on the server's machine."""
    model = recipe.model
    words = ["vllm", "serve", str(model.model_name_or_path)]
    words += ["--weight-transfer-config", '{"backend": "nccl"}']
    words += ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"]
    if recipe.setting("vllm_max_model_length") is not None:
        words += ["--max-model-len", str(recipe.setting("vllm_max_model_length"))]
    port = urlsplit(server_url(recipe)).port or DEFAULT_PORT
    if port != DEFAULT_PORT:
        words += ["--port", str(port)]
    if model.model_revision != "main":
        words += ["--revision", model.model_revision]
    if recipe.setting("vllm_model_impl") != "vllm":
        words += ["--model-impl", recipe.setting("vllm_model_impl")]
    if recipe.setting("trust_remote_code"):
        words += ["--trust-remote-code"]
    return f"VLLM_SERVER_DEV_MODE=1 {shlex.join(words)}"


def check_server(recipe: Recipe) -> None:
    """
    Waits for the recipe's server up to `vllm_server_timeout`, and checks that it can serve this run.

    For the machine with rank 0, whose process is the only one that talks to the server.
    """
    url = server_url(recipe)
    _check_port_free("vllm_group_port", recipe.setting("vllm_group_port"))
    _wait_for_health(url, recipe)
    models = _get(f"{url}/v1/models", recipe)
    if models.status_code == 401:
        raise UserError(
            f"The vLLM server at {url} asks for an API key, which TRL's client does not send: start it without "
            "`--api-key` and VLLM_API_KEY."
        )
    info = _get(f"{url}/server_info?config_format=json", recipe)
    if info.status_code == 404:
        raise _refusal(url, "does not expose its development endpoints, through which weights are sent", recipe)
    try:
        card, config = models.json()["data"][0], info.json()["vllm_config"]
        facts = (card["root"], card["max_model_len"], config["model_config"]["logprobs_mode"])
        transfer = config["weight_transfer_config"]
    except (ValueError, LookupError, TypeError):
        raise _refusal(url, "is not vLLM's, or of another version than TRL supports", recipe) from None
    _check_facts(url, *facts, transfer, recipe)


def served_length(recipe: Recipe) -> int:
    """Tokens of prompt and completion that the recipe's running server takes."""
    return int(_get(f"{server_url(recipe)}/v1/models", recipe).json()["data"][0]["max_model_len"])


def _check_facts(url: str, model: str, max_length: int, mode: str, transfer: Any, recipe: Recipe) -> None:
    """The same model may lie elsewhere on the server's machine, so only the last part of its name must agree."""
    wanted = str(recipe.model.model_name_or_path)
    if recipe.script.model_builder is None and model.rstrip("/").split("/")[-1] != wanted.rstrip("/").split("/")[-1]:
        raise _refusal(url, f"serves {model!r}, and `model_name_or_path` is {wanted!r}", recipe)
    if (transfer or {}).get("backend") != "nccl":
        has = "no weight-transfer engine" if transfer is None else f"another weight-transfer engine, {transfer}"
        raise _refusal(url, f"has {has}", recipe)
    bound, answer = recipe.setting("vllm_max_model_length"), recipe.setting("max_completion_length")
    if bound is not None and max_length < bound:
        raise _refusal(url, f"takes {max_length} tokens, and `vllm_max_model_length` is {bound}", recipe)
    if answer is not None and max_length <= answer:
        raise UserError(
            f"The vLLM server at {url} takes {max_length} tokens of prompt and completion, and "
            f"`max_completion_length` is {answer}: start it with a larger `--max-model-len`, or lower "
            "`max_completion_length`."
        )
    if mode != "processed_logprobs" and recipe.setting("vllm_importance_sampling_correction"):
        raise _refusal(url, f"runs with `--logprobs-mode {mode}`, which biases the importance sampling", recipe)


def server_failure(error: BaseException, recipe: Recipe) -> str | None:
    """A sentence for an error that TRL's client raised because of the server; `None` for any other error."""
    if not recipe.setting("use_vllm") or recipe.setting("vllm_mode") != "server":
        return None
    import requests

    url = server_url(recipe)
    again = f"look at its log, and start it again with `{server_command(recipe)}`."
    if isinstance(error, requests.exceptions.ReadTimeout):
        seconds = recipe.setting("ddp_timeout")
        return f"The vLLM server at {url} gave no answer for {seconds} s (`ddp_timeout`): {again}"
    if isinstance(error, requests.exceptions.RequestException):
        return f"The vLLM server at {url} is gone ({type(error).__name__}): {again}"
    if type(error) is Exception and str(error).startswith(REQUEST_FAILED):
        said = first_line(error).removeprefix(REQUEST_FAILED)
        return f"The vLLM server at {url} refused a request ({said}): {again}"
    return None


def _refusal(url: str, problem: str, recipe: Recipe) -> UserError:
    return UserError(f"The vLLM server at {url} {problem}: start it with `{server_command(recipe)}`.")


def _wait_for_health(url: str, recipe: Recipe) -> None:
    import requests

    seconds = recipe.setting("vllm_server_timeout")
    end, waits = time.monotonic() + seconds, False
    while True:
        try:
            status = requests.get(f"{url}/health", timeout=ANSWER_SECONDS).status_code
        except requests.exceptions.RequestException:
            status = None
        if status == 200:
            return
        if status is not None and 400 <= status < 500:
            raise _refusal(url, f"is not vLLM's (/health answers {status})", recipe)
        left = end - time.monotonic()
        if left <= 0:
            raise _refusal(url, f"cannot be reached after {seconds:g} s (`vllm_server_timeout`)", recipe)
        if not waits:
            print(f"Waiting up to {seconds:g} s for the vLLM server at {url}.", flush=True)
            waits = True
        time.sleep(min(RETRY_SECONDS, left))


def _check_port_free(name: str, port: int) -> None:
    try:
        socket.create_server(("", port)).close()
    except (OSError, OverflowError) as error:  # the second for a port above 65535
        reason = os.strerror(getattr(error, "errno", 0) or errno.EINVAL)  # without the address
        raise UserError(f"`{name}` {port} cannot be opened here ({reason}): set it to a free port.") from None


def _get(address: str, recipe: Recipe) -> Any:
    import requests

    try:
        return requests.get(address, timeout=ANSWER_SECONDS)
    except requests.exceptions.RequestException:
        raise _refusal(server_url(recipe), "was healthy and does not answer now", recipe) from None
