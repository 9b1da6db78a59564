import pytest
from tiny import save_tiny, tiny_tokenizer

from trl_ces.support.errors import UserError
from trl_ces.support.prompts import (
    PAPER_SYSTEM_PROMPT,
    after_thinking,
    build_prompt,
    check_chat_template,
    opens_thinking,
)


def test_a_prompt_consists_of_the_system_message_and_the_question():
    user = {"role": "user", "content": "1+1?"}
    assert build_prompt("1+1?") == [{"role": "system", "content": PAPER_SYSTEM_PROMPT}, user]
    assert build_prompt("1+1?", None) == build_prompt("1+1?", "") == [user]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("<｜User｜>1+1?<｜Assistant｜><think>\n", True),
        ("<|im_start|>assistant\n<think>", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("Say <think> first.<|im_start|>assistant\n", False),
        ("", False),
    ],
)
def test_only_an_open_tag_at_the_end_of_a_prompt_opens_thinking(prompt, expected):
    assert opens_thinking(prompt) is expected


@pytest.mark.parametrize(
    ("completion", "prefilled", "expected"),
    [
        ("so 2</think>\n2", True, "\n2"),
        ("<think>so 2</think>2", False, "2"),
        ("a</think>b</think>c", True, "c"),
        ("still thinking \\boxed{2}", True, None),
        ("<think>still thinking \\boxed{2}", False, None),
        ("a</think>b<think>again \\boxed{2}", True, None),
        ("no thinking, 2", False, "no thinking, 2"),
        ("closed</think>2", False, "2"),
    ],
)
def test_after_thinking_returns_the_text_after_the_last_closing_tag(completion, prefilled, expected):
    assert after_thinking(completion, prefilled) == expected


def test_chat_prompts_need_a_chat_template(tmp_path):
    chat, model = build_prompt("1+1?"), str(tmp_path)
    save_tiny(tmp_path)
    check_chat_template(chat, model)
    tiny_tokenizer(chat_template=None).save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    check_chat_template("1+1?", model)
    check_chat_template(chat, model, tiny_tokenizer())
    check_chat_template(chat, str(tmp_path / "nothing"))  # TRL reports the missing folder
    for tokenizer in (None, tiny_tokenizer(chat_template=None)):
        with pytest.raises(UserError, match=r"has no chat template, .* set `prompt_template`"):
            check_chat_template(chat, model, tokenizer)
