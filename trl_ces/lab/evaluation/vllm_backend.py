"""Generation with vLLM on one GPU, one request per completion, each yielded as it finishes.

Uses the asynchronous engine: `vllm.LLM` returns completions only when all are finished, so a killed run would lose
them.
"""

import asyncio
import contextlib
import multiprocessing
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Any

from ...support.errors import UserError, first_line
from .generate import GeneratedCompletion
from .models import ModelFacts, cut_at_end
from .settings import EvaluationSettings

# Requests in the engine: more than it runs at once, so that it never waits for this process.
REQUESTS_IN_FLIGHT = 2048
CLOSING_SECONDS = 10.0
# vLLM's engine survives the SIGKILL of this process and keeps the GPU. The guard knows the engine's process ids and
# waits until this process's end of its pipe closes, which happens however this process ends.
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
    batch_size: int | None = None

    def __init__(self, facts: ModelFacts, settings: EvaluationSettings, longest: int):
        """Start the engine. `longest`: maximum number of tokens of a prompt with its completion."""
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
            gpu_memory_utilization=settings.gpu_memory_utilization,
            trust_remote_code=settings.trust_remote_code,
            # Otherwise the model's own sampling settings would fill what is not given here.
            generation_config="vllm",
            disable_log_stats=True,
            **lora,
        )
        self.loop = asyncio.new_event_loop()
        children = multiprocessing.active_children()

        async def start() -> Any:
            return AsyncLLMEngine.from_engine_args(arguments)

        try:
            self.engine = self.loop.run_until_complete(start())
        except (ValueError, RuntimeError, OSError) as error:
            raise UserError(
                f"vLLM cannot run {settings.model!r} ({first_line(error)}): try `--backend transformers`."
            ) from error
        pids = [str(child.pid) for child in multiprocessing.active_children() if child not in children]
        # In its own session: Ctrl-C is for this process, and `close` ends the engine.
        command = [sys.executable, "-c", GUARD, *pids]
        self.guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def generate(self, prompts: Sequence[list[int]], seeds: Sequence[int]) -> Iterator[list[GeneratedCompletion]]:
        """Yield completions as they finish, in any order."""
        from vllm.v1.engine.exceptions import EngineDeadError

        stream = self._stream(prompts, seeds)
        try:
            while finished := self._wait_for(anext(stream, [])):
                yield finished
        except EngineDeadError as error:
            raise UserError(
                "vLLM's engine died; its messages are above. Give the same line again: finished completions are kept. "
                "If it dies again, memory may be too small."
            ) from error
        finally:
            self.loop.run_until_complete(stream.aclose())

    def _wait_for(self, step: Any) -> list[GeneratedCompletion]:
        task = asyncio.ensure_future(step, loop=self.loop)
        try:
            return self.loop.run_until_complete(task)
        finally:
            # Ctrl-C leaves the loop within a step, in which the stream cannot be closed.
            if not task.done():
                task.cancel()
                self.loop.run_until_complete(asyncio.wait([task]))

    async def _stream(
        self, prompts: Sequence[list[int]], seeds: Sequence[int]
    ) -> AsyncGenerator[list[GeneratedCompletion], None]:
        waiting = iter(range(len(prompts)))
        running: set[asyncio.Task[GeneratedCompletion]] = set()
        done: set[asyncio.Task[GeneratedCompletion]] = set()
        try:
            while True:
                for index in waiting:
                    running.add(asyncio.create_task(self._complete(index, prompts[index], seeds[index])))
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
                # Finished ones too: only the first error is raised, and asyncio complains about unread ones.
                await asyncio.gather(*running, *done, return_exceptions=True)

    async def _complete(self, index: int, prompt: list[int], seed: int) -> GeneratedCompletion:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self.requests += 1
        sampling = SamplingParams(
            temperature=self.settings.temperature,
            top_p=self.settings.top_p,
            top_k=self.settings.top_k or 0,  # 0: all
            repetition_penalty=self.settings.repetition_penalty,
            max_tokens=self.settings.max_new_tokens,
            seed=seed,
            stop_token_ids=self.facts.ends,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        outputs: AsyncIterator[Any] = self.engine.generate(
            {"prompt_token_ids": prompt}, sampling, str(self.requests), lora_request=self.adapter
        )
        *_, last = [output async for output in outputs]
        return GeneratedCompletion(index, *cut_at_end(last.outputs[0].token_ids, self.facts.ends))

    def close(self) -> None:
        """End the engine's processes."""
        self.engine.shutdown()
        self.guard.kill()
        self.guard.communicate()
        # The engine's tasks in this loop would otherwise log errors when it ends.
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        if left:
            self.loop.run_until_complete(asyncio.wait(left, timeout=CLOSING_SECONDS))
        del self.engine  # now: while Python exits, its clean-up fails
        self.loop.close()


def lora_rank(rank: int) -> int:
    """The smallest rank that vLLM supports and that is at least `rank`."""
    sizes = [size for size in (1, 8, 16, 32, 64, 128, 256, 320, 512) if size >= rank]
    if not sizes:
        raise UserError(f"The adapter has rank {rank}, but vLLM takes at most 512: give `--backend transformers`.")
    return sizes[0]
