"""Samples answers of a model and finds their forking tokens: where it is least sure, and between which tokens.

Answers are sampled from the whole distribution, and one forward pass over prompt and answer gives the distribution at
each of their tokens. What is found is counted in forks.py.

Symbols as in shaping.py: B answers, T token positions, V tokens of the vocabulary. Entropies are in bits and, like the
probabilities, of the sampling distribution: of logits / temperature.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..methods.ces import selection_size, top_entropy_tokens
from ..methods.shaped import entropy_in_bits
from .pairs import Answer, ForkingToken

# Logits of one forward pass: 2 GiB in float32. A single answer may take more, if its tokens times V do.
LOGITS_AT_A_TIME = 2**29
# Positions whose distributions are computed at a time, in float32 whatever the model's dtype is.
POSITIONS_AT_A_TIME = 256


def encode_prompt(
    tokenizer: Any, prompt: str | list[dict[str, str]], chat_template_kwargs: dict[str, Any] | None = None
) -> list[int]:
    """
    A prompt's token ids, as TRL makes them: a text as it stands, chat messages by the tokenizer's chat template.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): The model's.
        prompt (`str` or `list[dict]`): A text, or messages with `role` and `content`.
        chat_template_kwargs (`dict`, *optional*): As in [`~trl.GRPOConfig`].

    Raises:
        `ValueError`: There are messages and no chat template, or not one token.
    """
    if isinstance(prompt, str):
        ids = tokenizer(prompt)["input_ids"]
    elif tokenizer.chat_template is None:
        raise ValueError(
            "The prompts are chat messages and the tokenizer has no chat template: name a chat model, or give texts "
            "with `--prompt`."
        )
    else:
        ids = tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, tokenize=True, return_dict=True, **(chat_template_kwargs or {})
        )["input_ids"]
    if not ids:
        raise ValueError(f"The prompt {prompt!r} has no tokens: write something in it.")
    return list(ids)


def sample_answers(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[list[int]],
    *,
    num_samples: int = 8,
    temperature: float = 1.0,
    max_new_tokens: int = 512,
    tau: float = 0.01,
    seed: int = 0,
    batch_size: int = 32,
    on_batch: Callable[[int, int], None] | None = None,
) -> list[Answer]:
    """
    Samples answers from the whole distribution (no top-k, no top-p) and finds their forking tokens.

    Args:
        model (`PreTrainedModel`): A causal language model; its own generation settings do not count.
        tokenizer (`PreTrainedTokenizerBase`): Its tokenizer, for the end and the padding token.
        prompts (`Sequence[list[int]]`): Token ids, none empty.
        num_samples (`int`): Answers to each prompt.
        temperature (`float`): Above 0. Of the sampling, hence of entropies and probabilities too.
        max_new_tokens (`int`): Longest answer.
        tau (`float`): Share of an answer's tokens that are forking tokens, see [`CESConfig`]; at least one is.
        seed (`int`): Of the sampling. The random state of the caller is left as it was.
        batch_size (`int`): Answers generated at a time. Another one draws other answers.
        on_batch (`Callable`, *optional*): Told after each batch how many answers there are, and of how many.

    Returns:
        `list[Answer]`: The first prompt's answers first.
    """
    model.eval()
    ends = end_tokens(model, tokenizer)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else (ends or [0])[0]
    rows = [number for number in range(len(prompts)) for _ in range(num_samples)]
    answers: list[Answer] = []
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.manual_seed(seed)
        for start in range(0, len(rows), batch_size):
            numbers = rows[start : start + batch_size]
            asked = [prompts[number] for number in numbers]
            written = _generate(model, asked, ends, pad, temperature, max_new_tokens)
            found = forking_tokens(model, asked, written, temperature=temperature, tau=tau, pad=pad)
            for number, tokens, (entropies, forks) in zip(numbers, written, found, strict=True):
                answers.append(Answer(number, tokens, tokens[-1] in ends, entropies, forks))
            if on_batch is not None:
                on_batch(len(answers), len(rows))
    return answers


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end an answer, as TRL takes them: those of the model's generation settings, the tokenizer's."""
    ends = model.generation_config.eos_token_id
    ends = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
    own = tokenizer.eos_token_id
    return ends if own is None or own in ends else [own, *ends]


def _generate(
    model: Any, prompts: list[list[int]], ends: list[int], pad: int, temperature: float, max_new_tokens: int
) -> list[list[int]]:
    """One answer to each prompt, up to and with its first end token."""
    from transformers import GenerationConfig

    width = max(map(len, prompts))
    ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts], device=model.device)
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=model.device)
    plain = GenerationConfig(
        do_sample=True,
        temperature=temperature,
        top_k=0,
        top_p=1.0,
        max_new_tokens=max_new_tokens,
        eos_token_id=ends or None,
        pad_token_id=pad,
        disable_compile=True,
    )
    # transformers fills what is unset from the model's own settings, and these often have a top-p or a penalty.
    own, model.generation_config = model.generation_config, plain
    try:
        output = model.generate(input_ids=ids, attention_mask=mask)
    finally:
        model.generation_config = own
    answers = []
    for row in output[:, width:].tolist():
        end = next((place for place, token in enumerate(row) if token in ends), len(row) - 1)
        answers.append(row[: end + 1])
    return answers


