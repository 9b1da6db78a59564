"""What EvalPlus says of HumanEval+ and MBPP+ beside its files: MBPP's argument types and special rules.

Source: EvalPlus 0.3.1 (Liu et al. 2023, arXiv 2305.01210). Its package is not needed.
"""

import math
from collections.abc import Callable
from itertools import chain, repeat, zip_longest
from typing import Any

Convert = Callable[[Any], Any]


def _keep(value: Any) -> Any:
    return value


def _list_of(convert: Convert) -> Convert:
    return lambda items: [convert(item) for item in items]


def _nested_tuple(value: Any) -> Any:
    return tuple(map(_nested_tuple, value)) if isinstance(value, list) else value


def _tuple_of_tuples(value: list[Any]) -> tuple[Any, ...]:
    return tuple(tuple(item) if isinstance(item, list) else item for item in value)


def _tuple_values(value: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(item) for key, item in value.items()}


def _set_or_empty_dict(value: list[Any]) -> Any:
    return set(value) or {}  # EvalPlus writes {} for an empty set


# JSON holds lists where MBPP's functions take other types: a converter for each argument, the last for all that
# follow, and the numbers of the tasks.
_ARGUMENTS: list[tuple[tuple[Convert, ...], str]] = [
    ((tuple,), "2 116 132 143 222 261 273 394 399 421 424 429 470 560 579 596 616 630 726 740 744 809"),
    ((tuple, _keep), "250 307 405 446 617 720 763 808"),
    ((_keep, tuple), "106 750"),
    ((_list_of(tuple),), "63 64 70 94 120 237 272 299 400 409 417 438 473 614 780"),
    ((_list_of(tuple), _keep), "75 413 444 753"),
    ((_tuple_of_tuples,), "259 278 401 445"),
    ((_nested_tuple,), "580 615 791"),
    ((_list_of(_set_or_empty_dict),), "115"),
    ((float, complex), "124"),
    ((complex,), "252"),
    ((_tuple_values, _keep), "722"),
]
_CONVERTERS = {int(number): converters for converters, numbers in _ARGUMENTS for number in numbers.split()}
# Tasks whose list of arguments EvalPlus makes a tuple: the same call, but another digest of the data.
_TUPLES_OF_ARGUMENTS = {124, 580, 615, 791}


def mbpp_inputs(task_id: str, inputs: list[list[Any]]) -> list[Any]:
    """Lists of arguments, from JSON, with the types that the function takes; `task_id` is such as `"Mbpp/2"`."""
    number = int(task_id.rpartition("/")[2])
    converters = _CONVERTERS.get(number, (_keep,))
    whole = tuple if number in _TUPLES_OF_ARGUMENTS else list
    forever = [chain(converters, repeat(converters[-1])) for _ in inputs]
    return [
        whole(convert(argument) for convert, argument in zip(every, arguments, strict=False))
        for every, arguments in zip(forever, inputs, strict=True)
    ]


def _surface_area(base: float, height: float) -> int:
    """Of a square pyramid, from its height; the reference takes the slant height."""
    return round(base**2 + 2 * base * math.sqrt((base / 2) ** 2 + height**2))


def _digit_distance(one: int, other: int) -> int:
    """Sum of the digits' distances, units under units; the reference subtracts the numbers first."""
    pairs = zip_longest(reversed(str(one)), reversed(str(other)), fillvalue="0")
    return sum(abs(int(digit) - int(beside)) for digit, beside in pairs)


# Functions of MBPP whose wording allows several outputs.
COMPARED_AS_SETS = {
    *("similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly"),
    *("larg_nnum", "intersection_array", "find_dissimilar", "Diff"),
}
ANY_BUT_NONE = {"check_str", "text_match_three", "text_starta_endb"}
ANY_OUTPUT = {"are_equivalent"}
# What is right beside the reference's output.
ALSO_RIGHT: dict[str, Callable[..., int]] = {
    "sum_div": lambda *_: 0,
    "surface_Area": _surface_area,
    "digit_distance_nums": _digit_distance,
}
