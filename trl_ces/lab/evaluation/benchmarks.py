"""The benchmarks as data: source, licence, expected number of problems, reader.

Questions and golds follow the Qwen2.5-Math evaluation, as in the paper; rows.py reads them. The four code sets are
EvalPlus'; code/ judges them.
"""

import re
from dataclasses import dataclass
from typing import Any

from .code.tasks import read_code
from .rows import (
    Reader,
    read_cn_middle_school,
    read_commonsenseqa,
    read_gsm8k,
    read_hub_choice,
    read_minerva,
    read_numbered_choice,
    read_olympiadbench,
    read_plain,
    read_svamp,
    read_tabmwp,
    read_without_dollars,
)


@dataclass(frozen=True)
class HubSource:
    """The same problems on the Hub: repository, configuration, split, reader of its rows."""

    repository: str
    configuration: str | None
    split: str
    read: Reader


@dataclass(frozen=True)
class Benchmark:
    """One set of problems."""

    name: str  # for `--benchmarks`, and for `trl_ces.grading`
    title: str  # as in the paper's tables
    kind: str  # `"math"`: graded as mathematics
    languages: str  # language codes of the questions
    file: str  # path of the local copy under `--data_dir`
    count: int  # number of rows in the source
    licence: str  # of the data, as stated by its publishers
    origin: str  # who made it
    read: Reader  # from a row of the local copy to question and gold
    hub: HubSource | None = None  # the Hub's copy; `None`: a local copy is required
    # Rows whose gold is empty: `correct` has no verdict there; the Qwen2.5-Math script accepts an empty answer.
    without_gold: tuple[int, ...] = ()
    prose: bool = False  # some golds are sentences, see `is_prose`
    dataset: str = ""  # `"humaneval"` or `"mbpp"` for code, else empty
    base: str | None = None  # the set with the same questions and fewer tests


def _math(name: str, title: str, count: int, licence: str, origin: str, read: Reader, **more: Any) -> Benchmark:
    languages = more.pop("languages", "en")
    return Benchmark(name, title, "math", languages, f"math/{name}/test.jsonl", count, licence, origin, read, **more)


_CODE = {
    "humaneval": ("HumanEvalPlus", 164, "MIT, tests Apache-2.0", "Chen et al. 2021, arXiv 2107.03374"),
    "mbpp": ("MbppPlus", 378, "CC BY 4.0, tests Apache-2.0", "Austin et al. 2021, arXiv 2108.07732"),
}


def _code(name: str, title: str, dataset: str, base: str | None) -> Benchmark:
    file, count, licence, origin = _CODE[dataset]
    origin += "; tests: EvalPlus, Liu et al. 2023, arXiv 2305.01210"
    file = f"code/{file}.jsonl.gz"
    return Benchmark(name, title, "code", "en", file, count, licence, origin, read_code, dataset=dataset, base=base)


