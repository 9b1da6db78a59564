"""A model's shape without its weights: from a directory, from the Hub, or known here for the shipped recipes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..support.errors import UserError, first_line, hub_errors
from ..support.hub import try_hub_once

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def shape_of(model_type: str, tied: bool, *numbers: int) -> dict[str, Any]:
    """The config.json of a model."""
    names = (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
    )
    return {"model_type": model_type, "tie_word_embeddings": tied, **dict(zip(names, numbers, strict=True))}


# From each model's config.json on the Hub, so that the shipped recipes can be planned offline. DeepSeek's distilled
# Qwens have the shapes of Qwen2.5-Math, untied. tests/train/test_shapes.py counts their parameters.
KNOWN_SHAPES = {
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": shape_of("qwen2", False, 1536, 8960, 28, 12, 2, 151936),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": shape_of("qwen2", False, 3584, 18944, 28, 28, 4, 152064),
    "HuggingFaceTB/SmolLM2-135M-Instruct": shape_of("llama", True, 576, 1536, 30, 9, 3, 49152),
}
# The quickstart's base model, which its recipes build on first use.
BUILT_SHAPES = {
    "trl_ces.lab.tasks.arithmetic_model.make_base_model": shape_of("llama", True, 96, 256, 3, 4, 4, 18),
}


@dataclass(frozen=True)
class ModelShape:
    """A model's configuration."""

    settings: str  # as JSON, with `model_type`; a string, so that it can be a cache key

    def config(self) -> PretrainedConfig:
        """A new configuration object."""
        from transformers import AutoConfig

        return AutoConfig.for_model(**json.loads(self.settings))

    def weights(self) -> int:
        """Number of weights, of a model without content."""
        import torch
        from transformers import AutoModelForCausalLM

        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(self.config()).num_parameters()


def find_shape(
    name: str, builder: str | None = None, given: str | None = None, *, offline: bool = False
) -> ModelShape:
    """Find the shape of the model `name`; `offline` asks no Hub for it, only the Hub's cache."""
    if given is not None:
        return _read_file(given)
    if (Path(name).expanduser() / "config.json").is_file():
        return _read_file(name)
    if name in KNOWN_SHAPES:
        return ModelShape(json.dumps(KNOWN_SHAPES[name]))
    if builder in BUILT_SHAPES:
        return ModelShape(json.dumps(BUILT_SHAPES[str(builder)]))
    from transformers import AutoConfig

    if not offline:
        try_hub_once(name)
    refusals: tuple[type[Exception], ...] = (*hub_errors(), ValueError, KeyError)
    try:
        config = AutoConfig.from_pretrained(name, local_files_only=offline)
    except refusals as error:
        raise UserError(
            f"The shape of {name!r} is not known here and cannot be read ({first_line(error)}): give its "
            "config.json, or the directory that holds it, with `--model_config`."
        ) from error
    return ModelShape(json.dumps(config.to_diff_dict() | {"model_type": config.model_type}, default=str))


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
    return ModelShape(json.dumps(settings, sort_keys=True))
