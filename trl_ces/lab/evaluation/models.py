"""Read a model's tokenizer, end tokens and context length without loading its weights, and encode prompts."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...support.errors import UserError, first_line, hub_errors
from ...support.hub import expand_home, is_local, nearest_model, try_hub_once
from ...support.prompts import check_chat_template, opens_thinking
from ...train.data import make_prompt
from .benchmarks import Problem
from .settings import EvaluationSettings


@dataclass(frozen=True)
class ModelFacts:
    """Properties of a model that can be read without loading its weights."""

    base: str  # directory or Hub id of the weights
    adapter: str | None  # directory or Hub id of a LoRA adapter
    adapter_rank: int  # rank of the adapter, 0 without an adapter
    tokenizer: Any  # the adapter's tokenizer if it has one, otherwise the base model's
    ends: list[int]  # end tokens of the generation config and the tokenizer
    context: int | None  # maximum number of tokens in prompt and completion; `None` if the model has no limit
    fingerprint: str | None  # hash of a local model's files; `None` for a Hub model


@dataclass(frozen=True)
class EncodedPrompts:
    """Token ids of each prompt, and whether the chat template ends the prompt with an open `<think>`."""

    ids: list[list[int]]
    thinking_prefilled: list[bool]


def check_model(name: str) -> None:
    """Raise `UserError` if a local path does not contain a saved model; Hub ids are not checked."""
    try_hub_once(name)
    folder = Path(expand_home(name))
    if is_local(name) and not any((folder / file).is_file() for file in ("config.json", "adapter_config.json")):
        raise UserError(
            f"The model {name!r} has no config.json and no adapter_config.json: set `--model` to a saved model's "
            f"directory, a checkpoint or a Hub id.{nearest_model(name)}"
        )


def read_model(settings: EvaluationSettings) -> ModelFacts:
    """Read everything about the model except its weights."""
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig
    from transformers.utils import find_adapter_config_file

    name = expand_home(settings.model)
    load_errors: tuple[type[Exception], ...] = (*hub_errors(), ValueError, ImportError, KeyError)
    hub: dict[str, Any] = {"trust_remote_code": settings.trust_remote_code}
    try:
        adapter_file = find_adapter_config_file(name)
        adapter = None if adapter_file is None else json.loads(Path(adapter_file).read_text(encoding="utf-8"))
        base = name if adapter is None else adapter["base_model_name_or_path"]
        # An adapter's directory may lack the base model's tokenizer.
        has_tokenizer = adapter is None or not Path(name).is_dir() or (Path(name) / "tokenizer_config.json").is_file()
        tokenizer = AutoTokenizer.from_pretrained(name if has_tokenizer else base, **hub)
        config = AutoConfig.from_pretrained(base, **hub)
    except load_errors as error:
        problem = f"The model {settings.model!r} cannot be read: {first_line(error)}{nearest_model(settings.model)}"
        raise UserError(problem) from error
    try:
        ends = GenerationConfig.from_pretrained(base).eos_token_id
    except hub_errors():
        ends = config.eos_token_id  # the model has no generation config
    return ModelFacts(
        base=base,
        adapter=None if adapter is None else name,
        adapter_rank=0 if adapter is None else max([adapter["r"], *(adapter.get("rank_pattern") or {}).values()]),
        tokenizer=tokenizer,
        ends=end_tokens(tokenizer, ends),
        context=config.get_text_config().to_dict().get("max_position_embeddings"),
        fingerprint=fingerprint(Path(name)) if Path(name).is_dir() else None,
    )


def end_tokens(tokenizer: Any, ends: int | Sequence[int] | None) -> list[int]:
    """Combine the tokenizer's `eos_token_id` with `ends`, the `eos_token_id` of a config, as TRL does."""
    ends = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
    tokenizer_end = tokenizer.eos_token_id
    return ends if tokenizer_end is None or tokenizer_end in ends else [tokenizer_end, *ends]


def fingerprint(folder: Path) -> str:
    """Hash the names and contents of a model's files to 16 hexadecimal digits."""
    digest = hashlib.sha256()
    # Ignore files that a study writes to the same folder, because these files can change while the model does not.
    names = ("config", "generation_config", "adapter", "tokenizer", "vocab", "merges", "special_tokens", "pytorch")
    for file in sorted(folder.iterdir()):
        has_known_name = file.suffix in (".json", ".txt", ".bin") and file.name.startswith(names)
        if not file.is_file() or not (has_known_name or file.suffix in (".jinja", ".model", ".safetensors")):
            continue
        with file.open("rb") as stream:
            digest.update(f"{file.name} {hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def encode_prompts(
    tokenizer: Any, problems: Sequence[Problem], system_prompt: str | None, template: str | None = None
) -> EncodedPrompts:
    """Encode prompts as token ids, identically for every backend; `template`: `prompt_template` of the settings."""
    prompts: list[Any] = [
        make_prompt(problem.question, system_prompt, f"{problem.benchmark}, row {problem.id}", template)
        for problem in problems
    ]
    if template is not None:
        return EncodedPrompts(tokenizer(prompts)["input_ids"], [opens_thinking(text) for text in prompts])
    check_chat_template([], "the model", tokenizer)
    texts = [apply_template(tokenizer, chat, tokenize=False) for chat in prompts]
    # The chat template has already added the special tokens, including BOS.
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    return EncodedPrompts(ids, [opens_thinking(text) for text in texts])


def apply_template(tokenizer: Any, messages: list[dict[str, str]], **options: Any) -> Any:
    """Apply the tokenizer's chat template; raise `UserError` if the template rejects the messages."""
    from jinja2 import TemplateError

    try:
        return tokenizer.apply_chat_template(messages, add_generation_prompt=True, **options)
    except TemplateError as error:
        raise UserError(
            f"The model's chat template rejects the prompt ({error}): if the template does not support system "
            "messages, set `--system_prompt null`."
        ) from None


def check_context(facts: ModelFacts, prompts: EncodedPrompts, settings: EvaluationSettings) -> None:
    """Raise `UserError` if the longest prompt and `max_new_tokens` together exceed the model's context."""
    longest = max(map(len, prompts.ids))
    if facts.context is not None and longest + settings.max_new_tokens > facts.context:
        raise UserError(
            f"The model's context is {facts.context} tokens, the longest prompt has {longest} and `max_new_tokens` is "
            f"{settings.max_new_tokens}: set `--max_new_tokens` to at most {facts.context - longest}."
        )


def cut_at_end(ids: Sequence[int], ends: Sequence[int]) -> tuple[list[int], str]:
    """Return the tokens before the first end token and `"stop"`; without an end token, all tokens and `"length"`."""
    for index, token in enumerate(ids):
        if token in ends:
            return list(ids[:index]), "stop"
    return list(ids), "length"
