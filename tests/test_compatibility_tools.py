"""Test CESTrainer with tools, environments and thinking templates, using TRL's own templates and parsers.

Only the model's text is scripted. TRL renders the prompt, parses the text, calls the tools and masks their output.
"""

import math

import pytest
from objectives import watch_shaping
from reference import float64_copy, selection_sizes, shaped_loss
from reference_comparison import assert_loss_and_gradients_agree
from tool_processes import add
from tool_turns import QWEN_END, call, chat_trainer, four_copies, question, qwen_tokenizer, r1_tokenizer, script_turns
from trl.chat_template_utils import qwen3_5_think_chat_template

# Tools and environments. A dialogue is a list of turns: model, tool, model, ...


def dialogue_tokens(tokenizer, dialogue):
    """Return the token ids and the loss mask, which excludes tool output and the template tokens around it."""
    ids, mask = [], []
    for number, text in enumerate(dialogue):
        if number % 2:
            text = f"\n<|im_start|>user\n<tool_response>\n{text}\n</tool_response>{QWEN_END}\n<|im_start|>assistant\n"
        tokens = tokenizer.encode(text)
        ids += tokens
        mask += [1 - number % 2] * len(tokens)
    return ids, mask


def final_turn_accuracy_reward(completions, answer, **kwargs):
    return [float(messages[-1]["content"] == gold) for messages, gold in zip(completions, answer, strict=True)]


TOOL_DIALOGUES = [
    [call("add", a=3, b=4), "7", f"7{QWEN_END}"],
    [f"it must be 8{QWEN_END}"],
    [call("subtract", a=3, b=4), "{'error': 'Tool subtract not found.'}", f"6{QWEN_END}"],
    [call("add", a=3, b=1), "4", call("add", a=4, b=3), "7", f"7{QWEN_END}"],
    [f"2{QWEN_END}"],
    [call("add", a=1, b=1), "2", f"it is more than 2 I think{QWEN_END}"],
    [call("add", a=1, b=1), "2", "no end at all"],
    [f"hm, let me see, 1 and 1, that is 3{QWEN_END}"],
]


def test_tool_output_is_neither_counted_nor_shaped_nor_trained_on(tmp_path):
    columns = {"prompt": [question("3+4"), question("1+1")], "answer": ["7", "2"]}
    trainer = chat_trainer(tmp_path, final_turn_accuracy_reward, qwen_tokenizer(), columns, tools=[add])
    script_turns(trainer, TOOL_DIALOGUES)
    shaping = watch_shaping(trainer)
    batch = trainer._generate_and_score_completions(four_copies(columns))
    loss = trainer._compute_loss(trainer.model, batch)

    rows = []
    for index, (dialogue, accuracy) in enumerate(zip(TOOL_DIALOGUES, [1, 0, 0, 1, 1, 0, 0, 0], strict=True)):
        ids, mask = dialogue_tokens(trainer.processing_class, dialogue)
        assert batch["completion_ids"][index, : len(ids)].tolist() == ids
        assert batch["tool_mask"][index, : len(ids)].tolist() == mask
        prompt_ids = batch["prompt_ids"][index][batch["prompt_mask"][index].bool()].tolist()
        rows.append(
            {"prompt_ids": prompt_ids, "completion_ids": ids, "mask": mask, "accuracy": accuracy, "rewards": accuracy}
        )
    sizes = selection_sizes(rows, 4, "0.3")
    assert shaping[0].count_nonzero(dim=1).tolist() == sizes
    assert shaping[0][batch["tool_mask"] == 0].count_nonzero() == 0
    sizes_with_output = selection_sizes([{**row, "mask": [1] * len(row["mask"])} for row in rows], 4, "0.3")
    assert sizes != sizes_with_output, "the test needs tool output that changes k"
    model = float64_copy(trainer.model)
    assert_loss_and_gradients_agree(trainer, loss, model, shaped_loss(model, rows, 4, tau="0.3"))


class Till:
    """Environment that rewards paying the exact amount owed."""

    def reset(self, owed, **kwargs):
        self.owed, self.inside = owed, 0

    def put(self, coins: int) -> str:
        """
        Put coins into the till.

        Args:
            coins: Number of coins.
        """
        self.inside += coins
        return f"{self.inside} inside"

    def get_reward(self):
        return float(self.inside == self.owed)


class Doorman:
    """Environment without a reward."""

    def reset(self, **kwargs):
        return " please"

    def ring(self) -> str:
        """Ring the bell."""
        return "nobody"


