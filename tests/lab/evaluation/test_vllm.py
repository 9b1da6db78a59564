"""What the vLLM backend passes on, told by a module that stands for vLLM."""

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
    """As vLLM's own, which is no RuntimeError either."""


class Engine:
    """Answers a prompt with its last token, as often as its first says; the longer, the later."""

    def __init__(self, arguments):
        self.arguments, self.asked, self.running, self.most, self.ended = arguments, [], 0, 0, False
        if arguments["model"] == "refused":
            raise ValueError("Model architectures ['X'] are not supported.\nAdvice.")

    async def generate(self, prompt, sampling_params, request_id, *, lora_request=None):
        ids = prompt["prompt_token_ids"]
        if not self.asked:
            self.handler = asyncio.create_task(asyncio.sleep(3600))
        self.asked.append((ids, sampling_params, request_id, lora_request))
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(ids[0]):
            await asyncio.sleep(0.001)
        self.running -= 1
        if ids[0] == 99:
            raise RuntimeError("the engine died")
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
    modules = {
        name: types.ModuleType(name)
        for name in (
            "vllm",
            "vllm.config",
            "vllm.lora",
            "vllm.lora.request",
            "vllm.sampling_params",
            "vllm.v1",
            "vllm.v1.engine",
            "vllm.v1.engine.exceptions",
        )
    }
    modules["vllm.v1.engine.exceptions"].EngineDeadError = EngineDeadError
    modules["vllm"].__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    modules["vllm"].AsyncEngineArgs = taking("EngineArgs")
    modules["vllm.config"].ReasoningConfig = taking("ReasoningConfig")
    modules["vllm"].SamplingParams = taking("SamplingParams")
    modules["vllm"].AsyncLLMEngine = types.SimpleNamespace(from_engine_args=Engine)
    modules["vllm.lora.request"].LoRARequest = lambda *words: words
    modules["vllm.sampling_params"].RequestOutputKind = types.SimpleNamespace(FINAL_ONLY="final only")
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


def settings(**changes):
    return EvaluationSettings(**{"model": "base", "benchmarks": ["aime24"], "backend": "vllm", **changes})


def test_the_engine_gets_the_papers_sampling_the_seeds_and_the_ids(vllm):
    backend = VllmBackend(FACTS, settings(max_new_tokens=50), longest=120)
    found = [one for part in backend.generate([[3, 40], [6, 41], [1, 42]], [10, 11, 12]) for one in part]
    assert [(one.index, one.tokens, one.finish_reason) for one in found] == [
        (2, [42], "stop"),
        (0, [40] * 3, "stop"),
        (1, [41] * 6, "length"),
    ]
    assert [ids for ids, *_ in backend.engine.asked] == [[3, 40], [6, 41], [1, 42]]
    assert [sampling["seed"] for _, sampling, *_ in backend.engine.asked] == [10, 11, 12]
    assert len({number for *_, number, _ in backend.engine.asked}) == 3
    sampling = {key: value for key, value in backend.engine.asked[0][1].items() if key != "seed"}
    assert sampling == {
        "temperature": 0.4,
        "top_p": 0.95,
        "top_k": 0,
        "repetition_penalty": 1.05,
        "max_tokens": 50,
        "stop_token_ids": [1, 7],
        "detokenize": False,
        "output_kind": "final only",
    }
    engine = backend.engine
    backend.close()
    assert engine.ended
    assert engine.handler.cancelled()
    assert backend.loop.is_closed()


def test_the_engine_is_told_the_model_the_room_and_the_gpus(vllm):
    chosen = settings(
        tensor_parallel_size=2, data_parallel_size=3, gpu_memory_utilization=0.5, dtype="bfloat16", seed=4
    )
    backend = VllmBackend(FACTS, chosen, longest=120)
    assert backend.engine.arguments == {
        "model": "base",
        "tokenizer": "base",
        "skip_tokenizer_init": True,
        "dtype": "bfloat16",
        "seed": 4,
        "max_model_len": 120,
        "tensor_parallel_size": 2,
        "data_parallel_size": 3,
        "gpu_memory_utilization": 0.5,
        "trust_remote_code": False,
        "generation_config": "vllm",
        "disable_log_stats": True,
    }
    backend.close()


