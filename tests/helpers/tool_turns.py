"""Script conversations with tools and thinking for the chat templates of Qwen and R1."""

import json
import string

from tiny import tiny_model, tiny_tokenizer
from trainers import prepare_trainer, tiny_trainer
from trl.chat_template_utils import deepseek_r1_distill_chat_template, qwen3_chat_template

QWEN_END, R1_START, R1_END = "<|im_end|>", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
THINK = ["<think>", "</think>"]
QWEN_MARKERS = ["<|im_start|>", QWEN_END, *THINK, "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]


def qwen_tokenizer(chat_template=qwen3_chat_template):
    return tiny_tokenizer(chat_template, string.printable, QWEN_MARKERS, eos_token=QWEN_END)


def r1_tokenizer():
    markers = ["<｜User｜>", "<｜Assistant｜>", *THINK, R1_START, R1_END]
    template = deepseek_r1_distill_chat_template
    return tiny_tokenizer(template, string.printable, markers, bos_token=R1_START, eos_token=R1_END)


def chat_trainer(tmp_path, rewards, tokenizer, columns, changes=None, **arguments):
    """Make a trainer with one chat prompt per row of `columns` and a context long enough for tool schemas."""
    model = tiny_model(vocabulary=len(tokenizer))
    model.config.max_position_embeddings = 4096
    changes = {"max_completion_length": 400, "ces_tau": 0.3, **(changes or {})}
    more = {"model": model, "processing_class": tokenizer, **arguments}
    return prepare_trainer(tiny_trainer(tmp_path, rewards, columns, more=more, **changes))


def question(text):
    return [{"role": "user", "content": text}]


def four_copies(columns):
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True) for _ in range(4)]


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>{QWEN_END}"


def script_turns(trainer, dialogues):
    """Replace generation with the model's turns in `dialogues`; TRL calls the tools."""
    turns, waiting = [list(dialogue[::2]) for dialogue in dialogues], list(range(len(dialogues)))

    def single_turn(prompt_ids, *args, **kwargs):
        texts = [turns[row].pop(0) for row in waiting]
        assert len(prompt_ids) == len(texts)
        waiting[:] = [row for row, text in zip(waiting, texts, strict=True) if "<tool_call>" in text]
        return [trainer.processing_class.encode(text) for text in texts], None

    trainer._generate_single_turn = single_turn
