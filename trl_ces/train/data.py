"""Training problems as columns `prompt` and `solution`, from the Hub, from local files or from a `dataset_builder`.

The paper trains on 2,500 problems of DeepMath-103K and does not say which. Here rows are drawn in the order of a hash
of seed and row number: the same on every machine, with every library version and any number of processes.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..support.errors import UserError, first_line, kind
from ..support.hub import is_local
from ..support.imports import call_builder
from ..support.prompts import build_prompt
from .arguments import ScriptArguments
from .sources import Rows, read_rows

if TYPE_CHECKING:
    from datasets import Dataset

GOLDS_AT_A_TIME = 256
# Problems that a `dataset_builder` makes where `max_train_samples` is null.
BUILT = 2000


@dataclass(frozen=True)
class Draw:
    """Row numbers in the order of the draw: to train on, to evaluate on, and dropped for want of a usable gold."""

    train: list[int]
    eval: list[int]
    dropped: list[int]


def clean_gold(gold: Any, pattern: str | None, where: str) -> str | None:
    """The gold answer as text, `None` if the row has none."""
    if gold is None:
        return None
    if isinstance(gold, bool) or not isinstance(gold, str | int | float):
        raise UserError(
            f"{where}: the gold is a {kind(gold)} ({gold!r}): expected text or a number; set `solution_column`."
        )
    text = str(gold).strip()
    if pattern is not None:
        matches = list(re.finditer(pattern, text))
        text = (matches[-1].group(1) or "").strip() if matches else ""
    return text or None


def make_prompt(question: Any, system_prompt: str | None, where: str) -> list[dict[str, str]]:
    """Chat messages of a question. Messages stay as they are, but for the system message."""
    if isinstance(question, str) and question.strip():
        return build_prompt(question, system_prompt)
    is_chat = isinstance(question, list) and all(
        isinstance(m, dict) and {"role", "content"} <= set(m) for m in question
    )
    if not is_chat or not question:
        raise UserError(f"{where}: the question is {question!r}: expected text or chat messages; set `prompt_column`.")
    messages = [{"role": message["role"], "content": message["content"]} for message in question]
    if messages[-1]["role"] == "assistant":  # TRL would have the model write after it
        raise UserError(
            f"{where}: the chat messages end with the assistant's, which the model would read before it answers: end "
            "them with the question, or set `prompt_column`."
        )
    if not system_prompt:
        return messages
    rest = messages[1:] if messages[0]["role"] == "system" else messages
    return [{"role": "system", "content": system_prompt}, *rest]


def shuffled(number_of_rows: int, seed: int) -> list[int]:
    """Row numbers in the order of the draw, sorted by SHA-256 of seed and number."""
    return sorted(range(number_of_rows), key=lambda row: hashlib.sha256(f"{seed}:{row}".encode()).digest())


def draw_rows(
    rows: Rows, script: ScriptArguments, eval_count: int, are_usable: Callable[[list[str]], list[bool]]
) -> Draw:
    """Takes shuffled rows with a usable gold: first those for training, then those for evaluation."""
    order = shuffled(len(rows.golds), script.dataset_seed)
    wanted = None if script.max_train_samples is None else script.max_train_samples + eval_count
    kept: list[int] = []
    dropped: list[int] = []
    for start in range(0, len(order), GOLDS_AT_A_TIME):
        part = order[start : start + GOLDS_AT_A_TIME]
        golds = {
            row: clean_gold(rows.golds[row], script.solution_pattern, f"{rows.source}, row {row}") for row in part
        }
        answered = {row: gold for row, gold in golds.items() if gold is not None}
        usable = dict(zip(answered, are_usable(list(answered.values())), strict=True)) if answered else {}
        for row in part:
            if wanted is None or len(kept) < wanted:
                (kept if usable.get(row, False) else dropped).append(row)
        if wanted is not None and len(kept) == wanted:
            break
    needed = wanted if wanted is not None else eval_count + 1
    if len(kept) < needed:
        raise UserError(
            f"{rows.source} has {len(kept)} rows with a usable gold (of {len(order)}) and {needed} are asked for: "
            "lower `max_train_samples` or `num_eval_samples`, or check `solution_column` and `solution_pattern`."
        )
    split_at = len(kept) - eval_count
    return Draw(kept[:split_at], kept[split_at:], dropped)


def make_dataset(rows: Rows, picked: list[int], script: ScriptArguments) -> "Dataset":
    """The picked rows: `prompt` (chat messages), `solution`, `row` (number in the source), and their other columns."""
    from datasets import Dataset
    from pyarrow import ArrowException

    records = []
    for row in picked:
        where = f"{rows.source}, row {row}"
        gold = clean_gold(rows.golds[row], script.solution_pattern, where)
        prompt = make_prompt(rows.prompts[row], script.system_prompt, where)
        others = {name: column[row] for name, column in rows.columns.items()}
        records.append(others | {"prompt": prompt, "solution": gold, "row": row})
    try:
        return Dataset.from_list(records)
    except (ArrowException, OverflowError) as error:
        raise UserError(
            f"{rows.source}: a column holds values of several types or of over 64 bits ({first_line(error)}): make "
            "them one."
        ) from None


def check_source(script: ScriptArguments) -> None:
    """Checks data that need no network: files, columns, what a `dataset_builder` is given."""
    if script.dataset_builder is not None:
        _build(script)
        return
    held_out = 0 if script.eval_dataset_name else script.num_eval_samples or 0
    for name, split, count, eval_count in (
        (script.dataset_name, script.dataset_split, script.max_train_samples, held_out),
        (script.eval_dataset_name, script.eval_dataset_split, script.num_eval_samples, 0),
    ):
        if name is not None and is_local(name):
            # Draws as the training will, but for the golds that only the grader can refuse, and reads what is drawn.
            rows, wanted = read_rows(script, name, split), replace(script, max_train_samples=count)
            draw = draw_rows(rows, wanted, eval_count, lambda golds: [True] * len(golds))
            for row in (*draw.train, *draw.eval):
                make_prompt(rows.prompts[row], script.system_prompt, f"{rows.source}, row {row}")


def _build(script: ScriptArguments) -> tuple["Dataset", "Dataset | None"]:
    """The problems of `dataset_builder`."""
    counts = (script.max_train_samples or BUILT, script.num_eval_samples or 0)
    given, settings = (*counts, script.dataset_seed, script.system_prompt), script.dataset_kwargs or {}
    made = call_builder("dataset_builder", str(script.dataset_builder), *given, **settings)
    if not isinstance(made, tuple) or len(made) != 2:
        raise UserError(f"`dataset_builder` {script.dataset_builder} returned {kind(made)}: return two data sets.")
    return made


def load_datasets(script: ScriptArguments, say: Callable[[str], None] = print) -> tuple["Dataset", "Dataset | None"]:
    """The training and evaluation problems of a recipe, the same on every process.

    The main process decides which golds are usable and broadcasts it: grading has a time limit, so processes could
    disagree and train on different rows.
    """
    if script.dataset_builder is not None:
        return _build(script)
    assert script.dataset_name is not None  # ScriptArguments refuses it
    held_out = 0 if script.eval_dataset_name else script.num_eval_samples or 0
    rows = read_rows(script, script.dataset_name, script.dataset_split)
    draw = _draw_once(rows, script, held_out, say)
    train = make_dataset(rows, draw.train, script)
    if script.eval_dataset_name is None:
        return train, make_dataset(rows, draw.eval, script) if draw.eval else None
    eval_rows = read_rows(script, script.eval_dataset_name, script.eval_dataset_split)
    eval_script = replace(script, max_train_samples=script.num_eval_samples)
    return train, make_dataset(eval_rows, _draw_once(eval_rows, eval_script, 0, say).train, script)


def _draw_once(rows: Rows, script: ScriptArguments, eval_count: int, say: Callable[[str], None]) -> Draw:
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    state = PartialState()
    message: list[Any] = [None]
    if state.is_main_process:
        try:
            message = [draw_rows(rows, script, eval_count, _usable_golds(script))]
        except UserError as error:
            message = [error]
    broadcast_object_list(message)
    draw = message[0]
    if isinstance(draw, UserError):
        raise draw
    if state.is_main_process:
        say(f"{rows.source}: {len(draw.train)} rows to train on, {len(draw.eval)} held back, of {len(rows.golds)}.")
        if draw.dropped:
            shown = ", ".join(map(str, draw.dropped[:20])) + (", ..." if len(draw.dropped) > 20 else "")
            say(f"{rows.source}: dropped {len(draw.dropped)} rows without a usable gold: {shown}.")
    return draw


def _usable_golds(script: ScriptArguments) -> Callable[[list[str]], list[bool]]:
    """Golds are tried by our grader if it will grade against them; any will do for another reward."""
    if not {"accuracy_reward", "boxed_accuracy_reward"} & set(script.reward_funcs):
        return lambda golds: [True] * len(golds)
    from ..grading.judge import usable_golds

    return usable_golds