def test_an_adapter_goes_with_every_request(vllm):
    facts = dataclasses.replace(FACTS, adapter="/runs/adapter", adapter_rank=12)
    backend = VllmBackend(facts, settings(), longest=120)
    assert (backend.engine.arguments["enable_lora"], backend.engine.arguments["max_lora_rank"]) == (True, 16)
    list(backend.generate([[1, 5], [1, 6]], [0, 0]))
    assert [lora for *_, lora in backend.engine.asked] == [("adapter", 1, "/runs/adapter")] * 2
    backend.close()
    assert [lora_rank(rank) for rank in (1, 8, 9, 64, 512)] == [1, 8, 16, 64, 512]
    with pytest.raises(UserError, match="rank 513"):
        lora_rank(513)


class Tags:
    """A tokenizer with `<think>`, 2, and `</think>`, 3."""

    def encode(self, text, add_special_tokens):
        return [{"<think>": 2, "</think>": 3}[text]]


# Budget 2. Prompt, what the engine writes, how the answer ended; 7 is an end token.
ENDS = [
    ([2, 8], [8, 3, 9, 7], "forced"),  # opened by the prompt, which has one token of thinking
    ([8], [8, 2, 8, 8, 3, 9, 7], "forced"),
    ([2, 8], [3, 9, 7], "stop"),
    ([2, 8], [8, 8, 3, 7], "stop"),
    ([2], [3, 8, 3, 7], "stop"),  # thinking had ended already
    ([2, 8, 8, 3], [9, 7], "stop"),  # in the prompt
    ([2, 8], [8, 3, 9, 9], "length"),
]


class Thinker(Engine):
    """Writes what `ENDS` has for the prompt whose number is its first token."""

    async def generate(self, prompt, sampling_params, request_id, *, lora_request=None):
        self.asked.append(sampling_params)
        yield types.SimpleNamespace(
            outputs=[types.SimpleNamespace(token_ids=tuple(ENDS[prompt["prompt_token_ids"][0] - 100][1]))]
        )


