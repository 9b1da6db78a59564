"""Sample completions with torch and format them as vLLM does; used by the vLLM stand-ins."""

import hashlib
import json

import torch


def digest(model):
    """Return a digest of the model's weights."""
    sums = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        sums.update(name.encode() + value.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return sums.hexdigest()


def log_probs(logits, request, mode):
    """Return the log-probs for sampling (with temperature and filters) and for the output, each of shape (n, V)."""
    raw = logits.log_softmax(dim=-1)
    scores = (logits / request.get("temperature", 1.0)).log_softmax(dim=-1)
    if request.get("top_k", 0) > 0:
        scores = scores.masked_fill(scores < scores.topk(request["top_k"]).values[:, -1:], -torch.inf)
    if request.get("min_p", 0) > 0:
        scores = scores.masked_fill(
            scores.exp() < request["min_p"] * scores.exp().amax(dim=-1, keepdim=True), -torch.inf
        )
    if request.get("top_p", 1) < 1:
        ordered, indices = scores.softmax(dim=-1).sort(descending=True)
        beyond = ordered.cumsum(dim=-1) - ordered >= request["top_p"]
        scores = scores.masked_fill(torch.zeros_like(beyond).scatter(1, indices, beyond), -torch.inf)
    processed = scores.log_softmax(dim=-1)
    return processed, processed if mode == "processed_logprobs" else raw


def make_generator(weights, request):
    """Make a generator whose seed depends only on the request and the [`digest`] of the weights."""
    sums = hashlib.sha256(weights.encode() + json.dumps(request, sort_keys=True).encode())
    return torch.Generator().manual_seed(int.from_bytes(sums.digest()[:7]))


def end_ids(model):
    ids = model.generation_config.eos_token_id
    return set(ids) if isinstance(ids, list) else {ids}


@torch.no_grad()
def sample(model, prompt, request, generator, mode):
    """Sample `n` completions of `prompt`; return their token ids and the reported log-probs (V,) of each token."""
    last_ids, count = end_ids(model), request.get("n", 1)
    ids, cache = torch.tensor([prompt] * count), None
    completions = [([], []) for _ in range(count)]
    running = set(range(count))
    for _ in range(request["max_tokens"]):
        output = model(ids, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        for_sampling, reported = log_probs(output.logits[:, -1].float(), request, mode)
        ids = torch.multinomial(for_sampling.exp(), 1, generator=generator)
        for row in sorted(running):
            completions[row][0].append(ids[row].item())
            completions[row][1].append(reported[row])
            if ids[row].item() in last_ids:
                running.discard(row)
        if not running:
            break
    return completions


def choice(index, prompt, tokens, reported, num_logprobs):
    """Format a completion as vLLM does with `return_token_ids` and `return_tokens_as_token_ids`."""
    names = [f"token_id:{token}" for token in tokens]
    logprobs = [max(values[token].item(), -9999.0) for token, values in zip(tokens, reported, strict=True)]
    top = []
    for name, logprob, values in zip(names, logprobs, reported, strict=True):
        best = values.topk(num_logprobs or 0)
        top.append({name: logprob, **{f"token_id:{i}": v for v, i in zip(*(x.tolist() for x in best), strict=True)}})
    return {
        "index": index,
        "text": "",
        "logprobs": None
        if num_logprobs is None
        else {"text_offset": [0] * len(tokens), "tokens": names, "token_logprobs": logprobs, "top_logprobs": top},
        "stop_reason": None,
        "prompt_logprobs": None,
        "prompt_token_ids": prompt,
        "token_ids": tokens,
    }
