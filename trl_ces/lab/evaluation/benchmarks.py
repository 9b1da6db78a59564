"""Benchmark definitions: data files, row readers and loading of problems.

Questions and reference answers (`gold`) follow the Qwen2.5-Math evaluation, as in the paper. Math questions get no
additional instruction. Reference answers have the format that `trl_ces.grading` expects. Reasoning questions are
multiple-choice questions, answered with a letter. The code sets come from EvalPlus. docs/evaluation.md lists sources
and licences.
"""

import gzip
import hashlib
import json
import math
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...support.errors import UserError, first_line, hub_errors, nearest
from ...support.files import parse_rows
from ...support.hub import expand_home
from ...train.arguments import ScriptArguments
from ...train.data import clean_gold, make_prompt, read_rows
from .code.tasks import CodeTask, Row, read_code, read_task

# A function that returns the question and the reference answer of a row.
Reader = Callable[[Row], tuple[str, str]]

CHOICE_INSTRUCTION = "Give the letter of the correct option as the final answer."


def _as_text(value: Any) -> str:
    """Convert a value to text. A missing value becomes empty text; a whole float such as 5.0 becomes `5`."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _with_allowed_answers(question: str, gold: str) -> str:
    """Append the allowed answers to the question if the reference answer is `true`, `false`, `yes` or `no`."""
    word = gold.strip().rstrip(".").lower()
    if word in ("true", "false"):
        return question + " (True or False)"
    return question + " (Yes or No)" if word in ("yes", "no") else question


def read_plain(row: Row) -> tuple[str, str]:
    """Read the question from `question` or `problem`, and the reference answer from `answer`."""
    question, gold = row["question"] if "question" in row else row["problem"], _as_text(row["answer"])
    return _with_allowed_answers(question, gold), gold


def read_without_dollars(row: Row) -> tuple[str, str]:
    """Remove the dollar signs around a reference answer in LaTeX."""
    gold = row["answer"].replace("$", "").strip()
    return _with_allowed_answers(row["question"], gold), gold


def read_gsm8k(row: Row) -> tuple[str, str]:
    """Read the reference answer, which follows `####` at the end of the worked solution."""
    return row["question"], row["answer"].rpartition("####")[2].strip()


def read_minerva(row: Row) -> tuple[str, str]:
    """Read the reference answer from the last boxed expression in the solution."""
    return row["problem"], last_box(row["solution"])


def read_cn_middle_school(row: Row) -> tuple[str, str]:
    """Read the reference answer: the letter of the correct option if the question has options."""
    return row["question"], row["choice_answer"] or row["answer"]


def read_olympiadbench(row: Row) -> tuple[str, str]:
    """Read the reference answer from `final_answer`, a list with one element."""
    (gold,) = row["final_answer"]
    return _with_allowed_answers(row["question"], gold.strip("$")), gold.strip("$")


def read_svamp(row: Row) -> tuple[str, str]:
    """Join the story and the question; add a full stop to the story if it has none."""
    body = row["Body"].strip()
    return f"{body if body.endswith('.') else body + '.'} {row['Question'].strip()}", _as_text(row["Answer"])


def read_tabmwp(row: Row) -> tuple[str, str]:
    """Join the table (with its title, if any), the question and the options."""
    title = f'regarding "{row["table_title"]}" ' if row["table_title"] else ""
    question = f"Read the following table {title}and answer a question:\n{row['table']}\n{row['question']}"
    if row["choices"]:
        question += f" Please select from the following options: {row['choices']}"
    return _with_allowed_answers(question, row["answer"]), row["answer"]


def last_box(text: str) -> str:
    r"""Return the content of the last `\boxed{...}`."""
    start = text.rfind("\\boxed{")
    depth = 0
    for index in range(start + len("\\boxed"), len(text) if start >= 0 else 0):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return text[start + len("\\boxed{") : index]
    raise ValueError(f"no complete \\boxed{{...}} in {text[-80:]!r}")


def _choice_question(stem: str, options: list[str], correct: int) -> tuple[str, str]:
    """Return the question with lettered options, and the letter of the correct option."""
    letters = string.ascii_uppercase[: len(options)]
    option_lines = "\n".join(f"{letter}. {option}" for letter, option in zip(letters, options, strict=True))
    return f"{stem.strip()}\n\n{option_lines}\n\n{CHOICE_INSTRUCTION}", letters[correct]


_NUMBERED = re.compile(
    r"Please choose the correct answer to the question: (.*?)\s*(Answer1: .*?)\s*Answer format: (answer1.*)",
    re.DOTALL,
)


def read_numbered_choice(row: Row) -> tuple[str, str]:
    """Parse question and options (`Answer1: ... Answer2: ...`) from `instruction`; `answer` has the form `answer2`."""
    stem, option_text, names = _NUMBERED.fullmatch(row["instruction"]).groups()  # type: ignore[union-attr]
    options = [option.strip() for option in re.split(r"Answer\d+: ", option_text)[1:]]
    return _choice_question(stem, options, names.split("/").index(row["answer"]))


def read_commonsenseqa(row: Row) -> tuple[str, str]:
    """Read the stem and the list of choices from `question`."""
    choices = row["question"]["choices"]
    correct = [choice["label"] for choice in choices].index(row["answerKey"])
    return _choice_question(row["question"]["stem"], [choice["text"] for choice in choices], correct)


def _read_hub_choice(stem: str) -> Reader:
    """Create a reader for rows of a Hub dataset; `stem` is the name of the field with the question."""

    def read(row: Row) -> tuple[str, str]:
        choices = row["choices"]
        return _choice_question(row[stem], choices["text"], choices["label"].index(row["answerKey"]))

    return read


@dataclass(frozen=True)
class HubSource:
    """Location and reader of a benchmark's problems on the Hub."""

    repository: str
    configuration: str | None
    split: str
    read: Reader