def test_a_budget_of_thinking_reaches_vllm_and_answers_that_it_ended_are_marked(vllm, monkeypatch):
    monkeypatch.setattr(sys.modules["vllm"].AsyncLLMEngine, "from_engine_args", Thinker)
    facts = dataclasses.replace(FACTS, tokenizer=Tags())
    backend = VllmBackend(facts, settings(thinking_token_budget=2, max_new_tokens=50), longest=120)
    told = backend.engine.arguments
    assert told["reasoning_config"] == {"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}
    assert told["skip_tokenizer_init"] is False  # or vLLM could not read them
    prompts = [[100 + number, *prompt] for number, (prompt, *_) in enumerate(ENDS)]
    found = {one.index: one for part in backend.generate(prompts, [0] * len(ENDS)) for one in part}
    assert [found[number].finish_reason for number in range(len(ENDS))] == [reason for *_, reason in ENDS]
    assert {sampling["thinking_token_budget"] for sampling in backend.engine.asked} == {2}
    backend.close()


def test_a_budget_of_thinking_is_refused_where_it_would_not_be_kept(vllm, tmp_path):
    with pytest.raises(UserError, match="`thinking_token_budget` needs vLLM"):
        choose_backend(settings(backend="transformers", thinking_token_budget=1))
    with pytest.raises(UserError, match="`thinking_token_budget` is 64: it must be below `max_new_tokens`, 64"):
        settings(thinking_token_budget=64, max_new_tokens=64)
    with pytest.raises(UserError, match="a study's table does not mark forced completions"):
        run_module.check_evaluate(["aime24"], backend="vllm", thinking_token_budget=64)
    write_data(tmp_path, ["aime24"])
    write_model(tmp_path / "model")
    chosen = settings(model=str(tmp_path / "model"), data_dir=str(tmp_path), max_new_tokens=8, thinking_token_budget=4)
    with pytest.raises(UserError, match="needs a model with the tokens <think> and </think>"):
        run_module.run_evaluation(chosen, tmp_path / "run", say=lambda text: None, progress=False)
    assert not (tmp_path / "run").exists()


def test_requests_wait_for_a_place_and_are_all_answered(vllm, monkeypatch):
    monkeypatch.setattr(vllm_backend, "REQUESTS_IN_FLIGHT", 4)
    backend = VllmBackend(FACTS, settings(), longest=120)
    prompts = [[1 + number % 5, number] for number in range(30)]
    found = [one for part in backend.generate(prompts, [0] * 30) for one in part]
    assert sorted(one.index for one in found) == list(range(30))
    assert all(one.tokens[0] == one.index for one in found if one.tokens)
    assert backend.engine.most == 4
    backend.close()


def test_an_engine_that_dies_ends_the_run_after_what_was_finished(vllm):
    backend = VllmBackend(FACTS, settings(), longest=120)
    parts = backend.generate([[99, 5], [1, 6]], [0, 0])
    assert [one.index for one in next(parts)] == [1]
    with pytest.raises(RuntimeError, match="the engine died"):
        next(parts)
    backend.close()


def test_an_engine_whose_process_was_killed_is_one_sentence_and_what_was_finished_stays(vllm, tmp_path, monkeypatch):
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


def test_ctrl_c_ends_the_requests_that_run(vllm):
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


def test_auto_takes_vllm_where_it_is_and_its_options_need_it(vllm, monkeypatch):
    assert choose_backend(settings(backend="auto")).backend == "vllm"
    assert choose_backend(settings(backend="transformers")).backend == "transformers"
    with pytest.raises(UserError, match="`tensor_parallel_size` is 2, but transformers generates"):
        choose_backend(settings(backend="transformers", tensor_parallel_size=2))
    monkeypatch.delitem(sys.modules, "vllm")
    monkeypatch.setattr(run_module, "find_spec", lambda name: None)
    assert choose_backend(settings(backend="auto")).backend == "transformers"
    with pytest.raises(UserError, match=r"vLLM is not installed: .*--backend transformers"):
        choose_backend(settings())


def test_both_backends_get_the_same_prompts_token_for_token(vllm, tmp_path, monkeypatch):
    write_data(tmp_path, ["aime24"])
    write_model(tmp_path / "model")
    asked = {}

    class Recorder:
        batch_size = None

        def __init__(self, name):
            self.name = name

        def generate(self, prompts, seeds):
            asked[self.name] = (list(prompts), list(seeds))
            return iter([])

        def close(self):
            pass

    monkeypatch.setattr(run_module, "load_backend", lambda facts, chosen, longest: Recorder(chosen.backend))
    monkeypatch.setattr(run_module, "summarize", lambda recorded, samples: {})
    monkeypatch.setattr(run_module, "write_summary", lambda folder, summary: None)
    for name in ("vllm", "transformers"):
        chosen = settings(
            model=str(tmp_path / "model"), data_dir=str(tmp_path), backend=name, max_new_tokens=8, num_samples=2
        )
        run_module.run_evaluation(chosen, tmp_path / name, say=lambda text: None, progress=False)
    assert asked["vllm"] == asked["transformers"]
    facts = read_model(chosen)
    encoded = encode_prompts(facts.tokenizer, load_benchmark("aime24", tmp_path), chosen.system_prompt)
    assert sorted(asked["vllm"][0]) == sorted(ids for ids in encoded.ids for _ in range(2))
    assert len(set(asked["vllm"][1])) == 60
