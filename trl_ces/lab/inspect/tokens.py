"""The forking tokens of given completions: where the model is least sure, and between which tokens.

One forward pass over prompt and completion gives the distribution at each of its tokens. Symbols as in
methods/ces.py: B completions, T token positions, V vocabulary size. Entropies are in bits and, like the probabilities,
of the sampling distribution softmax(logits / temperature).
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...methods.ces import selection_size, top_entropy_tokens
from ...methods.rule import entropy_in_bits

# Logits per forward pass: 2 GiB in float32. A single completion may need more, if its tokens times V do.
LOGITS_AT_A_TIME = 2**29
# Positions whose distributions are computed together, in float32 whatever the model's dtype.
POSITIONS_AT_A_TIME = 256


@dataclass(frozen=True)
class ForkingToken:
    """One of a completion's tokens of highest entropy."""

    place: int  # in the completion, from 0
    pair: tuple[int, int]  # the two likeliest tokens there, the likelier first
    probabilities: tuple[float, float]  # theirs
    entropy: float  # bits
    sampled: int  # the token that was drawn


def forking_tokens(
    model: Any, prompts: list[list[int]], answers: list[list[int]], *, temperature: float, tau: float, pad: int
) -> list[tuple[list[float], list[ForkingToken]]]:
    """
    The entropies of completions and their k = max(1, floor(length * tau)) tokens of highest entropy, Eq. 5 with b = 1.
    """
    rows = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
    at_a_time = max(1, LOGITS_AT_A_TIME // (max(map(len, rows)) * model.config.get_text_config().vocab_size))
    found = []
    for start in range(0, len(rows), at_a_time):
        part = rows[start : start + at_a_time]
        width = max(map(len, part))
        # Padded on the right: every token has the position that it has alone, and causal attention sees no padding.
        ids = torch.tensor([row + [pad] * (width - len(row)) for row in part], device=model.device)
        attended = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in part], device=model.device)
        logits = model(input_ids=ids, attention_mask=attended, use_cache=False).logits  # (B, width, V)
        for row, answer in zip(range(len(part)), answers[start:], strict=False):
            # The logits at one token predict the next, so the completion's first token is at the prompt's last.
            own = logits[row, len(part[row]) - len(answer) - 1 : len(part[row]) - 1]
            bits, probabilities, tokens = (values.cpu() for values in distribution_facts(own, temperature))
            k = selection_size(torch.tensor([len(answer)]), tau).clamp(min=1)
            selected = top_entropy_tokens(bits.unsqueeze(0), torch.ones(1, len(answer), dtype=torch.int64), k)[0]
            forks = []
            for place in selected.nonzero().flatten().tolist():
                pair, of_pair = tuple(tokens[place].tolist()), tuple(probabilities[place].tolist())
                forks.append(ForkingToken(place, pair, of_pair, bits[place].item(), answer[place]))
            found.append((bits.tolist(), forks))
    return found


def distribution_facts(logits: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Entropy and the two likeliest tokens of softmax(logits / temperature), computed in float32."""
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
    A token's text as a Python literal, so that white space shows: `' the'`, `'\n\n'`.

    A fragment of a character is shown as its vocabulary entry, an id outside the vocabulary as `<12>`.
    """
    entry = tokenizer.convert_ids_to_tokens(token)
    return f"<{token}>" if entry is None else repr(piece(tokenizer, token))


def piece(tokenizer: Any, token: int) -> str:
    """A token's plain text; of a fragment of a character its vocabulary entry, of an unknown id `<12>`."""
    entry = tokenizer.convert_ids_to_tokens(token)
    if entry is None:
        return f"<{token}>"
    text = tokenizer.decode([token], clean_up_tokenization_spaces=False)
    if entry.startswith("\u2581") and not text.startswith(" "):
        text = f" {text}"  # a SentencePiece decoder drops the space of a text's first word
    return entry if "\ufffd" in text or not text else text
