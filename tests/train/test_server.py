"""The check of vLLM's server before a run, and what a user reads where the server fails in a run."""

import json
import re
import shlex
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import requests
import vllm_server
from processes import free_port
from server_runs import FLAGS, served_here, server_recipe
from tiny import save_tiny

from trl_ces.support.errors import UserError
from trl_ces.train import checks, server
from trl_ces.train.arguments import read_words
from trl_ces.train.server import check_server, server_command, server_failure


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "tiny-model"
    save_tiny(folder)
    return folder


def recipe_of(model, url=None, **changes):
    given = {} if url is None else {"vllm_server_base_url": url}
    return server_recipe(model, **{"vllm_server_timeout": 0.0, **given, **changes})


def refusal(recipe):
    with pytest.raises(UserError) as caught:
        check_server(recipe)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence


def started_by(command):
    """The options that the stand-in's parser makes of a command of [`server_command`]."""
    development, name, *words = shlex.split(command)
    assert (development, name) == ("VLLM_SERVER_DEV_MODE=1", "vllm")
    return vllm_server.arguments(words)


def test_the_server_that_the_command_starts_passes_the_check(model):
    recipe = recipe_of(model, vllm_max_model_length=220)
    options = started_by(server_command(recipe))
    assert (options.model, options.max_model_len, options.port) == (str(model), 220, 8000)
    with served_here(model, *FLAGS, "--max-model-len", "220") as (stand_in, running):
        assert {**vars(running.options), "host": options.host, "port": options.port} == vars(options)
        check_server(recipe_of(model, stand_in.url + "/", vllm_max_model_length=220))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model_name_or_path": "me/my model"}, ["serve", "me/my model"]),
        ({"vllm_server_port": 8100}, ["--port", "8100"]),
        ({"vllm_server_base_url": "http://node-4:8200"}, ["--port", "8200"]),
        ({"model_revision": "abc"}, ["--revision", "abc"]),
        ({"vllm_model_impl": "transformers"}, ["--model-impl", "transformers"]),
        ({"trust_remote_code": True}, ["--trust-remote-code"]),
    ],
)
def test_the_command_serves_what_the_recipe_trains(changes, expected):
    command = server_command(recipe_of("model", **changes))
    words = shlex.split(command)
    start = words.index(expected[0])
    assert words[start : start + len(expected)] == expected
    assert "--max-model-len" not in words
    started_by(command)


@pytest.mark.parametrize(
    ("flags", "changes", "sentence"),
    [
        (FLAGS, {"model_name_or_path": "other/model-b"}, "serves '.*tiny-model', and `model_name_or_path` is 'other/"),
        (
            FLAGS[2:],
            {},
            r"engine than NCCL \(None\): .*start it with `VLLM_SERVER_DEV_MODE=1 vllm serve",
        ),
        (("--weight-transfer-config", '{"backend": "ipc"}', *FLAGS[2:]), {}, r"has another .*\{'backend': 'ipc'\}"),
        (FLAGS[:2], {}, "runs with `--logprobs-mode raw_logprobs`"),
        (
            (*FLAGS, "--max-model-len", "210"),
            {"vllm_max_model_length": 220},
            "takes 210 tokens, fewer than `vllm_max",
        ),
        (
            (*FLAGS, "--max-model-len", "200"),
            {},
            "takes 200 tokens and `max_completion_length` is",
        ),
        ((*FLAGS, "--api-key", "secret"), {}, "requires an API key, which TRL's client does not send"),
    ],
    ids=["model", "no engine", "engine", "log-probs", "max length", "answers", "key"],
)
def test_a_server_of_another_run_is_refused_with_what_to_start(model, flags, changes, sentence):
    with served_here(model, *flags) as (stand_in, _):
        assert re.search(sentence, refusal(recipe_of(model, stand_in.url, **changes)))


def test_without_the_development_mode_the_sentence_holds_the_variable(model):
    with served_here(model, development=False) as (stand_in, _):
        message = refusal(recipe_of(model, stand_in.url))
    assert "does not expose its development endpoints" in message
    assert "`VLLM_SERVER_DEV_MODE=1 vllm serve" in message