@dataclass(frozen=True)
class Benchmark:
    """Definition of a benchmark."""

    name: str  # used by `--benchmarks` and `trl_ces.grading`
    title: str  # title in the paper's tables
    kind: str  # `"math"`, `"choice"`, `"code"` or `"own"`
    file: str  # path of the local copy under `--data_dir`
    count: int  # number of rows in the source
    read: Reader  # reads question and reference answer from a row of the local copy
    hub: HubSource | None = None  # `None`: a local copy is required
    # Indices of rows that have no reference answer. `correct` is `None` for these rows, but the Qwen2.5-Math script
    # accepts an empty final answer.
    without_gold: tuple[int, ...] = ()
    dataset: str = ""  # `"humaneval"` or `"mbpp"` for code sets, otherwise empty
    url: str = ""  # URL of the file published by EvalPlus
    base: str | None = None  # name of the set with the same questions but fewer tests


def _math(name: str, title: str, count: int, read: Reader, hub: HubSource | None = None, **options: Any) -> Benchmark:
    return Benchmark(name, title, "math", f"math/{name}/test.jsonl", count, read, hub, **options)


def _choice(name: str, title: str, file: str, count: int, read: Reader, hub: HubSource) -> Benchmark:
    return Benchmark(name, title, "choice", f"reasoning/{name}/{file}", count, read, hub)


_EVALPLUS = {"humaneval": ("HumanEvalPlus", "v0.1.10", 164), "mbpp": ("MbppPlus", "v0.2.0", 378)}


def _code(name: str, title: str, dataset: str, base: str | None = None) -> Benchmark:
    file, version, count = _EVALPLUS[dataset]
    url = f"https://github.com/evalplus/{file.lower()}_release/releases/download/{version}/{file}.jsonl.gz"
    path = f"code/{file}.jsonl.gz"
    return Benchmark(name, title, "code", path, count, read_code, dataset=dataset, base=base, url=url)


