"""Check settings that choose a checkpoint or the learning rate by a metric. transformers' default is the loss."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

_BY_METRIC = ("reduce_lr_on_plateau", "greedy")  # schedulers that read `metric_for_best_model`
# Metrics of all evaluations, in addition to those of each reward.
_LOGGED = (
    "reward", "reward_std", "frac_reward_zero_std", "entropy", "completions/mean_length", "completions/clipped_ratio",
    "completions/min_length", "completions/max_length", "completions/mean_terminated_length",
)  # fmt: skip


def check_best_metric(config: Any, refuse: Callable[[str, str], NoReturn]) -> None:
    """Call `refuse` if a `GRPOConfig` chooses by the loss, without an evaluation, or in an unknown direction."""
    choices = {
        "load_best_model_at_end": config.load_best_model_at_end,
        "save_strategy": config.save_strategy == "best",
        "lr_scheduler_type": config.lr_scheduler_type in _BY_METRIC,
    }
    metric, chosen = config.metric_for_best_model, [name for name, chooses in choices.items() if chooses]
    if metric in (None, "loss", "eval_loss"):
        for name in [*chosen, *([] if metric is None else ["metric_for_best_model"])]:
            refuse(name, "the loss does not measure the policy: set `metric_for_best_model`, such as eval_reward.")
        return
    for name in chosen if config.eval_strategy == "no" else ():
        refuse(name, "it reads the metrics of evaluations: set `eval_strategy`, and give evaluation data.")
    is_reward = re.fullmatch(r"(eval_)?(reward|rewards/.+/mean)", metric) is not None
    if config.greater_is_better is (False if is_reward else None):
        way_out = "greater is better: remove it." if is_reward else "set it to true or false for this metric."
        refuse("greater_is_better", f"`metric_for_best_model` is {metric}: {way_out}")


def scheduler_kwargs(config: Any) -> dict[str, Any] | None:
    """Return `lr_scheduler_kwargs`, with the direction of the metric for schedulers that read it."""
    if config.lr_scheduler_type not in _BY_METRIC:
        return config.lr_scheduler_kwargs
    return {"mode": "max" if config.greater_is_better else "min", **(config.lr_scheduler_kwargs or {})}


def check_logged(metric: str | None, reward_names: Sequence[str]) -> None:
    """Raise `ValueError` if no evaluation logs `metric_for_best_model`."""
    known = [f"rewards/{name}/{value}" for name in reward_names for value in ("mean", "std")] + [*_LOGGED]
    if metric is not None and metric.removeprefix("eval_") not in known:
        raise ValueError(
            f"`metric_for_best_model` is {metric!r}, which evaluations do not log: choose one of "
            f"{', '.join(f'eval_{name}' for name in known)}."
        )
