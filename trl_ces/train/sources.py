"""Reads problems from local JSON, JSONL and parquet files and from data sets of the Hub, dropping none."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..support.errors import UserError, first_line, hub_errors, kind, nearest
from ..support.hub import DATA_SUFFIXES, is_local
from .arguments import ScriptArguments

PROMPT_COLUMNS = ("prompt", "question", "problem")
SOLUTION_COLUMNS = ("solution", "final_answer", "answer")
# What TRL gives reward functions, and takes for pictures, by these names: such columns stay out.
TRLS = {"prompt", "prompts", "completion", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric"}
TRLS |= {"environments", "image", "images"}


@dataclass(frozen=True)
class Rows:
    """A data set before the draw: each row's question and gold, and the columns for rewards, as in the source."""

    source: str
    prompts: Sequence[Any]
    golds: Sequence[Any]
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def local_files(name: str, split: str) -> list[Path]:
    """The data files of a local `dataset_name`, sorted; of a folder those named after the split, if any are."""
    path = Path(name).expanduser()
    if not path.exists():
        raise UserError(f"The data file {name} does not exist (searched from {Path.cwd()}): check `dataset_name`.")
    if path.is_file():
        if path.suffix not in DATA_SUFFIXES:
            raise UserError(f"The data file {name} has an unknown suffix: expected one of {', '.join(DATA_SUFFIXES)}.")
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in DATA_SUFFIXES)
    kinds = {file.suffix for file in files}
    if len(kinds) != 1:
        found = f"files of several kinds ({', '.join(sorted(kinds))})" if kinds else "no data file"
        raise UserError(
            f"The folder {name} has {found}: name one file, or a folder of one of {', '.join(DATA_SUFFIXES)}."
        )
    return [file for file in files if split in re.split(r"[\W_]+", file.stem)] or files


def find_columns(columns: Sequence[str], script: ScriptArguments, source: str) -> tuple[str, str]:
    """The columns of question and gold."""
    found = []
    for name, known in (("prompt_column", PROMPT_COLUMNS), ("solution_column", SOLUTION_COLUMNS)):
        wanted = getattr(script, name)
        candidates = [column for column in known if column in columns] if wanted is None else [wanted]
        there = f"The columns of {source} are {', '.join(columns)}"
        if wanted is not None and wanted not in columns:
            raise UserError(f"{there}: `{name}` {wanted!r} is not among them.{nearest(wanted, columns)}")
        if len(candidates) != 1:
            problem = f"{' and '.join(candidates)} could both serve" if candidates else f"none is {', '.join(known)}"
            raise UserError(f"{there}: {problem}. Set `{name}`.")
        found.append(candidates[0])
    return found[0], found[1]


def _read_json(file: Path) -> list[dict[str, Any]]:
    """The rows of a JSON array, or of a file with one JSON object per line."""
    try:
        text = file.read_text(encoding="utf-8")
        lines = [f"[{line}]" for line in text.split("\n") if line.strip()]  # in one array an error has its line
        is_array = text.lstrip().startswith("[")
        rows = json.loads(text) if is_array else [row for [row] in json.loads("[" + ",\n".join(lines) + "]")]
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:  # not JSON or UTF-8, or beyond Python's limits
        raise UserError(f"{file}: not valid JSON ({error}).") from None
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise UserError(f"{file}: row {number} is a {kind(row)}: expected an object of question and answer.")
    return rows


def _read_local(script: ScriptArguments, name: str, split: str) -> Rows:
    files = local_files(name, split)
    if files[0].suffix == ".parquet":
        return _read_parquet(script, name, files)
    rows = [row for file in files for row in _read_json(file)]
    if not rows:
        return Rows(name, [], [])
    names = list(dict.fromkeys(column for row in rows for column in row))
    return _rows(name, {column: [row.get(column) for row in rows] for column in names}, script)


def _read_parquet(script: ScriptArguments, name: str, files: list[Path]) -> Rows:
    import pyarrow
    from datasets import Dataset
    from datasets.exceptions import DatasetGenerationError
    from pyarrow import parquet

    for file in files:
        try:
            parquet.ParquetFile(file).close()
        except (pyarrow.ArrowException, OSError) as error:
            raise UserError(f"{file}: not a parquet file ({first_line(error)}).") from None
    try:
        return _rows_of(Dataset.from_parquet([str(file) for file in files]), script, name)
    except DatasetGenerationError:
        raise UserError(f"{name}: its files differ in their columns: name one file, or give all the same.") from None


def _rows_of(dataset: Any, script: ScriptArguments, source: str) -> Rows:
    return _rows(source, {column: dataset[column] for column in dataset.column_names}, script)


def _rows(source: str, columns: Mapping[str, Sequence[Any]], script: ScriptArguments) -> Rows:
    import pyarrow

    prompt_column, solution_column = find_columns(list(columns), script, source)
    golds = list(columns[solution_column])
    others = {name: values for name, values in columns.items() if name not in {prompt_column, *TRLS}}
    try:
        pyarrow.array(golds)
    except (pyarrow.ArrowException, OverflowError):  # numbers and text, or a number of more than 64 bits
        others[solution_column] = [None if gold is None else str(gold) for gold in golds]
    return Rows(source, columns[prompt_column], golds, others)


def _read_hub(script: ScriptArguments, name: str, split: str) -> Rows:
    from datasets import load_dataset
    from datasets.exceptions import DatasetNotFoundError

    try:
        own = script.dataset_config if name == script.dataset_name else script.eval_dataset_config
        dataset = load_dataset(name, own, split=split)
    except (DatasetNotFoundError, *hub_errors(), ValueError, RuntimeError) as error:
        raise UserError(
            f"The data set {name!r} (split {split!r}) could not be loaded from the Hub ({first_line(error)}): check "
            "name, `dataset_config` or `eval_dataset_config`, and network, or give a folder of its .parquet files."
        ) from None
    return _rows_of(dataset, script, name)


def read_rows(script: ScriptArguments, name: str, split: str) -> Rows:
    """The rows of a local path or a data set of the Hub."""
    rows = _read_local(script, name, split) if is_local(name) else _read_hub(script, name, split)
    if not len(rows.golds):
        raise UserError(f"{name} has no rows.")
    return rows
