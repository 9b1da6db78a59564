"""Load problems with columns `prompt` and `solution` from the Hub, local files or a `dataset_builder`.

The paper trains on 2,500 problems of DeepMath-103K but does not list them. This module draws rows in the order of a
hash of the seed and the row number, so that the draw does not depend on the machine, library versions or number of
processes.
"""

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..support.errors import UserError, first_line, hub_errors, nearest
from ..support.files import parse_rows
from ..support.hub import DATA_SUFFIXES, is_local
from ..support.imports import call_builder
from ..support.prompts import build_prompt
from .arguments import ScriptArguments

if TYPE_CHECKING:
    from datasets import Dataset

PROMPT_COLUMNS = ("prompt", "question", "problem")
SOLUTION_COLUMNS = ("solution", "final_answer", "answer")
# Columns to rename, because reward functions receive different arguments with these names.
RESERVED = {"prompt", "prompts", "completion", "completions", "completion_ids", "trainer_state", "log_extra"}
RESERVED |= {"log_metric", "environments", "_row"}
SPLITS = {"train", "training", "test", "val", "valid", "validation", "dev", "eval"}  # words in data file names
MEDIA = {"image", "images", "video", "videos", "audio", "audios"}
# Words that other programs use for missing or non-finite numbers.
MISSING = {"none", "null", "nil", "nan", "-nan", "nat", "na", "<na>", "n/a", "#n/a", "#na", "inf", "-inf"}
MAX_QUESTION = 1_000_000  # characters; tokenizing a longer question takes minutes and gigabytes
BATCH = 256  # number of reference answers graded at a time
DEFAULT_BUILDER_SAMPLES = 2000  # number of `dataset_builder` problems if `max_train_samples` is not set
Report = Callable[[str], Any] | None


@dataclass(frozen=True)
class Rows:
    """All rows of a dataset: prompts, reference answers, and the other columns for reward functions."""

    source: str
    prompts: Sequence[Any]
    golds: Sequence[Any]
    columns: Mapping[str, Sequence[Any]]
    note: str | None  # message about renamed columns


def read_rows(script: ScriptArguments, name: str, split: str, config: str | None = None) -> Rows:
    """Read all rows of a local path, or of the configuration `config` of a Hub dataset."""
    from datasets import load_dataset
    from datasets.exceptions import DatasetGenerationError

    try:
        if is_local(name):
            columns = _read_local(Path(name).expanduser(), split)
        else:
            data = load_dataset(name, config, split=split)
            columns = {column: data[column] for column in data.column_names}
    except UserError:
        raise
    except (*hub_errors(), DatasetGenerationError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"The dataset {name!r} (split {split!r}) cannot be read ({first_line(error)}): check the name, "
            "`dataset_config`, the split and the network connection. A folder of .parquet files works offline."
        ) from None
    prompt_column = find_column(list(columns), "prompt_column", script.prompt_column, PROMPT_COLUMNS, name)
    solution_column = find_column(list(columns), "solution_column", script.solution_column, SOLUTION_COLUMNS, name)
    golds = list(columns[solution_column])
    if media := sorted(MEDIA & set(columns)):
        raise UserError(
            f"{name} has the column `{media[0]}`, but recipes support only text: remove or rename the column, or use "
            "`CESTrainer` in a script."
        )
    is_large = any(isinstance(gold, int) and gold.bit_length() > 63 for gold in golds)
    if is_large or len({type(gold) for gold in golds if gold is not None}) > 1:  # Arrow has one type per column
        columns[solution_column] = [None if gold is None else str(gold) for gold in golds]
    reserved = RESERVED if solution_column == "solution" and not script.solution_pattern else RESERVED | {"solution"}
    renamed = {column: f"_{column}" for column in columns if column in reserved and column != prompt_column}
    others = {renamed.get(column, column): values for column, values in columns.items() if column != prompt_column}
    note = f"{name}: reward functions receive the columns {', '.join(renamed)} as {', '.join(renamed.values())}."
    return Rows(name, columns[prompt_column], golds, others, note if renamed else None)


