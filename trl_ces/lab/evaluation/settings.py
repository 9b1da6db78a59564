"""Settings of an evaluation: every knob with its default, filled from YAML and the command line."""

import math
import re
import typing
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from ...support.errors import UserError, nearest
from ...support.prompts import PAPER_SYSTEM_PROMPT
from ...support.yaml import fit, fit_text, read_yaml
from .benchmarks import BENCHMARKS
from .problems import find_benchmarks

# Knobs that change no completion.
CHANGE_NO_ANSWER = {
    *("data_dir", "output_dir", "allow_code_execution", "judge_again"),
    *("tensor_parallel_size", "data_parallel_size", "gpu_memory_utilization"),
}


# Whether a number is in range, and the range in words.
COUNT = (lambda value: value >= 1, "at least 1")
NOT_NEGATIVE = (lambda value: 0 <= value < math.inf, "0 or above")
POSITIVE = (lambda value: 0 < value < math.inf, "above 0")
SHARE = (lambda value: 0 < value <= 1, "above 0 and at most 1")


def _knob(default: Any, text: str, fits: Any = None) -> Any:
    return field(default=default, metadata={"help": text, "range": fits})


@dataclass(frozen=True)
class EvaluationSettings:
    """Defaults are the paper's where it states a value (section 3.3)."""

    model: str = _knob("", "Hub id, saved model's directory, or LoRA adapter's directory")
    benchmarks: list[str] = field(
        default_factory=list,
        metadata={"help": "sets and groups, separated by commas: math12, reasoning, code, aime24, gsm8k, ..."},
    )
    data_dir: str | None = _knob(None, "folder with math/NAME/test.jsonl, reasoning/, code/; default: from the Hub")
    output_dir: str | None = _knob(None, "for completions and results; default: runs/evaluation/ and the model's name")
    backend: Literal["auto", "vllm", "transformers"] = _knob("auto", "auto takes vLLM if it is installed")
    num_samples: int = _knob(4, "completions per problem", COUNT)
    max_problems: int | None = _knob(None, "maximum number of problems per set, evenly spaced", COUNT)
    max_new_tokens: int = _knob(16384, "maximum completion length, thinking included; the paper states none", COUNT)
    thinking_token_budget: int | None = _knob(None, "vLLM: force </think> after so many tokens of thinking", COUNT)
    temperature: float = _knob(0.4, "sampling temperature; 0 is greedy", NOT_NEGATIVE)
    top_p: float = _knob(0.95, "nucleus sampling: probability mass", SHARE)
    top_k: int | None = _knob(None, "sampling: most likely tokens to draw from; default: all", COUNT)
    repetition_penalty: float = _knob(1.05, "on tokens of the prompt and the completion so far; 1 is none", POSITIVE)
    seed: int = _knob(0, "of the sampling", NOT_NEGATIVE)
    system_prompt: str | None = _knob(PAPER_SYSTEM_PROMPT, "system message; null for none")
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = _knob("auto", "auto: as saved; vLLM halves float32")
    batch_size: int = _knob(16, "completions generated at a time, with transformers", COUNT)
    tensor_parallel_size: int = _knob(1, "vLLM: GPUs per copy of the model", COUNT)
    data_parallel_size: int = _knob(1, "vLLM: copies of the model", COUNT)
    gpu_memory_utilization: float = _knob(0.9, "vLLM: fraction of a GPU's memory", SHARE)
    judge_again: bool = _knob(False, "judge existing completions again, after an upgrade of the grading")
    allow_code_execution: bool = _knob(False, "for code sets: run programs that the model wrote, in a sandbox")
    code_time_limit: float = _knob(60.0, "seconds for all tests of one program", POSITIVE)
    trust_remote_code: bool = _knob(False, "run code from a Hub model's repository")

    def __post_init__(self) -> None:
        for knob in fields(self):
            value, (fits, words) = getattr(self, knob.name), knob.metadata.get("range") or (None, "")
            if fits and value is not None and not fits(value):
                raise UserError(f"`{knob.name}` is {value}: it must be {words}.")
        if (self.thinking_token_budget or 0) >= self.max_new_tokens:
            raise UserError(
                f"`thinking_token_budget` is {self.thinking_token_budget}: it must be below `max_new_tokens`, "
                f"{self.max_new_tokens}, or no answer has room."
            )
        if not self.model.strip():
            raise UserError("No model is named: give `--model`, a directory or a Hub id.")
        given = [self.benchmarks] if isinstance(self.benchmarks, str) else self.benchmarks
        words = [word.strip() for names in given for word in names.split(",")]
        object.__setattr__(self, "benchmarks", find_benchmarks(list(filter(None, words))))

    def sampling(self) -> dict[str, Any]:
        """What decides which completions are drawn and how they are judged; fixed within an output directory."""
        left_out = CHANGE_NO_ANSWER if self.code_benchmarks() else {*CHANGE_NO_ANSWER, "code_time_limit"}
        if self.thinking_token_budget is None:
            left_out = {*left_out, "thinking_token_budget"}
        return {name: value for name, value in asdict(self).items() if name not in left_out}

    def code_benchmarks(self) -> list[str]:
        return [name for name in self.benchmarks if BENCHMARKS[name].kind == "code"]


HINTS: dict[str, Any] = typing.get_type_hints(EvaluationSettings) | {"benchmarks": list[str] | str}


def read_settings(file: Path | None, given: dict[str, list[str]]) -> EvaluationSettings:
    """Settings from a YAML file, overridden by the command line."""
    values = {} if file is None else fit_settings(read_yaml(file), str(file))
    for name, words in given.items():
        try:
            values[name] = fit_text(words, HINTS[name])
        except TypeError as error:
            raise UserError(f"`--{name}`: {error}.") from None
    return EvaluationSettings(**values)


def fit_settings(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Knobs with values of the declared types."""
    fitted = {}
    for name, value in values.items():
        if name not in HINTS:
            hint = nearest(str(name), HINTS) or f" Keys: {', '.join(HINTS)}."
            raise UserError(f"{where}: the key `{name}` is not known in an evaluation.{hint}")
        try:
            fitted[name] = fit(value, HINTS[name])
        except TypeError as error:
            raise UserError(f"{where}: `{name}`: {error}.") from None
    return fitted


def default_folder(model: str) -> Path:
    """`runs/evaluation/` and the model's name; for a local directory, its last two parts."""
    parts = [part for part in Path(model).expanduser().resolve().parts if part != "/"] if Path(model).exists() else []
    name = "/".join(parts[-2:]) or model
    return Path("runs") / "evaluation" / re.sub(r"[^0-9A-Za-z.]+", "_", name).strip("_")
