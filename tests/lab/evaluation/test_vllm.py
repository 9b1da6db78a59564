"""The vLLM backend against a stand-in for vLLM."""

import asyncio
import dataclasses
import importlib.machinery
import sys
import types

import pytest
from fixtures_evaluation import write_data, write_model
from vllm_signatures import taking

from trl_ces.lab.evaluation import run as run_module
from trl_ces.lab.evaluation import vllm_backend
from trl_ces.lab.evaluation.models import ModelFacts, encode_prompts, read_model
from trl_ces.lab.evaluation.problems import load_benchmark
from trl_ces.lab.evaluation.run import choose_backend
from trl_ces.lab.evaluation.settings import EvaluationSettings
from trl_ces.lab.evaluation.vllm_backend import VllmBackend, lora_rank
from trl_ces.support.errors import UserError

FACTS = ModelFacts("base", None, 0, None, [1, 7], 256, None)


class EngineDeadError(Exception):
    """Like vLLM's own, not a RuntimeError."""


class Engine:
    """Completes a prompt with its last token, as often as its first says; longer completions finish later."""

    def __init__(self, arguments):
        self.arguments, self.requests, self.running, self.most, self.ended = arguments, [], 0, 0, False
        if arguments["model"] == "refused":
            raise ValueError("Model architectures ['X'] are not supported.\nAdvice.")

    async def generate(self, prompt, sampling_params, request_id, *, lora_request=None):
        ids = prompt["prompt_token_ids"]
        if not self.requests:
            self.handler = asyncio.create_task(asyncio.sleep(3600))
        self.requests.append((ids, sampling_params, request_id, lora_request))
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(ids[0]):
            await asyncio.sleep(0.001)
        self.running -= 1
        if ids[0] == 97:
            raise EngineDeadError("EngineCore encountered an issue.")
        if ids[0] == 98:
            raise KeyboardInterrupt
        tokens = [ids[-1]] * ids[0] + ([7] if ids[0] < 5 else [])
        yield types.SimpleNamespace(finished=True, outputs=[types.SimpleNamespace(token_ids=tuple(tokens))])

    def shutdown(self):
        self.ended = True


@pytest.fixture
def vllm(monkeypatch):
    parts = ("", ".lora", ".lora.request", ".sampling_params", ".v1", ".v1.engine", ".v1.engine.exceptions")
    modules = {f"vllm{part}": types.ModuleType(f"vllm{part}") for part in parts}
    modules["vllm.v1.engine.exceptions"].EngineDeadError = EngineDeadError
    modules["vllm"].__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    modules["vllm"].AsyncEngineArgs = taking("EngineArgs")
    modules["vllm"].SamplingParams = taking("SamplingParams")
    modules["vllm"].AsyncLLMEngine = types.SimpleNamespace(from_engine_args=Engine)
    modules["vllm.lora.request"].LoRARequest = lambda *words: words
    modules["vllm.sampling_params"].RequestOutputKind = types.SimpleNamespace(FINAL_ONLY="final only")
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


def settings(**changes):
    return EvaluationSettings(**{"model": "base", "benchmarks": ["aime24"], "backend": "vllm", **changes})


def test_the_engine_gets_the_model_the_papers_sampling_the_seeds_and_the_ids(vllm):
    chosen = settings(max_new_tokens=50, gpu_memory_utilization=0.5, dtype="bfloat16", seed=4)
    backend = VllmBackend(FACTS, chosen, longest=120)
    found = [one for part in backend.generate([[3, 40], [6, 41], [1, 42]], [10, 11, 12]) for one in part]
    assert [(one.index, one.tokens, one.finish_reason) for one in found] == [
        (2, [42], "stop"),
        (0, [40] * 3, "stop"),
        (1, [41] * 6, "length"),
    ]
    engine = backend.engine
    assert engine.arguments == {
        "model": "base",
        "tokenizer": "base",
        "skip_tokenizer_init": True,
        "dtype": "bfloat16",
        "seed": 4,
        "max_model_len": 120,
        "gpu_memory_utilization": 0.5,
        "trust_remote_code": False,
        "generation_config": "vllm",
        "disable_log_stats": True,
    }
    assert [ids for ids, *_ in engine.requests] == [[3, 40], [6, 41], [1, 42]]
    assert len({number for *_, number, _ in engine.requests}) == 3
    for place, (_, sampling, *_) in enumerate(engine.requests):
        assert sampling == {
            "temperature": 0.4,
            "top_p": 0.95,
            "top_k": 0,
            "repetition_penalty": 1.05,
            "max_tokens": 50,
            "seed": 10 + place,
            "stop_token_ids": [1, 7],
            "detokenize": False,
            "output_kind": "final only",
        }
    backend.close()
    assert engine.ended
    assert engine.handler.cancelled()
    assert backend.loop.is_closed()