def _read_local(path: Path, split: str) -> dict[str, Sequence[Any]]:
    """Read a file or a folder of files with the same suffix; if file names contain `split`, read only those files."""
    from datasets import Dataset

    if not path.exists():
        raise UserError(f"The data file {path} does not exist (searched from {Path.cwd()}): check `dataset_name`.")
    files = sorted(file for file in path.iterdir() if file.suffix in DATA_SUFFIXES) if path.is_dir() else [path]
    suffixes = {file.suffix for file in files}
    if len(suffixes) != 1 or not suffixes <= set(DATA_SUFFIXES) or not all(map(Path.is_file, files)):  # reject pipes
        raise UserError(f"{path} must be a file or a folder of files of a single type: {', '.join(DATA_SUFFIXES)}.")
    if not re.fullmatch(r"[\w.-]+", split):
        raise UserError(f"{path}: only Hub datasets support slices such as {split!r}; set `num_eval_samples` instead.")
    words = {file: set(re.split(r"[\W_]+", file.stem)) for file in files}
    split_files = [file for file in files if split in words[file]]
    if path.is_dir() and not split_files and any(SPLITS & names for names in words.values()):
        raise UserError(
            f"{path} contains {', '.join(file.name for file in files)}, but no file for the split {split!r}: use a "
            "file instead of the folder, or set `dataset_split` or `eval_dataset_split`."
        )
    files = split_files or files
    if suffixes == {".parquet"}:
        data = cast("Dataset", Dataset.from_parquet([str(file) for file in files]))
        return {column: data[column] for column in data.column_names}
    rows: list[dict[str, Any]] = []  # do not use Arrow, which rejects mixed types and large integers
    for file in files:
        rows += parse_rows(file.read_bytes(), file)
    if not rows:
        raise UserError(f"{path} contains no rows.")
    return {column: [row.get(column) for row in rows] for column in dict.fromkeys(key for row in rows for key in row)}


def find_column(columns: Sequence[str], field: str, name: str | None, known: Sequence[str], source: str) -> str:
    """Return the column that the recipe key `field` specifies, or by default the only column with a `known` name."""
    matches = [column for column in columns if (column in known if name is None else column == name)]
    if len(matches) != 1:
        usual = [column for column in columns if column in known]
        hint = f": set `{field}`."
        if name:
            hint = f".{nearest(name, columns, cutoff=0.8) or nearest(name, usual, cutoff=0) or nearest(name, columns)}"
        raise UserError(
            f"The columns of {source} are {', '.join(columns)}: {len(matches)} of them match `{field}` "
            f"({name or ', '.join(known)}){hint}"
        )
    return matches[0]


def clean_gold(gold: Any, pattern: str | None, location: str) -> str | None:
    """Return the reference answer as text, or `None` if it is missing."""
    if gold is None or (isinstance(gold, float) and not math.isfinite(gold)):
        return None
    if isinstance(gold, bool) or not isinstance(gold, str | int | float):
        raise UserError(f"{location}: reference answer {gold!r:.80} is not text or a number: set `solution_column`.")
    text = str(gold).strip()
    if pattern is not None:
        matches = list(re.finditer(pattern, text))
        text = (matches[-1].group(1) or "").strip() if matches else ""
    return text or None


def make_prompt(
    question: Any, system_prompt: str | None, location: str, template: str | None = None
) -> str | list[dict[str, Any]]:
    """Return a question as text if `template` is set, else as chat messages with `system_prompt` as system message."""
    is_text = isinstance(question, str) and question.strip() != ""
    turns = question if isinstance(question, list) and template is None else []
    if not is_text and (not turns or not all(isinstance(turn, dict) and "role" in turn for turn in turns)):
        expected = "text for `prompt_template`" if template else "text or chat messages"
        raise UserError(f"{location}: the question is {question!r:.80}, not {expected}; set `prompt_column`.")
    messages = build_prompt(question, system_prompt) if is_text else [_message(turn, location) for turn in turns]
    length = sum(len(message["content"]) for message in messages)
    if length > MAX_QUESTION:
        raise UserError(f"{location}: the question has {length:,} characters (limit {MAX_QUESTION:,}); drop the row.")
    if is_text:
        return messages if template is None else template.replace("{question}", question)
    if messages[-1]["role"] == "assistant":  # TRL would continue this message
        raise UserError(f"{location}: the last chat message is from the assistant; it must be the user's question.")
    if not system_prompt:
        return messages
    rest = messages[1:] if messages[0]["role"] == "system" else messages
    return [{"role": "system", "content": system_prompt}, *rest]


