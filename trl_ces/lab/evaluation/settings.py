"""Settings of an evaluation, specified in Python, in a YAML file or on the command line."""

import json
import math
import re
import typing
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ...support.errors import UserError, nearest
from ...support.prompts import PAPER_SYSTEM_PROMPT
from ...support.yaml import read_yaml, reject_secrets
from .benchmarks import OWN, SETS, find_benchmarks

# Settings that do not affect completions.
NOT_SAMPLING = {"data_dir", "output_dir", "allow_code_execution", "gpu_memory_utilization"}

# Pairs of a predicate for valid values and a description of these values.
SWITCH = (lambda value: isinstance(value, bool), "true or false")
COUNT = (lambda value: isinstance(value, int) and value >= 1, "a whole number of at least 1")
SEED = (lambda value: isinstance(value, int) and value >= 0, "a whole number of at least 0")
NOT_NEGATIVE = (lambda value: 0 <= value < math.inf, "0 or above")
POSITIVE = (lambda value: 0 < value < math.inf, "above 0")
FRACTION = (lambda value: 0 < value <= 1, "above 0 and at most 1")
BACKEND = (lambda value: value in ("auto", "vllm", "transformers"), "auto, vllm or transformers")
DTYPE = (lambda value: value in ("auto", "bfloat16", "float16", "float32"), "auto, bfloat16, float16 or float32")
TEXT = (lambda value: isinstance(value, str), "text")
TEXTS = (lambda value: isinstance(value, str) or all(isinstance(text, str) for text in value), "a list of names")
TEMPLATE = (lambda value: str(value).count("{question}") == 1, "a string that contains {question} once, or null")


def _setting(default: Any, text: str, limits: Any = TEXT) -> Any:
    return field(default=default, metadata={"help": text, "range": limits})


