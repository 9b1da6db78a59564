"""Bounds the wait for a vLLM server, and stops the run if it is gone.

Reads `vllm_generation.vllm_client.session`.
"""

from functools import partial
from typing import Any

from urllib3.exceptions import ReadTimeoutError
from urllib3.util.retry import Retry

from .layer import Layer

CONNECT_SECONDS = 30


class ServerTimeout(Layer):
    """
    Stops a run whose vLLM server stays silent for `ddp_timeout` seconds: as long as the other processes wait for it.

    TRL's client waits forever, and repeats failed requests. Here, neither a silent server nor a refused connection is
    tried again: a server restarted in the meantime would answer with the weights that it loaded at its start.

    Raises:
        `requests.exceptions.ReadTimeout`, `ConnectionError`: When training stops.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.use_vllm and self.vllm_mode == "server" and self.accelerator.is_main_process:
            limit_waiting(self.vllm_generation.vllm_client.session, self.args.ddp_timeout)


def limit_waiting(session: Any, seconds: float) -> None:
    """
    Gives all requests of a session a timeout, and ends them at a refused connection.

    Args:
        session (`requests.Session`): Changed in place. Its other retries stay.
        seconds (`float`): Longest silence of the server.
    """
    session.request = partial(session.request, timeout=(CONNECT_SECONDS, seconds))
    for adapter in session.adapters.values():
        retries = _NoSecondWait()
        retries.__dict__.update(adapter.max_retries.__dict__)
        retries.connect = 0
        adapter.max_retries = retries


class _NoSecondWait(Retry):
    def increment(self, method=None, url=None, response=None, error=None, _pool=None, _stacktrace=None):
        if isinstance(error, ReadTimeoutError):
            raise error
        return super().increment(method, url, response, error, _pool, _stacktrace)
