"""Answers by vLLM, one request each, handed on as they are finished.

The asynchronous engine serves: `vllm.LLM` gives answers back only when all are finished, so a kill would lose them,
and it refuses `data_parallel_size`.
"""

import asyncio
import contextlib
import multiprocessing
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from ..support.errors import UserError, first_line
from .generate import Completion
from .models import ModelFacts, cut_at_end
from .settings import EvaluationSettings

# Requests that the engine holds at a time: more than it runs at once, so that it never waits for us.
REQUESTS_IN_FLIGHT = 2048
CLOSING_SECONDS = 10.0
# vLLM's engine outlives us if we are killed, and keeps the GPU. This process, told the engine's process ids, reads
# until our end of its pipe is closed, which the kernel does however we end.
GUARD = """
import os, signal, sys
sys.stdin.read()
for pid in map(int, sys.argv[1:]):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class VllmBackend:
    """
    vLLM's engine on one model; see [`Backend`](generate.py).

    Args:
        facts ([`ModelFacts`]): The model, and the adapter on it.
        settings ([`EvaluationSettings`]): Sampling, and how the GPUs share the work.
        longest (`int`): Tokens that the longest prompt and its answer may have.

    Raises:
        UserError: if vLLM is not installed, or refuses the model.
    """

    batch_size: int | None = None

    def __init__(self, facts: ModelFacts, settings: EvaluationSettings, longest: int):
        check_vllm()
        from vllm import AsyncEngineArgs, AsyncLLMEngine
        from vllm.lora.request import LoRARequest

        self.facts, self.settings, self.requests = facts, settings, 0
        self.adapter = None if facts.adapter is None else LoRARequest("adapter", 1, facts.adapter)
        lora = {} if facts.adapter is None else {"enable_lora": True, "max_lora_rank": lora_rank(facts.adapter_rank)}
        arguments = AsyncEngineArgs(
            model=facts.base,
            tokenizer=facts.base,
            skip_tokenizer_init=True,  # ids in, ids out
            dtype=settings.dtype,
            seed=settings.seed,
            max_model_len=longest,
            tensor_parallel_size=settings.tensor_parallel_size,
            data_parallel_size=settings.data_parallel_size,
            gpu_memory_utilization=settings.gpu_memory_utilization,
            trust_remote_code=settings.trust_remote_code,
            # The model's own sampling settings would fill what is not given here.
            generation_config="vllm",
            disable_log_stats=True,
            **lora,
        )
        self.loop = asyncio.new_event_loop()
        ours = multiprocessing.active_children()

        async def start() -> Any:
            return AsyncLLMEngine.from_engine_args(arguments)

        try:
            self.engine = self.loop.run_until_complete(start())
        except (ValueError, RuntimeError, OSError) as error:
            raise UserError(
                f"vLLM cannot run {settings.model!r} ({first_line(error)}); `--backend transformers` does without it."
            ) from error
        pids = [str(child.pid) for child in multiprocessing.active_children() if child not in ours]
        # A session of its own: Ctrl-C at the terminal is for us, who end the engine in `close`.
        self.guard = subprocess.Popen(
            [sys.executable, "-c", GUARD, *pids], stdin=subprocess.PIPE, start_new_session=True
        )

    def generate(self, prompts: Sequence[list[int]], seeds: Sequence[int]) -> Iterator[list[Completion]]:
        """
        See [`Backend`](generate.py).

        Raises:
            UserError: if the engine dies. What was handed on before is finished.
        """
        from vllm.v1.engine.exceptions import EngineDeadError

        stream = self._stream(prompts, seeds)
        try:
            while finished := self._wait_for(anext(stream, [])):
                yield finished
        except EngineDeadError as error:
            raise UserError(
                "vLLM's engine died; what it said stands above. Give the same line again: finished answers are kept, "
                "and the others are drawn. If it dies again, it may have had too little memory."
            ) from error
        finally:
            self.loop.run_until_complete(stream.aclose())

    def _wait_for(self, step: Any) -> list[Completion]:
        task = asyncio.ensure_future(step, loop=self.loop)
        try:
            return self.loop.run_until_complete(task)
        finally:
            # Ctrl-C leaves the loop in the middle of a step, on which the stream could not be closed.
            if not task.done():
                task.cancel()
                self.loop.run_until_complete(asyncio.wait([task]))

    async def _stream(
        self, prompts: Sequence[list[int]], seeds: Sequence[int]
    ) -> AsyncGenerator[list[Completion], None]:
        waiting = iter(range(len(prompts)))
        running: set[asyncio.Task[Completion]] = set()
        done: set[asyncio.Task[Completion]] = set()
        try:
            while True:
                for index in waiting:
                    running.add(asyncio.create_task(self._answer(index, prompts[index], seeds[index])))
                    if len(running) >= REQUESTS_IN_FLIGHT:
                        break
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                yield sorted((task.result() for task in done), key=lambda completion: completion.index)
        finally:
            for task in running:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                # Those that are done as well: the first error is raised, and the others would be complained of.
                await asyncio.gather(*running, *done, return_exceptions=True)

    async def _answer(self, index: int, prompt: list[int], seed: int) -> Completion:
        self.requests += 1
        outputs: AsyncIterator[Any] = self.engine.generate(
            {"prompt_token_ids": prompt}, self._sampling(seed), str(self.requests), lora_request=self.adapter
        )
        last = None
        async for output in outputs:
            last = output
        if last is None:
            raise RuntimeError(f"vLLM gave no answer to request {self.requests}.")
        tokens, reason = cut_at_end(last.outputs[0].token_ids, self.facts.ends)
        return Completion(index, tokens, reason)

    def _sampling(self, seed: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        settings = self.settings
        return SamplingParams(
            temperature=settings.temperature,
            top_p=settings.top_p,
            repetition_penalty=settings.repetition_penalty,
            max_tokens=settings.max_new_tokens,
            seed=seed,
            stop_token_ids=self.facts.ends,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def close(self) -> None:
        """Ends the engine's processes."""
        self.engine.shutdown()
        self.guard.kill()
        self.guard.communicate()
        # What the engine left running in our loop would complain of the loop's end.
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        if left:
            self.loop.run_until_complete(asyncio.wait(left, timeout=CLOSING_SECONDS))
        del self.engine  # now, and not while Python ends, when its own clean-up fails
        self.loop.close()


def check_vllm() -> None:
    """Refuses where vLLM is not installed.

    Raises:
        UserError: naming what to install.
    """
    if find_spec("vllm") is None:
        raise UserError('vLLM is not installed: pip install "trl_ces[vllm]", or give `--backend transformers`.')


def lora_rank(rank: int) -> int:
    """The smallest rank that vLLM has room for and that is not below `rank`: it takes a few sizes only."""
    sizes = (1, 8, 16, 32, 64, 128, 256, 320, 512)
    if rank > sizes[-1]:
        raise UserError(f"The adapter has rank {rank}, vLLM takes {sizes[-1]} at most: `--backend transformers`.")
    return next(size for size in sizes if size >= rank)
