"""A vLLM server's memory, by hand; what TRL really sends, and in which dtype."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from plan_steps import SMALL, step
from tiny import tiny_model
from trl.distributed import DistributedBackend
from trl.generation import vllm_client
from trl.generation.vllm_generation import VLLMGeneration

from trl_ces.lab.plan.engine import Engine
from trl_ces.lab.plan.memory import Generation, Setup, in_flight, plan_memory
from trl_ces.lab.plan.server import WORKSPACE, plan_server
from trl_ces.lab.plan.step import count_step

GIB = 2**30


def setup(engine=None, device=None, kv_bytes=1024, served=True, accumulation=1, **changes):
    """A step of the small model; a server generates 24 answers of 256 tokens at a time."""
    generation = Generation(False, 0.5, False, 1, 24, kv_bytes, server=served)
    capacity = None if device is None else device * GIB
    return Setup(step(gpu=True, **changes), engine or Engine(1), accumulation, generation, capacity)


# The server


def test_a_copy_on_each_device_if_it_fits():
    weights = count_step(step(gpu=True)).weights
    server = plan_server(setup(device=40), 4)
    assert (server.copies, server.tensor_parallel, server.utilization) == (4, 1, 0.9)
    assert server.cache == 36 * GIB - 2 * weights - WORKSPACE
    assert server.full_answers == pytest.approx(4 * server.cache / (1024 * 256))
    assert server.flags == "--data-parallel-size 4 --gpu-memory-utilization 0.9"
    assert server.fits


def test_devices_share_a_copy_whose_answer_is_too_long_for_one():
    # 2 x 10 GiB of cache per copy, on devices with 5.9 x 0.9 - 4 GiB of room: four share it, but the model has two
    # heads in its cache.
    long = {"kv_bytes": 10 * 2**20, "device": 8}
    alone = plan_server(setup(**long, tokens=512), 1)
    assert not alone.fits
    assert alone.answer == 5 * GIB
    pair = plan_server(setup(**long, tokens=512), 4)
    assert (pair.tensor_parallel, pair.copies, pair.answer) == (2, 2, 5 * GIB // 2)
    assert pair.fits
    assert pair.flags == "--tensor-parallel-size 2 --data-parallel-size 2 --gpu-memory-utilization 0.85"
    four = plan_server(setup(**{**long, "kv_bytes": 13 * 2**20}, tokens=512), 4)
    assert (four.tensor_parallel, four.answer) == (4, 13 * GIB // 4)  # its two heads are on two devices each
    # Eight devices cannot share four attention heads.
    none = plan_server(setup(**{**long, "kv_bytes": 100 * 2**20}, tokens=512), 8)
    assert (none.tensor_parallel, none.fits) == (4, False)


def test_vllm_leaves_room_for_the_weights_that_arrive():
    # Largest tensor: 1 GiB as float32. Two buffers of up to 2 GiB, but no more than all weights.
    wide = {**SMALL, "hidden_size": 2**11, "vocab_size": 2**17, "num_hidden_layers": 1}
    given = setup(shape=wide, device=40)
    count = count_step(given.step)
    assert in_flight(given, count) == min(4 * GIB, 4 * count.weights) == 4 * count.weights
    server = plan_server(given, 1)
    assert server.arriving == 4 * count.weights
    # 40 - 2.0 - 1 outside vLLM's share
    assert server.utilization == 0.9
    assert plan_server(replace(given, device=20 * GIB), 1).utilization == 0.8


def test_a_server_of_unknown_size_still_says_what_an_answer_takes():
    server = plan_server(setup(), 2)
    assert (server.cache, server.utilization, server.full_answers) == (None, None, float("inf"))
    assert server.answer == 1024 * 256
    assert server.flags == "--data-parallel-size 2"


def test_the_first_process_holds_what_it_sends():
    weights = count_step(step(gpu=True)).weights
    alone, shared = (plan_memory(setup(engine)) for engine in (Engine(2), Engine(2, fsdp=True)))
    # Less than a buffer: all weights at once; where they are shared out, gathered first.
    assert alone.parts["weights on their way to vLLM"] == 4 * weights
    assert shared.parts["weights on their way to vLLM"] == 2 * 4 * weights


# What TRL does


def sent(model):
    """(dtype, number) of the weights that TRL sends, without an engine that shards them."""
    accelerator = SimpleNamespace(state=SimpleNamespace(deepspeed_plugin=None, fsdp_plugin=None))
    generation = VLLMGeneration.__new__(VLLMGeneration)
    generation.model, generation._dist = model, DistributedBackend(accelerator)
    tensors = [tensor for _, tensor in generation._iter_named_params()]
    return {tensor.dtype for tensor in tensors}, sum(tensor.numel() for tensor in tensors)


def test_trl_sends_weights_as_they_are_kept_and_no_adapters():
    model = tiny_model()
    numbers = sum(parameter.numel() for parameter in model.parameters())
    assert sent(model) == ({torch.float32}, numbers)
    half = model.to(torch.bfloat16)
    adapted = get_peft_model(half, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    assert {p.dtype for p in adapted.parameters() if p.requires_grad} == {torch.float32}
    assert sent(adapted) == ({torch.bfloat16}, numbers)


def test_trl_asks_a_server_for_a_whole_rollout_in_one_request(monkeypatch):
    client, requests = object.__new__(vllm_client.VLLMClient), []
    client.base_url, client.model = "http://server", "model"
    choice = {"prompt_token_ids": [1], "token_ids": [2], "logprobs": None}

    def post(url, json):
        requests.append((url, len(json["prompt"])))
        return {"choices": [choice] * len(json["prompt"]) * json["n"]}

    monkeypatch.setattr(client, "_post", post)
    client.generate([[1]] * 200, n=4, logprobs=None)
    assert requests == [("http://server/v1/completions", 200)]
