"""What EvalPlus publishes about HumanEval+ and MBPP+: its release files, MBPP's argument types, its special rules.

Source: EvalPlus 0.3.1 (Liu et al. 2023, arXiv 2305.01210). Its package is not needed.
"""

import gzip
import math
import os
from collections.abc import Callable
from http.client import HTTPException
from itertools import chain, repeat, zip_longest
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from zlib import error as ZlibError

from ....support.errors import UserError
from ....support.files import write_text

Convert = Callable[[Any], Any]
# Set -> name and version of the release.
RELEASES = {"humaneval": ("HumanEvalPlus", "v0.1.10"), "mbpp": ("MbppPlus", "v0.2.0")}
DOWNLOAD_SECONDS = 60.0


def release_file(dataset: str) -> Path:
    """
    The release file, found where EvalPlus looks for it: HUMANEVAL_OVERRIDE_PATH or MBPP_OVERRIDE_PATH, the cache, and
    GitHub, from where it is downloaded into the cache.

    Args:
        dataset (`str`): `"humaneval"` or `"mbpp"`.

    Raises:
        UserError: if it cannot be downloaded.
    """
    override = os.environ.get(f"{dataset.upper()}_OVERRIDE_PATH")
    if override:
        return Path(override)
    name, version = RELEASES[dataset]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "evalplus"
    file = cache / f"{name}-{version}.jsonl"
    if not file.is_file():
        url = f"https://github.com/evalplus/{name.lower()}_release/releases/download/{version}/{name}.jsonl.gz"
        try:
            with urlopen(url, timeout=DOWNLOAD_SECONDS) as response:
                text = gzip.decompress(response.read()).decode("utf-8")
            cache.mkdir(parents=True, exist_ok=True)
            write_text(file, text)
        except (OSError, HTTPException, EOFError, ZlibError, UnicodeDecodeError) as error:
            raise UserError(
                f"{url} could not be downloaded to {cache} ({error}): check the network, or give the folder that "
                "holds code/ with `--data_dir`."
            ) from None
    return file


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
    """
    Lists of arguments with the types that the function takes.

    Args:
        task_id (`str`): `"Mbpp/2"`.
        inputs (`list[list]`): As JSON has them.
    """
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
