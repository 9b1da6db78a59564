"""Refuse models and reward models that cannot be trained, or whose rewards would be noise, before training."""

import json
from pathlib import Path
from typing import Any


def check_is_no_adapter(name: str) -> None:
    """Raise `ValueError` if `name` is the directory of a peft adapter."""
    file = Path(name).expanduser() / "adapter_config.json"
    if file.is_file():
        adapter = json.loads(file.read_text(encoding="utf-8"))
        raise ValueError(
            f"The model {name!r} is an adapter ({adapter.get('peft_type')}) of {adapter.get('base_model_name_or_path')}: "
            "name a model into which it is merged (`merge_and_unload`), or pass a script's trainer "
            "`PeftModel.from_pretrained(base_model, adapter, is_trainable=True)`."
        )


def check_trainable(model: Any) -> None:
    """Raise `ValueError` if all weights are frozen, except for the adapter that TRL adds as reference model."""
    if not any(weight.requires_grad for name, weight in model.named_parameters() if ".ref." not in name):
        raise ValueError(
            "All weights of the model are frozen (`requires_grad` is false), so nothing is trainable: load an adapter "
            "with `PeftModel.from_pretrained(..., is_trainable=True)`, pass a `peft_config`, or unfreeze weights."
        )


def check_vocabulary(model: Any, tokenizer: Any) -> None:
    """Raise `ValueError` if the tokenizer can return ids for which the model has no embedding."""
    rows = getattr(model.get_input_embeddings(), "num_embeddings", None) or model.config.get_text_config().vocab_size
    # Text models may share the tokenizer of a model for images and sound.
    others = {getattr(tokenizer, f"{kind}_token", None) for kind in ("image", "video", "audio")}
    missing = {index: token for token, index in tokenizer.get_vocab().items() if index >= rows and token not in others}
    if missing:
        raise ValueError(
            f"The tokenizer has {len(missing)} tokens without an embedding, the first {missing[min(missing)]!r} with id "
            f"{min(missing)}, and the vocabulary of the model has {rows}: use the model's own tokenizer, or call "
            "`model.resize_token_embeddings(len(tokenizer))` and save the model."
        )


def check_reward_model(reward: Any) -> None:
    """Raise `ValueError` if a reward model, or the one that a text names, does not have exactly one output."""
    from transformers import PreTrainedConfig

    if not isinstance(reward, str):
        labels, kind = getattr(reward, "num_labels", 1), type(reward).__name__  # functions have no labels
    else:
        try:
            config, _ = PreTrainedConfig.get_config_dict(reward)
        except OSError:  # loading it will fail with a message
            return
        kind = ", ".join(config.get("architectures") or ["SequenceClassification"])
        labels = len(config.get("id2label") or [0])
        if kind.endswith("ForCausalLM") and "auto_map" not in config:
            labels = 0
    if labels != 1:
        raise ValueError(
            f"The reward model {reward if isinstance(reward, str) else kind} ({kind}) has {labels} labels, and a reward "
            "is one number: use a sequence classifier with `num_labels=1`, or a reward function that calls this model."
        )
