"""What an evaluation is asked to do: every knob once, with its default, and how YAML and command line fill it."""

import math
import re
import typing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..support.errors import UserError, nearest
from ..support.prompts import PAPER_SYSTEM_PROMPT
from ..support.yaml import fit, fit_text, read_yaml
from .benchmarks import BENCHMARKS
from .problems import find_benchmarks


def _knob(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class EvaluationSettings:
    """Defaults are the paper's, section 4.3, where it states a value."""

    model: str = _knob("", "a Hub id, a saved model's directory, or a LoRA adapter's directory")
    benchmarks: list[str] = field(
        default_factory=list,
        metadata={"help": "sets and groups, separated by commas: math12, reasoning, code, aime24, gsm8k, ..."},
    )
    data_dir: str | None = _knob(None, "folder with math/NAME/test.jsonl, reasoning/, code/; without it, from the Hub")
    output_dir: str | None = _knob(None, "for answers and results; default: runs/evaluation/ and the model's name")
    backend: Literal["auto", "vllm", "transformers"] = _knob("auto", "auto takes vLLM if it is installed")
    num_samples: int = _knob(4, "answers to each problem")
    max_problems: int | None = _knob(None, "at most so many problems of each set, evenly spaced")
    max_new_tokens: int = _knob(16384, "longest answer, thinking included; the paper does not state its own")
    temperature: float = _knob(0.4, "of the sampling; 0 takes the likeliest token")
    top_p: float = _knob(0.95, "share of probability to sample from")
    repetition_penalty: float = _knob(1.05, "on tokens of the prompt and of the answer so far; 1 is none")
    seed: int = _knob(0, "of the sampling")
    system_prompt: str | None = _knob(PAPER_SYSTEM_PROMPT, "the system message; null for none")
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = _knob(
        "auto", "of the weights; auto: as they were saved"
    )
    batch_size: int = _knob(16, "answers generated at a time by transformers; vLLM decides itself")
    tensor_parallel_size: int = _knob(1, "vLLM: GPUs that share one copy of the model")
    data_parallel_size: int = _knob(1, "vLLM: copies of the model")
    gpu_memory_utilization: float = _knob(0.9, "vLLM: share of a GPU's memory")
    judge_again: bool = _knob(False, "give the answers that are there new verdicts, after an upgrade of the grading")
    allow_code_execution: bool = _knob(False, "run the programs that the model writes, in a sandbox; for code sets")
    code_time_limit: float = _knob(60.0, "seconds for the tests of one program")
    trust_remote_code: bool = _knob(False, "run the code that a model of the Hub brings")

    def __post_init__(self) -> None:
        for name in ("num_samples", "max_new_tokens", "batch_size", "tensor_parallel_size", "data_parallel_size"):
            _at_least(name, getattr(self, name), 1)
        if self.max_problems is not None:
            _at_least("max_problems", self.max_problems, 1)
        _at_least("seed", self.seed, 0)
        if not 0 <= self.temperature < math.inf:
            raise UserError(f"`temperature` is {self.temperature}: it must be 0 or above; the paper uses 0.4.")
        for name in ("top_p", "gpu_memory_utilization"):
            if not 0 < getattr(self, name) <= 1:
                raise UserError(f"`{name}` is {getattr(self, name)}: it must lie above 0 and at most at 1.")
        if not 0 < self.repetition_penalty < math.inf:
            raise UserError(f"`repetition_penalty` is {self.repetition_penalty}: it must be above 0, 1 is none.")
        if not 0 < self.code_time_limit < math.inf:
            raise UserError(f"`code_time_limit` is {self.code_time_limit}: it must be above 0 seconds.")
        if not self.model.strip():
            raise UserError("No model is named: give `--model`, a directory or a Hub id.")
        object.__setattr__(self, "benchmarks", find_benchmarks(self.benchmarks))

    def sampling(self) -> dict[str, Any]:
        """What decides which answers are drawn and how they are judged: it may not change in one output directory."""
        chosen = asdict(self)
        places: tuple[str, ...] = (
            "data_dir",
            "output_dir",
            "tensor_parallel_size",
            "data_parallel_size",
            "gpu_memory_utilization",
        )
        places += ("allow_code_execution", "judge_again")  # they change no answer
        if not self.code_benchmarks():
            places += ("code_time_limit",)
        return {name: value for name, value in chosen.items() if name not in places}

    def code_benchmarks(self) -> list[str]:
        """The sets among `benchmarks` whose answers are programs."""
        return [name for name in self.benchmarks if BENCHMARKS[name].kind == "code"]


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise UserError(f"`{name}` is {value}: it must be at least {least}.")


HINTS: dict[str, Any] = typing.get_type_hints(EvaluationSettings)


def read_settings(file: Path | None, given: dict[str, list[str]]) -> EvaluationSettings:
    """
    The settings in a YAML file, overridden by the command line's words.

    Args:
        file (`Path`, *optional*): The YAML file.
        given (`dict[str, list[str]]`): Knob -> the words behind its flag.

    Raises:
        UserError: if a key is not known, or a value is of another type or out of range.
    """
    values: dict[str, Any] = {}
    for name, value in (read_yaml(file) if file else {}).items():
        if name not in HINTS:
            hint = nearest(str(name), HINTS) or f" Keys: {', '.join(HINTS)}."
            raise UserError(f"{file}: the key `{name}` is not known in an evaluation.{hint}")
        try:
            values[name] = fit(_split(name, value), HINTS[name])
        except TypeError as error:
            raise UserError(f"{file}: `{name}`: {error}.") from None
    for name, words in given.items():
        try:
            if name == "benchmarks":
                values[name] = _split(name, ",".join(words))
            else:
                values[name] = fit_text(words, HINTS[name])
        except TypeError as error:
            raise UserError(f"`--{name}`: {error}.") from None
    return EvaluationSettings(**values)


def _split(name: str, value: Any) -> Any:
    if name != "benchmarks" or not isinstance(value, str):
        return value
    return [word.strip() for word in value.split(",") if word.strip()]


def default_folder(model: str) -> Path:
    """`runs/evaluation/` and the model's name; for a local directory, its last two parts."""
    parts = [part for part in Path(model).expanduser().resolve().parts if part != "/"] if Path(model).exists() else []
    name = "/".join(parts[-2:]) or model
    return Path("runs") / "evaluation" / re.sub(r"[^0-9A-Za-z.]+", "_", name).strip("_")
