"""Reject models that cannot be trained and reward models that do not return a single reward."""

import json
from pathlib import Path
from typing import Any

from .errors import UserError


def check_not_adapter(name: str) -> None:
    """Raise `UserError` if `name` is the directory of a peft adapter."""
    file = Path(name).expanduser() / "adapter_config.json"
    if file.is_file():
        base = json.loads(file.read_text(encoding="utf-8")).get("base_model_name_or_path") or "?"
        raise UserError(
            f"The model {name!r} is an adapter (such as LoRA) for {base}: merge the adapter with "
            "`merge_and_unload` and use the merged model, or train the adapter in a script with "
            "`PeftModel.from_pretrained(..., is_trainable=True)`."
        )


def check_policy(model: Any, tokenizer: Any) -> None:
    """Raise `UserError` if all weights are frozen, or if the tokenizer has tokens without an embedding."""
    # Ignore the adapter `ref`, TRL's copy of the policy's adapter for the reference model.
    if not any(weight.requires_grad for name, weight in model.named_parameters() if ".ref." not in name):
        raise UserError(
            "All weights of the model are frozen (`requires_grad` is false), so nothing is trainable: load an adapter "
            "with `PeftModel.from_pretrained(..., is_trainable=True)`, pass a `peft_config`, or unfreeze weights."
        )
    size = getattr(model.get_input_embeddings(), "num_embeddings", None) or model.config.get_text_config().vocab_size
    # Text models may share the tokenizer of an image or audio model. transformers adds an unknown token even to some
    # tokenizers that never produce this token.
    exempt = {getattr(tokenizer, f"{kind}_token", None) for kind in ("image", "video", "audio", "unk")}
    missing = {index: token for token, index in tokenizer.get_vocab().items() if index >= size and token not in exempt}
    if missing:
        raise UserError(
            f"The tokenizer has {len(missing)} tokens without an embedding (the first is {missing[min(missing)]!r} "
            f"with id {min(missing)}; the model has {size} embeddings): use the model's own tokenizer, or call "
            "`model.resize_token_embeddings(len(tokenizer))` and save the model."
        )


def check_reward_model(reward: Any) -> None:
    """Raise `UserError` if a reward model, given as a model or by name, does not have exactly one label."""
    from transformers import PreTrainedConfig

    labels = getattr(reward, "num_labels", 1)
    if isinstance(reward, str):
        try:
            config, _ = PreTrainedConfig.get_config_dict(reward)
        except OSError:  # loading the model will raise a clear error
            return
        # Without these keys, a config has two labels (a default that is not saved) or no head (TRL adds a random one).
        labels = config.get("num_labels") or len(config.get("id2label") or "12") if "auto_map" not in config else 1
    if labels != 1:
        name = reward if isinstance(reward, str) else type(reward).__name__
        raise UserError(
            f"The reward model {name} does not have exactly one label, but a reward is a single number: use a "
            "sequence classifier with `num_labels=1`, or a reward function that calls this model."
        )
