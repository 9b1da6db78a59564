"""Check settings that TRL, transformers and peft do not check, or check only after the model is loaded."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, NoReturn

Range = tuple[Callable[[Any], bool], str]  # validity check and the end of its error message


def is_number(value: Any) -> bool:
    """Return whether `value` is a finite number."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def check_ranges(settings: Any, ranges: Mapping[str, Range]) -> None:
    """Raise `ValueError` for the first attribute of `settings` that is out of range."""
    for name, (is_valid, reason) in ranges.items():
        if not is_valid(value := getattr(settings, name)):
            raise ValueError(f"`{name}` is {value!r}: {reason}")


def number(interval: str, *others: Any, whole: bool = False, note: str = "") -> Range:
    """Create a check for finite numbers in an interval such as `(0, 1]`; the check also accepts `others`."""
    low, high = map(float, interval[1:-1].split(","))

    def is_valid(value: Any) -> bool:
        inside = is_number(value) and low <= value <= high and (value > low or interval[0] == "[")
        return inside and (value < high or interval[-1] == "]") and (not whole or isinstance(value, Integral))

    alternatives = "".join(f", or {'null' if other is None else other}" for other in others)
    reason = f"it must be a {'whole' if whole else 'finite'} number in {interval}{alternatives}{note}."
    return lambda value: value in others or is_valid(value), reason


def choice(*values: str, others: tuple[Any, ...] = ()) -> Range:
    """Create a check for strings in `values`; the check also accepts `others`."""
    return lambda value: value in (*values, *others), f"choose one of {', '.join(values)}."


def _is_interval(value: Any) -> bool:
    return is_number(value) and value > 0 and (value < 1 or value == int(value))


_STEPS = "it must be a whole number of steps (at least 1), or a fraction in (0, 1) of the total steps"
_GROUPS: dict[str, Range] = {
    "temperature": number("(0, inf)", note="; at 0, all completions of a prompt would be identical, so use 1.0"),
    "repetition_penalty sapo_temperature_neg sapo_temperature_pos num_train_epochs": number("(0, inf)"),
    "learning_rate weight_decay adam_epsilon warmup_steps eval_delay beta epsilon vllm_server_timeout vespo_k_pos "
    "vespo_k_neg vespo_lambda_pos vespo_lambda_neg": number("[0, inf)"),
    "epsilon_high router_aux_loss_coef vllm_importance_sampling_clip_max vllm_importance_sampling_clip_min "
    "off_policy_mask_threshold neftune_noise_alpha": number("[0, inf)", None),
    "max_grad_norm": number("[0, inf)", math.inf, note="; 0 disables clipping"),
    "delta": number("[1, inf)", None, note="; `delta` caps importance ratios, which start at 1"),
    "entropy_coef entropy_coef_min entropy_coef_max entropy_coef_delta entropy_target": number("(-inf, inf)"),
    "top_p vllm_gpu_memory_utilization": number("(0, 1]"),
    "min_p": number("[0, 1]", None),
    "adam_beta1 adam_beta2": number("[0, 1)"),
    "top_entropy_quantile ref_model_mixup_alpha": number("[0, 1]"),
    "top_k": number("[0, inf)", None, -1, whole=True, note="; 0 keeps all tokens"),
    "seed": number("[0, 4294967295]", whole=True),
    "data_seed": number("[0, 4294967295]", None, whole=True),
    "dataloader_num_workers": number("[0, inf)", whole=True),
    "max_steps": number("[1, inf)", -1, whole=True, note=" to use `num_train_epochs`"),
    "per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps num_iterations "
    "ref_model_sync_steps vllm_tensor_parallel_size ddp_timeout": number("[1, inf)", whole=True),
    "num_generations_eval max_completion_length steps_per_generation generation_batch_size vllm_max_model_length "
    "eval_accumulation_steps dataloader_prefetch_factor": number("[1, inf)", None, whole=True),
    "reward_weights": (
        lambda weights: weights is None or (isinstance(weights, list | tuple) and all(map(is_number, weights))),
        "use a list of finite numbers.",
    ),
    "loss_type": choice("grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "importance_sampling_level": choice("token", "sequence"),
    "scale_rewards": choice("group", "batch", "none", others=(True, False)),
    "multi_objective_aggregation": choice("sum_then_normalize", "normalize_then_sum"),
    "save_steps": (_is_interval, f"{_STEPS}; to save no checkpoints, set `save_strategy` to no."),
    "logging_steps": (_is_interval, f"{_STEPS}; to log nothing, set `logging_strategy` to no."),
    "eval_steps": (lambda steps: steps is None or _is_interval(steps), f"{_STEPS}, or null to use `logging_steps`."),
}
TRL_RANGES = {name: group for names, group in _GROUPS.items() for name in names.split()}
MODEL_RANGES = {  # fields of TRL's ModelConfig
    "lora_r": number("[1, inf)", whole=True),
    "lora_alpha": number("(0, inf)"),
    "lora_dropout": number("[0, 1)"),
}

_ENDS = "to change where completions end, set `eos_token_id` in the tokenizer and in the generation config, and"
_ROWS = "the trainer samples one completion per row and `num_generations` completions per prompt, so"
# Keys of `generation_kwargs` (transformers and vLLM) that contradict the trainer's assumptions. Each error message
# ends with "remove `KEY`".
_CONTRADICTION_GROUPS = {
    "max_new_tokens max_tokens max_length": "set the config's `max_completion_length` instead, and",
    "eos_token_id pad_token_id stop_strings stop stop_token_ids ignore_eos": _ENDS,
    "seed": "this seed would make all completions of a group identical, so set the config's `seed` instead and",
    "do_sample n num_return_sequences num_beams best_of use_beam_search": _ROWS,
    "max_time prompt_lookup_num_tokens use_mtp token_healing truncate_prompt_tokens forced_bos_token_id "
    "forced_eos_token_id thinking_token_budget logprobs prompt_logprobs return_dict_in_generate disable_compile": (
        "the trainer does not support this key, so"
    ),
}
_CONTRADICTIONS = {name: reason for names, reason in _CONTRADICTION_GROUPS.items() for name in names.split()}
_NEUTRAL = {"do_sample": True, "n": 1, "num_return_sequences": 1, "num_beams": 1}
_FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "cache_implementation")
_NOT_BATCHED = ("encoder_repetition_penalty", "min_length", "min_new_tokens")  # ignored by continuous batching


