"""
Stand-in for `vllm serve` that runs a small model on the CPU and provides the endpoints that TRL's client uses.

`server_runs.py` starts it. It implements the command line, the endpoints and their response format, weight updates,
and sampling with token ids and log-probs. It has no vLLM engine, kernels or NCCL transfers; tests/vllm_stub transfers
the weights. The sampling seed depends only on the weights and the request, so that runs are reproducible.

It is stricter than vLLM. It returns status 400 if an update does not contain every parameter exactly once with the
announced name, dtype and shape, and if completions are requested during an update or before the prefix cache is reset.

For tests, `POST /stand_in/faults` takes {"path", "what", "skip", "times"}, where `what` is an HTTP status, "die",
"drop", "hang" or a number of seconds to wait; an empty body removes all faults. `GET /stand_in/log` lists the
requests, with the digest of the weights that served them.
"""

import argparse
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM
from vllm_sampling import choice, digest, end_ids, make_generator, sample

WORKER_TIMEOUT = 60
GET = {"/health", "/v1/models", "/stand_in/log", "/server_info", "/get_world_size"}
POST = {"/v1/completions", "/stand_in/faults", "/init_weight_transfer_engine", "/start_weight_update"}
POST |= {"/update_weights", "/finish_weight_update", "/reset_prefix_cache"}
# Paths that are available without development mode.
OPEN = {
    "/health",
    "/v1/models",
    "/v1/completions",
    "/stand_in/faults",
    "/stand_in/log",
}


class RequestError(Exception):
    """Error for a rejected request; the arguments are the message and the HTTP status (default 400)."""


def arguments(args):
    """Parse the options of `vllm serve` that training servers may use."""
    parser = argparse.ArgumentParser(prog="vllm", allow_abbrev=False)
    serve = parser.add_subparsers(required=True).add_parser("serve", allow_abbrev=False)
    serve.add_argument("model")
    serve.add_argument("--host", default="0.0.0.0")
    serve.add_argument("--port", type=int, default=8000)
    serve.add_argument("--weight-transfer-config", type=json.loads)
    serve.add_argument("--logprobs-mode", default="raw_logprobs", choices=["raw_logprobs", "processed_logprobs"])
    serve.add_argument("--max-logprobs", type=int, default=20)
    serve.add_argument("--generation-config", default="auto")
    serve.add_argument("--max-model-len", type=int)
    serve.add_argument("--revision", default="main")
    serve.add_argument("--api-key")
    serve.add_argument("--model-impl", default="auto")
    serve.add_argument("--trust-remote-code", action="store_true")
    return parser.parse_args(args)