TILL_DIALOGUES = [
    [call("put", coins=2), "2 inside", f"done{QWEN_END}"],
    [call("put", coins=1), "1 inside", call("put", coins=1), "2 inside", f"done{QWEN_END}"],
    [call("put", coins=5), "5 inside", f"done{QWEN_END}"],
    [f"no, thank you{QWEN_END}"],
]
DOOR_DIALOGUES = [[call("ring"), "nobody", f"I ring{QWEN_END}"], *[[f"I do not ring{QWEN_END}"]] * 3]


def quiet_reward(completions, **kwargs):
    return [float(len(messages) == 1) for messages in completions]


@pytest.mark.parametrize(
    ("rewards", "accuracy_reward"), [(None, None), ([quiet_reward], "Till")], ids=["only reward", "chosen by name"]
)
def test_the_reward_of_an_environment_determines_correctness(tmp_path, rewards, accuracy_reward):
    columns = {"prompt": [question("pay"), question("pay")], "owed": [2, 7]}
    changes = {"ces_accuracy_reward": accuracy_reward}
    trainer = chat_trainer(tmp_path, rewards, qwen_tokenizer(), columns, changes, environment_factory=Till)
    assert trainer.reward_func_names[-1] == "Till"
    script_turns(trainer, TILL_DIALOGUES + TILL_DIALOGUES)
    batch = trainer._generate_and_score_completions(four_copies(columns))
    assert batch["correct"].tolist() == [True, True, False, False, False, False, False, False]
    assert batch["group_correct"].tolist() == [2] * 4 + [0] * 4
    trainer._compute_loss(trainer.model, batch)
    trainer.log({})
    assert trainer.state.log_history[-1]["ces/group_accuracy"] == 0.25


def test_an_environment_reward_next_to_a_reward_function_requires_ces_accuracy_reward(tmp_path):
    columns = {"prompt": [question("pay")] * 2, "owed": [2, 2]}
    with pytest.raises(ValueError, match=r"0 of the rewards \(quiet_reward, Till\) .* set `ces_accuracy_reward` "):
        chat_trainer(tmp_path, [quiet_reward], qwen_tokenizer(), columns, environment_factory=Till)


def test_rollouts_of_an_environment_without_a_reward_are_not_shaped(tmp_path):
    columns = {
        "prompt": [question("pay"), question("go in")],
        "owed": [2, 0],
        "environment": ["till", "door"],
    }
    environments = {"till": Till, "door": Doorman}
    trainer = chat_trainer(tmp_path, None, qwen_tokenizer(), columns, environment_factory=environments)
    script_turns(trainer, TILL_DIALOGUES + DOOR_DIALOGUES)
    shaping = watch_shaping(trainer)
    batch = trainer._generate_and_score_completions(four_copies(columns))
    trainer._compute_loss(trainer.model, batch)
    assert batch["scored"].tolist() == [True] * 4 + [False] * 4
    lengths = [sum(dialogue_tokens(trainer.processing_class, dialogue)[1]) for dialogue in TILL_DIALOGUES]
    sizes = [math.floor(length * 3 / 20) for length in lengths]  # tau 0.3, b 1/2
    assert shaping[0].count_nonzero(dim=1).tolist() == sizes + [0] * 4
    assert min(sizes[:3]) > 0


# Thinking templates.

THINKING_TEMPLATES = {
    "R1-Distill": (r1_tokenizer, {}, True),
    "qwen3.5 thinking": (lambda: qwen_tokenizer(qwen3_5_think_chat_template), {}, True),
    "qwen3": (qwen_tokenizer, {}, False),
    "qwen3 without thinking": (qwen_tokenizer, {"enable_thinking": False}, False),
}


@pytest.mark.parametrize("template", THINKING_TEMPLATES)
def test_rewards_receive_thinking_prefilled_from_the_template(tmp_path, template):
    make_tokenizer, template_kwargs, prefilled = THINKING_TEMPLATES[template]
    received = []

    def accuracy(completions, thinking_prefilled, **kwargs):
        received.extend(thinking_prefilled)
        return [0.0] * len(completions)

    columns = {"prompt": [question("3+4"), question("1+1")]}
    changes = {"chat_template_kwargs": template_kwargs, "max_completion_length": 4}
    trainer = chat_trainer(tmp_path, accuracy, make_tokenizer(), columns, changes)
    batch = trainer._generate_and_score_completions(four_copies(columns))
    prompt = trainer.processing_class.decode(batch["prompt_ids"][0])
    assert ("</think>" in prompt) == bool(template_kwargs)
    assert received == [prefilled] * 8
