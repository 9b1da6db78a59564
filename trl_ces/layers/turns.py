"""Decode the policy's last turn from token ids, to compute the `REWARD_KEYWORDS` of reward functions."""

from collections.abc import Iterable, Sequence
from typing import Any

from ..support.prompts import THINK_CLOSE, THINK_OPEN, opens_thinking

# Enough tokens for "<think>" and whitespace, even at one character per token.
PROMPT_TAIL = 32


def policy_lengths(completion_ids: Sequence[Iterable], masks: Sequence[Iterable] | None) -> list[int]:
    """Count the policy's tokens in each completion: all tokens, or the tokens with mask 1 if there are masks."""
    return [len(list(ids)) for ids in completion_ids] if masks is None else [sum(_integers(row)) for row in masks]


def read_turns(
    prompt_ids: Sequence[Iterable],
    completion_ids: Sequence[Iterable],
    masks: Sequence[Iterable] | None,
    tokenizer: Any,
) -> dict[str, list]:
    """
    Compute the values of `REWARD_KEYWORDS`, with one entry per completion; `masks` are 1 on the policy's tokens.

    `thinking_prefilled`: whether the last turn began inside an open `<think>`. `last_turns`: the text of the last
    turn, without special tokens except the thinking tags.
    """
    tails, turns = [], []  # token ids before the last turn, and token ids of the last turn
    for row in range(len(prompt_ids)):
        prompt, completion = _integers(prompt_ids[row]), _integers(completion_ids[row])
        start, end = (0, len(completion)) if masks is None else last_turn(_integers(masks[row]))
        tails.append((prompt + completion[:start])[-PROMPT_TAIL:])
        turns.append(completion[start:end])
    return {
        "thinking_prefilled": [opens_thinking(tail) for tail in tokenizer.batch_decode(tails)],
        "last_turns": _decode_with_thinking(turns, tokenizer),
    }


def last_turn(mask: list[int]) -> tuple[int, int]:
    """Return the start and end of the policy's last turn (the last run of ones), or (0, 0) if `mask` is all zeros."""
    end = len(mask)
    while end > 0 and mask[end - 1] == 0:
        end -= 1
    start = end
    while start > 0 and mask[start - 1] != 0:
        start -= 1
    return start, end


def _decode_with_thinking(rows: list[list[int]], tokenizer: Any) -> list[str]:
    """Decode without special tokens, as TRL does, but keep the thinking tags."""
    # `skip_special_tokens` also removes special tokens that are not attributes of the tokenizer, such as an
    # end-of-turn token that only the model's generation config contains.
    added = tokenizer.added_tokens_decoder
    special = set(tokenizer.all_special_ids) | {index for index, token in added.items() if token.special}
    special -= {index for index, token in added.items() if str(token) in (THINK_OPEN, THINK_CLOSE)}
    return tokenizer.batch_decode([[token for token in row if token not in special] for row in rows])


def _integers(tokens: Iterable) -> list[int]:
    return [int(token) for token in tokens]
