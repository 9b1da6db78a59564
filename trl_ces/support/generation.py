"""Keep rollouts and evaluations to their own sampling settings, and refuse settings that contradict the trainer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

_LENGTH = "the limit is `max_completion_length`: set this field, and remove `{}`."
_ENDS = (
    "the trainer ends completions at `eos_token_id` of the tokenizer and of the model's generation config: change it "
    "there, and remove `{}`."
)
_FORCED = "forced tokens would enter the loss: remove `{}`."
_ROWS = "the trainer expects one sampled completion per row, `num_generations` per prompt: remove `{}`."
_OUTPUTS = "the trainer chooses what generation returns: remove `{}`."
# Keys of `generation_kwargs`, of transformers and vLLM, that contradict what the trainer assumes -> way out.
_CONTRADICTIONS = {
    **dict.fromkeys(("max_new_tokens", "max_tokens", "max_length"), _LENGTH),
    **dict.fromkeys(("eos_token_id", "pad_token_id", "stop_strings", "stop", "stop_token_ids", "ignore_eos"), _ENDS),
    **dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id", "thinking_token_budget"), _FORCED),
    **dict.fromkeys(("do_sample", "n", "num_return_sequences", "num_beams", "best_of", "use_beam_search"), _ROWS),
    **dict.fromkeys(("prompt_lookup_num_tokens", "use_mtp", "token_healing", "truncate_prompt_tokens"), _ROWS),
    **dict.fromkeys(("logprobs", "prompt_logprobs", "return_dict_in_generate", "disable_compile"), _OUTPUTS),
    "seed": "the same seed in each call gives a group equal completions: set the field `seed`, and remove this one.",
    "max_time": "a limit in seconds makes a run depend on its machine: remove `{}`.",
}
_NEUTRAL = {"do_sample": True, "n": 1, "num_return_sequences": 1, "num_beams": 1}
_FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "cache_implementation")
# Ignored by transformers' continuous batching.
_NOT_BATCHED = ("encoder_repetition_penalty", "min_length", "min_new_tokens")


def check_generation(config: Any, refuse: Callable[[str, str], NoReturn]) -> None:
    """Call `refuse` for settings of a `GRPOConfig` that the generating library ignores or that contradict it."""
    if config.max_completion_length is None and not config.use_vllm:
        refuse("max_completion_length", "transformers would generate 20 tokens: set a limit, for example 512.")
    if config.top_k == (None if config.use_vllm else -1):
        refuse("top_k", "it must be a whole number >= 0; 0 keeps all tokens.")
    if config.use_transformers_continuous_batching and config.repetition_penalty != 1:
        refuse("repetition_penalty", "continuous batching ignores it: set it to 1.0, or use another way to generate.")
    if isinstance(config.generation_kwargs, dict):
        _check_generation_kwargs(config, lambda reason: refuse("generation_kwargs", reason))


def _check_generation_kwargs(config: Any, refuse: Callable[[str], NoReturn]) -> None:
    from transformers import GenerationConfig  # loading it takes seconds

    of_transformers = vars(GenerationConfig())
    for name, value in config.generation_kwargs.items():
        if name in _FIELDS:
            if value != getattr(config, name):
                refuse(f"`{name}` is a field of its own: set it there, and remove `{name}` here.")
        elif name in _CONTRADICTIONS and (name not in _NEUTRAL or value != _NEUTRAL[name]):
            refuse(_CONTRADICTIONS[name].format(name))
        elif (name in of_transformers) == config.use_vllm:
            refuse(f"{'vLLM' if config.use_vllm else 'transformers'} has no `{name}`: check its name, or remove it.")
        elif config.use_transformers_continuous_batching and name in _NOT_BATCHED:
            refuse(f"continuous batching ignores `{name}`: remove it.")


@contextmanager
def replaced_generation_config(model: Any, config: Any) -> Iterator[None]:
    """
    Replace the model's own generation config within the context.

    transformers fills fields that a call of `generate` leaves unset from the model's own config, which often sets a
    top-p or a repetition penalty.
    """
    owner = model.get_base_model() if hasattr(model, "get_base_model") else model  # of a PeftModel
    own, owner.generation_config = owner.generation_config, config
    try:
        yield
    finally:
        owner.generation_config = own
