"""Loads the model of a recipe and its tokenizer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...support.errors import UserError, first_line, hub_errors

if TYPE_CHECKING:
    from ...train.recipe import Recipe


def load_model(recipe: Recipe, build: bool) -> tuple[str, Any, Any]:
    """The model's name, the model and its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging
    from trl import get_quantization_config

    from ...train.lookup import model_path

    logging.disable_progress_bar()
    name = model_path(recipe) if build else str(recipe.model.model_name_or_path)
    place = str(Path(name).expanduser()) if name.startswith("~") else name
    on_cpu = recipe.training.get("use_cpu") or not torch.accelerator.is_available()
    hub = {
        "revision": recipe.model.model_revision,
        "trust_remote_code": recipe.training.get("trust_remote_code", False),
    }
    loading = {
        "dtype": recipe.model.dtype,
        "quantization_config": get_quantization_config(recipe.model),
        "device_map": "cpu" if on_cpu else str(torch.accelerator.current_accelerator()),
        **(recipe.training.get("model_init_kwargs") or {}),
    }
    # A recipe's flash attention is for the forwards of training: it takes neither a CPU nor float32 weights.
    loading["attn_implementation"] = None if "flash" in str(recipe.attention) else recipe.attention
    loading = {key: value for key, value in loading.items() if value is not None}
    refusals: tuple[type[Exception], ...] = (*hub_errors(), ValueError, ImportError)
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, **hub)
        return name, AutoModelForCausalLM.from_pretrained(place, **hub, **loading), tokenizer
    except refusals as error:
        if os.environ.get("TRL_CES_DEBUG"):
            raise
        raise UserError(
            f"The model {name!r} cannot be loaded: {first_line(error)} (TRL_CES_DEBUG=1 shows where)"
        ) from error
