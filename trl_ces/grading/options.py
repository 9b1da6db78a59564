r"""
Parse the options of a multiple-choice question: `(A) 10 (B) 12`, `A. yes`, `A) yes`, `A: yes` or `Answer1: yes`, on
one or several lines, with or without instructions and chat-template tokens after them.

| question | gold | equal | different |
|---|---|---|---|
| `Which? (A) 10 (B) 12 (C) 14` | `B` | `12`, `\text{B. } 12` | `10`, `\text{B. } 10` |
| `Which? A. yes B. no` | `yes` | `A` | `B` |
| `Which? Answer1: yes Answer2: no` | `answer1` | `Answer 1`, `yes` | `no` |
"""

import re
from functools import lru_cache
from itertools import pairwise
from string import ascii_uppercase

from .forms import choice, chooses
from .notation import tidy, unwrap


def plain(text: str) -> str:
    """Tidy a text, remove math mode, bold type, braces and quotes, and unify arrows."""
    text = re.sub(r"\\(?:long)?(?:rightarrow|to)(?![A-Za-z])|[→⟶]", "->", tidy(text))
    return " ".join(re.sub(r"[{}$*\"“”]", "", unwrap(text)).split())


_NAME = r"(?:(?:option|choice|answer|选项)\s?:?\s?)"


@lru_cache(maxsize=4096)
def letter_and_text(letter: str, text: str) -> re.Pattern[str]:
    """Return a pattern for an option's letter and text in [`plain`] form: `B. milk`, `option B (milk)`, `milk (B)`."""
    words = r"\s?".join(map(re.escape, plain(text).rstrip(".").split()))
    words = rf"(?<![A-Za-z\d\\_^/.,-])(?i:{words})(?![A-Za-z\d_/^]|[.,]\d)"
    lead = r"[\s,:即是为-]*(?:(?:(?:that|which) is,?|i\.e\.,?) )?\(?"
    name = rf"(?i:{_NAME}){letter}(?![A-Za-z\d])"
    marker = rf"\({letter}\)|(?<![A-Za-z\d]){letter}(?:[).,:]|项:?| \(| [-–—=])|{name}"
    return re.compile(rf"(?:{marker}){lead}{words}\)?|{words}[\s,]*(?:\({letter}\)|\({name}\)|{name})")


def with_options(answer: str, gold: str, question: str) -> tuple[str, str] | None:
    """Return gold and answer in the same form, letter or text; `None` if no option applies."""
    options = options_of(question)
    answer_text, letter = unwrap(tidy(answer)), choice(tidy(gold).rstrip(","))
    plain_answer = plain(answer).rstrip(".")
    pairs = [
        (label, text_label)
        for label in options
        for text_label, text in options.items()
        if label in plain_answer and letter_and_text(label, text).fullmatch(plain_answer)
    ]
    if pairs:  # reject B with the text of C
        label = next((label for label, text_label in pairs if label == text_label), "")
        return gold, label if letter or not label else options[label]
    chosen_letters = [label for label in options if chooses(answer_text, label)]
    if letter:
        return (options[letter], answer) if letter in options and not chosen_letters else None
    if len(chosen_letters) == 1:
        return gold, options[chosen_letters[0]]
    return (gold, answer_text) if answer_text in options.values() else None  # "sea plant" is not "sea"


_MARKER = re.compile(r"([(（]?)(?<![A-Za-z\d\\^_])([A-K])([).:．：、）])")
_NOT_LIST_START = re.compile(r"[A-Za-z\d\\^_]\Z")  # P(A)
# Where a list of two options may start; "which of A. and B." is not a list.
_LIST_START = re.compile(r"(?:^|[\n.?!。？！:：;；,，{}()（）_$]|\\q?quad)[ *]*\Z")
_AROUND_OPTION = re.compile(
    r"^\}?\\\s|\\(?:text\w*|math\w+)\s*\{\s*$|^\s*\}|\\q?quad|\\hspace\{[^{}]*\}|~|(?:[,;]|[,;]?\s+or)\s*$"
)


@lru_cache(maxsize=256)
def options_of(question: str) -> dict[str, str]:
    """Map letters to tidied texts for the question's last list of distinct, nonempty options A, B, C, ..."""
    markers = list(_MARKER.finditer(question))
    for first in reversed([place for place, marker in enumerate(markers) if marker[2] == "A"][-20:]):
        list_markers = [markers[first]]
        for marker in markers[first + 1 :]:  # skip A and B in "(C) both (A) and (B)"
            if marker.groups() == (list_markers[0][1], ascii_uppercase[len(list_markers)], list_markers[0][3]):
                list_markers.append(marker)
        before = question[max(0, list_markers[0].start() - 12) : list_markers[0].start()]
        texts = [question[marker.end() : following.start()] for marker, following in pairwise(list_markers)]
        if len(texts) < (1 if _LIST_START.search(before) else 2) or _NOT_LIST_START.search(before):
            continue
        # The last option ends with its line, or with its paragraph if other options span several lines.
        end = "\n\n" if any("\n" in text.strip() for text in texts) else "\n"
        last = _TURN_END.split(question[list_markers[-1].end() :].lstrip(), maxsplit=1)[0]
        texts.append(_INSTRUCTION.sub("", last.split(end, maxsplit=1)[0]))
        texts = [tidy(_AROUND_OPTION.sub("", text).strip(" \n$")) for text in texts]
        if all(texts) and len({*texts}) == len(texts):
            return dict(zip(ascii_uppercase, texts, strict=False))
    return {}


_NUMBERED = re.compile(r"(answer|ending|option|choice|solution) ?([1-9])", re.IGNORECASE)


def with_letters(question: str, completion: str, gold: str) -> tuple[str, str, str]:
    """Replace labels such as `Answer1` with letters if the gold is a label that the question lists."""
    numbered_label = _NUMBERED.fullmatch(gold.strip())
    if not numbered_label or not re.search(rf"\b{numbered_label[1]} ?{numbered_label[2]} ?:", question, re.IGNORECASE):
        return question, completion, gold
    label = re.compile(rf"\b{numbered_label[1]} ?([1-9])\b", re.IGNORECASE)
    question, completion, gold = (
        label.sub(lambda match: ascii_uppercase[int(match[1]) - 1], text) for text in (question, completion, gold)
    )
    return question, completion, gold


_TURN_END = re.compile(r"<[|｜/]|\[/INST\]|<end_of_turn>|<think>")
# The last option ends before an instruction: "Please reason step by step", "Put the letter in \boxed{}", 请逐步推理.
_INSTRUCTION = re.compile(
    r"(?<=\S)(?:(?:\s+|(?<=[$.]))(?:Answer:|[A-Z][a-z']*(?=\s)[^A-Z.!?\n]*?"
    r"(?:\\boxed|answer|step[- ]by[- ]step|reason|letter|option|choice|choose|explain))|"
    r"(?:\s*(?:请|并?[将把]最)|\s+[将把在从答])[^。\n]*?(?:\\boxed|答案|推理|步|选|解答|思考)).*",
    re.DOTALL,
)
