"""Test the accuracy and format rewards."""

import logging
from functools import partial

import pytest

from trl_ces import rewards
from trl_ces.grading import judge
from trl_ces.rewards import accuracy_reward, think_format_reward


def chat(*contents):
    return [{"role": "assistant", "content": content} for content in contents]


def test_correct_and_incorrect_final_answers_score_one_and_zero():
    completions = [r"\boxed{\frac12}", r"\boxed{50}", "the answer is 0.5.", "no idea"]
    assert accuracy_reward(completions, ["1/2"] * 4) == [1.0, 0.0, 1.0, 0.0]


def test_conversations_content_parts_and_strings_are_graded_alike():
    parts = [{"type": "text", "text": r"so \boxed"}, {"type": "image"}, {"type": "text", "text": "{7}"}]
    completions = [chat(r"\boxed{7}"), [{"role": "assistant", "content": parts}], r"\boxed{7}"]
    assert accuracy_reward(completions, ["7"] * 3) == [1.0, 1.0, 1.0]


def test_the_last_assistant_message_of_a_tool_conversation_is_graded():
    tool = {"role": "tool", "content": r"\boxed{7}"}
    call = {"role": "assistant", "content": None, "tool_calls": []}
    assert accuracy_reward([[call, tool, *chat(r"\boxed{7}")]], ["7"]) == [1.0]
    assert accuracy_reward([[*chat(r"\boxed{7}"), tool, *chat(r"\boxed{8}")]], ["7"]) == [0.0]
    assert accuracy_reward([[*chat(r"\boxed{7}"), call, tool]], ["7"]) == [0.0]
    assert accuracy_reward([[tool]], ["7"]) == [0.0]


def test_unclosed_thinking_scores_zero():
    completions = [r"\boxed{7}", r"<think>\boxed{7}", r"x</think>\boxed{7}", r"\boxed{7}</think>"]
    assert accuracy_reward(completions, ["7"] * 4, thinking_prefilled=True) == [0.0, 0.0, 1.0, 0.0]
    assert accuracy_reward(completions, ["7"] * 4, thinking_prefilled=False) == [1.0, 0.0, 1.0, 0.0]
    assert accuracy_reward(completions[:2], ["7"] * 2, thinking_prefilled=[False, True]) == [1.0, 0.0]
    assert partial(accuracy_reward, thinking_prefilled=True)(completions, ["7"] * 4) == [0.0, 0.0, 1.0, 0.0]


def test_thinking_opened_by_a_string_prompt_is_detected():
    prompts = ["<|assistant|><think>\n", "<|assistant|>", [{"role": "user", "content": "<think>"}]]
    assert accuracy_reward([r"\boxed{7}"] * 3, ["7"] * 3, prompts=prompts) == [0.0, 1.0, 1.0]
    assert think_format_reward(["a</think>b"] * 3, prompts=prompts) == [1.0, 0.0, 0.0]


def test_the_reward_is_none_and_warns_once_if_the_reference_answer_is_unusable(caplog):
    rewards._warn_once.cache_clear()
    completions, solution = [r"\boxed{1}"] * 5, ["1", r"\frac{", r"\frac{", "", None]
    prompts = ["One?"] * 5
    with caplog.at_level(logging.WARNING, logger="trl_ces.rewards"):
        assert accuracy_reward(completions, solution, prompts=prompts) == [1.0, None, None, None, None]
        assert accuracy_reward(["<think>"], [r"\frac{"], prompts=["One?"]) == [None]
    assert [record.getMessage() for record in caplog.records] == [
        rf"The solution {gold!r} cannot be parsed as a reference answer, so the reward is None."
        for gold in (r"\frac{", "")
    ]


def test_arguments_of_different_lengths_raise_an_error():
    with pytest.raises(ValueError, match="golds has 1 entries for 2"):
        accuracy_reward(["a", "b"], ["1"])
    with pytest.raises(ValueError, match="thinking_prefilled has 1 entries for 2"):
        accuracy_reward(["a", "b"], ["1", "2"], thinking_prefilled=[True])
    with pytest.raises(ValueError, match="shorter"):
        think_format_reward(["a", "b"], thinking_prefilled=[True])


def test_accuracy_reward_uses_its_own_time_limits(monkeypatch):
    limits = []

    class Pool:
        def map(self, messages, limit_s):
            assert {message["op"] for message in messages} == {"equal"}
            limits.append(limit_s)
            return [{"status": "timeout"} for _ in messages]

    monkeypatch.setattr(judge, "_usable_golds", {"1+x": True})
    monkeypatch.setattr(judge, "_cached_replies", {})
    monkeypatch.setattr(judge, "shared_pool", Pool)
    rewards_of = accuracy_reward([rf"\boxed{{x-{n}}}" for n in range(6)] + [r"\boxed{1+x}"], ["1+x"] * 7)
    assert limits == [0.5, 1.0]
    assert (rewards_of.count(0.0), rewards_of.count(None), rewards_of[6]) == (3, 3, 1.0)


@pytest.mark.parametrize(
    ("completion", "prefilled", "plain"),
    [
        ("so</think>2", 1.0, 0.0),
        ("<think>so</think>2", 0.0, 1.0),
        ("\n <think>so</think>2", 0.0, 1.0),
        ("Well. <think>so</think>2", 0.0, 0.0),
        ("<think>so", 0.0, 0.0),
        ("2", 0.0, 0.0),
        ("a</think>b</think>c", 0.0, 0.0),
        ("<think>a</think><think>b</think>c", 0.0, 0.0),
        ("<think><think>a</think>b", 0.0, 0.0),
        ("</think><think>", 0.0, 0.0),
        ("a</think>b<think>", 0.0, 0.0),
        (r"<think></think>\boxed{5}", 0.0, 0.0),
        (r"</think>\boxed{5}", 0.0, 0.0),
        ("<think> \n\u200b...</think>5", 0.0, 0.0),
        (" \n\u200b...</think>5", 0.0, 0.0),
        ("<think>so</think>", 0.0, 0.0),
        ("so</think>\n $", 0.0, 0.0),
        ("所以</think>五", 1.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_the_format_reward_requires_one_thinking_block_at_the_start(completion, prefilled, plain):
    assert think_format_reward([completion], thinking_prefilled=True) == [prefilled]
    assert think_format_reward([chat(completion)], thinking_prefilled=[False]) == [plain]
    assert think_format_reward([completion]) == [plain]


def test_nouns_in_the_question_are_accepted_as_units():
    chat = [{"role": "user", "content": "How many gizmos?"}, {"role": "assistant", "content": "Gadgets"}]
    completions = [r"\boxed{5\text{ gizmos}}", r"\boxed{5\text{ gadgets}}"]
    assert accuracy_reward(completions * 2, ["5"] * 4, prompts=["How many gizmos?"] * 2 + [chat] * 2) == [1, 0, 1, 0]
    assert accuracy_reward(completions, ["5"] * 2) == [0, 0]
