"""Compare vLLM on a CPU with transformers, for SmolLM2-135M in float32. `make test-vllm` runs these tests."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from unittest.mock import patch

import psutil
import pytest
from fixtures_evaluation import write_data

from trl_ces.lab.evaluation.benchmarks import Problem
from trl_ces.lab.evaluation.generate import TransformersBackend, VllmBackend
from trl_ces.lab.evaluation.models import encode_prompts, read_model
from trl_ces.lab.evaluation.run import choose_backend
from trl_ces.lab.evaluation.samples import read_samples
from trl_ces.lab.evaluation.settings import EvaluationSettings
from trl_ces.lab.tasks import smollm2

# vLLM compiles the model while loading it, which takes one to three minutes on two cores.
pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1200)]

QUIET = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
QUESTIONS = [
    "Say hello.",
    "What is 7 + 5?",
    "Is 9 a prime number? Answer yes or no.",
    "Tom had 9 nuts and ate 2. How many are left?",
    "Solve $x^2 - 5x + 6 = 0$ and list both solutions.",
    "小明有3个苹果，又买了4个，一共有几个？",
    "Read the following table and answer a question:\nFruit | Pieces\nApples | 3\nPears | 12\nHow many pears?",
    "A train leaves at 9:40 and arrives at 11:05. How many minutes does it take? Explain each step in one sentence.",
    "Name three colours, separated by commas.",
    "Write the numbers from 1 to 40 in order.",
]
PROBLEMS = [Problem("gsm8k", number, question, "0") for number, question in enumerate(QUESTIONS)]
GREEDY = EvaluationSettings(
    model="SmolLM2", benchmarks=["gsm8k"], backend="vllm", dtype="float32", temperature=0.0, max_new_tokens=64
)


def completions(backend, settings, prompts, seeds):
    """Return the tokens and finish reasons of a backend's completions, in the order of the prompts."""
    backend.settings = settings
    by_index = {completion.index: completion for part in backend.generate(prompts, seeds) for completion in part}
    return [(by_index[number].tokens, by_index[number].finish_reason) for number in range(len(prompts))]


@pytest.fixture(scope="module")
def model():
    choose_backend(GREEDY)  # raises if vLLM is missing, because these tests must not be skipped
    os.environ.update(QUIET)
    return smollm2.fetch()


@pytest.fixture(scope="module")
def backends(model):
    """Return both backends with the same model, the prompts and the settings."""
    settings = dataclasses.replace(GREEDY, model=model)
    facts = read_model(settings)
    prompts = encode_prompts(facts.tokenizer, PROBLEMS, settings.system_prompt).ids
    vllm = VllmBackend(facts, settings, max(map(len, prompts)) + settings.max_new_tokens)
    transformers = TransformersBackend.load(facts, settings)
    yield SimpleNamespace(vllm=vllm, transformers=transformers, prompts=prompts, settings=settings)
    vllm.close()


def test_both_backends_return_the_same_greedy_completions_for_the_same_prompts(backends):
    seeds = [0] * len(backends.prompts)
    generate, received = backends.transformers.model.generate, []

    def record(input_ids, attention_mask, **keywords):
        received.extend(ids[mask.bool()].tolist() for ids, mask in zip(input_ids, attention_mask, strict=True))
        return generate(input_ids=input_ids, attention_mask=attention_mask, **keywords)

    with patch.object(backends.transformers.model, "generate", record):
        by_transformers = completions(backends.transformers, backends.settings, backends.prompts, seeds)
    assert received == backends.prompts
    by_vllm = completions(backends.vllm, backends.settings, backends.prompts, seeds)
    assert by_vllm == by_transformers
    # Both finish reasons occur, and the repetition penalty has an effect.
    assert {reason for _, reason in by_vllm} == {"stop", "length"}
    no_penalty = dataclasses.replace(backends.settings, repetition_penalty=1.0)
    assert completions(backends.transformers, no_penalty, backends.prompts, seeds) != by_vllm


def test_sampled_completions_depend_on_seeds_but_not_on_the_request_order(backends):
    settings = dataclasses.replace(backends.settings, temperature=0.4)
    prompts, seeds = backends.prompts * 2, list(range(2 * len(backends.prompts)))
    expected = completions(backends.vllm, settings, prompts, seeds)
    assert completions(backends.vllm, settings, prompts[::-1], seeds[::-1])[::-1] == expected
    half = len(backends.prompts)
    assert sum(first != second for first, second in zip(expected[:half], expected[half:], strict=True)) >= half // 2


def test_a_killed_evaluation_leaves_no_processes_and_can_be_resumed(model, tmp_path):
    write_data(tmp_path / "data", ["gsm8k"])
    output = tmp_path / "run"
    command = [sys.executable, "-m", "trl_ces.cli.main", "eval", "--model", model, "--benchmarks", "gsm8k"]
    command += ["--backend", "vllm", "--dtype", "float32", "--data_dir", str(tmp_path / "data")]
    command += ["--output_dir", str(output), "--max_problems", "12", "--num_samples", "2", "--max_new_tokens", "400"]
    with (tmp_path / "log").open("wb") as log:
        run = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    processes: set[psutil.Process] = set()
    try:
        while not (output / "samples.jsonl").is_file() or not read_samples(output / "samples.jsonl")[0]:
            assert run.poll() is None, (tmp_path / "log").read_text()[-2000:]
            processes |= set(psutil.Process(run.pid).children(recursive=True))
            time.sleep(0.05)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    _, survivors = psutil.wait_procs(processes, timeout=60)
    for process in survivors:
        process.kill()
    assert survivors == []

    before = {(sample["problem"], sample["sample"]): sample for sample in read_samples(output / "samples.jsonl")[0]}
    assert 0 < len(before) < 24
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = {(sample["problem"], sample["sample"]): sample for sample in read_samples(output / "samples.jsonl")[0]}
    assert len(after) == 24
    assert {key: after[key] for key in before} == before
    assert (output / "table.md").is_file()
