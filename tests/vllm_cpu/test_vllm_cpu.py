"""vLLM for real, on a CPU, against transformers: SmolLM2-135M in float32. `make test-vllm` runs it."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from fixtures_evaluation import write_data

from trl_ces.lab.evaluation.generate import TransformersBackend
from trl_ces.lab.evaluation.models import encode_prompts, read_model
from trl_ces.lab.evaluation.problems import Problem
from trl_ces.lab.evaluation.run import choose_backend
from trl_ces.lab.evaluation.samples import read_samples
from trl_ces.lab.evaluation.settings import EvaluationSettings
from trl_ces.lab.evaluation.vllm_backend import VllmBackend
from trl_ces.lab.tasks import smollm2
from trl_ces.support.errors import UserError

# Loading compiles the model: one to three minutes on two cores.
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


def answers(backend, settings, prompts, seeds):
    """What a backend answers, by the prompt's number."""
    backend.settings = settings
    found = {one.index: one for part in backend.generate(prompts, seeds) for one in part}
    return [(found[number].tokens, found[number].finish_reason) for number in range(len(prompts))]


def living(processes):
    return [process for process in processes if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def ended(processes, seconds=60):
    """The processes that still live after that many seconds: none, as a rule at once."""
    deadline = time.monotonic() + seconds
    while living(processes) and time.monotonic() < deadline:
        time.sleep(0.2)
    return living(processes)


@pytest.fixture(scope="module")
def model():
    choose_backend(GREEDY)  # an error, not a skip: this file runs only where vLLM is meant to be
    os.environ.update(QUIET)
    return smollm2.fetch()


@pytest.fixture(scope="module")
def both(model):
    """The two backends on one model, what was asked of them, and the prompts that they should be asked."""
    settings = dataclasses.replace(GREEDY, model=model)
    facts = read_model(settings)
    prompts = encode_prompts(facts.tokenizer, PROBLEMS, settings.system_prompt).ids
    before = set(psutil.Process().children(recursive=True))
    vllm = VllmBackend(facts, settings, max(map(len, prompts)) + settings.max_new_tokens)
    processes = [
        process
        for process in set(psutil.Process().children(recursive=True)) - before
        if "resource_tracker" not in " ".join(process.cmdline())  # Python's own, for the life of this process
    ]
    transformers = TransformersBackend.load(facts, settings)
    asked = {"vllm": {}, "transformers": []}
    engine_generate, model_generate = vllm.engine.generate, transformers.model.generate

    async def record_engine(*arguments, **keywords):
        async for output in engine_generate(*arguments, **keywords):
            asked["vllm"][int(output.request_id.split("-")[0])] = list(output.prompt_token_ids)
            yield output

    def record_model(input_ids, attention_mask, **keywords):
        rows = zip(input_ids, attention_mask, strict=True)
        asked["transformers"] += [ids[mask.bool()].tolist() for ids, mask in rows]
        return model_generate(input_ids=input_ids, attention_mask=attention_mask, **keywords)

    vllm.engine.generate, transformers.model.generate = record_engine, record_model
    yield SimpleNamespace(
        vllm=vllm, transformers=transformers, asked=asked, prompts=prompts, settings=settings, processes=processes
    )
    if living(processes):
        vllm.close()


def test_both_engines_get_the_same_prompts_and_give_the_same_greedy_answers_token_for_token(both):
    seeds = [0] * len(both.prompts)
    by_vllm = answers(both.vllm, both.settings, both.prompts, seeds)
    by_transformers = answers(both.transformers, both.settings, both.prompts, seeds)
    assert [both.asked["vllm"][number] for number in sorted(both.asked["vllm"])] == both.prompts
    assert both.asked["transformers"] == both.prompts
    assert by_vllm == by_transformers
    # Both ways to end are among them, and the penalty is at work.
    assert {reason for _, reason in by_vllm} == {"stop", "length"}
    without = dataclasses.replace(both.settings, repetition_penalty=1.0)
    assert answers(both.transformers, without, both.prompts, seeds) != by_vllm


def test_sampled_answers_hang_on_their_seeds_and_not_on_the_order_of_asking(both):
    settings = dataclasses.replace(both.settings, temperature=0.4)
    prompts, seeds = both.prompts * 2, list(range(2 * len(both.prompts)))
    once = answers(both.vllm, settings, prompts, seeds)
    assert answers(both.vllm, settings, prompts[::-1], seeds[::-1])[::-1] == once
    half = len(both.prompts)
    assert sum(first != second for first, second in zip(once[:half], once[half:], strict=True)) >= half // 2


def test_a_killed_engine_is_an_error_and_leaves_no_process(both):
    engine = next(process for process in both.processes if "EngineCore" in " ".join(process.cmdline()))
    assert len(living(both.processes)) >= 2
    finished = both.vllm.generate(both.prompts, [0] * len(both.prompts))
    next(finished)
    engine.kill()
    with pytest.raises(UserError, match="Give the same line again"):
        list(finished)
    both.vllm.close()
    assert ended(both.processes) == []


def test_a_killed_evaluation_leaves_no_process_and_goes_on(model, tmp_path):
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
    left = ended(processes)
    for process in left:
        process.kill()
    assert len(processes) >= 2
    assert left == []

    before = {(sample["problem"], sample["sample"]): sample for sample in read_samples(output / "samples.jsonl")[0]}
    assert 0 < len(before) < 24
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = {(sample["problem"], sample["sample"]): sample for sample in read_samples(output / "samples.jsonl")[0]}
    assert len(after) == 24
    assert {key: after[key] for key in before} == before
    assert (output / "table.md").is_file()
