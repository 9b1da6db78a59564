"""Read a row of a benchmark's file: question and gold, as in the Qwen2.5-Math evaluation.

Questions get no added instruction; golds are as `trl_ces.grading` expects them. The reasoning sets are asked as
generated multiple choice.
"""

import re
import string
from collections.abc import Callable
from typing import Any

from .code.tasks import Row

# Question and gold of one row.
Reader = Callable[[Row], tuple[str, str]]

CHOICE_INSTRUCTION = "Give the letter of the correct option as the final answer."


def whole(value: Any) -> str:
    """The value as text; an integer that JSON made a float loses its `.0`."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def with_expected_words(question: str, gold: str) -> str:
    """The question, with the words to choose from if the gold is a truth value."""
    word = gold.strip().rstrip(".").lower()
    if word in ("true", "false"):
        return question + " (True or False)"
    return question + " (Yes or No)" if word in ("yes", "no") else question


def read_plain(row: Row) -> tuple[str, str]:
    """`question`, else `problem`; `answer` unchanged."""
    question, gold = row["question"] if "question" in row else row["problem"], whole(row["answer"])
    return with_expected_words(question, gold), gold


def read_without_dollars(row: Row) -> tuple[str, str]:
    """The gold is LaTeX without its dollar signs."""
    gold = row["answer"].replace("$", "").strip()
    return with_expected_words(row["question"], gold), gold


def read_gsm8k(row: Row) -> tuple[str, str]:
    """The gold follows `####` after a worked solution."""
    return row["question"], row["answer"].rpartition("####")[2].strip()


def read_minerva(row: Row) -> tuple[str, str]:
    """The gold is the content of the last box of the solution."""
    return row["problem"], last_box(row["solution"])


def read_cn_middle_school(row: Row) -> tuple[str, str]:
    """The gold is the option's letter if the question has options."""
    return row["question"], row["choice_answer"] or row["answer"]


def read_olympiadbench(row: Row) -> tuple[str, str]:
    """`final_answer` is a list of one."""
    (gold,) = row["final_answer"]
    return with_expected_words(row["question"], gold.strip("$")), gold.strip("$")


def read_svamp(row: Row) -> tuple[str, str]:
    """The story, ending in a full stop, then the question."""
    body = row["Body"].strip()
    return f"{body if body.endswith('.') else body + '.'} {row['Question'].strip()}", whole(row["Answer"])


def read_tabmwp(row: Row) -> tuple[str, str]:
    """The table with its title if any, the question, the options."""
    title = f'regarding "{row["table_title"]}" ' if row["table_title"] else ""
    question = f"Read the following table {title}and answer a question:\n{row['table']}\n{row['question']}"
    if row["choices"]:
        question += f" Please select from the following options: {row['choices']}"
    return with_expected_words(question, row["answer"]), row["answer"]


def last_box(text: str) -> str:
    r"""The content of the last `\boxed{...}`."""
    start = text.rfind("\\boxed{")
    depth = 0
    for place in range(start + len("\\boxed"), len(text) if start >= 0 else 0):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start + len("\\boxed{") : place]
    raise ValueError(f"there is no whole \\boxed{{...}} in {text[-80:]!r}")


def ask_choice(stem: str, options: list[str], right: int) -> tuple[str, str]:
    """The question with lettered options, and the letter of the right one."""
    letters = string.ascii_uppercase[: len(options)]
    listed = "\n".join(f"{letter}. {option}" for letter, option in zip(letters, options, strict=True))
    return f"{stem.strip()}\n\n{listed}\n\n{CHOICE_INSTRUCTION}", letters[right]


_NUMBERED = re.compile(
    r"Please choose the correct answer to the question: (?P<stem>.*?)\s*"
    r"(?P<options>Answer1: .*?)\s*Answer format: (?P<names>answer1.*)",
    re.DOTALL,
)


def read_numbered_choice(row: Row) -> tuple[str, str]:
    """The instruction holds the question and `Answer1: ... Answer2: ...`; `answer` is `answer2`."""
    parts = _NUMBERED.fullmatch(row["instruction"])
    if parts is None:
        raise ValueError(f"the instruction {row['instruction'][:80]!r} has no numbered answers")
    options = [option.strip() for option in re.split(r"Answer\d+: ", parts["options"])[1:]]
    return ask_choice(parts["stem"], options, parts["names"].split("/").index(row["answer"]))


def read_commonsenseqa(row: Row) -> tuple[str, str]:
    """`question` holds the stem and the list of choices."""
    choices = row["question"]["choices"]
    right = [choice["label"] for choice in choices].index(row["answerKey"])
    return ask_choice(row["question"]["stem"], [choice["text"] for choice in choices], right)


def read_hub_choice(stem: str) -> Reader:
    """A reader of the Hub's rows; `stem` names the question's field."""

    def read(row: Row) -> tuple[str, str]:
        choices = row["choices"]
        return ask_choice(row[stem], choices["text"], choices["label"].index(row["answerKey"]))

    return read
