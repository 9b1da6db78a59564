"""Reads problems from local JSON, JSONL and parquet files and from data sets of the Hub, dropping none."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..support.errors import UserError, first_line, hub_errors, kind, nearest
from ..support.hub import DATA_SUFFIXES, is_local
from .arguments import ScriptArguments

PROMPT_COLUMNS = ("prompt", "question", "problem")
SOLUTION_COLUMNS = ("solution", "final_answer", "answer")


@dataclass(frozen=True)
class Rows:
    """A data set before the draw: the question and gold of each row, as in the source."""

    source: str
    prompts: Sequence[Any]
    golds: Sequence[Any]


def local_files(name: str) -> list[Path]:
    """The data files of a local `dataset_name`, sorted."""
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
    return files


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


def _read_json(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a JSON array, or of a file with one JSON object per line."""
    with file.open(encoding="utf-8") as stream:
        start = stream.read(1)
        while start.isspace():
            start = stream.read(1)
        stream.seek(0)
        numbered = enumerate(json.load(stream)) if start == "[" else _read_lines(stream)
        for number, row in numbered:
            if not isinstance(row, dict):
                raise UserError(
                    f"{file}: row {number} is a {kind(row)}: expected an object with a question and an answer."
                )
            yield row


def _read_lines(stream: Any) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(stream):
        if line.strip():
            yield number, json.loads(line)


def _read_local(script: ScriptArguments, name: str) -> Rows:
    files = local_files(name)
    if files[0].suffix == ".parquet":
        return _read_parquet(script, name, files)
    prompts: list[Any] = []
    golds: list[Any] = []
    columns: tuple[str, str] | None = None
    for file in files:
        try:
            for row in _read_json(file):
                columns = columns or find_columns(list(row), script, name)
                prompts.append(row.get(columns[0]))
                golds.append(row.get(columns[1]))
        except OSError as error:
            raise UserError(f"{file}: cannot be read ({error.strerror}).") from None
        except UserError:
            raise
        except (ValueError, RecursionError) as error:  # not JSON or UTF-8, or beyond Python's limits
            raise UserError(f"{file}: not valid JSON ({error}).") from None
    return Rows(name, prompts, golds)


def _read_parquet(script: ScriptArguments, name: str, files: list[Path]) -> Rows:
    import pyarrow
    from pyarrow import parquet

    for file in files:
        try:
            parquet.ParquetFile(file).close()
        except (pyarrow.ArrowException, OSError) as error:
            raise UserError(f"{file}: not a parquet file ({first_line(error)}).") from None
    from datasets import Dataset

    return _rows_of(Dataset.from_parquet([str(file) for file in files]), script, name)


def _rows_of(dataset: Any, script: ScriptArguments, source: str) -> Rows:
    prompt_column, solution_column = find_columns(dataset.column_names, script, source)
    return Rows(source, dataset[prompt_column], list(dataset[solution_column]))


def _read_hub(script: ScriptArguments, name: str, split: str) -> Rows:
    from datasets import load_dataset
    from datasets.exceptions import DatasetNotFoundError

    try:
        dataset = load_dataset(name, script.dataset_config, split=split)
    except (DatasetNotFoundError, *hub_errors(), ValueError, RuntimeError) as error:
        raise UserError(
            f"The data set {name!r} (split {split!r}) could not be loaded from the Hub ({first_line(error)}): check "
            "the name and the network, or give a folder of its .parquet files as `dataset_name`."
        ) from None
    return _rows_of(dataset, script, name)


def read_rows(script: ScriptArguments, name: str, split: str) -> Rows:
    """The rows of a local path or a data set of the Hub."""
    rows = _read_local(script, name) if is_local(name) else _read_hub(script, name, split)
    if not len(rows.golds):
        raise UserError(f"{name} has no rows.")
    return rows
