"""Problems of HumanEval+ and MBPP+: the question, and how programs are tested."""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

from .evalplus import ALSO_RIGHT, ANY_BUT_NONE, ANY_OUTPUT, COMPARED_AS_SETS, mbpp_inputs
from .inside import encode

Row = dict[str, Any]
INSTRUCTION = (
    "Write a Python function that solves the following problem. Give a self-contained program, with all imports and "
    "helper functions, in one ```python block; it is tested by calling that function."
)


@dataclass(frozen=True)
class CodeTask:
    """How programs for one problem are tested."""

    entry_point: str  # the function to call
    reference: str  # a correct program; its outputs are the expected ones
    groups: tuple[str, ...]  # lists of argument lists, encoded: the base inputs, then EvalPlus' further ones
    atol: float  # absolute tolerance for numbers; 0: exact, floats within 1e-6
    convert: str | None = None  # `"set"`: compare outputs as sets; `"not_none"`: only whether there is one
    rule: str = "equal"  # or `"root"`: the output is a root of the input polynomial; `"any"`: any output
    accepted: tuple[str, ...] | None = None  # for each group, outputs that are right too, encoded

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that change with anything that could change a verdict."""
        parts = [self.entry_point, self.reference, self.groups, self.atol, self.convert, self.rule, self.accepted]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def base(self) -> "CodeTask":
        """The task with the base inputs only."""
        return replace(self, groups=self.groups[:1], accepted=None if self.accepted is None else self.accepted[:1])


def read_code(row: Row) -> tuple[str, str]:
    """Question, and the function's name as the gold."""
    return f"{INSTRUCTION}\n\n```python\n{row['prompt'].strip()}\n```", row["entry_point"]


def read_task(dataset: str, row: Row) -> CodeTask:
    """The task of a row of EvalPlus' release file; `dataset` is `"humaneval"` or `"mbpp"`."""
    name = row["entry_point"]
    groups = [list(row["base_input"]), list(row["plus_input"])]
    convert, rule, accepted = None, "equal", None
    if dataset == "mbpp":
        groups = [mbpp_inputs(row["task_id"], group) for group in groups]
        convert = "set" if name in COMPARED_AS_SETS else "not_none" if name in ANY_BUT_NONE else None
        rule = "any" if name in ANY_OUTPUT else rule
        if name in ALSO_RIGHT:
            outputs = [[ALSO_RIGHT[name](*arguments) for arguments in group] for group in groups]
            accepted = tuple(json.dumps(encode(group)) for group in outputs)
    elif name == "find_zero":
        rule = "root"
    return CodeTask(
        entry_point=name,
        reference=row["prompt"] + row["canonical_solution"],
        groups=tuple(json.dumps(encode(group)) for group in groups),
        atol=row["atol"],
        convert=convert,
        rule=rule,
        accepted=accepted,
    )
