"""The benchmarks as data. Questions and golds follow the Qwen2.5-Math evaluation, as in the paper; the code sets are
EvalPlus'. docs/evaluation.md has sources and licences."""

from dataclasses import dataclass
from typing import Any

from . import rows
from .code.tasks import read_code
from .rows import Reader


@dataclass(frozen=True)
class HubSource:
    """The same problems on the Hub: repository, configuration, split, reader of its rows."""

    repository: str
    configuration: str | None
    split: str
    read: Reader


@dataclass(frozen=True)
class Benchmark:
    name: str  # for `--benchmarks`, and for `trl_ces.grading`
    title: str  # as in the paper's tables
    kind: str  # `"math"`, `"choice"` or `"code"`
    file: str  # path of the local copy under `--data_dir`
    count: int  # number of rows in the source
    read: Reader  # from a row of the local copy to question and gold
    hub: HubSource | None = None  # the Hub's copy; `None`: a local copy is required
    # Rows whose gold is empty: `correct` has no verdict there; the Qwen2.5-Math script accepts an empty answer.
    without_gold: tuple[int, ...] = ()
    dataset: str = ""  # `"humaneval"` or `"mbpp"` for code, else empty
    url: str = ""  # where EvalPlus publishes the file
    base: str | None = None  # the set with the same questions and fewer tests


def _math(name: str, title: str, count: int, read: Reader, hub: HubSource | None = None, **more: Any) -> Benchmark:
    return Benchmark(name, title, "math", f"math/{name}/test.jsonl", count, read, hub, **more)


def _choice(name: str, title: str, file: str, count: int, read: Reader, hub: HubSource) -> Benchmark:
    return Benchmark(name, title, "choice", f"reasoning/{name}/{file}", count, read, hub)


_EVALPLUS = {"humaneval": ("HumanEvalPlus", "v0.1.10", 164), "mbpp": ("MbppPlus", "v0.2.0", 378)}


def _code(name: str, title: str, dataset: str, base: str | None = None) -> Benchmark:
    file, version, count = _EVALPLUS[dataset]
    url = f"https://github.com/evalplus/{file.lower()}_release/releases/download/{version}/{file}.jsonl.gz"
    place = f"code/{file}.jsonl.gz"
    return Benchmark(name, title, "code", place, count, read_code, dataset=dataset, base=base, url=url)


_AIME = HubSource("HuggingFaceH4/aime_2024", None, "train", rows.read_plain)
_AMC = HubSource("math-ai/amc23", None, "test", rows.read_plain)
_GSM8K = HubSource("openai/gsm8k", "main", "test", rows.read_gsm8k)
_ARC = HubSource("allenai/ai2_arc", "ARC-Challenge", "test", rows.read_hub_choice("question"))
_COMMONSENSE = HubSource("tau/commonsense_qa", None, "validation", rows.read_hub_choice("question"))
_OPENBOOK = HubSource("allenai/openbookqa", "main", "test", rows.read_hub_choice("question_stem"))
_ALL = [
    _math("aime24", "AIME24", 30, rows.read_plain, _AIME),
    _math("amc23", "AMC23", 40, rows.read_plain, _AMC),
    _math("cmath", "CMATH", 600, rows.read_plain),
    _math("cn_middle_school", "CN Middle School 24", 101, rows.read_cn_middle_school),
    _math("college_math", "College Math", 2818, rows.read_without_dollars),
    _math("gaokao_math_cloze", "GaoKao Math Cloze", 118, rows.read_without_dollars),
    _math("gaokao2023en", "GaoKao 2023 En", 385, rows.read_without_dollars, without_gold=(167, 192)),
    _math("gsm8k", "GSM8K", 1319, rows.read_gsm8k, _GSM8K),
    _math("minerva_math", "Minerva Math", 272, rows.read_minerva),
    _math("olympiadbench", "Olympiad Bench", 675, rows.read_olympiadbench),
    _math("svamp", "SVAMP", 1000, rows.read_svamp),
    _math("tabmwp", "TABMWP", 1000, rows.read_tabmwp),
    _choice("arc_challenge", "ARC", "test.json", 1172, rows.read_numbered_choice, _ARC),
    _choice("commonsenseqa", "CommonsenseQA", "dev_rand_split.jsonl", 1221, rows.read_commonsenseqa, _COMMONSENSE),
    _choice("openbookqa", "OpenBookQA", "test.json", 500, rows.read_numbered_choice, _OPENBOOK),
    _code("humaneval", "HumanEval", "humaneval"),
    _code("humaneval_plus", "HumanEval+", "humaneval", "humaneval"),
    _code("mbpp", "MBPP", "mbpp"),
    _code("mbpp_plus", "MBPP+", "mbpp", "mbpp"),
]
BENCHMARKS = {benchmark.name: benchmark for benchmark in _ALL}
GROUPS = {
    group: [benchmark.name for benchmark in _ALL if benchmark.kind == kind]
    for group, kind in (("math12", "math"), ("reasoning", "choice"), ("code", "code"))
}
