"""Processes that need unequal rounds of tools go through the same collectives, and each row keeps its own answer."""

import json

from processes import run_processes
from tiny import tiny_model
from tool_processes import CALLS
from tool_turns import qwen_tokenizer


def test_processes_that_need_unequal_rounds_neither_wait_forever_nor_mix_their_rows(tmp_path):
    model = tiny_model(vocabulary=len(qwen_tokenizer()))
    model.config.max_position_embeddings = 4096
    model.save_pretrained(tmp_path / "model")
    run_processes("tool_processes.py", tmp_path / "two", 2, timeout=200, arguments=(str(tmp_path / "model"),))
    for rank, (name, calls) in enumerate(CALLS.items()):
        said = json.loads((tmp_path / "two" / f"said-{rank}.json").read_text())
        assert said == [f"{name} {member} {made}" for member, made in enumerate(calls)]
