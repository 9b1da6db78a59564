"""What is known of a model before its weights are loaded: tokenizer, end tokens, context, the prompts as tokens."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..support.errors import UserError, first_line, hub_errors
from ..support.prompts import build_prompt, opens_thinking
from .problems import Problem
from .settings import EvaluationSettings

# Read from each end of a weight file: training moves every tensor, so the ends tell two models apart.
PROBED_BYTES = 2**20


@dataclass(frozen=True)
class ModelFacts:
    """
    A model without its weights.

    Args:
        base (`str`): Directory or Hub id of the weights.
        adapter (`str`, *optional*): Directory or Hub id of a LoRA adapter on them.
        adapter_rank (`int`): Its rank, 0 without one.
        tokenizer (`PreTrainedTokenizerBase`): The adapter's own, else the base's.
        ends (`list[int]`): Tokens that end an answer: those of the generation settings and the tokenizer's.
        context (`int`, *optional*): Tokens that prompt and answer may have together; `None` if the model states none.
        fingerprint (`str`, *optional*): Changes with the files of a local model; `None` for a model of the Hub.
    """

    base: str
    adapter: str | None
    adapter_rank: int
    tokenizer: Any
    ends: list[int]
    context: int | None
    fingerprint: str | None


@dataclass(frozen=True)
class EncodedPrompts:
    """Token ids of each prompt, and whether the chat template had already opened `<think>` in it."""

    ids: list[list[int]]
    thinking_prefilled: list[bool]


def check_model(name: str) -> None:
    """
    Refuses a path without a saved model; Hub ids pass.

    Raises:
        UserError: naming the path.
    """
    folder = Path(name).expanduser()
    # A Hub id is `name` or `owner/name`.
    is_path = name.startswith((".", "/", "~")) or name.count("/") > 1 or folder.is_dir()
    if is_path and not any((folder / file).is_file() for file in ("config.json", "adapter_config.json")):
        raise UserError(
            f"The model {name!r} holds no config.json (and no adapter_config.json): name a saved model's directory or "
            "a Hub id with `--model`."
        )


def read_model(settings: EvaluationSettings) -> ModelFacts:
    """
    Reads everything but the weights.

    Raises:
        UserError: if the model, its base or its tokenizer cannot be read.
    """
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    name = str(Path(settings.model).expanduser()) if settings.model.startswith("~") else settings.model
    refusals: tuple[type[Exception], ...] = (*hub_errors(), ValueError, ImportError, KeyError)
    hub: dict[str, Any] = {"trust_remote_code": settings.trust_remote_code}
    try:
        adapter = _adapter_config(name)
        base = name if adapter is None else adapter["base_model_name_or_path"]
        tokenizer = AutoTokenizer.from_pretrained(name if _has_tokenizer(name, adapter) else base, **hub)
        config = AutoConfig.from_pretrained(base, **hub)
    except refusals as error:
        raise UserError(f"The model {settings.model!r} cannot be read: {first_line(error)}") from error
    try:
        ends = GenerationConfig.from_pretrained(base).eos_token_id
    except hub_errors():
        ends = config.eos_token_id  # a model without generation settings
    ends = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
    own = tokenizer.eos_token_id
    return ModelFacts(
        base=base,
        adapter=None if adapter is None else name,
        adapter_rank=0 if adapter is None else max([adapter["r"], *(adapter.get("rank_pattern") or {}).values()]),
        tokenizer=tokenizer,
        ends=ends if own is None or own in ends else [own, *ends],
        context=config.get_text_config().to_dict().get("max_position_embeddings"),
        fingerprint=fingerprint(Path(name)) if Path(name).is_dir() else None,
    )


def _adapter_config(name: str) -> dict[str, Any] | None:
    from peft.utils import CONFIG_NAME
    from transformers.utils import cached_file

    if Path(name).is_dir():
        file = Path(name) / CONFIG_NAME
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    found = cached_file(
        name,
        CONFIG_NAME,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if found is None else json.loads(Path(found).read_text(encoding="utf-8"))


def _has_tokenizer(name: str, adapter: dict[str, Any] | None) -> bool:
    return adapter is None or not Path(name).is_dir() or (Path(name) / "tokenizer_config.json").is_file()


def fingerprint(folder: Path) -> str:
    """Sixteen hexadecimal digits that change with a model's files: names, sizes, and both ends of their contents."""
    digest = hashlib.sha256()
    wanted = (".json", ".jinja", ".model", ".txt", ".safetensors", ".bin")
    for file in sorted(folder.iterdir()):
        if not file.is_file() or file.suffix not in wanted or not _belongs_to_the_model(file):
            continue
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as stream:
            digest.update(stream.read(PROBED_BYTES))
            stream.seek(max(0, size - PROBED_BYTES))
            digest.update(stream.read())
    return digest.hexdigest()[:16]


def _belongs_to_the_model(file: Path) -> bool:
    # A study keeps its records beside the model; they may change while the model stays.
    return file.suffix in (".safetensors", ".jinja", ".model") or file.name.startswith(
        ("config", "generation_config", "adapter", "tokenizer", "vocab", "merges", "special_tokens", "pytorch_model")
    )


def encode_prompts(tokenizer: Any, problems: Sequence[Problem], system_prompt: str | None) -> EncodedPrompts:
    """
    The token ids that every backend gets: the chat template's text, tokenized without a second BOS.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): The model's, with a chat template.
        problems (`Sequence[Problem]`): What to ask.
        system_prompt (`str`, *optional*): The system message.

    Raises:
        UserError: if there is no chat template, or it refuses the system message.
    """
    from jinja2 import TemplateError

    if tokenizer.chat_template is None:
        raise UserError("The model's tokenizer has no chat template: name a chat model with `--model`.")
    texts = []
    for problem in problems:
        messages = build_prompt(problem.question, system_prompt)
        try:
            texts.append(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        except TemplateError as error:
            raise UserError(
                f"The model's chat template refuses the prompt ({error}): if it takes no system message, give "
                "`--system_prompt null`."
            ) from None
    # The template has already written the special tokens, BOS among them.
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    return EncodedPrompts(ids, [opens_thinking(text) for text in texts])


def check_context(facts: ModelFacts, prompts: EncodedPrompts, settings: EvaluationSettings) -> None:
    """
    Refuses prompts that leave too little of the model's context for `max_new_tokens`.

    Raises:
        UserError: naming the longest answer for which there is room.
    """
    longest = max(map(len, prompts.ids))
    if facts.context is not None and longest + settings.max_new_tokens > facts.context:
        room = facts.context - longest
        way_out = f"set `--max_new_tokens` to at most {room}" if room > 0 else "this model cannot read it"
        raise UserError(
            f"The model takes {facts.context} tokens, the longest prompt has {longest} and `max_new_tokens` is "
            f"{settings.max_new_tokens}: {way_out}."
        )


def cut_at_end(ids: Sequence[int], ends: Sequence[int]) -> tuple[list[int], str]:
    """
    The tokens before the first end token, and why they end: `"stop"` at one, `"length"` without one.

    Tokens are counted on what this returns: the thinking is in, the end token is not.
    """
    for place, token in enumerate(ids):
        if token in ends:
            return list(ids[:place]), "stop"
    return list(ids), "length"
