"""Run a rollout with more tool rounds on one rank. Started by layers/test_upstream.py; not a test file."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from colocated_vllm import ColocatedLLM, patch_colocated_vllm_in_worker
from processes import end_processes
from tool_turns import QWEN_END, call, chat_trainer, four_copies, question, qwen_tokenizer

TOKENIZER = qwen_tokenizer()
# Prompt -> number of tool calls in each of its four completions. Each process has one prompt.
CALLS = {"3+4": [2, 2, 1, 0], "1+1": [0, 1, 0, 0]}


def add(a: int, b: int) -> int:
    """
    Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


class ToolCallingLLM(ColocatedLLM):
    """Stand-in that makes the tool calls in `CALLS`; final turns name their row, so that tests detect swapped rows."""

    def generate(self, prompts, sampling_params, use_tqdm):
        texts, last_member, turns = [TOKENIZER.decode(prompt["prompt_token_ids"]) for prompt in prompts], {}, []
        for text in texts:
            name = next(name for name in CALLS if f"user\n{name}<" in text)
            num_calls = text.count("<tool_response>")
            if num_calls == 0:
                last_member[name] = last_member.get(name, -1) + 1
                member = last_member[name]
            else:
                member = int(text.rpartition('"b": ')[2][0])
            calls_again = num_calls < CALLS[name][member]
            turns.append(
                call("add", a=num_calls, b=member) if calls_again else f"{name} {member} {num_calls}{QWEN_END}"
            )
        ids = [TOKENIZER.encode(turn) for turn in turns]
        entries = [[{token: SimpleNamespace(rank=1, logprob=0.0)} for token in row] for row in ids]
        return [
            SimpleNamespace(prompt_token_ids=[], outputs=[SimpleNamespace(token_ids=row, logprobs=logprobs)])
            for row, logprobs in zip(ids, entries, strict=True)
        ]


def main(output, processes, model):
    patch_colocated_vllm_in_worker(pytest.MonkeyPatch())
    import trl.generation.vllm_generation as generation

    generation.LLM = ToolCallingLLM
    columns = {"prompt": [question(name) for name in CALLS]}
    final_turns = []

    def record_final_turns(completions, **kwargs):
        final_turns.extend(messages[-1]["content"] for messages in completions)
        return [0.0] * len(completions)

    changes = {"use_vllm": True, "vllm_mode": "colocate", "vllm_enable_sleep_mode": True}
    changes |= {"vllm_tensor_parallel_size": processes, "vllm_max_model_length": 4096, "shaping": "none"}
    changes |= {"per_device_train_batch_size": 8 // processes}
    trainer = chat_trainer(output, record_final_turns, TOKENIZER, columns, changes, tools=[add], model=model)
    rank, rows = trainer.accelerator.process_index, four_copies(columns)
    trainer._generate_and_score_completions(rows[rank * 4 :][: 8 // processes])
    (Path(output) / f"turns-{rank}.json").write_text(json.dumps(final_turns))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    end_processes()