_AIME = HubSource("HuggingFaceH4/aime_2024", None, "train", read_plain)
_AMC = HubSource("math-ai/amc23", None, "test", read_plain)
_GSM8K = HubSource("openai/gsm8k", "main", "test", read_gsm8k)
_ARC = HubSource("allenai/ai2_arc", "ARC-Challenge", "test", _read_hub_choice("question"))
_COMMONSENSE = HubSource("tau/commonsense_qa", None, "validation", _read_hub_choice("question"))
_OPENBOOK = HubSource("allenai/openbookqa", "main", "test", _read_hub_choice("question_stem"))
_ALL = [
    _math("aime24", "AIME24", 30, read_plain, _AIME),
    _math("amc23", "AMC23", 40, read_plain, _AMC),
    _math("cmath", "CMATH", 600, read_plain),
    _math("cn_middle_school", "CN Middle School 24", 101, read_cn_middle_school),
    _math("college_math", "College Math", 2818, read_without_dollars),
    _math("gaokao_math_cloze", "GaoKao Math Cloze", 118, read_without_dollars),
    _math("gaokao2023en", "GaoKao 2023 En", 385, read_without_dollars, without_gold=(167, 192)),
    _math("gsm8k", "GSM8K", 1319, read_gsm8k, _GSM8K),
    _math("minerva_math", "Minerva Math", 272, read_minerva),
    _math("olympiadbench", "Olympiad Bench", 675, read_olympiadbench),
    _math("svamp", "SVAMP", 1000, read_svamp),
    _math("tabmwp", "TABMWP", 1000, read_tabmwp),
    _choice("arc_challenge", "ARC", "test.json", 1172, read_numbered_choice, _ARC),
    _choice("commonsenseqa", "CommonsenseQA", "dev_rand_split.jsonl", 1221, read_commonsenseqa, _COMMONSENSE),
    _choice("openbookqa", "OpenBookQA", "test.json", 500, read_numbered_choice, _OPENBOOK),
    _code("humaneval", "HumanEval", "humaneval"),
    _code("humaneval_plus", "HumanEval+", "humaneval", "humaneval"),
    _code("mbpp", "MBPP", "mbpp"),
    _code("mbpp_plus", "MBPP+", "mbpp", "mbpp"),
]
BENCHMARKS = {benchmark.name: benchmark for benchmark in _ALL}
OWN = "data"  # the user's own problems
SETS = BENCHMARKS | {OWN: Benchmark(OWN, "Your problems", "own", "", 0, read_plain)}
GROUPS = {
    group: [benchmark.name for benchmark in _ALL if benchmark.kind == kind]
    for group, kind in (("math12", "math"), ("reasoning", "choice"), ("code", "code"))
}


@dataclass(frozen=True)
class Problem:
    """One question of a benchmark."""

    benchmark: str  # name of the benchmark
    id: int  # row number in the source, from 0
    question: Any  # text; chat messages in some of the user's own problems
    gold: str  # reference answer
    code: CodeTask | None = None  # tests of a code problem

    @property
    def text(self) -> str:
        """The question, or the last of its chat messages."""
        return self.question if isinstance(self.question, str) else self.question[-1]["content"]


def find_benchmarks(names: Sequence[str]) -> list[str]:
    """Resolve names and groups (`math12`, ...) to benchmarks, without duplicates, in the given order."""
    resolved: dict[str, None] = {}
    for name in names:
        if name not in BENCHMARKS and name not in GROUPS:
            hint = nearest(name, [*BENCHMARKS, *GROUPS])
            available = f"groups: {', '.join(GROUPS)}; sets: {', '.join(BENCHMARKS)}"
            raise UserError(f"`benchmarks` contains an unknown name: {name!r}.{hint} Available {available}.")
        resolved |= dict.fromkeys(GROUPS.get(name, [name]))
    if not resolved:
        raise UserError(
            f"`benchmarks` is empty: specify a benchmark, one of the groups {', '.join(GROUPS)}, or your own problems "
            "with `--data`."
        )
    return list(resolved)