def _message(turn: dict[str, Any], location: str) -> dict[str, Any]:
    """Drop null values from a chat message, and join its text parts, because few chat templates accept parts."""
    content = turn.get("content") or ("" if turn.get("tool_calls") else turn.get("content"))
    if isinstance(content, list) and all(isinstance(part, dict) and "text" in part for part in content):
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise UserError(f"{location}: a message's content is {content!r:.80}, not text or a list of text parts.")
    return {**{key: value for key, value in turn.items() if value is not None}, "content": content}


def shuffled(number_of_rows: int, seed: int) -> list[int]:
    """Return the row numbers, sorted by the SHA-256 hash of the seed and the row number."""
    return sorted(range(number_of_rows), key=lambda row: hashlib.sha256(f"{seed}:{row}".encode()).digest())


def draw_rows(rows: Rows, script: ScriptArguments, count: int | None, grade: bool) -> tuple[list[int], list[int]]:
    """Draw `count` rows that have a reference answer (if `grade`, a usable answer); return drawn and dropped rows."""
    from ..grading.judge import usable_golds

    grade = grade and bool({"accuracy_reward", "boxed_accuracy_reward"} & set(script.reward_funcs))
    order = shuffled(len(rows.golds), script.dataset_seed)
    drawn_rows, dropped_rows = list[int](), list[int]()
    for start in range(0, len(order), BATCH):
        golds = {
            row: clean_gold(rows.golds[row], script.solution_pattern, f"{rows.source}, row {row}")
            for row in order[start : start + BATCH]
        }
        texts = {row: gold for row, gold in golds.items() if gold is not None}
        usable = dict(zip(texts, usable_golds(list(texts.values())), strict=True)) if grade and texts else {}
        for row in golds:
            if count is None or len(drawn_rows) < count:
                (drawn_rows if row in texts and usable.get(row, True) else dropped_rows).append(row)
        if len(drawn_rows) == count:
            break
    return drawn_rows, dropped_rows


def check_source(script: ScriptArguments) -> Any:
    """Load local data or call the `dataset_builder` without grading reference answers; return the first prompt."""
    if script.dataset_builder is None and not is_local(str(script.dataset_name)):
        return script.prompt_template or []
    if script.eval_dataset_name is not None and not is_local(script.eval_dataset_name):
        script = replace(script, eval_dataset_name=None, num_eval_samples=None)
    train, _ = load_datasets(script, grade=False)
    return train[0].get("prompt") if len(train) else None


def load_datasets(
    script: ScriptArguments, *, grade: bool = True, report: Report = None
) -> tuple["Dataset", "Dataset | None"]:
    """Return a recipe's training and evaluation problems, identical on all processes; `report` receives messages."""
    if script.dataset_builder is not None:
        counts = (script.max_train_samples or DEFAULT_BUILDER_SAMPLES, script.num_eval_samples or 0)
        settings = script.dataset_kwargs or {}
        train, evaluation = call_builder(
            "dataset_builder", script.dataset_builder, *counts, script.dataset_seed, script.system_prompt, **settings
        )
        return train, evaluation
    num_held_out = 0 if script.eval_dataset_name else script.num_eval_samples or 0
    rows = read_rows(script, str(script.dataset_name), script.dataset_split, script.dataset_config)
    numbers = _draw_once(rows, script, num_held_out, grade, report)
    train_numbers, eval_numbers = numbers[: len(numbers) - num_held_out], numbers[len(numbers) - num_held_out :]
    train = make_dataset(rows, train_numbers, script)
    if script.eval_dataset_name is not None:
        config = script.eval_dataset_config
        if config is None and script.eval_dataset_name == script.dataset_name:
            config = script.dataset_config
        rows = read_rows(script, script.eval_dataset_name, script.eval_dataset_split, config)
        script = replace(script, max_train_samples=script.num_eval_samples)
        eval_numbers = _draw_once(rows, script, 0, grade, report)
    return train, make_dataset(rows, eval_numbers, script) if eval_numbers else None


