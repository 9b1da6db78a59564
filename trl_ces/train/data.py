"""Training problems as columns `prompt` and `solution`, from the Hub, from local files or from a `dataset_builder`.

The paper trains on 2,500 problems of DeepMath-103K and does not say which. Here rows are drawn in the order of a hash
of seed and row number: the same on every machine, with every library version and any number of processes.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..support.errors import UserError, first_line, hub_errors, kind, nearest
from ..support.hub import DATA_SUFFIXES, is_local
from ..support.imports import call_builder
from ..support.prompts import build_prompt
from .arguments import ScriptArguments

if TYPE_CHECKING:
    from datasets import Dataset

PROMPT_COLUMNS = ("prompt", "question", "problem")
SOLUTION_COLUMNS = ("solution", "final_answer", "answer")
# Names under which TRL passes other things to reward functions, or expects images: such columns are dropped.
RESERVED = {"prompt", "prompts", "completion", "completions", "completion_ids", "trainer_state", "log_extra"}
RESERVED |= {"log_metric", "environments", "image", "images"}
BATCH = 256  # golds graded at a time
DEFAULT_BUILT = 2000  # problems of a `dataset_builder` without `max_train_samples`


@dataclass(frozen=True)
class Rows:
    """A data set before the draw: prompt and gold of each row, and the other columns, which rewards can read."""

    source: str
    prompts: Sequence[Any]
    golds: Sequence[Any]
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Draw:
    """Row numbers in the order of the draw: for training, for evaluation, and dropped without a usable gold."""

    train: list[int]
    eval: list[int]
    dropped: list[int]


def read_rows(script: ScriptArguments, name: str, split: str) -> Rows:
    """Read all rows of a local path or a data set of the Hub."""
    from datasets.exceptions import DatasetGenerationError

    try:
        columns = _read_local(name, split) if is_local(name) else _read_hub(script, name, split)
    except UserError:
        raise
    except (*hub_errors(), DatasetGenerationError, ValueError, RuntimeError) as error:
        raise UserError(
            f"The data set {name!r} (split {split!r}) cannot be read ({first_line(error)}): check its name, "
            "`dataset_config`, split and network; a folder of .parquet files works offline."
        ) from None
    prompt_column, solution_column = find_columns(list(columns), script, name)
    golds = list(columns[solution_column])
    if not golds:
        raise UserError(f"{name} has no rows.")
    others = {column: values for column, values in columns.items() if column not in {prompt_column, *RESERVED}}
    if len({type(gold) for gold in golds if gold is not None}) > 1:  # Arrow has one type per column
        others[solution_column] = [None if gold is None else str(gold) for gold in golds]
    return Rows(name, columns[prompt_column], golds, others)


def _read_hub(script: ScriptArguments, name: str, split: str) -> dict[str, Sequence[Any]]:
    from datasets import load_dataset

    config = script.dataset_config if name == script.dataset_name else script.eval_dataset_config
    dataset = load_dataset(name, config, split=split)
    return {column: dataset[column] for column in dataset.column_names}


def _read_local(name: str, split: str) -> dict[str, Sequence[Any]]:
    from datasets import Dataset

    path = Path(name).expanduser()
    if not path.exists():
        raise UserError(f"The data file {name} does not exist (searched from {Path.cwd()}): check `dataset_name`.")
    files = sorted(file for file in path.iterdir() if file.suffix in DATA_SUFFIXES) if path.is_dir() else [path]
    suffixes = {file.suffix for file in files}
    if len(suffixes) != 1 or not suffixes <= set(DATA_SUFFIXES):
        raise UserError(f"{name} is neither a file nor a folder of files of one kind: {', '.join(DATA_SUFFIXES)}.")
    files = [file for file in files if split in re.split(r"[\W_]+", file.stem)] or files
    if suffixes == {".parquet"}:
        dataset = Dataset.from_parquet([str(file) for file in files])
        return {column: dataset[column] for column in dataset.column_names}
    rows = [row for file in files for row in _read_json(file)]
    return {column: [row.get(column) for row in rows] for column in dict.fromkeys(key for row in rows for key in row)}


def _read_json(file: Path) -> list[dict[str, Any]]:
    """Read the rows of a JSON array, or of a file with one JSON object per line."""
    text = file.read_text(encoding="utf-8")
    is_array = text.lstrip().startswith("[")
    rows = json.loads(text) if is_array else [json.loads(line) for line in text.split("\n") if line.strip()]
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise UserError(f"{file}: row {number} is a {kind(row)}: expected an object of question and answer.")
    return rows


def find_columns(columns: Sequence[str], script: ScriptArguments, source: str) -> tuple[str, str]:
    """Return the columns of question and gold."""
    found = []
    for name, known in (("prompt_column", PROMPT_COLUMNS), ("solution_column", SOLUTION_COLUMNS)):
        wanted = getattr(script, name)
        candidates = [column for column in columns if (column in known if wanted is None else column == wanted)]
        if len(candidates) != 1:
            hint = nearest(wanted, columns) if wanted else f" Set `{name}`."
            raise UserError(
                f"The columns of {source} are {', '.join(columns)}: {len(candidates)} of them fit `{name}` "
                f"({wanted or ', '.join(known)}).{hint}"
            )
        found.append(candidates[0])
    return found[0], found[1]


def clean_gold(gold: Any, pattern: str | None, where: str) -> str | None:
    """Return the gold answer as text, `None` if the row has none."""
    if gold is None:
        return None
    if isinstance(gold, bool) or not isinstance(gold, str | int | float):
        raise UserError(f"{where}: the gold is a {kind(gold)} ({gold!r}): set `solution_column` to text or numbers.")
    text = str(gold).strip()
    if pattern is not None:
        matches = list(re.finditer(pattern, text))
        text = (matches[-1].group(1) or "").strip() if matches else ""
    return text or None


def make_prompt(question: Any, system_prompt: str | None, where: str) -> list[dict[str, str]]:
    """Return the chat messages of a question; given messages keep all but their system message."""
    if isinstance(question, str) and question.strip():
        return build_prompt(question, system_prompt)
    is_chat = isinstance(question, list) and all(
        isinstance(m, dict) and {"role", "content"} <= set(m) for m in question
    )
    if not is_chat or not question:
        raise UserError(f"{where}: the question is {question!r}: expected text or chat messages; set `prompt_column`.")
    messages = [{"role": message["role"], "content": message["content"]} for message in question]
    if messages[-1]["role"] == "assistant":  # TRL would continue it
        raise UserError(f"{where}: the chat messages end with the assistant's: end them with the question.")
    if not system_prompt:
        return messages
    rest = messages[1:] if messages[0]["role"] == "system" else messages
    return [{"role": "system", "content": system_prompt}, *rest]


def shuffled(number_of_rows: int, seed: int) -> list[int]:
    """Return row numbers in the order of the draw, sorted by SHA-256 of seed and number."""
    return sorted(range(number_of_rows), key=lambda row: hashlib.sha256(f"{seed}:{row}".encode()).digest())


def draw_rows(
    rows: Rows, script: ScriptArguments, eval_count: int, are_usable: Callable[[list[str]], list[bool]]
) -> Draw:
    """Draw shuffled rows with a usable gold: first those for training, then those for evaluation."""
    order = shuffled(len(rows.golds), script.dataset_seed)
    wanted = None if script.max_train_samples is None else script.max_train_samples + eval_count
    kept: list[int] = []
    dropped: list[int] = []
    for start in range(0, len(order), BATCH):
        part = order[start : start + BATCH]
        golds = {
            row: clean_gold(rows.golds[row], script.solution_pattern, f"{rows.source}, row {row}") for row in part
        }
        present = {row: gold for row, gold in golds.items() if gold is not None}
        usable = dict(zip(present, are_usable(list(present.values())), strict=True)) if present else {}
        for row in part:
            if wanted is None or len(kept) < wanted:
                (kept if usable.get(row, False) else dropped).append(row)
        if wanted is not None and len(kept) == wanted:
            break
    needed = wanted if wanted is not None else eval_count + 1
    if len(kept) < needed:
        raise UserError(
            f"{rows.source} has {len(kept)} rows with a usable gold (of {len(order)}), fewer than {needed}: "
            "lower `max_train_samples` or `num_eval_samples`, or check `solution_column` and `solution_pattern`."
        )
    split_at = len(kept) - eval_count
    return Draw(kept[:split_at], kept[split_at:], dropped)


def make_dataset(rows: Rows, numbers: list[int], script: ScriptArguments) -> "Dataset":
    """Return rows as `prompt` (chat messages), `solution`, `row` (number in the source) and their other columns."""
    from datasets import Dataset

    records = []
    for row in numbers:
        where = f"{rows.source}, row {row}"
        gold = clean_gold(rows.golds[row], script.solution_pattern, where)
        prompt = make_prompt(rows.prompts[row], script.system_prompt, where)
        others = {name: column[row] for name, column in rows.columns.items()}
        records.append(others | {"prompt": prompt, "solution": gold, "row": row})
    return Dataset.from_list(records)


def check_source(script: ScriptArguments) -> None:
    """Check local data and a `dataset_builder` as the training will read them, except for grading the golds."""
    if script.dataset_builder is None and not is_local(str(script.dataset_name)):
        return
    if script.eval_dataset_name is not None and not is_local(script.eval_dataset_name):
        script = replace(script, eval_dataset_name=None, num_eval_samples=None)
    _load(script, lambda rows, script, count: draw_rows(rows, script, count, lambda golds: [True] * len(golds)))


def load_datasets(script: ScriptArguments, say: Callable[[str], None] = print) -> tuple["Dataset", "Dataset | None"]:
    """Return the training and evaluation problems of a recipe, the same on every process.

    The main process decides which golds are usable and broadcasts it: grading has a time limit, so processes could
    disagree and train on different rows.
    """
    return _load(script, lambda rows, script, count: _draw_once(rows, script, count, say))


def _load(
    script: ScriptArguments, draw: Callable[[Rows, ScriptArguments, int], Draw]
) -> tuple["Dataset", "Dataset | None"]:
    if script.dataset_builder is not None:
        counts = (script.max_train_samples or DEFAULT_BUILT, script.num_eval_samples or 0)
        settings = script.dataset_kwargs or {}
        built = call_builder(
            "dataset_builder", script.dataset_builder, *counts, script.dataset_seed, script.system_prompt, **settings
        )
        if not isinstance(built, tuple) or len(built) != 2:
            raise UserError(
                f"`dataset_builder` {script.dataset_builder} returned {kind(built)}: return two data sets."
            )
        return built
    rows = read_rows(script, str(script.dataset_name), script.dataset_split)
    drawn = draw(rows, script, 0 if script.eval_dataset_name else script.num_eval_samples or 0)
    train = make_dataset(rows, drawn.train, script)
    if script.eval_dataset_name is None:
        return train, make_dataset(rows, drawn.eval, script) if drawn.eval else None
    rows = read_rows(script, script.eval_dataset_name, script.eval_dataset_split)
    script = replace(script, max_train_samples=script.num_eval_samples)
    return train, make_dataset(rows, draw(rows, script, 0).train, script)


def _draw_once(rows: Rows, script: ScriptArguments, eval_count: int, say: Callable[[str], None]) -> Draw:
    """Draw on the main process and broadcast the result."""
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    state, message = PartialState(), list[Any]([None])
    if state.is_main_process:
        try:
            message = [draw_rows(rows, script, eval_count, _usable_golds(script))]
        except UserError as error:
            message = [error]
    broadcast_object_list(message)
    [draw] = message
    if isinstance(draw, UserError):
        raise draw
    if state.is_main_process:
        say(f"{rows.source}: {len(draw.train)} rows to train on, {len(draw.eval)} held back, of {len(rows.golds)}.")
        if draw.dropped:
            listed = ", ".join(map(str, draw.dropped[:20])) + (", ..." if len(draw.dropped) > 20 else "")
            say(f"{rows.source}: dropped {len(draw.dropped)} rows without a usable gold: {listed}.")
    return draw


def _usable_golds(script: ScriptArguments) -> Callable[[list[str]], list[bool]]:
    """Return what decides whether golds are usable: our grader if it grades against them, else nothing."""
    if not {"accuracy_reward", "boxed_accuracy_reward"} & set(script.reward_funcs):
        return lambda golds: [True] * len(golds)
    from ..grading.judge import usable_golds

    return usable_golds