def forking_tokens(
    model: Any, prompts: list[list[int]], answers: list[list[int]], *, temperature: float, tau: float, pad: int
) -> list[tuple[list[float], list[ForkingToken]]]:
    """
    The entropies of answers and their k = max(1, floor(length * tau)) tokens of highest entropy, Eq. 5 with b = 1.

    Args:
        model (`PreTrainedModel`): A causal language model.
        prompts, answers (`list[list[int]]`): Token ids, none empty; B of each.
        temperature (`float`): By which the logits are divided.
        tau (`float`): In [0, 1], at most nine decimals.
        pad (`int`): Any token.

    Returns:
        For each answer its entropies in bits, one a token, and its forking tokens.
    """
    longest = max(len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True))
    at_a_time = max(1, LOGITS_AT_A_TIME // (longest * model.config.get_text_config().vocab_size))
    found = []
    for start in range(0, len(answers), at_a_time):
        part = slice(start, start + at_a_time)
        found += _forking_tokens(model, prompts[part], answers[part], temperature, tau, pad)
    return found


def _forking_tokens(model, prompts, answers, temperature, tau, pad):
    rows = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
    width, longest = max(map(len, rows)), max(map(len, answers))
    # Padded on the right: every token has the position that it has alone, and causal attention sees no padding.
    ids = torch.tensor([row + [pad] * (width - len(row)) for row in rows], device=model.device)
    attended = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=model.device)
    logits = model(input_ids=ids, attention_mask=attended, use_cache=False).logits  # (B, width, V)
    entropies = torch.zeros(len(rows), longest)
    mask = torch.zeros(len(rows), longest, dtype=torch.int64)
    likeliest: list[tuple[Tensor, Tensor]] = []
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        # The logits at one token are of the next: the first token of the answer is told at the last of the prompt.
        own = logits[row, len(prompt) - 1 : len(prompt) - 1 + len(answer)]
        own_entropies, probabilities, tokens = distribution_facts(own, temperature)
        entropies[row, : len(answer)] = own_entropies.cpu()
        mask[row, : len(answer)] = 1
        likeliest.append((probabilities.cpu(), tokens.cpu()))
    k = selection_size(mask.sum(dim=1), tau).clamp(min=1)
    selected = top_entropy_tokens(entropies, mask, k)
    found = []
    for row, answer in enumerate(answers):
        bits, (probabilities, tokens) = entropies[row, : len(answer)].tolist(), likeliest[row]
        forks = [
            ForkingToken(
                place=place,
                pair=tuple(tokens[place].tolist()),
                probabilities=tuple(probabilities[place].tolist()),
                entropy=bits[place],
                sampled=answer[place],
            )
            for place in selected[row].nonzero().flatten().tolist()
        ]
        found.append((bits, forks))
    return found


def distribution_facts(logits: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """
    Entropy and the two likeliest tokens of softmax(logits / temperature), computed in float32.

    Args:
        logits (`Tensor`): Shape (T, V), any float dtype.
        temperature (`float`): Above 0.

    Returns:
        `tuple[Tensor, Tensor, Tensor]`: Entropies (T,), float32, bits, Eq. 4; probabilities (T, 2), float32, the
        likelier first; their tokens (T, 2), int64.
    """
    entropies, probabilities, tokens = [], [], []
    for part in logits.split(POSITIONS_AT_A_TIME):
        log_probs = (part.float() / temperature).log_softmax(dim=-1)
        # A token of probability 0 (logit -inf) adds nothing, where 0 * -inf would be NaN.
        terms = log_probs.exp() * log_probs
        entropies.append(entropy_in_bits(-terms.masked_fill(log_probs == -math.inf, 0.0).sum(dim=-1)))  # Eq. 4
        top = log_probs.topk(2, dim=-1)
        probabilities.append(top.values.exp())
        tokens.append(top.indices)
    return torch.cat(entropies), torch.cat(probabilities), torch.cat(tokens)


def token_text(tokenizer: Any, token: int) -> str:
    r"""
    A token as Python would write its text, so that white space shows: `' the'`, `'\n\n'`.

    A piece of a character, which is no text alone, is given as it stands in the vocabulary, and a number that stands
    for nothing in it as `<12>`.
    """
    entry = tokenizer.convert_ids_to_tokens(token)
    if entry is None:
        return f"<{token}>"
    text = tokenizer.decode([token], clean_up_tokenization_spaces=False)
    if entry.startswith("\u2581") and not text.startswith(" "):
        text = f" {text}"  # a SentencePiece decoder drops the space of a text's first word
    if "\ufffd" in text or not text:
        text = entry
    return repr(text)