def check_generation(config: Any, reject: Callable[[str, str], NoReturn]) -> None:
    """Call `reject` for settings of a `GRPOConfig` that the generation library ignores or does not support."""
    if config.max_completion_length is None and not config.use_vllm:
        reject("max_completion_length", "transformers would generate only 20 tokens, so set a limit, for example 512.")
    if config.max_completion_length is None and config.loss_type == "dr_grpo":
        reject("max_completion_length", "`dr_grpo` divides by this length, so set a limit or use a different loss.")
    if config.top_k == (None if config.use_vllm else -1):
        reject("top_k", "it must be a whole number >= 0; 0 keeps all tokens.")
    if config.use_transformers_continuous_batching and config.repetition_penalty != 1:
        reject("repetition_penalty", "use 1.0, or disable continuous batching, which ignores this penalty.")
    if isinstance(config.generation_kwargs, dict):
        _check_generation_kwargs(config, lambda reason: reject("generation_kwargs", reason))


def _check_generation_kwargs(config: Any, reject: Callable[[str], NoReturn]) -> None:
    from transformers import GenerationConfig  # this import takes seconds

    transformers_fields = vars(GenerationConfig())
    for name, value in config.generation_kwargs.items():
        if name in _FIELDS:
            if value != getattr(config, name):
                reject(f"set the config's `{name}` instead, and remove `{name}` here.")
        elif name in _CONTRADICTIONS and (name not in _NEUTRAL or value != _NEUTRAL[name]):
            reject(f"{_CONTRADICTIONS[name]} remove `{name}`.")
        elif (name in transformers_fields) == config.use_vllm:
            reject(
                f"{'vLLM' if config.use_vllm else 'transformers'} has no `{name}`, so check the spelling or remove it."
            )
        elif config.use_transformers_continuous_batching and name in _NOT_BATCHED:
            reject(f"continuous batching ignores `{name}`, so remove it.")


@contextmanager
def replace_generation_config(model: Any, config: Any) -> Iterator[None]:
    """Temporarily replace the model's generation config, which provides the default arguments of `generate`."""
    owner = model.get_base_model() if hasattr(model, "get_base_model") else model  # unwrap a PeftModel
    original, owner.generation_config = owner.generation_config, config
    try:
        yield
    finally:
        owner.generation_config = original


_BY_METRIC = ("reduce_lr_on_plateau", "greedy")  # schedulers that read `metric_for_best_model`
# Metrics that every evaluation logs, in addition to the metrics of each reward function.
_LOGGED = (
    "reward", "reward_std", "frac_reward_zero_std", "entropy", "completions/mean_length", "completions/clipped_ratio",
    "completions/min_length", "completions/max_length", "completions/mean_terminated_length",
    "completions/min_terminated_length", "completions/max_terminated_length",
)  # fmt: skip


def check_best_metric(config: Any, reject: Callable[[str, str], NoReturn]) -> None:
    """Call `reject` if `metric_for_best_model` is invalid, or if it is required but never evaluated."""
    needs_metric = {
        "load_best_model_at_end": config.load_best_model_at_end,
        "save_strategy": config.save_strategy == "best",
        "lr_scheduler_type": config.lr_scheduler_type in _BY_METRIC,
    }
    metric, settings = config.metric_for_best_model, [name for name, needed in needs_metric.items() if needed]
    if metric in (None, "loss", "eval_loss"):
        for name in [*settings, *([] if metric is None else ["metric_for_best_model"])]:
            reject(name, "set `metric_for_best_model`, for example to eval_reward; the loss does not measure quality.")
        return
    for name in settings if config.eval_strategy == "no" else ():
        reject(name, "set `eval_strategy` and provide evaluation data, which this setting requires.")
    is_reward = re.fullmatch(r"(eval_)?(reward|rewards/.+/mean)", metric) is not None
    if config.greater_is_better is (False if is_reward else None):
        remedy = f"a higher {metric} is better, so remove this setting." if is_reward else ""
        reject("greater_is_better", remedy or f"set it to true or false for {metric}.")


def scheduler_kwargs(config: Any) -> dict[str, Any] | None:
    """Return `lr_scheduler_kwargs`, with `mode` added for schedulers that read `metric_for_best_model`."""
    if config.lr_scheduler_type not in _BY_METRIC:
        return config.lr_scheduler_kwargs
    return {"mode": "max" if config.greater_is_better else "min", **(config.lr_scheduler_kwargs or {})}


def check_logged(metric: str | None, reward_names: Sequence[str]) -> None:
    """Raise `ValueError` if evaluations do not log `metric_for_best_model`."""
    known = [f"rewards/{name}/{value}" for name in reward_names for value in ("mean", "std")] + [*_LOGGED]
    if metric is not None and metric.removeprefix("eval_") not in known:
        raise ValueError(
            f"`metric_for_best_model` is {metric!r}, which evaluations do not log: choose one of "
            f"{', '.join(f'eval_{name}' for name in known)}."
        )