NOT_STATED = "not stated"
MAA = f"{NOT_STATED}; problems of the Mathematical Association of America"
_ROWS = [
    _math(
        "aime24",
        "AIME24",
        30,
        MAA,
        "AIME 2024 I and II",
        read_plain,
        hub=HubSource("HuggingFaceH4/aime_2024", None, "train", read_plain),
    ),
    _math(
        "amc23",
        "AMC23",
        40,
        MAA,
        "AMC 12A and 12B of 2023, 22 and 18 of their problems",
        read_plain,
        hub=HubSource("math-ai/amc23", None, "test", read_plain),
    ),
    _math("cmath", "CMATH", 600, "CC BY 4.0", "Wei et al. 2023, arXiv 2306.16636", read_plain, languages="zh"),
    _math(
        "cn_middle_school",
        "CN Middle School 24",
        101,
        NOT_STATED,
        "Qwen2.5-Math",
        read_cn_middle_school,
        languages="zh",
    ),
    _math(
        "college_math",
        "College Math",
        2818,
        "by book: CC BY, CC BY-NC-SA, GFDL and others (field license)",
        "Tang et al. 2024, MathScale, arXiv 2403.02884",
        read_without_dollars,
        prose=True,
    ),
    _math(
        "gaokao_math_cloze",
        "GaoKao Math Cloze",
        118,
        f"{NOT_STATED}; AGIEval refers to the licences of its sources",
        "Zhong et al. 2023, AGIEval, arXiv 2304.06364",
        read_without_dollars,
        languages="zh",
    ),
    _math(
        "gaokao2023en",
        "GaoKao 2023 En",
        385,
        "MIT",
        "Liao et al. 2024, MARIO, arXiv 2401.08190",
        read_without_dollars,
        without_gold=(167, 192),
    ),
    _math(
        "gsm8k",
        "GSM8K",
        1319,
        "MIT",
        "Cobbe et al. 2021, arXiv 2110.14168",
        read_gsm8k,
        hub=HubSource("openai/gsm8k", "main", "test", read_gsm8k),
    ),
    _math(
        "minerva_math",
        "Minerva Math",
        272,
        NOT_STATED,
        "Lewkowycz et al. 2022, arXiv 2206.14858: from courses of MIT OpenCourseWare",
        read_minerva,
    ),
    _math(
        "olympiadbench",
        "Olympiad Bench",
        675,
        "Apache-2.0",
        "He et al. 2024, arXiv 2402.14008: open-ended, text only, English, mathematics",
        read_olympiadbench,
    ),
    _math("svamp", "SVAMP", 1000, "MIT", "Patel et al. 2021, arXiv 2103.07191", read_svamp),
    _math("tabmwp", "TABMWP", 1000, "CC BY-NC-SA 4.0", "Lu et al. 2023, arXiv 2209.14610", read_tabmwp),
    Benchmark(
        "arc_challenge",
        "ARC",
        "choice",
        "en",
        "reasoning/arc_challenge/test.json",
        1172,
        "CC BY-SA 4.0",
        "Clark et al. 2018, arXiv 1803.05457",
        read_numbered_choice,
        HubSource("allenai/ai2_arc", "ARC-Challenge", "test", read_hub_choice("question")),
    ),
    Benchmark(
        "commonsenseqa",
        "CommonsenseQA",
        "choice",
        "en",
        "reasoning/commonsenseqa/dev_rand_split.jsonl",
        1221,
        "MIT",
        "Talmor et al. 2019, arXiv 1811.00937: the development split, whose answers are public",
        read_commonsenseqa,
        HubSource("tau/commonsense_qa", None, "validation", read_hub_choice("question")),
    ),
    Benchmark(
        "openbookqa",
        "OpenBookQA",
        "choice",
        "en",
        "reasoning/openbookqa/test.json",
        500,
        f"{NOT_STATED}; the Hub's card says unknown",
        "Mihaylov et al. 2018, arXiv 1809.02789",
        read_numbered_choice,
        HubSource("allenai/openbookqa", "main", "test", read_hub_choice("question_stem")),
    ),
    _code("humaneval", "HumanEval", "humaneval", None),
    _code("humaneval_plus", "HumanEval+", "humaneval", "humaneval"),
    _code("mbpp", "MBPP", "mbpp", None),
    _code("mbpp_plus", "MBPP+", "mbpp", "mbpp"),
]
BENCHMARKS = {benchmark.name: benchmark for benchmark in _ROWS}
GROUPS = {
    "math12": [name for name, benchmark in BENCHMARKS.items() if benchmark.kind == "math"],
    "reasoning": [name for name, benchmark in BENCHMARKS.items() if benchmark.kind == "choice"],
    "code": [name for name, benchmark in BENCHMARKS.items() if benchmark.kind == "code"],
}

# What is no word of English: commands, environments with their columns, names of units and operators.
_LATEX = re.compile(
    r"\\(?:begin|end)\s*\{[^{}]*\}(?:\s*\{[^{}]*\})?|\\(?:mathrm|mathbf|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+"
)
_WORD = re.compile(r"(?<![^\s({'\"-])[A-Za-z][a-z]+(?![^\s.,;:!?)}'\"-])")
PROSE_WORDS = 4


def is_prose(gold: str) -> bool:
    """Whether a gold is a sentence, with four English words or more; "All real numbers" is none."""
    return len(_WORD.findall(_LATEX.sub(" ", gold))) >= PROSE_WORDS
