"""Test the checks of the vLLM server before a run and the explanations of its failures during a run."""

import re
import shlex

import pytest
import requests
import vllm_server
from processes import free_port
from server_runs import FLAGS, serve_in_thread, server_recipe
from tiny import save_tiny

from trl_ces.support.errors import UserError
from trl_ces.train import checks
from trl_ces.train.arguments import read_words
from trl_ces.train.launch import make_launch
from trl_ces.train.server import check_server, server_command, server_failure


def test_the_server_command_starts_a_server_that_passes_the_check(tmp_path):
    save_tiny(tmp_path)
    recipe = server_recipe(tmp_path, vllm_max_model_length=220)
    variable, program, *words = shlex.split(server_command(recipe))
    assert (variable, program) == ("VLLM_SERVER_DEV_MODE=1", "vllm")
    options = vllm_server.arguments(words)
    assert (options.model, options.max_model_len, options.port) == (str(tmp_path), 220, 8000)
    with serve_in_thread(tmp_path, *FLAGS, "--max-model-len", "220") as (server, stub):
        assert {**vars(stub.options), "host": options.host, "port": options.port} == vars(options)
        check_server(server_recipe(tmp_path, vllm_server_base_url=server.url + "/", vllm_server_timeout=0.0))


@pytest.mark.parametrize("address", [{"vllm_server_port": 8100}, {"vllm_server_base_url": "http://node-4:8100"}])
def test_the_server_command_contains_the_port_of_the_recipe(address):
    command = server_command(server_recipe("me/my model", **address))
    assert shlex.split(command)[-2:] == ["--port", "8100"]
    assert "vllm serve 'me/my model'" in command


def test_the_error_for_a_missing_server_contains_the_start_command():
    url = f"http://127.0.0.1:{free_port()}"
    recipe = server_recipe("model", vllm_server_base_url=url, vllm_server_timeout=0.0)
    with pytest.raises(UserError) as caught:
        check_server(recipe)
    assert str(caught.value) == (
        f"The vLLM server at {url} did not respond within 0 s (`vllm_server_timeout`): start the server with "
        f"`{server_command(recipe)}`."
    )


@pytest.mark.parametrize("url", ["localhost:8000", "http://localhost:80a", "node-4"])
def test_an_invalid_url_is_rejected(url):
    with pytest.raises(UserError, match=f"`vllm_server_base_url` is '{url}': use `http://HOST:PORT`"):
        check_server(server_recipe("model", vllm_server_base_url=url))


def test_the_check_waits_for_a_server_that_is_still_loading(tmp_path, monkeypatch):
    save_tiny(tmp_path)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with serve_in_thread(tmp_path) as (server, _):
        server.fail("/health", 503, times=5)
        check_server(server_recipe(tmp_path, vllm_server_base_url=server.url, vllm_server_timeout=60.0))


@pytest.mark.parametrize(
    ("flags", "mode", "checked"),
    [([], "server", True), (["--machine_rank", "1"], "server", False), ([], "colocate", False)],
    ids=["rank 0", "another machine", "colocate"],
)
def test_only_the_machine_with_rank_0_checks_the_server(tmp_path, monkeypatch, flags, mode, checked):
    save_tiny(tmp_path / "model")
    (tmp_path / "rows.jsonl").write_text('{"question": "1+1=", "answer": 2}')
    recipes = []
    monkeypatch.setattr(checks, "check_server", recipes.append)
    monkeypatch.setattr(checks, "find_spec", lambda name: True)
    fields = {"vllm_mode": mode, "use_cpu": True, "bf16": False, "output_dir": str(tmp_path / "out")}
    fields |= {"dataset_name": str(tmp_path / "rows.jsonl"), "num_generations": 4, "per_device_train_batch_size": 4}
    recipe = server_recipe(tmp_path / "model", **fields)
    checks.check(recipe, make_launch(read_words(["--num_processes", "2", *flags]), recipe))
    assert recipes == ([recipe] if checked else [])


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (
            requests.exceptions.ConnectionError("refused"),
            r"failed \(ConnectionError\): see its log, and restart it with `",
        ),
        (requests.exceptions.ReadTimeout("read timed out"), r"failed \(ReadTimeout\)"),
        (Exception("Request failed: 400, {too long}"), r"failed \(Request failed: 400, \{too long\}\)"),
        (Exception("something else"), None),
        (OSError("a file"), None),
    ],
)
def test_client_errors_are_explained_with_the_start_command(error, problem):
    recipe = server_recipe("model")
    sentence = server_failure(error, recipe)
    if problem is None:
        assert sentence is None
    else:
        assert re.search(problem, sentence)
        assert sentence.endswith(f"`{server_command(recipe)}`.")
        assert server_failure(error, server_recipe("model", vllm_mode="colocate")) is None
