"""The vLLM backend, tested with a stub of vLLM."""

import dataclasses
import importlib.machinery
import os
import sys
import types

import pytest
from fixtures_evaluation import write_data, write_model
from vllm_signatures import keyword_checker

from trl_ces.lab.evaluation import run as run_module
from trl_ces.lab.evaluation.generate import VllmBackend, lora_rank
from trl_ces.lab.evaluation.models import ModelFacts
from trl_ces.lab.evaluation.run import choose_backend
from trl_ces.lab.evaluation.settings import EvaluationSettings
from trl_ces.support.errors import UserError

FACTS = ModelFacts("base", None, 0, None, [1, 7], 256, None)


class Engine:
    """Stub that repeats the last prompt token n times in n steps. n is the first prompt token; 97 raises an error."""

    def __init__(self):
        self.requests, self.unfinished = [], {}

    def add_request(self, request_id, prompt, params, *, lora_request=None):
        self.requests.append((prompt["prompt_token_ids"], params, lora_request))
        self.unfinished[request_id] = prompt["prompt_token_ids"][0], prompt["prompt_token_ids"]

    def has_unfinished_requests(self):
        return bool(self.unfinished)

    def step(self):
        self.unfinished = {name: (steps - 1, ids) for name, (steps, ids) in self.unfinished.items()}
        finished = [(name, ids) for name, (steps, ids) in self.unfinished.items() if steps == 0]
        for name, _ in finished:
            del self.unfinished[name]
        if not finished and any(ids[0] == 97 for _, ids in self.unfinished.values()):
            raise RuntimeError("CUDA out of memory")
        return [
            types.SimpleNamespace(
                request_id=name,
                finished=True,
                outputs=[types.SimpleNamespace(token_ids=tuple([ids[-1]] * ids[0] + ([7] if ids[0] < 5 else [])))],
            )
            for name, ids in finished
        ]


@pytest.fixture
def vllm(monkeypatch):
    modules = {
        f"vllm{part}": types.ModuleType(f"vllm{part}") for part in ("", ".lora", ".lora.request", ".sampling_params")
    }
    check = keyword_checker("LLM.__init__", "EngineArgs")

    def make_llm(**arguments):
        if arguments["model"] == "unsupported":
            raise ValueError("Model architectures ['X'] are not supported.\nAdvice.")
        return types.SimpleNamespace(arguments=check(**arguments), llm_engine=Engine())

    modules["vllm"].__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    modules["vllm"].LLM, modules["vllm"].SamplingParams = make_llm, keyword_checker("SamplingParams")
    modules["vllm.lora.request"].LoRARequest = lambda *args: args
    modules["vllm.sampling_params"].RequestOutputKind = types.SimpleNamespace(FINAL_ONLY="final only")
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")


def settings(**changes):
    return EvaluationSettings(**{"model": "base", "benchmarks": ["aime24"], "backend": "vllm", **changes})


def test_engine_receives_settings_seeds_and_token_ids(vllm):
    options = settings(max_new_tokens=50, gpu_memory_utilization=0.5, dtype="bfloat16", seed=4)
    backend = VllmBackend(FACTS, options, longest=120)
    batches = list(backend.generate([[3, 40], [6, 41], [1, 42]], [10, 11, 12]))
    assert [
        [(completion.index, completion.tokens, completion.finish_reason) for completion in batch] for batch in batches
    ] == [
        [(2, [42], "stop")],
        [(0, [40] * 3, "stop")],
        [(1, [41] * 6, "length")],
    ]
    assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"  # the engine runs in this process
    assert backend.llm.arguments == {
        "model": "base",
        "skip_tokenizer_init": True,
        "dtype": "bfloat16",
        "seed": 4,
        "max_model_len": 120,
        "gpu_memory_utilization": 0.5,
        "trust_remote_code": False,
        "generation_config": "vllm",
    }
    requests = backend.llm.llm_engine.requests
    assert [ids for ids, *_ in requests] == [[3, 40], [6, 41], [1, 42]]
    for index, (_, sampling, lora) in enumerate(requests):
        assert lora is None
        assert sampling == {
            "temperature": 0.4,
            "top_p": 0.95,
            "top_k": 0,
            "repetition_penalty": 1.05,
            "max_tokens": 50,
            "seed": 10 + index,
            "stop_token_ids": [1, 7],
            "detokenize": False,
            "output_kind": "final only",
        }


def test_every_request_uses_the_adapter(vllm):
    facts = dataclasses.replace(FACTS, adapter="/runs/adapter", adapter_rank=12)
    backend = VllmBackend(facts, settings(), longest=120)
    assert (backend.llm.arguments["enable_lora"], backend.llm.arguments["max_lora_rank"]) == (True, 16)
    list(backend.generate([[1, 5], [1, 6]], [0, 0]))
    assert [lora for *_, lora in backend.llm.llm_engine.requests] == [("adapter", 1, "/runs/adapter")] * 2
    assert [lora_rank(rank) for rank in (1, 8, 9, 64, 512)] == [1, 8, 16, 64, 512]


def test_completions_finished_before_a_crash_are_not_generated_again(vllm, tmp_path, monkeypatch):
    write_data(tmp_path, ["aime24"])
    write_model(tmp_path / "model")
    backends = []

    def load(facts, options, longest):
        backends.append(VllmBackend(FACTS, options, longest))
        generate, lengths = backends[-1].generate, iter([1, 97, *[2] * 28] if len(backends) == 1 else [2])
        monkeypatch.setattr(
            backends[-1], "generate", lambda prompts, seeds: generate([[next(lengths), 5] for _ in prompts], seeds)
        )
        return backends[-1]

    monkeypatch.setattr(run_module, "load_backend", load)
    options = settings(model=str(tmp_path / "model"), data_dir=str(tmp_path), max_new_tokens=8, num_samples=1)
    samples = tmp_path / "run" / "samples.jsonl"
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        run_module.run_evaluation(options, tmp_path / "run", report=lambda text: None, progress=False)
    stored_text = samples.read_text()
    assert len(stored_text.splitlines()) == 29
    run_module.run_evaluation(options, tmp_path / "run", report=lambda text: None, progress=False)
    assert samples.read_text().startswith(stored_text)
    assert len(samples.read_text().splitlines()) == 30


def test_error_for_an_unsupported_model_suggests_the_transformers_backend(vllm):
    with pytest.raises(UserError, match=r"vLLM cannot run .*not supported.\): try `--backend transformers`"):
        VllmBackend(dataclasses.replace(FACTS, base="unsupported"), settings(), longest=120)


def test_auto_backend_is_vllm_if_installed(vllm, monkeypatch):
    assert choose_backend(settings(backend="auto")).backend == "vllm"
    monkeypatch.delitem(sys.modules, "vllm")
    monkeypatch.setattr(run_module, "find_spec", lambda name: None)
    assert choose_backend(settings(backend="auto")).backend == "transformers"
    with pytest.raises(UserError, match=r"vLLM is not installed: .*--backend transformers"):
        choose_backend(settings())
