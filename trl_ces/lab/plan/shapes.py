"""A model's shape without its weights: from a directory, from the Hub, or known here for the shipped recipes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...support.errors import UserError, first_line, hub_errors

if TYPE_CHECKING:
    from transformers import PretrainedConfig

# From each model's config.json on the Hub, so that the shipped recipes can be planned offline. DeepSeek's distilled
# Qwens have the shapes of Qwen2.5-Math, untied. tests/lab/plan/test_plan.py counts their parameters.
KNOWN_SHAPES: dict[str, dict[str, Any]] = {
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": {
        "model_type": "qwen2",
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": False,
    },
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "tie_word_embeddings": False,
    },
    "HuggingFaceTB/SmolLM2-135M-Instruct": {
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    },
}
# The quickstart's base model, which its recipes build on first use: trl_ces/lab/worlds/arithmetic_model.py.
BUILT_SHAPES: dict[str, dict[str, Any]] = {
    "trl_ces.lab.worlds.arithmetic_model.make_base_model": {
        "model_type": "llama",
        "hidden_size": 96,
        "intermediate_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 18,
        "tie_word_embeddings": True,
    },
}


@dataclass(frozen=True)
class ModelShape:
    """A model's configuration and where it comes from."""

    settings: str  # the configuration as JSON, with `model_type`; a string, so that it can be a cache key
    source: str  # where it comes from, in words

    def config(self) -> PretrainedConfig:
        """A new configuration object."""
        from transformers import AutoConfig

        return AutoConfig.for_model(**json.loads(self.settings))


def find_shape(name: str, builder: str | None = None, given: str | None = None) -> ModelShape:
    """Find the shape of the model `name`."""
    if given is not None:
        return _read_file(given)
    if (Path(name).expanduser() / "config.json").is_file():
        return _read_file(name)
    if name in KNOWN_SHAPES:
        return ModelShape(json.dumps(KNOWN_SHAPES[name]), "known to trl-ces")
    if builder in BUILT_SHAPES:
        return ModelShape(json.dumps(BUILT_SHAPES[str(builder)]), f"made by {builder}")
    from transformers import AutoConfig

    refusals: tuple[type[Exception], ...] = (*hub_errors(), ValueError, KeyError)
    try:
        config = AutoConfig.from_pretrained(name)
    except refusals as error:
        raise UserError(
            f"The shape of {name!r} is not known here and cannot be read ({first_line(error)}): give its "
            "config.json, or the directory that holds it, with `--model_config`."
        ) from error
    return ModelShape(json.dumps(config.to_diff_dict() | {"model_type": config.model_type}, default=str), "the Hub")


def _read_file(given: str) -> ModelShape:
    path = Path(given).expanduser()
    path = path / "config.json" if path.is_dir() else path
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as a model's config.json ({first_line(error)}).") from None
    from transformers import CONFIG_MAPPING

    if not isinstance(settings, dict) or settings.get("model_type") not in CONFIG_MAPPING:
        raise UserError(f"{path} has no `model_type` that transformers knows: give the config.json of a model.")
    return ModelShape(json.dumps(settings, sort_keys=True), str(path))