def test_a_missing_server_is_refused_with_the_command(model):
    port = free_port()
    message = refusal(recipe_of(model, f"http://127.0.0.1:{port}", vllm_max_model_length=4096))
    assert f"http://127.0.0.1:{port} cannot be reached after 0 s (`vllm_server_timeout`): " in message
    options = started_by(message[message.index("`VLLM") + 1 : -2])
    assert (options.model, options.port, options.max_model_len) == (str(model), port, 4096)


def test_a_server_that_is_still_loading_is_waited_for_with_one_line(model, monkeypatch, capsys):
    monkeypatch.setattr(server, "RETRY_SECONDS", 0.01)
    with served_here(model) as (stand_in, _):
        stand_in.fail("/health", 503, times=5)  # a gateway's answer
        check_server(recipe_of(model, stand_in.url, vllm_server_timeout=60.0))
    assert capsys.readouterr().out == f"Waiting up to 60 s for the vLLM server at {stand_in.url}.\n"


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ({}, r"is not vLLM's \(status 404 of /health\)"),
        ({"/health": "", "/v1/models": "<html>", "/server_info": "{}"}, "is not vLLM's, or of another version"),
        ({"/health": "", "/v1/models": '{"data": []}', "/server_info": '{"vllm_config": ""}'}, "is not vLLM's, or"),
        ({"/health": ""}, "does not expose"),
    ],
    ids=["no health", "no JSON", "nothing in it", "no endpoints"],
)
def test_another_service_on_the_port_is_recognized(model, answers, sentence):
    class Service(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            found = answers.get(self.path.partition("?")[0])
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write((found or "").encode())

    service = HTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        assert re.search(sentence, refusal(recipe_of(model, f"http://127.0.0.1:{service.server_port}")))
    finally:
        service.shutdown()
        service.server_close()


@pytest.mark.parametrize(
    "address", ["node-4:8000", "node-4", "ftp://node-4:8000", "http://", "http://node-4:80x", "http://[::1"]
)
def test_an_address_that_is_none_is_refused(address):
    assert f"`vllm_server_base_url` is {address!r}: write it as http://HOST:8000" in refusal(recipe_of("m", address))


def test_a_taken_group_port_is_refused_before_any_wait(model):
    assert "`vllm_group_port` 70000 cannot be opened" in refusal(recipe_of(model, vllm_group_port=70000))
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        message = refusal(recipe_of(model, vllm_group_port=port, vllm_server_timeout=1e9))
    assert f"`vllm_group_port` {port}" in message
    assert "set it to a free port" in message


@pytest.mark.parametrize(
    ("flags", "mode", "checked"),
    [([], "server", True), (["--machine_rank", "1"], "server", False), ([], "colocate", False)],
    ids=["rank 0", "another machine", "colocate"],
)
def test_only_the_machine_with_rank_0_talks_to_the_server(model, tmp_path, monkeypatch, flags, mode, checked):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "1+1=", "answer": 2}))
    asked = []
    monkeypatch.setattr(checks, "check_server", asked.append)
    monkeypatch.setattr(checks, "find_spec", lambda name: True)
    fields = {"vllm_mode": mode, "use_cpu": True, "bf16": False, "output_dir": str(tmp_path / "out")}
    fields |= {"dataset_name": str(tmp_path / "rows.jsonl"), "num_generations": 4, "per_device_train_batch_size": 4}
    recipe = recipe_of(model, **fields)
    launch = checks.check(read_words(["--num_processes", "2", *flags]), recipe)
    assert asked == ([recipe] if checked else [])
    assert launch.machine_rank == (1 if flags else 0)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            requests.exceptions.ConnectionError("refused"),
            r"is gone \(ConnectionError\): look at its log, and start it",
        ),
        (requests.exceptions.RetryError("too many 500"), r"is gone \(RetryError\)"),
        (requests.exceptions.ReadTimeout("read timed out"), r"did not respond for 1800 s \(`ddp_timeout`\)"),
        (Exception("Request failed: 400, {too long}"), r"refused a request \(400, \{too long\}\): look at its log"),
        (Exception("something else"), None),
        (RuntimeError("Request failed: 400, our own"), None),
        (OSError("a file"), None),
    ],
)
def test_errors_of_the_client_become_a_sentence_with_the_command(error, sentence):
    recipe = recipe_of("model")
    found = server_failure(error, recipe)
    if sentence is None:
        assert found is None
        return
    assert re.search(sentence, found)
    assert found.endswith(f"`{server_command(recipe)}`.")
    assert server_failure(error, recipe_of("model", vllm_mode="colocate")) is None
