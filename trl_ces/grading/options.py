r"""
Read the options of a multiple-choice question: `(A) 10 (B) 12`, `A. yes`, `A) yes` or `A: yes`, in lines or in one
line, with or without instructions and chat-template tokens behind them.

| question | gold | equal | different |
|---|---|---|---|
| `Which? (A) 10 (B) 12 (C) 14` | `B` | `12`, `\text{B. } 12` | `10`, `\text{B. } 10` |
| `Which? A. yes B. no` | `yes` | `A` | `B` |
"""

import re
from functools import lru_cache
from itertools import pairwise
from string import ascii_uppercase

from .forms import choice, chooses
from .notation import tidy, unwrap

_LETTER_AND_TEXT = re.compile(
    r"(?:option |选项 ?)?\(?([A-K])(?:[).,:，：]|项：?)[\s,，:：即是为]*(?:(?:that|which) is |i\.e\.,? )?(.+)",
    re.IGNORECASE | re.DOTALL,
)


def with_options(answer: str, gold: str, question: str) -> tuple[str, str] | None:
    """The pair with the option's value for its letter of one side only; `None` for another answer."""
    options = options_of(question)
    written, letter = unwrap(tidy(answer)), choice(tidy(gold).rstrip(","))
    if (named := _LETTER_AND_TEXT.fullmatch(written)) and named[1] in options:
        said = re.sub(r"[\s{}$]", "", named[2].rstrip("."))
        whose = [one for one, text in options.items() if re.sub(r"[\s{}$]", "", text) == said]
        if named[1] in whose:
            return gold, named[1] if letter else options[named[1]]
        if whose:  # B. and the text of C
            return gold, ""
    chosen = [one for one in options if chooses(written, one)]
    if letter:
        return (options[letter], answer) if letter in options and not chosen else None
    if len(chosen) == 1:
        return gold, options[chosen[0]]
    return (gold, written) if written in options.values() else None  # "sea plant" is not "sea", whatever else it says


_MARKER = re.compile(r"([(（]?)(?<![A-Za-z\d\\^_])([A-K])([).:．：、）])")
_NO_LIST_START = re.compile(r"[A-Za-z\d\\^_]\Z")  # P(A)
# Where a list of two options may start: "which of A. and B." lists none.
_LIST_START = re.compile(r"(?:^|[\n.?!。？！:：;；,，{}()（）_$]|\\q?quad)[ *]*\Z")
_AROUND_OPTION = re.compile(
    r"^\}?\\\s|\\(?:text\w*|math\w+)\s*\{\s*$|^\s*\}|\\q?quad|\\hspace\{[^{}]*\}|~|(?:[,;]|[,;]?\s+or)\s*$"
)


@lru_cache(maxsize=256)
def options_of(question: str) -> dict[str, str]:
    """Letter -> tidied text of the last options A, B, C, ... that a question lists, no two alike and none empty."""
    markers = list(_MARKER.finditer(question))
    for first in reversed([place for place, marker in enumerate(markers) if marker[2] == "A"]):
        listed = [markers[first]]
        for marker in markers[first + 1 :]:  # "(C) both (A) and (B)" lists no A and B
            if marker.groups() == (listed[0][1], ascii_uppercase[len(listed)], listed[0][3]):
                listed.append(marker)
        before = question[max(0, listed[0].start() - 12) : listed[0].start()]
        texts = [question[one.end() : other.start()] for one, other in pairwise(listed)]
        if len(texts) < (1 if _LIST_START.search(before) else 2) or _NO_LIST_START.search(before):
            continue
        texts.append(_last_option(question[listed[-1].end() :], any("\n" in text.strip() for text in texts)))
        texts = [tidy(_AROUND_OPTION.sub("", text).strip(" \n$")) for text in texts]
        if all(texts) and len({*texts}) == len(texts):
            return dict(zip(ascii_uppercase, texts, strict=False))
    return {}


_TURN_END = re.compile(r"<[|｜/]|\[/INST\]|<end_of_turn>|<think>")
# "Please reason step by step", "Put the letter in \boxed{}", 请逐步推理: the words before it are the option's.
_INSTRUCTION = re.compile(
    r"(?<=\S)(?:(?:\s+|(?<=[$.]))(?:Answer:|[A-Z][a-z']*(?=\s)[^A-Z.!?\n]*?"
    r"(?:\\boxed|answer|step[- ]by[- ]step|reason|letter|option|choice|choose|explain))|"
    r"(?:\s*(?:请|并?[将把]最)|\s+[将把在从答])[^。\n]*?(?:\\boxed|答案|推理|步|选|解答|思考)).*",
    re.DOTALL,
)


def _last_option(text: str, has_lines: bool) -> str:
    """The last option, without the text behind it: it ends with its line, or, if others have lines, its paragraph."""
    text = _TURN_END.split(text.lstrip(), maxsplit=1)[0]
    return _INSTRUCTION.sub("", text.split("\n\n" if has_lines else "\n", maxsplit=1)[0])
