"""Find, read and count the problems of benchmarks."""

import gzip
import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...support.errors import UserError, first_line, hub_errors, nearest
from .benchmarks import BENCHMARKS, GROUPS, Benchmark, Reader
from .code.tasks import CodeTask, read_task


@dataclass(frozen=True)
class Problem:
    """One question of a benchmark. `id`: row number in the source, from 0. `code`: how programs are tested."""

    benchmark: str
    id: int
    question: str
    gold: str
    code: CodeTask | None = None


def find_benchmarks(names: Sequence[str]) -> list[str]:
    """Resolve names and groups (`math12`, ...) to benchmarks, without repetition, in the order given."""
    found: dict[str, None] = {}
    for name in names:
        if name not in BENCHMARKS and name not in GROUPS:
            hint = nearest(name, [*BENCHMARKS, *GROUPS])
            known = f"groups: {', '.join(GROUPS)}; sets: {', '.join(BENCHMARKS)}"
            raise UserError(f"`benchmarks`: there is no {name!r}.{hint} There are {known}.")
        found |= dict.fromkeys(GROUPS.get(name, [name]))
    if not found:
        raise UserError(f"`benchmarks` is empty: name one, or one of the groups {', '.join(GROUPS)}.")
    return list(found)


def load_benchmark(name: str, data_dir: str | Path | None = None) -> list[Problem]:
    """Read a set's problems from `data_dir`, or from the Hub; refuse an unreadable row or another number of rows."""
    benchmark = BENCHMARKS[name]
    source, rows, read = _from_hub(benchmark) if data_dir is None else _from_folder(benchmark, Path(data_dir))
    if len(rows) != benchmark.count:
        raise UserError(
            f"{name}: {source} has {len(rows)} rows, and {benchmark.count} are expected: another version of the set "
            "would give numbers that cannot be compared. Get the complete file."
        )
    problems = []
    for number, row in enumerate(rows):
        try:
            question, gold = read(row)
            task = read_task(benchmark.dataset, row) if benchmark.kind == "code" else None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise UserError(f"{name}: row {number} of {source} cannot be read ({error!r}).") from None
        if not question.strip() or (not gold.strip() and number not in benchmark.without_gold):
            raise UserError(f"{name}: row {number} of {source} has an empty question or gold.")
        if task is not None and benchmark.base is None:
            task = task.base()
        problems.append(Problem(name, number, question, gold, task))
    return problems


def choose(problems: list[Problem], max_problems: int | None) -> list[Problem]:
    """Select at most `max_problems`, evenly spaced because some files are sorted by difficulty."""
    if max_problems is None or max_problems >= len(problems):
        return problems
    return [problems[place * len(problems) // max_problems] for place in range(max_problems)]


def data_digest(problems: Sequence[Problem]) -> str:
    """16 hexadecimal digits that change with any question, gold, row number or test of a program."""
    text = json.dumps([[p.id, p.question, p.gold, *([p.code.digest] if p.code else [])] for p in problems])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _from_folder(benchmark: Benchmark, data_dir: Path) -> tuple[str, list[Any], Reader]:
    """The rows of a JSON or JSON-lines file, which may be gzipped."""
    file = data_dir.expanduser() / benchmark.file
    if not file.is_file():
        hint = f"; without it the set is read from the Hub ({benchmark.hub.repository})" if benchmark.hub else ""
        raise UserError(
            f"{benchmark.name}: {file} does not exist. `--data_dir` names the folder with {benchmark.file}{hint}."
        )
    try:
        content = file.read_bytes()
        text = (gzip.decompress(content) if file.suffix == ".gz" else content).decode("utf-8")
        # Not splitlines, which also splits at U+2028, and a question may hold one.
        lines = [text] if file.suffix == ".json" else filter(str.strip, text.split("\n"))
        rows = [json.loads(line) for line in lines]
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise UserError(f"{benchmark.name}: {file} cannot be read ({error}).") from None
    return str(file), rows[0] if file.suffix == ".json" else rows, benchmark.read


def _from_hub(benchmark: Benchmark) -> tuple[str, list[Any], Reader]:
    place = f"give the folder that holds {benchmark.file} with `--data_dir`"
    hub = benchmark.hub
    if hub is None:
        published = f" EvalPlus publishes it: {benchmark.url}" if benchmark.url else ""
        raise UserError(f"{benchmark.name}: this set is not read from the Hub: {place}.{published}")
    from datasets import load_dataset
    from datasets.exceptions import DatasetNotFoundError

    try:
        rows = list(load_dataset(hub.repository, hub.configuration, split=hub.split))
    except (DatasetNotFoundError, *hub_errors(), ValueError, RuntimeError) as error:
        raise UserError(
            f"{benchmark.name}: {hub.repository} could not be loaded from the Hub ({first_line(error)}): check the "
            f"network, or {place}."
        ) from None
    return f"{hub.repository} ({hub.split})", rows, hub.read
