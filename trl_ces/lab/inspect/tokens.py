"""Entropies and high-entropy tokens of given completions, from one forward pass over prompt and completion.

B: completions; T: token positions; V: vocabulary size. Entropies, in bits, and probabilities refer to the sampling
distribution softmax(logits / temperature).
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...methods.ces import selection_size, top_entropy_tokens
from ...methods.rule import entropy_in_bits

# Maximum number of logits per forward pass: 2 GiB in float32. A single long completion may exceed it.
LOGITS_PER_FORWARD = 2**29
# Number of positions processed at once; their distributions are always computed in float32.
POSITIONS_PER_CHUNK = 256


@dataclass(frozen=True)
class HighEntropyToken:
    """One of the k tokens with the highest entropy in a completion."""

    position: int  # in the completion, from 0
    pair: tuple[int, int]  # ids of the two likeliest tokens at this position, the likelier first
    probabilities: tuple[float, float]  # probabilities of the pair
    entropy: float  # in bits
    sampled: int  # id of the token in the completion


def high_entropy_tokens(
    model: Any, prompts: list[list[int]], completions: list[list[int]], *, temperature: float, tau: float, pad: int
) -> list[tuple[list[float], list[HighEntropyToken]]]:
    """Compute each completion's entropies and its k = max(1, floor(length * tau)) tokens with the highest entropy."""
    rows = [prompt + completion for prompt, completion in zip(prompts, completions, strict=True)]
    per_forward = max(1, LOGITS_PER_FORWARD // (max(map(len, rows)) * model.config.get_text_config().vocab_size))
    results = []
    for start in range(0, len(rows), per_forward):
        chunk = rows[start : start + per_forward]
        width = max(map(len, chunk))
        # Right padding does not change token positions, and causal attention ignores it.
        ids = torch.tensor([row + [pad] * (width - len(row)) for row in chunk], device=model.device)
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in chunk], device=model.device)
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits  # (B, width, V)
        for row, completion in zip(range(len(chunk)), completions[start:], strict=False):
            # Logits at a token predict the next token, so the completion's logits begin at the prompt's last token.
            row_logits = logits[row, len(chunk[row]) - len(completion) - 1 : len(chunk[row]) - 1]
            bits, probabilities, tokens = (values.cpu() for values in distribution_facts(row_logits, temperature))
            k = selection_size(torch.tensor([len(completion)]), tau).clamp(min=1)
            selected = top_entropy_tokens(bits.unsqueeze(0), torch.ones(1, len(completion), dtype=torch.int64), k)[0]
            top_tokens = []
            for position in selected.nonzero().flatten().tolist():
                pair, pair_probabilities = tuple(tokens[position].tolist()), tuple(probabilities[position].tolist())
                entropy = bits[position].item()
                top_tokens.append(HighEntropyToken(position, pair, pair_probabilities, entropy, completion[position]))
            results.append((bits.tolist(), top_tokens))
    return results


def distribution_facts(logits: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Compute entropy (T,) in bits, and probabilities and ids (T, 2) of the two likeliest tokens, in float32."""
    entropies, probabilities, tokens = [], [], []
    for chunk in logits.split(POSITIONS_PER_CHUNK):
        log_probs = (chunk.float() / temperature).log_softmax(dim=-1)
        # A token with probability 0 (logit -inf) contributes 0; without the mask, 0 * -inf would be NaN.
        terms = log_probs.exp() * log_probs
        entropies.append(entropy_in_bits(-terms.masked_fill(log_probs == -math.inf, 0.0).sum(dim=-1)))  # Eq. 4
        top = log_probs.topk(2, dim=-1)
        probabilities.append(top.values.exp())
        tokens.append(top.indices)
    return torch.cat(entropies), torch.cat(probabilities), torch.cat(tokens)


def token_text(tokenizer: Any, token: int) -> str:
    """Return a token's text: its vocabulary entry if it is a partial character, or `<12>` if the id 12 is unknown."""
    entry = tokenizer.convert_ids_to_tokens(token)
    if entry is None:
        return f"<{token}>"
    text = tokenizer.decode([token], clean_up_tokenization_spaces=False)
    if entry.startswith("\u2581") and not text.startswith(" "):
        text = f" {text}"  # SentencePiece decoders drop the leading space
    return entry if "\ufffd" in text or not text else text