def test_an_adapter_goes_with_every_request(vllm):
    facts = dataclasses.replace(FACTS, adapter="/runs/adapter", adapter_rank=12)
    backend = VllmBackend(facts, settings(), longest=120)
    assert (backend.engine.arguments["enable_lora"], backend.engine.arguments["max_lora_rank"]) == (True, 16)
    list(backend.generate([[1, 5], [1, 6]], [0, 0]))
    assert [lora for *_, lora in backend.engine.requests] == [("adapter", 1, "/runs/adapter")] * 2
    backend.close()
    assert [lora_rank(rank) for rank in (1, 8, 9, 64, 512)] == [1, 8, 16, 64, 512]
    with pytest.raises(UserError, match="rank 513"):
        lora_rank(513)


def test_the_number_of_requests_in_flight_is_limited(vllm, monkeypatch):
    monkeypatch.setattr(vllm_backend, "REQUESTS_IN_FLIGHT", 4)
    backend = VllmBackend(FACTS, settings(), longest=120)
    prompts = [[1 + number % 5, number] for number in range(30)]
    found = [one for part in backend.generate(prompts, [0] * 30) for one in part]
    assert sorted(one.index for one in found) == list(range(30))
    assert all(one.tokens[0] == one.index for one in found if one.tokens)
    assert backend.engine.most == 4
    backend.close()


def test_after_the_engines_death_finished_completions_are_stored(vllm, tmp_path, monkeypatch):
    write_data(tmp_path, ["aime24"])
    write_model(tmp_path / "model")
    backend = VllmBackend(FACTS, settings(), longest=120)
    lengths = iter([1, 97, *[500] * 100])
    generate = backend.generate
    monkeypatch.setattr(
        backend, "generate", lambda prompts, seeds: generate([[next(lengths), 5] for _ in prompts], seeds)
    )
    monkeypatch.setattr(run_module, "load_backend", lambda facts, chosen, longest: backend)
    chosen = settings(model=str(tmp_path / "model"), data_dir=str(tmp_path), max_new_tokens=8, num_samples=1)
    with pytest.raises(UserError, match=r"engine died; .* Give the same line again: finished completions are kept"):
        run_module.run_evaluation(chosen, tmp_path / "run", say=lambda text: None, progress=False)
    assert len((tmp_path / "run" / "samples.jsonl").read_text().splitlines()) == 1
    assert backend.loop.is_closed()


def test_ctrl_c_ends_the_running_requests(vllm):
    backend = VllmBackend(FACTS, settings(), longest=120)
    parts = backend.generate([[98, 5], [500, 7], [1, 6]], [0, 0, 0])
    assert [one.index for one in next(parts)] == [2]
    with pytest.raises(KeyboardInterrupt):
        next(parts)
    backend.close()
    assert not asyncio.all_tasks(backend.loop)


def test_a_model_that_vllm_refuses_is_refused_with_the_way_out(vllm):
    with pytest.raises(UserError, match=r"vLLM cannot run .*not supported.\): try `--backend transformers`"):
        VllmBackend(dataclasses.replace(FACTS, base="refused"), settings(), longest=120)


def test_auto_takes_vllm_if_it_is_installed(vllm, monkeypatch):
    assert choose_backend(settings(backend="auto")).backend == "vllm"
    monkeypatch.delitem(sys.modules, "vllm")
    monkeypatch.setattr(run_module, "find_spec", lambda name: None)
    assert choose_backend(settings(backend="auto")).backend == "transformers"
    with pytest.raises(UserError, match=r"vLLM is not installed: .*--backend transformers"):
        choose_backend(settings())


def test_both_backends_get_the_same_prompts_token_for_token(vllm, tmp_path, monkeypatch):
    write_data(tmp_path, ["aime24"])
    write_model(tmp_path / "model")
    given = {}

    class Recorder:
        batch_size = None

        def __init__(self, name):
            self.name = name

        def generate(self, prompts, seeds):
            given[self.name] = (list(prompts), list(seeds))
            return iter([])

        def close(self):
            pass

    monkeypatch.setattr(run_module, "load_backend", lambda facts, chosen, longest: Recorder(chosen.backend))
    monkeypatch.setattr(run_module, "summarize", lambda recorded, samples: {})
    monkeypatch.setattr(run_module, "write_summary", lambda folder, summary: None)
    options = {"model": str(tmp_path / "model"), "data_dir": str(tmp_path), "max_new_tokens": 8, "num_samples": 2}
    for name in ("vllm", "transformers"):
        chosen = settings(backend=name, **options)
        run_module.run_evaluation(chosen, tmp_path / name, say=lambda text: None, progress=False)
    assert given["vllm"] == given["transformers"]
    facts = read_model(chosen)
    encoded = encode_prompts(facts.tokenizer, load_benchmark("aime24", tmp_path), chosen.system_prompt)
    assert sorted(given["vllm"][0]) == sorted(ids for ids in encoded.ids for _ in range(2))
    assert len(set(given["vllm"][1])) == 60
