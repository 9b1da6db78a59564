"""Prompt encoding and the transformers backend, which is compared with plain Python loops."""

import json
import math

import pytest
import torch
from fixtures_evaluation import write_model
from peft import LoraConfig, get_peft_model
from tiny import CHAT_TEMPLATE, tiny_model, tiny_tokenizer
from transformers import AutoModelForCausalLM

from trl_ces.lab.evaluation.benchmarks import Problem
from trl_ces.lab.evaluation.generate import Sampler, TransformersBackend
from trl_ces.lab.evaluation.models import check_context, cut_at_end, encode_prompts, fingerprint, read_model
from trl_ces.lab.evaluation.settings import EvaluationSettings
from trl_ces.support.errors import UserError
from trl_ces.support.prompts import PAPER_SYSTEM_PROMPT

PROMPTS = [[5, 6, 7], [8, 9, 10, 11, 12, 13, 8], [5], [20, 21]]
SEEDS = [11, 12, 13, 14]
PAPER = {"temperature": 0.4, "top_p": 0.95, "repetition_penalty": 1.05}


def settings(model="x", **changes):
    return EvaluationSettings(**{"model": str(model), "benchmarks": ["aime24"], **changes})


def backend(model, ends=(1,), **changes):
    return TransformersBackend(model, list(ends), 0, settings(**{"max_new_tokens": 10, **changes}))


def completions(model, prompts=PROMPTS, seeds=SEEDS, ends=(1,), **changes):
    batches = backend(model, ends, **changes).generate(prompts, seeds)
    ordered = sorted((completion for batch in batches for completion in batch), key=lambda item: item.index)
    assert [completion.index for completion in ordered] == list(range(len(prompts)))
    return [(completion.tokens, completion.finish_reason) for completion in ordered]


def sample_with_loops(model, prompt, seed, ends=(1,), *, temperature, top_p, repetition_penalty, max_new_tokens=10):
    """Sample one completion in plain Python, one token at a time, without a cache."""
    generator, ids = torch.Generator().manual_seed(seed), list(prompt)
    for _ in range(max_new_tokens):
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1].tolist()
        for token in set(ids):
            logits[token] = (
                logits[token] / repetition_penalty if logits[token] > 0 else logits[token] * repetition_penalty
            )
        weights = {token: math.exp((logit - max(logits)) / temperature) for token, logit in enumerate(logits)}
        candidates, mass = {}, 0.0
        for token in sorted(weights, key=weights.get, reverse=True):
            if mass < top_p:
                candidates[token] = weights[token] / sum(weights.values())
                mass += candidates[token]
        uniform = torch.rand((), generator=generator, dtype=torch.float64).item()
        target, cumulative = uniform * sum(candidates.values()), 0.0
        token = next(token for token in candidates if (cumulative := cumulative + candidates[token]) > target)
        if token in ends:
            return ids[len(prompt) :], "stop"
        ids.append(token)
    return ids[len(prompt) :], "length"


@pytest.mark.parametrize(
    "changes",
    [
        PAPER,
        {"temperature": 1.0, "top_p": 1.0, "repetition_penalty": 1.0},
        {"temperature": 1.5, "top_p": 0.5, "repetition_penalty": 2.0},
    ],
)
def test_completions_match_plain_loops_for_every_batch_size(changes):
    model, ends, prompts, seeds = tiny_model().eval(), (1, 30, 31), PROMPTS * 4, list(range(16))
    expected = [
        sample_with_loops(model, prompt, seed, ends, **changes) for prompt, seed in zip(prompts, seeds, strict=True)
    ]
    assert {reason for _, reason in expected} == {"stop", "length"}
    assert completions(model, prompts, seeds, ends, **changes) == expected
    assert completions(model, prompts, seeds, ends, batch_size=3, **changes) == expected
    # Reversing the prompts changes the batches and the padding.
    assert completions(model, prompts[::-1], seeds[::-1], ends, batch_size=5, **changes) == expected[::-1]


def test_temperature_zero_is_greedy_decoding_with_penalty():
    model = tiny_model()
    prompt = torch.tensor([PROMPTS[1]])
    expected = model.generate(prompt, do_sample=False, repetition_penalty=3.0, max_new_tokens=10, eos_token_id=None)
    greedy = completions(model, [PROMPTS[1]], [0], (), temperature=0.0, repetition_penalty=3.0)
    assert greedy == [(expected[0, prompt.shape[1] :].tolist(), "length")]


def test_generation_config_of_the_model_is_ignored():
    model = tiny_model()
    first = completions(model, **PAPER)
    model.generation_config.repetition_penalty = 5.0
    model.generation_config.top_k = 1
    model.generation_config.eos_token_id = 40
    assert completions(model, **PAPER) == first
    assert model.generation_config.repetition_penalty == 5.0