@dataclass(frozen=True)
class EvaluationSettings:
    """Settings of an evaluation; defaults follow section 3.3 of the paper where it states a value."""

    model: str = _setting("", "Hub id, or directory of a saved model or LoRA adapter")
    benchmarks: list[str] = field(
        default_factory=list, metadata={"help": "benchmarks and groups, separated by commas", "range": TEXTS}
    )
    data: str | None = _setting(
        None,
        "your own problems, instead of benchmarks: a .json, .jsonl or .parquet file, or the Hub id of a dataset "
        "without configurations (test split)",
    )
    data_dir: str | None = _setting(None, "folder with math/, reasoning/ and code/; default: load from the Hub")
    output_dir: str | None = _setting(
        None, "folder for completions and results; default: a folder in runs/evaluation/"
    )
    backend: str = _setting("auto", "vllm or transformers; auto: vllm if installed", BACKEND)
    num_samples: int = _setting(4, "completions per problem", COUNT)
    max_problems: int | None = _setting(None, "maximum number of problems per set, evenly spaced", COUNT)
    max_new_tokens: int = _setting(
        16384, "maximum completion length in tokens, including thinking; not stated in the paper", COUNT
    )
    temperature: float = _setting(0.4, "sampling temperature; 0 is greedy", NOT_NEGATIVE)
    top_p: float = _setting(0.95, "nucleus sampling: probability mass", FRACTION)
    top_k: int | None = _setting(None, "top-k sampling: number of most likely tokens; default: all", COUNT)
    repetition_penalty: float = _setting(
        1.05, "penalty for tokens that already occur in the prompt or completion; 1: no penalty", POSITIVE
    )
    seed: int = _setting(0, "sampling seed", SEED)
    system_prompt: str | None = _setting(PAPER_SYSTEM_PROMPT, "system message; null: no system message")
    prompt_template: str | None = _setting(None, "plain-text prompt for a base model, e.g. 'Q: {question}'", TEMPLATE)
    dtype: str = _setting("auto", "dtype of the weights; auto: as saved, but vLLM converts float32 to 16 bits", DTYPE)
    batch_size: int = _setting(16, "transformers: completions per batch", COUNT)
    gpu_memory_utilization: float = _setting(0.9, "vLLM: fraction of GPU memory to use", FRACTION)
    allow_code_execution: bool = _setting(
        False, "run model-written programs in a sandbox; required for code benchmarks", SWITCH
    )
    code_time_limit: float = _setting(60.0, "time limit in seconds for all tests of one program", POSITIVE)
    trust_remote_code: bool = _setting(False, "run code from a Hub model's repository", SWITCH)

    def __post_init__(self) -> None:
        reject_secrets(vars(self), "The evaluation")
        for setting in fields(self):
            value, (in_range, description) = getattr(self, setting.name), setting.metadata["range"]
            if value is None and type(None) in typing.get_args(setting.type):
                continue
            try:
                # Python accepts `True` as the number 1.
                is_valid = in_range(value) and isinstance(value, bool) == (in_range is SWITCH[0])
            except TypeError:  # text or null instead of a number
                is_valid = False
            if not is_valid:
                raise UserError(f"`{setting.name}` is {value!r:.80}: it must be {description}.")
        if not self.model.strip():
            raise UserError("No model is specified: set `--model` to a directory or a Hub id.")
        given = [self.benchmarks] if isinstance(self.benchmarks, str) else self.benchmarks
        names = [word.strip() for text in given for word in text.split(",") if word.strip()]
        if self.data is not None and names not in ([], [OWN]):
            raise UserError("`data` and `benchmarks` are both set: remove one of them.")
        object.__setattr__(self, "benchmarks", find_benchmarks(names) if self.data is None else [OWN])

    def sampling(self) -> dict[str, Any]:
        """Return the settings that determine completions and grades, and that must not change within a directory."""
        ignored = NOT_SAMPLING if self.code_benchmarks() else {*NOT_SAMPLING, "code_time_limit"}
        # Output directories of earlier versions lack these settings.
        ignored |= {name for name in ("data", "prompt_template") if getattr(self, name) is None}
        return {name: value for name, value in asdict(self).items() if name not in ignored}

    def code_benchmarks(self) -> list[str]:
        return [name for name in self.benchmarks if SETS[name].kind == "code"]


def make_settings(values: dict[str, Any], source: str) -> EvaluationSettings:
    """Create settings from a mapping; error messages call the mapping `source`."""
    keys = [setting.name for setting in fields(EvaluationSettings)]
    reject_secrets(values, source)
    for name in values:
        if name not in keys:
            hint = nearest(str(name), keys) or f" Keys: {', '.join(keys)}."
            raise UserError(f"{source}: the key `{name}` is not an evaluation setting.{hint}")
    return EvaluationSettings(**values)


def read_settings(file: Path | None, options: dict[str, Any]) -> EvaluationSettings:
    """Read settings from a YAML file; command-line options (text) override them."""
    values = {} if file is None else read_yaml(file)
    for name, other in (("data", "benchmarks"), ("benchmarks", "data")):
        if name in options:
            values.pop(other, None)
    hints = {setting.name: setting.type for setting in fields(EvaluationSettings)}
    return make_settings(values | {name: _from_text(text, hints[name]) for name, text in options.items()}, str(file))


def _from_text(text: Any, hint: Any) -> Any:
    """Parse the value of an option; return invalid text unchanged, so that `EvaluationSettings` rejects it."""
    if str in (typing.get_args(hint) or (hint,)) and text != "null":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def default_folder(model: str) -> Path:
    """Return `runs/evaluation/NAME`, where NAME is a Hub id or the last two parts of a local path."""
    parts = [part for part in Path(model).resolve().parts if part != "/"] if Path(model).exists() else []
    name = "/".join(parts[-2:]) or model
    return Path("runs") / "evaluation" / re.sub(r"[^0-9A-Za-z.]+", "_", name).strip("_")
