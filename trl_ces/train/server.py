"""Command, health check and error messages for the vLLM server that `vllm_mode: server` uses."""

import shlex
import time
from urllib.parse import urlsplit

from ..support.errors import UserError, first_line
from .recipe import Recipe

DEFAULT_PORT = 8000  # default of `vllm serve`


def server_url(recipe: Recipe) -> str:
    """Return the server's URL in the format that TRL's client expects."""
    url = recipe.setting("vllm_server_base_url")
    return (url or f"http://{recipe.setting('vllm_server_host')}:{recipe.setting('vllm_server_port')}").rstrip("/")


def server_command(recipe: Recipe) -> str:
    """Return the command that starts the recipe's server on the server's machine."""
    words = ["vllm", "serve", str(recipe.model.model_name_or_path)]
    words += ["--weight-transfer-config", '{"backend": "nccl"}']
    words += ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1", "--generation-config", "vllm"]
    length, port = recipe.setting("vllm_max_model_length"), urlsplit(server_url(recipe)).port
    words += [] if length is None else ["--max-model-len", str(length)]
    words += [] if port in (None, DEFAULT_PORT) else ["--port", str(port)]
    return f"VLLM_SERVER_DEV_MODE=1 {shlex.join(words)}"


def check_server(recipe: Recipe) -> None:
    """Wait up to `vllm_server_timeout` seconds for the recipe's server to respond."""
    import requests

    url, seconds = server_url(recipe), recipe.setting("vllm_server_timeout")
    end = time.monotonic() + seconds
    while True:
        try:
            if requests.get(f"{url}/health", timeout=10).ok:
                return
        except (requests.ConnectionError, requests.Timeout):
            pass
        except ValueError as error:  # the URL is invalid
            raise UserError(f"`vllm_server_base_url` is {url!r}: use `http://HOST:PORT`.") from error
        if time.monotonic() >= end:
            raise UserError(
                f"The vLLM server at {url} did not respond within {seconds:g} s (`vllm_server_timeout`): start the "
                f"server with `{server_command(recipe)}`."
            )
        time.sleep(2)


def server_failure(error: BaseException, recipe: Recipe) -> str | None:
    """Describe an error that TRL's client raised because of the server, or return `None` for all other errors."""
    import requests

    # TRL raises server errors as plain `Exception`.
    is_trl_error = type(error) is Exception and str(error).startswith("Request failed: ")
    if recipe.setting("vllm_mode") != "server" or not (is_trl_error or isinstance(error, requests.RequestException)):
        return None
    problem = first_line(error) if is_trl_error else type(error).__name__
    command = server_command(recipe)
    return f"The vLLM server at {server_url(recipe)} failed ({problem}): see its log, and restart it with `{command}`."
