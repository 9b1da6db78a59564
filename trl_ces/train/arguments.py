"""`ScriptArguments`: what a recipe says besides the trainer's and the model's own settings."""

import re
from dataclasses import dataclass, field
from typing import Any

from ..support.prompts import PAPER_SYSTEM_PROMPT


@dataclass
class ScriptArguments:
    """
    What a training run needs besides [`CESConfig`] and [`~trl.ModelConfig`]: data, rewards, batch arithmetic.

    Each field is explained by its `help`, which `trl-ces train --help` prints.
    """

    dataset_name: str | None = field(
        default=None,
        metadata={
            "help": "Training problems: a Hub id (`zwhe99/DeepMath-103K`), a local .json, .jsonl or .parquet file or "
            "a folder of them. Required without `dataset_builder`."
        },
    )
    dataset_config: str | None = field(default=None, metadata={"help": "Configuration of `dataset_name` on the Hub."})
    dataset_split: str = field(default="train", metadata={"help": "Split to train on."})
    prompt_column: str | None = field(
        default=None,
        metadata={"help": "Column with the question, or with chat messages. Default: prompt, question or problem."},
    )
    solution_column: str | None = field(
        default=None, metadata={"help": "Column with the gold answer. Default: solution, final_answer or answer."}
    )
    solution_pattern: str | None = field(
        default=None,
        metadata={
            "help": "Regular expression with one group: the gold is the group of its last match in the solution "
            r"column, for example `####\s*(.+)` for GSM8K."
        },
    )
    max_train_samples: int | None = field(
        default=None,
        metadata={
            "help": "Rows to draw, in the order of `dataset_seed`. Default: all, 2000 of a `dataset_builder`; the "
            "paper: 2500."
        },
    )
    dataset_seed: int = field(
        default=42, metadata={"help": "Seed of the draw. It does not depend on the number of processes."}
    )
    num_eval_samples: int | None = field(
        default=None, metadata={"help": "Rows to hold back for evaluation, drawn after the training rows."}
    )
    eval_dataset_name: str | None = field(
        default=None, metadata={"help": "Evaluate on this data set instead: a Hub id or a local path, same columns."}
    )
    eval_dataset_config: str | None = field(default=None, metadata={"help": "Its configuration, if it is another."})
    eval_dataset_split: str = field(default="test", metadata={"help": "Split of `eval_dataset_name`."})
    system_prompt: str | None = field(
        default=PAPER_SYSTEM_PROMPT,
        metadata={"help": "System message of every prompt; null for none. Default: the paper's."},
    )
    dataset_builder: str | None = field(
        default=None,
        metadata={
            "help": "Dotted path of a function that makes the problems where no data set holds them: it takes the "
            "numbers of problems to train on and to hold back, `dataset_seed`, `system_prompt` and `dataset_kwargs`, "
            "and returns two data sets with columns `prompt` and `solution`, the second `None` where 0 are held back."
        },
    )
    dataset_kwargs: dict[str, Any] | None = field(
        default=None, metadata={"help": "Further arguments of `dataset_builder`, a mapping (`{max_terms: 4}`)."}
    )
    reward_funcs: list[str] = field(
        default_factory=lambda: ["accuracy_reward", "think_format_reward"],
        metadata={
            "help": "Reward functions: names in trl_ces.rewards or trl.rewards, or dotted paths "
            "(`my_package.my_reward`). A name that begins with `get_` is called with its `reward_kwargs`."
        },
    )
    reward_kwargs: dict[str, dict[str, Any]] | None = field(
        default=None,
        metadata={
            "help": "Settings of `reward_funcs` that are made by a call: a mapping from name to arguments "
            "(`{get_alp_length_reward: {beta: 0.5}}`)."
        },
    )
    reward_model_name_or_path: str | None = field(
        default=None, metadata={"help": "A reward model that scores beside the reward functions: a Hub id or a path."}
    )
    responses_per_step: int | None = field(
        default=None,
        metadata={
            "help": "Completions of one optimizer step over all processes (the paper: 4). With it, accumulation and "
            "steps_per_generation follow from the number of processes; per_device_train_batch_size is then an upper "
            "bound (default 2)."
        },
    )
    responses_per_rollout: int | None = field(
        default=None, metadata={"help": "Completions generated at a time (the paper: 48). Default: those of a step."}
    )
    model_builder: str | None = field(
        default=None,
        metadata={
            "help": "Dotted path of a function that makes the base model where there is none yet: it takes "
            "`model_name_or_path` and returns the directory or Hub id to load."
        },
    )
    model_builder_kwargs: dict[str, Any] | None = field(
        default=None, metadata={"help": "Further arguments of `model_builder`, a mapping (`{seed: 1}`)."}
    )

    def __post_init__(self):
        for name in ("max_train_samples", "num_eval_samples", "responses_per_step", "responses_per_rollout"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`{name}` is {value}: it must be at least 1, or null.")
        if self.dataset_name is None and self.dataset_builder is None:
            raise ValueError("`dataset_name` is missing: name a Hub data set or a local file, or a `dataset_builder`.")
        if self.dataset_builder is not None and (self.dataset_name or self.eval_dataset_name):
            raise ValueError(
                "`dataset_builder` makes the problems, and `dataset_name` or `eval_dataset_name` names others: set "
                "one of them to null. `num_eval_samples` holds problems back."
            )
        for kwargs, builder in (("dataset_kwargs", "dataset_builder"), ("model_builder_kwargs", "model_builder")):
            if getattr(self, kwargs) and getattr(self, builder) is None:
                raise ValueError(f"`{kwargs}` needs a `{builder}`: name it, or remove them.")
        if self.solution_pattern is not None:
            try:
                groups = re.compile(self.solution_pattern).groups
            except re.error as error:
                raise ValueError(
                    f"`solution_pattern` {self.solution_pattern!r} is not a regular expression: {error}."
                ) from None
            if groups != 1:
                raise ValueError(
                    f"`solution_pattern` {self.solution_pattern!r} has {groups} groups: mark the gold with one."
                )
