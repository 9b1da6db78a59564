"""Recipe keys and command-line parsing of `trl-ces train`."""

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ..support.errors import UserError, kind, nearest
from ..support.prompts import PAPER_SYSTEM_PROMPT
from ..support.yaml import UNSAVABLE, parse_yaml, reject_secrets


@dataclass
class ScriptArguments:
    """Data, reward and batch-size arguments, in addition to [`CESConfig`] and [`~trl.ModelConfig`]."""

    dataset_name: str | None = field(
        default=None,
        metadata={
            "help": "Training problems: a Hub id (`zwhe99/DeepMath-103K`), a local .json, .jsonl or .parquet "
            "file, or a folder of such files."
        },
    )
    dataset_config: str | None = field(default=None, metadata={"help": "Configuration of `dataset_name` on the Hub."})
    dataset_split: str = field(default="train", metadata={"help": "Training split of `dataset_name`."})
    prompt_column: str | None = field(
        default=None,
        metadata={"help": "Column with the question, or with chat messages. Default: prompt, question or problem."},
    )
    solution_column: str | None = field(
        default=None, metadata={"help": "Column with the reference answer. Default: solution, final_answer or answer."}
    )
    solution_pattern: str | None = field(
        default=None,
        metadata={
            "help": "Regular expression with one group, for example `####\\s*(.+)` for GSM8K. The reference "
            "answer is what the group captures in the last match in the solution column."
        },
    )
    max_train_samples: int | None = field(
        default=None,
        metadata={
            "help": "Number of training rows to draw with `dataset_seed`. Default: all rows, or 2000 problems if "
            "`dataset_builder` is set. The paper uses 2500."
        },
    )
    dataset_seed: int = field(default=42, metadata={"help": "Seed for drawing rows."})
    num_eval_samples: int | None = field(
        default=None, metadata={"help": "Number of rows held out for evaluation, drawn after the training rows."}
    )
    eval_dataset_name: str | None = field(
        default=None, metadata={"help": "Separate evaluation data, with the same columns."}
    )
    eval_dataset_config: str | None = field(default=None, metadata={"help": "Configuration of `eval_dataset_name`."})
    eval_dataset_split: str = field(default="test", metadata={"help": "Split of `eval_dataset_name`."})
    system_prompt: str | None = field(
        default=PAPER_SYSTEM_PROMPT,
        metadata={"help": "System message for every prompt, or null for no system message."},
    )
    prompt_template: str | None = field(
        default=None,
        metadata={
            "help": "Text prompt for a base model without a chat template, such as "
            '`"Question: {question}\\nAnswer:"` in YAML. Only `{question}` is replaced; `system_prompt` is not used.'
        },
    )
    dataset_builder: str | None = field(
        default=None,
        metadata={
            "help": "Dotted path of a function that generates the problems. It takes the numbers of training and "
            "held-out problems, `dataset_seed`, `system_prompt` and `dataset_kwargs`, and returns two "
            "datasets with columns `prompt` and `solution`; the second is `None` if no problems are held "
            "out."
        },
    )
    dataset_kwargs: dict[str, Any] | None = field(
        default=None, metadata={"help": "Additional arguments for `dataset_builder`, such as `{max_terms: 4}`."}
    )
    reward_funcs: list[str] = field(
        default_factory=lambda: ["accuracy_reward", "think_format_reward"],
        metadata={
            "help": "Reward functions: names in trl_ces.rewards or trl.rewards, or dotted paths "
            "(`my_package.my_reward`). Names that begin with `get_` are factories, called with their "
            "`reward_kwargs`."
        },
    )
    reward_kwargs: dict[str, dict[str, Any]] | None = field(
        default=None,
        metadata={
            "help": "Arguments for the factories in `reward_funcs`, by name (`{get_alp_length_reward: {beta: 0.5}}`)."
        },
    )
    reward_model_name_or_path: str | None = field(
        default=None, metadata={"help": "Reward model, in addition to the reward functions."}
    )
    responses_per_step: int | None = field(
        default=None,
        metadata={
            "help": "Completions per optimizer step across all processes (4 in the paper). If set, "
            "`gradient_accumulation_steps` and `steps_per_generation` are derived, and "
            "`per_device_train_batch_size` is an upper bound (default 2)."
        },
    )
    responses_per_rollout: int | None = field(
        default=None, metadata={"help": "Completions per rollout (48 in the paper). Default: `responses_per_step`."}
    )
    model_builder: str | None = field(
        default=None,
        metadata={
            "help": "Dotted path of a function that creates the base model if necessary. It takes "
            "`model_name_or_path` and returns the directory or Hub id to load."
        },
    )
    model_builder_kwargs: dict[str, Any] | None = field(
        default=None, metadata={"help": "Additional arguments for `model_builder`, such as `{seed: 1}`."}
    )
    overwrite_output_dir: bool = field(
        default=False,
        metadata={"help": "Delete the checkpoints of an earlier run in `output_dir` after the first optimizer step."},
    )
    resume_with_changes: bool = field(
        default=False,
        metadata={
            "help": "Resume even if settings that affect training have changed. The model card lists the changes."
        },
    )

    def __post_init__(self):
        for name in ("max_train_samples", "num_eval_samples", "responses_per_step", "responses_per_rollout"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`{name}` is {value}: it must be at least 1, or null.")
        if self.dataset_seed < 0:
            raise ValueError(f"`dataset_seed` is {self.dataset_seed}: it must be at least 0.")
        if self.dataset_name is None and self.dataset_builder is None:
            raise ValueError(
                "`dataset_name` is missing: set it to a Hub id or a local file, or set `dataset_builder`."
            )
        if self.dataset_builder is not None and (self.dataset_name or self.eval_dataset_name):
            raise ValueError(
                "`dataset_builder` cannot be combined with `dataset_name` or `eval_dataset_name`: set one of them "
                "to null. To hold out some of the builder's problems, set `num_eval_samples`."
            )
        if self.prompt_template is not None:
            if self.prompt_template.count("{question}") != 1:
                raise ValueError(f"`prompt_template` is {self.prompt_template!r}: it must contain {{question}} once.")
            if self.dataset_builder or (self.system_prompt or PAPER_SYSTEM_PROMPT) != PAPER_SYSTEM_PROMPT:
                other = "dataset_builder" if self.dataset_builder else "system_prompt"
                raise ValueError(f"`prompt_template` cannot be combined with `{other}`: set one of them to null.")
        for kwargs, builder in (("dataset_kwargs", "dataset_builder"), ("model_builder_kwargs", "model_builder")):
            if getattr(self, kwargs) and getattr(self, builder) is None:
                raise ValueError(f"`{kwargs}` needs a `{builder}`: set both, or remove `{kwargs}`.")
        if self.solution_pattern is not None and re.compile(self.solution_pattern).groups != 1:
            raise ValueError(f"`solution_pattern` is {self.solution_pattern!r}: it must contain exactly one group.")


RESUME = "resume_from_checkpoint"
START = (RESUME, "overwrite_output_dir", "resume_with_changes")  # settings that are not saved with the run
BOOL_WORDS = {"yes": True, "on": True, "no": False, "off": False}


@dataclass(frozen=True)
class RecipeField:
    """Recipe key, with the dataclass that defines the key, the type hint, the default and the choices."""

    owner: type
    name: str
    hint: Any
    default: Any
    choices: tuple[Any, ...]


@cache
def recipe_fields() -> dict[str, RecipeField]:
    """Return all recipe keys by name."""
    from trl import ModelConfig

    from ..config import CESConfig

    keys: dict[str, RecipeField] = {}
    for owner in (ScriptArguments, ModelConfig, CESConfig):
        hints = typing.get_type_hints(owner)
        for entry in (entry for entry in dataclasses.fields(owner) if entry.init):  # type: ignore[arg-type]
            default = entry.default if entry.default_factory is dataclasses.MISSING else entry.default_factory()
            # The hint is a path, but the Trainer also accepts true (the last checkpoint in `output_dir`) and false.
            hint = str | bool | None if entry.name == RESUME else hints[entry.name]
            if entry.name.endswith("_kwargs") and str in typing.get_args(hint):  # TRL also accepts JSON text
                hint = dict[str, Any] | None
            choices = tuple(entry.metadata.get("choices") or ())
            keys[entry.name] = RecipeField(owner, entry.name, hint, default, choices)
    return keys


def check_key(name: str, source: str, options: Iterable[str] = ()) -> None:
    """Raise `UserError` if `name` in the file `source` is not a recipe key; suggest a key or one of `options`."""
    if name not in recipe_fields():
        reject_secrets({name: "?"}, source)
        hint = nearest(str(name), [*recipe_fields(), *options]) or " `trl-ces train --help` lists all keys."
        raise UserError(f"{source}: unknown key `{name}`.{hint}")


def coerce(value: Any, hint: Any) -> Any:
    """Convert integers to floats and `yes`, `on`, `no` and `off` to bool as `hint` requires, or raise `TypeError`."""
    from huggingface_hub.dataclasses import type_validator

    members = typing.get_args(hint) or (hint,)
    if type(value) is int and float in members and int not in members:
        value = float(value)
    elif isinstance(value, list) and list[float] in members:
        value = [coerce(item, float) for item in value]
    elif isinstance(value, str) and bool in members and str not in members:
        value = BOOL_WORDS.get(value, value)
    try:
        type_validator("value", value, hint)
    except TypeError:
        raise TypeError(f"expected {inspect.formatannotation(hint)}, got {kind(value)} {value!r:.80}") from None
    return value


def coerce_words(words: list[str], hint: Any) -> Any:
    """Parse the words after a flag as type `hint`. A flag without a value means `True`; `null` means `None`."""
    members = (() if typing.get_origin(hint) is list else typing.get_args(hint)) or (hint,)
    item = next((member for member in members if typing.get_origin(member) is list), None)
    if not words and bool in members:
        return True
    is_list = len(words) > 1 or (item is not None and str not in members and words[:1] != ["null"])
    if is_list and item is not None and not words[0].startswith("["):
        return [coerce_words([word], typing.get_args(item)[0]) for word in words]
    if len(words) != 1:
        raise TypeError(f"expected {inspect.formatannotation(hint)}, got {len(words)} values")
    word = words[0]
    is_text = str in members and float not in members and not (word == "null" and type(None) in members)
    is_mapping = word.startswith("{") and any(dict in (member, typing.get_origin(member)) for member in members)
    is_bool = bool in members and word.lower() in ("true", "false")
    return coerce(word if is_text and not is_mapping and not is_bool else parse_yaml(word), hint)


@dataclass
class CommandLine:
    """Parsed command line: recipe and overlays, accelerate configuration, recipe fields and accelerate flags."""

    config: list[str] = field(default_factory=list)
    accelerate_config: str | None = None
    overrides: dict[str, list[str]] = field(default_factory=dict)
    accelerate_flags: dict[str, list[str]] = field(default_factory=dict)


@cache
def accelerate_flags() -> dict[str, bool]:
    """Map each flag of `accelerate launch` to whether it takes a value."""
    from accelerate.commands.launch import launch_command_parser

    excluded = {"help", "cpu", "env", "config_file", "module", "no_python", "gpu_ids"}  # `trl-ces train` sets these
    return {
        option[2:]: action.nargs != 0
        for action in launch_command_parser()._actions
        for option in action.option_strings
        if option.startswith("--") and "-" not in option[2:] and option[2:] not in excluded
    }


def read_words(words: list[str], options: Iterable[str] = ()) -> CommandLine:
    """Parse a command line; `options` contains the names of the subcommand's own options."""
    line, groups = CommandLine(), dict[str, list[str]]()
    for word in words:
        if UNSAVABLE.search(word):
            raise UserError(f"command line: {word!a:.80} is not UTF-8 text.")
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            groups.pop(name, None)  # the last occurrence takes precedence
            groups[name] = [value] if equals else []
        elif not groups:
            raise UserError(f"command line: {word!r} is not a flag: to use a recipe, pass `--config {word}`.")
        else:
            groups[next(reversed(groups))].append(word)
    for name, values in groups.items():
        if name in recipe_fields():  # recipe fields take precedence over accelerate's flags
            line.overrides[name] = values
            continue
        known = ["config", "accelerate_config", *accelerate_flags()]
        if name not in known:
            check_key(name, "command line", [*options, *known])
        takes_value = accelerate_flags().get(name, True)
        if not values if name == "config" else len(values) != int(takes_value):
            expected = "a value" if takes_value else "no value"
            raise UserError(f"command line: `--{name}` takes {expected}; number of values given: {len(values)}.")
        if name == "config":
            line.config = values
        elif name == "accelerate_config":
            line.accelerate_config = values[0]
        else:
            line.accelerate_flags[name] = values
    return line