class Server(ThreadingHTTPServer):
    """Server with the parsed options, a model, and a log of requests."""

    # Closing the server joins all threads, because torch aborts a process that ends with live threads.
    daemon_threads = False

    def __init__(self, options, development):
        super().__init__((options.host, options.port), Handler)
        self.options, self.development = options, development
        self.model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
        self.name = options.model
        self.max_model_len = options.max_model_len or self.model.config.max_position_embeddings
        self.weights = digest(self.model)
        self.lock, self.log, self.faults = threading.Lock(), [], []
        self.worker, self.received, self.cache_is_stale = None, None, False
        self.connections, self.closing = [], threading.Event()

    def process_request(self, request, client_address):
        self.connections.append(request)
        super().process_request(request, client_address)

    def server_close(self):
        self.closing.set()
        for connection in self.connections:
            with suppress(OSError):  # already closed
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()

    def fault_for(self, path):
        for fault in self.faults:
            if re.search(fault["path"], path):
                if fault.get("skip", 0) > 0:
                    fault["skip"] -= 1
                elif fault.get("times", 1) > 0:
                    fault["times"] = fault.get("times", 1) - 1
                    return fault["what"]
        return None

    # GET

    def health(self, _):
        return ""

    def v1_models(self, _):
        card = {"id": self.name, "object": "model", "created": 0, "owned_by": "vllm", "root": self.options.model}
        return {"object": "list", "data": [{**card, "parent": None, "max_model_len": self.max_model_len}]}

    def server_info(self, query):
        config = {
            "model_config": {
                "model": self.options.model,
                "max_model_len": self.max_model_len,
                "logprobs_mode": self.options.logprobs_mode,
            },
            "weight_transfer_config": self.options.weight_transfer_config,
        }
        as_json = query.get("config_format") == ["json"]
        return {"vllm_config": config if as_json else str(config), "vllm_env": {}, "system_env": {}}

    def get_world_size(self, _):
        return {"world_size": 1}

    def stand_in_log(self, _):
        return self.log

    # POST

    def stand_in_faults(self, fault):
        self.faults = [*self.faults, fault] if fault else []
        return {}

    def init_weight_transfer_engine(self, body):
        info = body["init_info"]
        if self.options.weight_transfer_config is None:
            raise RequestError("there is no weight transfer engine", 500)
        if (info["rank_offset"], info["world_size"], info["packed"]) != (1, 2, True):
            raise RequestError(f"{info} does not describe a group of one worker and one trainer")
        if self.worker is not None:
            self.worker.close()
        self.worker = self.connect(info["master_address"], info["master_port"])
        return {"message": "Weight transfer initialized"}

    def connect(self, address, port):
        end = time.monotonic() + WORKER_TIMEOUT
        while True:  # the trainer may start to listen after it sends the request
            try:
                return socket.create_connection((address, port), timeout=WORKER_TIMEOUT).makefile()
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def start_weight_update(self, _):
        if self.worker is None or self.received is not None:
            raise RequestError("an update cannot start before the group exists or during an update")
        self.received = []
        return {"message": "Weight update started"}

    def update_weights(self, body):
        info = body["update_info"]
        if self.received is None:
            raise RequestError("call /start_weight_update first")
        file = self.worker.readline().strip()  # waits for the trainer
        if not file:
            raise RequestError("the trainer has left the group", 500)
        announced = list(zip(info["names"], info["dtype_names"], info["shapes"], strict=True))
        with safe_open(file, "pt") as archive:
            tensors = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118
        received = [(name, str(t.dtype).removeprefix("torch."), list(t.shape)) for name, t in tensors.items()]
        if sorted(received) != sorted(announced):
            raise RequestError("the tensors differ from the announced tensors")
        parameters = dict(self.model.named_parameters())
        for name, tensor in tensors.items():
            if name not in parameters or parameters[name].shape != tensor.shape:
                raise RequestError(f"there is no parameter {name} of shape {tuple(tensor.shape)}")
            parameters[name].data.copy_(tensor)
        self.received += tensors
        return {"message": "Weights updated"}

    def finish_weight_update(self, _):
        received, self.received = self.received, None
        if received is None or sorted(received) != sorted(name for name, _ in self.model.named_parameters()):
            raise RequestError("an update must contain each parameter exactly once")
        self.weights, self.cache_is_stale = digest(self.model), True
        return {"message": "Weight update finished"}

    def reset_prefix_cache(self, _):
        self.cache_is_stale = False
        return {"success": True}

    def v1_completions(self, body):
        prompts, count = body["prompt"], body.get("n", 1)
        if body["model"] != self.name:
            raise RequestError(f"The model `{body['model']}` does not exist.", 404)
        if self.received is not None or self.cache_is_stale:
            raise RequestError("an update is in progress, or the prefix cache has not been reset after an update")
        if body.get("repetition_penalty", 1) != 1 or body.get("structured_outputs") or body.get("temperature", 1) == 0:
            raise RequestError(
                "the stand-in does not support repetition penalty, structured outputs or greedy decoding"
            )
        if not (body["return_token_ids"] and body["return_tokens_as_token_ids"]):
            raise RequestError("the stand-in needs `return_token_ids` and `return_tokens_as_token_ids`")
        if self.options.max_logprobs != -1 and (body.get("logprobs") or 0) > self.options.max_logprobs:
            raise RequestError(f"Requested sample logprobs of {body['logprobs']}, which is over the maximum")
        for prompt in prompts:
            if len(prompt) + body["max_tokens"] > self.max_model_len:
                raise RequestError(
                    f"This model's maximum context length is {self.max_model_len} tokens. However, you requested "
                    f"{body['max_tokens']} output tokens and your prompt contains {len(prompt)} input tokens."
                )
        generator = make_generator(self.weights, body)
        choices = []
        for prompt in prompts:
            for tokens, reported in sample(self.model, prompt, body, generator, self.options.logprobs_mode):
                entry = choice(len(choices), prompt, tokens, reported, body.get("logprobs"))
                choices.append({**entry, "finish_reason": "stop" if tokens[-1] in end_ids(self.model) else "length"})
        assert len(choices) == count * len(prompts)
        return {"id": "cmpl-0", "object": "text_completion", "model": self.name, "choices": choices}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.respond("GET")

    def do_POST(self):
        self.respond("POST")

    def respond(self, method):
        url = urlsplit(self.path)
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.server.lock:
            fault = self.server.fault_for(url.path)
        if fault == "die":
            os._exit(1)
        if fault == "drop":
            self.close_connection = True
            return None
        if fault == "hang":
            self.server.closing.wait()
            return None
        if isinstance(fault, float):
            time.sleep(fault)
        if isinstance(fault, int):
            return self.send(fault, {"error": {"message": "requested by the test", "code": fault}})
        if url.path not in (GET if method == "GET" else POST) & (GET | POST if self.server.development else OPEN):
            return self.send(404, {"detail": "Not Found"})
        key = self.server.options.api_key
        if key and url.path.startswith("/v1") and self.headers.get("Authorization") != f"Bearer {key}":
            return self.send(401, {"error": "Unauthorized"})
        body = parse_qs(url.query) if method == "GET" else json.loads(text or "{}")
        with self.server.lock:
            try:
                content = getattr(self.server, url.path[1:].replace("/", "_"))(body)
            except RequestError as error:
                status = error.args[1] if len(error.args) > 1 else 400
                return self.send(status, {"error": {"message": error.args[0], "code": status}})
            if not url.path.startswith("/stand_in"):
                entry = {"path": url.path, "weights": self.server.weights}
                self.server.log.append(
                    {**entry, "body": body, "response": content} if "completions" in url.path else entry
                )
        return self.send(200, content)

    def send(self, status, content):
        body = json.dumps(content).encode() if content != "" else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)


def main(args):
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server = Server(arguments(args), os.environ.get("VLLM_SERVER_DEV_MODE") == "1")
    print(f"Uvicorn running on http://{server.server_address[0]}:{server.server_port}", flush=True)
    server.serve_forever(poll_interval=0.05)


if __name__ == "__main__":
    main(sys.argv[1:])
