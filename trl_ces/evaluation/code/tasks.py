"""The problems of HumanEval+ and MBPP+ as EvalPlus publishes them: what is asked, and how answers are tested."""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

from ...support.errors import UserError
from .worker import encode

Row = dict[str, Any]
INSTRUCTION = (
    "Write a Python function that solves the following problem. Give a self-contained program, with all imports and "
    "helper functions, in one ```python block; it is tested by calling that function."
)
NO_EVALPLUS = 'EvalPlus is not installed: pip install "trl_ces[eval]"'


@dataclass(frozen=True)
class CodeTask:
    """
    How a problem's programs are tested.

    Args:
        entry_point (`str`): The function that is called.
        reference (`str`): A program that is right; its outputs are what is expected.
        groups (`tuple[str, ...]`): Lists of argument lists, encoded: the base inputs, then, if they count, the others.
        atol (`float`): Absolute tolerance for numbers; 0: exact, floats within 1e-6.
        convert (`str`, *optional*): `"set"`: outputs are compared as sets. `"not_none"`: only whether there is one.
        rule (`str`): `"equal"`; `"root"`: the output is a root of the polynomial of the input; `"any"`: it ends well.
        accepted (`tuple[str, ...]`, *optional*): For each group what is right beside the reference's outputs, encoded.
    """

    entry_point: str
    reference: str
    groups: tuple[str, ...]
    atol: float
    convert: str | None = None
    rule: str = "equal"
    accepted: tuple[str, ...] | None = None

    @property
    def digest(self) -> str:
        """Changes with anything that could change a verdict."""
        parts = [self.entry_point, self.reference, self.groups, self.atol, self.convert, self.rule, self.accepted]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def base(self) -> "CodeTask":
        """The same with the base inputs alone."""
        return replace(self, groups=self.groups[:1], accepted=None if self.accepted is None else self.accepted[:1])


def read_code(row: Row) -> tuple[str, str]:
    """Question, and the function's name where other sets have a gold."""
    return f"{INSTRUCTION}\n\n```python\n{row['prompt'].strip()}\n```", row["entry_point"]


def read_task(dataset: str, row: Row) -> CodeTask:
    """
    The tests of a row of `"humaneval"` or `"mbpp"`, with base and further inputs, which `evalplus_rows` or
    `typed_inputs` made what they are in Python.
    """
    name = row["entry_point"]
    groups = [list(row["base_input"]), list(row["plus_input"])]
    convert, rule, accepted = None, "equal", None
    if dataset == "humaneval":
        rule = "root" if name == "find_zero" else rule
    else:
        convert, rule, accepted = _mbpp_rules(name, groups)
    return CodeTask(
        entry_point=name,
        reference=row["prompt"] + row["canonical_solution"],
        groups=tuple(json.dumps(encode(group)) for group in groups),
        atol=row["atol"],
        convert=convert,
        rule=rule,
        accepted=accepted,
    )


def _mbpp_rules(name: str, groups: list[list[Any]]) -> tuple[str | None, str, tuple[str, ...] | None]:
    """The problems that EvalPlus judges in a way of their own, because their wording allows several outputs."""
    from evalplus import eval as rules

    if name in rules.MBPP_OUTPUT_SET_EQ_TASKS:
        return "set", "equal", None
    if name in rules.MBPP_OUTPUT_NOT_NONE_TASKS:
        return "not_none", "equal", None
    if name == "are_equivalent":
        return None, "any", None
    others = {
        "sum_div": lambda *_: 0,
        "surface_Area": rules._surface_Area,
        "digit_distance_nums": rules._digit_distance_nums,
    }
    if name not in others:
        return None, "equal", None
    other = others[name]
    return None, "equal", tuple(json.dumps(encode([other(*arguments) for arguments in group])) for group in groups)


def evalplus_rows(dataset: str) -> list[Row]:
    """
    The rows as EvalPlus gives them: from the file that HUMANEVAL_OVERRIDE_PATH or MBPP_OVERRIDE_PATH names, else from
    its cache, else from its releases on GitHub.

    Raises:
        UserError: if EvalPlus is not installed, or has no data.
    """
    check_evalplus()
    from evalplus import data

    try:
        rows = data.get_human_eval_plus() if dataset == "humaneval" else data.get_mbpp_plus()
    except (OSError, AssertionError, ValueError) as error:
        raise UserError(
            f"EvalPlus could not load its data ({error}): check the network, or give the folder that holds code/ with "
            "`--data_dir`."
        ) from None
    return list(rows.values())


def typed_inputs(dataset: str, row: Row) -> Row:
    """A row of a file: JSON has lists where MBPP's functions take tuples, sets and complex numbers.

    Raises:
        UserError: if that needs EvalPlus, which is not installed.
    """
    if dataset == "humaneval":
        return row
    check_evalplus()
    from evalplus.data.mbpp import mbpp_deserialize_inputs

    made = {kind: mbpp_deserialize_inputs(row["task_id"], row[kind]) for kind in ("base_input", "plus_input")}
    return {**row, **made}


def check_evalplus() -> None:
    """
    Refuses where EvalPlus is not installed.

    Raises:
        UserError: saying how to install it.
    """
    try:
        import evalplus.data
        import evalplus.eval  # noqa: F401
    except ImportError as error:
        raise UserError(f"{NO_EVALPLUS} ({error}).") from None
