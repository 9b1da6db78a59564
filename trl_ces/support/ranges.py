"""Ranges of settings that TRL, transformers and peft do not check, or check only after the model is loaded."""

import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

Range = tuple[Callable[[Any], bool], str]  # function that returns whether a value is valid, end of the error message


def is_count(value: Any) -> bool:
    """Return whether `value` is an integer of at least 1."""
    return isinstance(value, Integral) and not isinstance(value, bool) and value >= 1


def is_number(value: Any) -> bool:
    """Return whether `value` is a finite number."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def check_ranges(settings: Any, ranges: Mapping[str, Range]) -> None:
    """Raise `ValueError` for the first attribute of `settings` that is out of range."""
    for name, (is_valid, reason) in ranges.items():
        if not is_valid(value := getattr(settings, name)):
            raise ValueError(f"`{name}` is {value!r}: {reason}")


def _number(interval: str, *others: Any, whole: bool = False, note: str = "") -> Range:
    """Make the range of a finite number in an interval such as `(0, 1]`; `others` are also allowed."""
    low, high = map(float, interval[1:-1].split(","))

    def is_valid(value: Any) -> bool:
        inside = is_number(value) and low <= value <= high and (value > low or interval[0] == "[")
        return inside and (value < high or interval[-1] == "]") and (not whole or isinstance(value, Integral))

    words = "".join(f", or {'null' if other is None else other}" for other in others)
    reason = f"it must be a {'whole' if whole else 'finite'} number in {interval}{words}{note}."
    return lambda value: value in others or is_valid(value), reason


def _is_interval(value: Any) -> bool:
    return is_number(value) and value > 0 and (value < 1 or value == int(value))


_STEPS = "it must be a whole number of steps >= 1, or a share of all steps in (0, 1)"
_GROUPS: dict[str, Range] = {
    "temperature": _number("(0, inf)", note="; with 0, all completions of a prompt are equal; use 1.0"),
    "repetition_penalty sapo_temperature_neg sapo_temperature_pos num_train_epochs": _number("(0, inf)"),
    "learning_rate weight_decay adam_epsilon warmup_steps eval_delay beta epsilon vllm_server_timeout vespo_k_pos "
    "vespo_k_neg vespo_lambda_pos vespo_lambda_neg": _number("[0, inf)"),
    "epsilon_high router_aux_loss_coef vllm_importance_sampling_clip_max vllm_importance_sampling_clip_min "
    "off_policy_mask_threshold neftune_noise_alpha": _number("[0, inf)", None),
    "max_grad_norm": _number("[0, inf)", None, math.inf, note="; 0 turns clipping off"),
    "delta": _number("[1, inf)", None, note="; it limits importance ratios, which begin at 1"),
    "entropy_coef entropy_coef_min entropy_coef_max entropy_coef_delta entropy_target": _number("(-inf, inf)"),
    "top_p vllm_gpu_memory_utilization": _number("(0, 1]"),
    "min_p": _number("[0, 1]", None),
    "adam_beta1 adam_beta2": _number("[0, 1)"),
    "top_entropy_quantile ref_model_mixup_alpha": _number("[0, 1]"),
    "top_k": _number("[0, inf)", None, -1, whole=True, note="; 0 keeps all tokens"),
    "seed": _number("[0, 4294967295]", whole=True),
    "data_seed": _number("[0, 4294967295]", None, whole=True),
    "dataloader_num_workers": _number("[0, inf)", whole=True),
    "max_steps": _number("[1, inf)", -1, whole=True, note=" for `num_train_epochs`"),
    "per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps num_iterations "
    "ref_model_sync_steps vllm_tensor_parallel_size ddp_timeout": _number("[1, inf)", whole=True),
    "num_generations_eval max_completion_length steps_per_generation generation_batch_size vllm_max_model_length "
    "eval_accumulation_steps dataloader_prefetch_factor": _number("[1, inf)", None, whole=True),
    "reward_weights": (lambda weights: weights is None or all(map(is_number, weights)), "use finite numbers."),
    "save_steps": (_is_interval, f"{_STEPS}; to save no checkpoints, set `save_strategy` to no."),
    "logging_steps": (_is_interval, f"{_STEPS}; to log nothing, set `logging_strategy` to no."),
    "eval_steps": (lambda steps: steps is None or _is_interval(steps), f"{_STEPS}, or null for `logging_steps`."),
}
TRL_RANGES = {name: group for names, group in _GROUPS.items() for name in names.split()}
MODEL_RANGES = {  # of TRL's ModelConfig
    "lora_r": _number("[1, inf)", whole=True),
    "lora_alpha": _number("(0, inf)"),
    "lora_dropout": _number("[0, 1)"),
}
