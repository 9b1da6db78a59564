"""Check that rewards do not depend on whether TRL removes the thinking from the message's content."""

import pytest
from tool_turns import (
    QWEN_END,
    R1_END,
    chat_trainer,
    four_copies,
    question,
    qwen_tokenizer,
    r1_tokenizer,
    script_turns,
)
from trainers import record_results
from trl.chat_template_utils import add_response_schema, qwen3_5_think_chat_template

from trl_ces.rewards import accuracy_reward, think_format_reward

CORRECT = r"\boxed{7}"
# Template: (tokenizer, accuracy and format reward of each completion). R1's and Qwen3.5's templates open <think>.
CASES = {
    "R1-Distill": (
        r1_tokenizer,
        {
            f"so\n</think>\n\n{CORRECT}{R1_END}": [1, 1],
            f"\n</think>\n\n{CORRECT}{R1_END}": [1, 0],
            f"so {CORRECT}": [0, 0],
            f"{CORRECT}{R1_END}": [0, 0],
        },
    ),
    "Qwen3": (
        qwen_tokenizer,
        {
            f"<think>\nso\n</think>\n\n{CORRECT}{QWEN_END}": [1, 1],
            f"<think>\n\n</think>\n\n{CORRECT}{QWEN_END}": [1, 0],
            f"<think>\nso {CORRECT}": [0, 0],
            f"{CORRECT}{QWEN_END}": [1, 0],
        },
    ),
    "Qwen3.5 thinking": (
        lambda: qwen_tokenizer(qwen3_5_think_chat_template),
        {
            f"so\n</think>\n\n{CORRECT}{QWEN_END}": [1, 1],
            f"a</think>b</think>{CORRECT}{QWEN_END}": [1, 0],
            f"so {CORRECT}": [0, 0],
            f"{CORRECT}{QWEN_END}": [0, 0],
        },
    ),
}


@pytest.mark.parametrize("parsed", [False, True], ids=["plain", "parsed"])
@pytest.mark.parametrize("template", CASES)
def test_rewards_do_not_depend_on_whether_trl_parses_the_thinking(tmp_path, template, parsed):
    make_tokenizer, cases = CASES[template]
    tokenizer = add_response_schema(make_tokenizer()) if parsed else make_tokenizer()
    columns = {"prompt": [question("3+4")] * 2, "solution": ["7"] * 2}
    trainer = chat_trainer(tmp_path, [accuracy_reward, think_format_reward], tokenizer, columns)
    rewards = record_results(trainer, "_calculate_rewards")
    script_turns(trainer, [[text] for text in cases] * 2)
    trainer._generate_and_score_completions(four_copies(columns))
    assert rewards[0].tolist() == list(cases.values()) * 2