def load_benchmark(name: str, data_dir: str | Path | None = None) -> list[Problem]:
    """Read a benchmark's problems from `data_dir`, or from the Hub if `data_dir` is `None`.

    Raise `UserError` if the number of rows is wrong, or if a row has an empty question or reference answer.
    """
    benchmark = BENCHMARKS[name]
    source, rows, read = _from_hub(benchmark) if data_dir is None else _from_folder(benchmark, Path(data_dir))
    if len(rows) != benchmark.count:
        raise UserError(
            f"{name}: {source} has {len(rows)} rows instead of {benchmark.count}, so the results would not be "
            "comparable: download the complete file."
        )
    problems = []
    for number, row in enumerate(rows):
        try:
            question, gold = read(row)
            task = read_task(benchmark.dataset, row) if benchmark.kind == "code" else None
            is_empty = not question.strip() or (not gold.strip() and number not in benchmark.without_gold)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            cause = f"{type(error).__name__}: {first_line(error)}"
            raise UserError(f"{name}: row {number} of {source} has an unexpected format ({cause}).") from None
        if is_empty:
            raise UserError(f"{name}: row {number} of {source} has an empty question or reference answer.")
        if task is not None and benchmark.base is None:
            task = task.base()
        problems.append(Problem(name, number, question, gold, task))
    return problems


def load_own(name: str) -> list[Problem]:
    """Read the user's own problems from a file or the Hub (`test` split), with the same columns as training data."""
    problems = []
    try:
        rows = read_rows(ScriptArguments(dataset_name=name), name, "test")
        for number, (question, gold) in enumerate(zip(rows.prompts, rows.golds, strict=True)):
            location = f"{name}, row {number}"
            text, messages = clean_gold(gold, None, location), make_prompt(question, None, location)
            if text is None:
                raise UserError(f"{location} has no reference answer: add an answer, or remove the row.")
            problems.append(Problem(OWN, number, question if isinstance(question, str) else messages, text))
    except UserError as error:
        # The options that these messages suggest exist only for training.
        message = re.sub(r"set `\w+_column`", "rename columns", str(error)).replace("`dataset_config`, ", "")
        message = message.replace(", or set `dataset_split` or `eval_dataset_split`", "")
        raise UserError(message.replace("`dataset_name`", "`--data`")) from None
    return problems


def choose(problems: list[Problem], max_problems: int | None) -> list[Problem]:
    """Select at most `max_problems` problems, evenly spaced because some files are sorted by difficulty."""
    if max_problems is None or max_problems >= len(problems):
        return problems
    return [problems[index * len(problems) // max_problems] for index in range(max_problems)]


def data_digest(problems: Sequence[Problem]) -> str:
    """Hash row numbers, questions, reference answers and tests to 16 hexadecimal digits."""
    text = json.dumps([[p.id, p.question, p.gold, *([p.code.digest] if p.code else [])] for p in problems])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _from_folder(benchmark: Benchmark, data_dir: Path) -> tuple[str, list[Any], Reader]:
    """Read the rows of a JSON or JSON Lines file, optionally gzipped."""
    file = Path(expand_home(data_dir)) / benchmark.file
    if not file.is_file():
        hint = f", or omit `--data_dir` to read from the Hub ({benchmark.hub.repository})" if benchmark.hub else ""
        raise UserError(
            f"{benchmark.name}: {file} does not exist. Set `--data_dir` to the folder with {benchmark.file}{hint}."
        )
    content = file.read_bytes()
    content = gzip.decompress(content) if file.suffix == ".gz" else content
    return str(file), parse_rows(content, file), benchmark.read


def _from_hub(benchmark: Benchmark) -> tuple[str, list[Any], Reader]:
    """Load the rows from the Hub."""
    advice = f"pass the folder that contains {benchmark.file} with `--data_dir`"
    hub = benchmark.hub
    if hub is None:
        note = f" EvalPlus publishes this file: {benchmark.url}" if benchmark.url else ""
        raise UserError(f"{benchmark.name} cannot be read from the Hub: {advice}.{note}")
    from datasets import load_dataset
    from datasets.exceptions import DatasetNotFoundError

    try:
        rows = list(load_dataset(hub.repository, hub.configuration, split=hub.split))
    except (DatasetNotFoundError, *hub_errors(), ValueError, RuntimeError) as error:
        raise UserError(
            f"{benchmark.name}: {hub.repository} could not be loaded from the Hub ({first_line(error)}): check the "
            f"network connection, or {advice}."
        ) from None
    return f"{hub.repository} ({hub.split})", rows, hub.read
