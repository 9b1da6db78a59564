"""
Extract answers from completions and golds like the Qwen2.5-Math evaluation script, which also accepts a box inside the
thinking.
"""

import re

from .normalize import normalize

# Golds and answers of Minerva Math keep their units.
_KEEPS_UNITS = frozenset({"minerva_math"})
_CHOICES = re.compile(r"[A-E]+")
_CHOICE = re.compile(r"\b[A-E]\b")
_CHOICE_STATEMENT = re.compile(r"(?:answer|choice) is", re.IGNORECASE)
_BRACE = re.compile(r"[{}]")
_NUMBER = re.compile(r"-?\d*\.?\d+")
_FINAL_ANSWER_MARKS = ("final answer is $", "$. I hope")
_STATEMENTS = ("he answer is", "final answer is")
_CHINESE_STATEMENT = "答案是"


def prepare_gold(gold: str, benchmark: str | None = None) -> str:
    """Convert a gold to the form that the script compares."""
    if benchmark == "minerva_math":
        return _clean(_stated_answer(gold) if "boxed" in gold else gold, keep_units=True)
    if benchmark == "gsm8k":
        gold = gold.rpartition("####")[2]
    if benchmark in {"college_math", "gaokao2023en", "gaokao_math_cloze", "olympiadbench"}:
        gold = gold.strip().strip("$")
    if benchmark == "tabmwp":
        gold = _plain_number(gold)
    return normalize(normalize(gold.strip()))


def _plain_number(gold: str) -> str:
    """Convert a numeric TabMWP gold to the decimal that Python prints; return other golds unchanged."""
    bare = gold.strip().replace(",", "")
    top, slash, bottom = bare.partition("/")
    try:
        if slash:
            return str(float(top) / float(bottom))
        return str(float(bare[:-1]) / 100) if bare.endswith("%") else str(float(bare))
    except (ValueError, ZeroDivisionError):
        return gold


def extract(completion: str, benchmark: str | None = None) -> str:
    """Extract an answer by the first of the script's six rules that matches, and normalize it."""
    keep_units = benchmark in _KEEPS_UNITS
    return normalize(_clean(_stated_answer(completion), keep_units), keep_units)


def _clean(text: str, keep_units: bool) -> str:
    text = re.sub(r"\n\s*", "", text).strip()
    text = text.removeprefix(":").removesuffix(".").removesuffix("/")
    return normalize(text, keep_units)


def _stated_answer(completion: str) -> str:
    if all(mark in completion for mark in _FINAL_ANSWER_MARKS):
        after = completion.partition(_FINAL_ANSWER_MARKS[0])[2]
        return after.partition(_FINAL_ANSWER_MARKS[1])[0].strip()
    if "boxed" in completion:
        return _last_box(completion)
    for statement in _STATEMENTS:
        if statement in completion:
            return completion.rpartition(statement)[2].strip()
    if _CHINESE_STATEMENT in completion:
        return completion.partition(_CHINESE_STATEMENT)[2].strip().partition("\n\n")[0]
    numbers = _NUMBER.findall(completion.replace(",", ""))
    return numbers[-1] if numbers else ""


def _last_box(completion: str) -> str:
    rest = completion.rpartition("boxed")[2]
    if not rest.startswith("{"):
        return rest.partition("$")[0].strip()
    depth = 0
    for brace in _BRACE.finditer(rest):
        if brace.group() == "{":
            depth += 1
        elif depth == 1:
            return rest[1 : brace.start()]
        else:
            depth -= 1
    return rest[1:]


def predict(completion: str, gold: str, benchmark: str | None = None) -> str | None:
    """Return the text that the script compares with a gold."""
    if not completion:
        return None
    answer = extract(completion, benchmark)
    if _CHOICES.fullmatch(gold) is None:
        return answer
    if len(gold) > 1:
        return "".join(character for character in answer if character in "ABCDE")
    return answer if answer in set("ABCDE") else _chosen_letter(completion)


def _chosen_letter(completion: str) -> str:
    statements = list(_CHOICE_STATEMENT.finditer(completion))
    text = completion[statements[-1].end() :] if statements else completion
    letters = _CHOICE.findall(text.upper())
    if letters:
        return letters[0 if statements else -1]
    return text.strip().strip(".").removesuffix("/")