def draw(scores, seeds, *, temperature=1.0, top_p=1.0, top_k=None):
    changes = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "repetition_penalty": 1.0}
    sampler = Sampler([[0]] * len(seeds), seeds, settings(**changes))
    masked_scores = sampler(torch.zeros(len(seeds), 1, dtype=torch.long), torch.tensor(scores).expand(len(seeds), -1))
    assert (masked_scores == 0).sum(dim=-1).tolist() == [1] * len(seeds)
    assert torch.isneginf(masked_scores).sum(dim=-1).tolist() == [len(scores) - 1] * len(seeds)
    return masked_scores.argmax(dim=-1)


def test_tokens_follow_their_probabilities_within_top_p_and_top_k():
    probabilities = [0.02, 0.5, 0.03, 0.25, 0.2]
    scores = [math.log(probability) for probability in probabilities]
    counts = torch.bincount(draw(scores, range(20_000)), minlength=5) / 20_000
    assert counts.tolist() == pytest.approx(probabilities, abs=0.012)
    # 0.5 + 0.25 is below 0.76, so token 4 is needed. 0.5 + 0.25 exceeds 0.74, so token 4 is dropped.
    assert set(draw(scores, range(500), top_p=0.76).tolist()) == {1, 3, 4}
    assert set(draw(scores, range(500), top_p=0.74).tolist()) == {1, 3}
    assert set(draw(scores, range(500), top_p=0.01).tolist()) == {1}
    counts = torch.bincount(draw(scores, range(20_000), top_p=0.74), minlength=5) / 20_000
    assert counts[1].item() == pytest.approx(2 / 3, abs=0.012)
    assert set(draw(scores, range(500), top_k=2).tolist()) == {1, 3}
    # after top-k, the most likely token has probability 0.5 / 0.75, which exceeds 0.6
    assert set(draw(scores, range(500), top_k=2, top_p=0.6).tolist()) == {1}
    assert set(draw(scores, range(500), top_k=9).tolist()) == {0, 1, 2, 3, 4}
    counts = torch.bincount(draw(scores, range(20_000), temperature=2.0), minlength=5) / 20_000
    roots = [math.sqrt(probability) for probability in probabilities]
    assert counts.tolist() == pytest.approx([root / sum(roots) for root in roots], abs=0.012)


def test_penalty_applies_to_prompt_and_completion_but_not_to_padding():
    # token 0 is padding, token 1 is in the prompt, token 2 is generated
    sampler = Sampler([[1]], [0], settings(temperature=0.0, repetition_penalty=2.0))
    first = sampler(torch.tensor([[0, 0, 1]]), torch.tensor([[2.0, 3.9, 1.9]]))
    assert first.argmax().item() == 0
    second = sampler(torch.tensor([[0, 0, 1, 2]]), torch.tensor([[0.5, -1.0, 0.9]]))
    assert second.argmax().item() == 0  # 0.9 / 2 < 0.5, and -1 becomes -2


def test_completions_exclude_the_end_token():
    assert cut_at_end([5, 6, 1, 0, 0], [1, 2]) == ([5, 6], "stop")
    assert cut_at_end([1], [1]) == ([], "stop")
    assert cut_at_end([5, 6], [1]) == ([5, 6], "length")


def test_lora_adapter_is_merged_into_the_base_model(tmp_path):
    write_model(tmp_path / "base")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    adapted = get_peft_model(base, LoraConfig(target_modules=["q_proj", "lm_head"], r=3, init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "adapter")
    facts = read_model(settings(tmp_path / "adapter"))
    assert (facts.base, facts.adapter, facts.adapter_rank) == (str(tmp_path / "base"), str(tmp_path / "adapter"), 3)
    assert facts.tokenizer.chat_template == CHAT_TEMPLATE  # read from the base model
    options = settings(tmp_path / "adapter", max_new_tokens=10)
    (batch,) = TransformersBackend.load(facts, options).generate([PROMPTS[1]], [3])
    expected = sample_with_loops(adapted.eval(), PROMPTS[1], 3, **PAPER)
    assert (batch[0].tokens, batch[0].finish_reason) == expected
    base_only = AutoModelForCausalLM.from_pretrained(tmp_path / "base").eval()
    assert expected != sample_with_loops(base_only, PROMPTS[1], 3, **PAPER)


def test_model_is_read_without_its_weights(tmp_path):
    model = tiny_model()
    model.generation_config.eos_token_id = [7, 8]
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "weights.moved")
    facts = read_model(settings(tmp_path))
    assert (facts.ends, facts.context, facts.adapter) == ([1, 7, 8], 256, None)
    (tmp_path / "generation_config.json").unlink()
    assert read_model(settings(tmp_path)).ends == [1]


