"""Questions and tests of HumanEval+ and MBPP+.

MBPP's argument types and special rules follow EvalPlus 0.3.1 (Liu et al. 2023, arXiv 2305.01210). The `evalplus`
package is not required.
"""

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from itertools import zip_longest
from typing import Any

from .inside import encode

Row = dict[str, Any]
INSTRUCTION = (
    "Write a Python function that solves the following problem. Give a self-contained program, with all imports and "
    "helper functions, in one ```python block; it is tested by calling that function."
)


@dataclass(frozen=True)
class CodeTask:
    """Tests for the programs of one problem."""

    entry_point: str  # name of the function to call
    reference: str  # reference solution; its outputs are the expected outputs
    groups: tuple[str, ...]  # encoded lists of argument lists: the base inputs, then EvalPlus' additional inputs
    atol: float  # absolute tolerance for numbers; 0: use 1e-6 for floats and compare other values exactly
    convert: str | None = None  # `"set"`: compare outputs as sets; `"not_none"`: compare only whether they are `None`
    rule: str = "equal"  # or `"root"`: the output must be a root of the input polynomial
    accepted: tuple[str, ...] | None = None  # encoded alternative outputs, one string per group

    @property
    def digest(self) -> str:
        """Hash of all fields, as 16 hexadecimal digits."""
        return hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()[:16]

    def base(self) -> "CodeTask":
        """Return the task with only the base inputs."""
        return replace(self, groups=self.groups[:1], accepted=None if self.accepted is None else self.accepted[:1])


def read_code(row: Row) -> tuple[str, str]:
    """Return the question, and the function's name as the reference answer."""
    return f"{INSTRUCTION}\n\n```python\n{row['prompt'].strip()}\n```", row["entry_point"]


def read_task(dataset: str, row: Row) -> CodeTask:
    """Read the tests from a row of EvalPlus' release file; `dataset` is `"humaneval"` or `"mbpp"`."""
    name = row["entry_point"]
    groups = [list(row["base_input"]), list(row["plus_input"])]
    convert, rule, accepted = None, "equal", None
    if dataset == "mbpp":
        groups = [mbpp_inputs(row["task_id"], group) for group in groups]
        convert = "set" if name in COMPARED_AS_SETS else "not_none" if name in COMPARED_WITH_NONE else None
        if name in ALTERNATIVE_OUTPUTS:
            outputs = [[ALTERNATIVE_OUTPUTS[name](*arguments) for arguments in group] for group in groups]
            accepted = tuple(json.dumps(encode(group)) for group in outputs)
    elif name == "find_zero":
        rule = "root"
    encoded = tuple(json.dumps(encode(group)) for group in groups)
    return CodeTask(name, row["prompt"] + row["canonical_solution"], encoded, row["atol"], convert, rule, accepted)


def _nested_tuple(value: Any) -> Any:
    return tuple(map(_nested_tuple, value)) if isinstance(value, list) else value


# JSON contains lists where MBPP functions take other types. Each task has one converter per argument; the last
# converter also applies to all remaining arguments.
_CONVERT: dict[str, Callable[[Any], Any]] = {
    "keep": lambda value: value,
    "tuple": tuple,
    "list of tuples": lambda value: list(map(tuple, value)),
    "tuple of tuples": lambda value: tuple(tuple(item) if isinstance(item, list) else item for item in value),
    "nested tuple": _nested_tuple,
    "tuple values": lambda value: {key: tuple(item) for key, item in value.items()},
    "float": float,
    "complex": complex,
}
_ARGUMENTS = {
    "tuple": "2 116 132 222 261 273 394 421 424 429 470 560 579 596 616 630 726 740 744 809",
    "tuple, keep": "250 405 446 720 763 808",
    "keep, tuple": "106 750",
    "list of tuples": "63 64 70 94 120 237 272 299 409 473 614 780",
    "list of tuples, keep": "75 413 753",
    "tuple of tuples": "259 278 445",
    "nested tuple": "580 615 791",
    "float, complex": "124",
    "complex": "252",
    "tuple values, keep": "722",
}
_CONVERTERS = {
    int(number): [_CONVERT[name] for name in names.split(", ")]
    for names, numbers in _ARGUMENTS.items()
    for number in numbers.split()
}


def mbpp_inputs(task_id: str, inputs: list[list[Any]]) -> list[Any]:
    """Convert argument lists from JSON to the types that the function takes; `task_id` has the form `"Mbpp/2"`."""
    converters = _CONVERTERS.get(int(task_id.rpartition("/")[2]), [_CONVERT["keep"]])
    last = len(converters) - 1
    return [
        [converters[min(index, last)](argument) for index, argument in enumerate(arguments)] for arguments in inputs
    ]


def _surface_area(base: float, height: float) -> int:
    """Compute the surface area of a square pyramid from its height; the reference uses the slant height."""
    return round(base**2 + 2 * base * math.sqrt((base / 2) ** 2 + height**2))


def _digit_distance(first: int, second: int) -> int:
    """Sum the differences of digits with the same place value; the reference subtracts the numbers first."""
    pairs = zip_longest(reversed(str(first)), reversed(str(second)), fillvalue="0")
    return sum(abs(int(first_digit) - int(second_digit)) for first_digit, second_digit in pairs)


# MBPP functions whose problem statements allow several outputs.
COMPARED_AS_SETS = {
    *("similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly"),
    *("larg_nnum", "find_dissimilar", "Diff"),
}
COMPARED_WITH_NONE = ("check_str", "text_match_three", "text_starta_endb")
# Alternative outputs that are accepted in addition to the reference output.
ALTERNATIVE_OUTPUTS: dict[str, Callable[..., int]] = {
    "surface_Area": _surface_area,
    "digit_distance_nums": _digit_distance,
}