def _draw_once(rows: Rows, script: ScriptArguments, num_held_out: int, grade: bool, report: Report) -> list[int]:
    """Draw `max_train_samples + num_held_out` rows; only the main process grades, because timeouts may differ."""
    count = None if script.max_train_samples is None else script.max_train_samples + num_held_out
    if grade:
        from accelerate import PartialState
        from accelerate.utils import broadcast_object_list

        state = PartialState()
        drawn = draw_rows(rows, script, count, grade) if state.is_main_process else None
        [(drawn_rows, dropped_rows)] = broadcast_object_list([drawn])
        report = report if state.is_main_process else None
    else:
        drawn_rows, dropped_rows = draw_rows(rows, script, count, grade)
    minimum = count if count is not None else num_held_out + 1
    if len(drawn_rows) < minimum:
        raise UserError(
            f"{rows.source}: {len(drawn_rows)} of {len(rows.golds)} rows have usable reference answers, but the run "
            f"needs {minimum} rows: lower `max_train_samples` or `num_eval_samples`, or check `solution_column` and "
            "`solution_pattern`."
        )
    golds = {row: str(clean_gold(rows.golds[row], script.solution_pattern, rows.source)) for row in drawn_rows}
    missing = [row for row in drawn_rows if golds[row].lower() in MISSING]
    texts = ", ".join(map(repr, sorted({golds[row] for row in missing})))
    if len(missing) == len(drawn_rows):
        raise UserError(
            f"{rows.source}: all reference answers look like missing values ({texts}): set `solution_column`."
        )
    if report:
        counts = (
            f"{len(drawn_rows) - num_held_out} training rows and {num_held_out} evaluation rows of {len(rows.golds)}"
        )
        report(f"{rows.source}: {counts}.")
        if rows.note:
            report(rows.note)
        for numbers, problem in (
            (dropped_rows, f"dropped {len(dropped_rows)} rows (no usable reference answer)"),
            (missing, f"{len(missing)} rows have reference answers that look like missing values ({texts})"),
        ):
            if numbers:
                row_list = ", ".join(map(str, numbers[:20])) + (", ..." if len(numbers) > 20 else "")
                report(f"{rows.source}: {problem}: {row_list}.")
    return drawn_rows


def make_dataset(rows: Rows, numbers: list[int], script: ScriptArguments) -> "Dataset":
    """Return a dataset with `prompt`, `solution`, `_row` (row number in the source) and the other columns."""
    from datasets import Dataset

    records = []
    for row in numbers:
        location = f"{rows.source}, row {row}"
        gold = clean_gold(rows.golds[row], script.solution_pattern, location)
        prompt = make_prompt(rows.prompts[row], script.system_prompt, location, script.prompt_template)
        others = {name: column[row] for name, column in rows.columns.items()}
        records.append(others | {"prompt": prompt, "solution": gold, "_row": row})
    chats = [record["prompt"] for record in records if isinstance(record["prompt"], list)]
    has_keys = any(len(turn) > 2 for chat in chats for turn in chat)
    mixed_types: Any = "use_json" if has_keys else None  # otherwise, Arrow adds each key to all messages
    for name in records[0]:
        try:
            Dataset.from_list([{name: record[name]} for record in records], on_mixed_types=mixed_types)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise UserError(
                f"{rows.source}: the column `{name}` cannot be stored ({first_line(error)}): remove the column, or "
                "convert its values to the same type."
            ) from None
    return Dataset.from_list(records, on_mixed_types=mixed_types)


def check_rows(rows: int, prompts: int) -> None:
    """Raise `UserError` if there are too few rows for a rollout, because the Trainer would save an untrained model."""
    if rows < prompts:
        raise UserError(
            f"There are fewer training rows ({rows}) than prompts per rollout ({prompts}): add rows, or lower "
            "`responses_per_rollout` or `steps_per_generation`."
        )