def test_fingerprint_depends_on_weights_and_chat_template_but_not_on_logs(tmp_path):
    write_model(tmp_path / "a")
    write_model(tmp_path / "b")
    first = fingerprint(tmp_path / "a")
    (tmp_path / "b" / "trainer_state.json").write_text("{}")
    (tmp_path / "b" / "evaluation").mkdir()
    assert fingerprint(tmp_path / "b") == first
    write_model(tmp_path / "b", seed=1)
    assert fingerprint(tmp_path / "b") != first
    write_model(tmp_path / "b", chat_template="{{ 1 }}")
    assert fingerprint(tmp_path / "b") != first
    digests = set()
    for middle in b"01":  # only a byte in the middle of the file differs
        (tmp_path / "a" / "model.safetensors").write_bytes(bytes(2**21) + bytes([middle]) + bytes(2**21))
        digests.add(fingerprint(tmp_path / "a"))
    assert len(digests) == 2


def problem(question="1+1="):
    return Problem("aime24", 0, question, "2")


def test_prompts_use_the_chat_template_and_the_system_prompt():
    tokenizer = tiny_tokenizer()
    prompts = encode_prompts(tokenizer, [problem(), problem("2+2=")], PAPER_SYSTEM_PROMPT)
    assert tokenizer.decode(prompts.ids[1]).endswith("[u2+2=][a")
    assert len(prompts.ids[1]) == len(f"[s{PAPER_SYSTEM_PROMPT}][u2+2=][a")
    assert prompts.thinking_prefilled == [False, False]
    assert tokenizer.decode(encode_prompts(tokenizer, [problem()], None).ids[0]) == "[u1+1=][a"


def test_the_bos_token_is_added_only_once():
    tokenizer = tiny_tokenizer("{{ bos_token }}" + CHAT_TEMPLATE, markers=["<bos>"], bos_token="<bos>")
    from tokenizers.processors import TemplateProcessing

    bos = tokenizer.bos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", bos)])
    assert tokenizer("1")["input_ids"][0] == bos
    ids = encode_prompts(tokenizer, [problem()], None).ids[0]
    assert ids.count(bos) == 1
    assert ids[0] == bos


def test_template_that_opens_a_thinking_block_is_detected():
    tokenizer = tiny_tokenizer(CHAT_TEMPLATE + "<think>\n")
    assert encode_prompts(tokenizer, [problem()], None).thinking_prefilled == [True]


def test_prompt_template_needs_no_chat_template():
    tokenizer = tiny_tokenizer(None)
    prompts = encode_prompts(tokenizer, [problem("1+1")], "Think.", "[{question}]{x}\n<think>")
    assert tokenizer.decode(prompts.ids[0]).endswith("[1+1]{x}\n<think>")
    assert prompts.thinking_prefilled == [True]


def test_model_without_a_usable_chat_template_is_rejected():
    with pytest.raises(UserError, match=r"no chat template.* `prompt_template`"):
        encode_prompts(tiny_tokenizer(None), [problem()], None)
    strict_tokenizer = tiny_tokenizer(
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system here') }}{% endif %}" + CHAT_TEMPLATE
    )
    with pytest.raises(UserError, match=r"no system here.*`--system_prompt null`"):
        encode_prompts(strict_tokenizer, [problem()], PAPER_SYSTEM_PROMPT)


def test_error_for_a_short_context_states_the_maximum_length(tmp_path):
    facts = read_model(settings(write_model(tmp_path, context=100)))
    prompts = encode_prompts(facts.tokenizer, [problem(), problem("1" * 20)], None)
    assert max(map(len, prompts.ids)) == 25
    check_context(facts, prompts, settings(max_new_tokens=75))
    with pytest.raises(
        UserError, match=r"context is 100 tokens, the longest prompt has 25 .* `--max_new_tokens` to at most 75"
    ):
        check_context(facts, prompts, settings(max_new_tokens=76))


def test_error_names_a_model_that_cannot_be_read(tmp_path, monkeypatch):
    (tmp_path / "no-one").mkdir()
    write_model(tmp_path / "no-one" / "nothin")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"'no-one/nothing' cannot be read: .* Did you mean `no-one/nothin`"):
        read_model(settings("no-one/nothing"))
    write_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nonsense"}))
    with pytest.raises(UserError, match="cannot be read"):
        read_model(settings(tmp_path))
    facts = read_model(settings(write_model(tmp_path)))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match="cannot be loaded"):
        TransformersBackend.load(facts, settings(tmp_path))
