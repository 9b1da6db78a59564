"""The paper's system prompt and helpers for chat templates. Imports only the standard library at module level."""

from typing import Any

from .errors import UserError

# This prompt is from the paper's appendix "Evaluation prompt". It is also used for training, because the paper does
# not give a training prompt (docs/deviations.md, row 25).
PAPER_SYSTEM_PROMPT = (
    "You are a helpful and harmless assistant. You should think step-by-step. "
    "Please put your final answer within \\boxed{}."
)
THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"


def build_prompt(question: str, system_prompt: str | None = PAPER_SYSTEM_PROMPT) -> list[dict[str, str]]:
    """Return a question as chat messages, without a system message if `system_prompt` is `None` or empty."""
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    return [*system, {"role": "user", "content": question}]


def check_chat_template(
    prompt: Any, model: str, tokenizer: Any = None, revision: str | None = None, trust_remote_code: bool = False
) -> None:
    """Raise `UserError` if `prompt` is a chat and `tokenizer`, by default the model's, has no chat template."""
    if not isinstance(prompt, list):
        return
    if tokenizer is None:
        from transformers import AutoProcessor

        try:
            tokenizer = AutoProcessor.from_pretrained(model, revision=revision, trust_remote_code=trust_remote_code)
        except Exception:  # TRL will load the tokenizer in the same way and raise the error
            return
    if tokenizer.chat_template is None:
        raise UserError(
            f"The tokenizer of {model} has no chat template, but the prompts are chat messages: use an instruct "
            "model, or set `prompt_template`, for example to 'Question: {question}\\nAnswer:'."
        )


def opens_thinking(prompt_text: str) -> bool:
    """Return whether a templated prompt ends with `<think>`, as with R1-Distill's chat template."""
    return prompt_text.rstrip().endswith(THINK_OPEN)


def after_thinking(completion: str, thinking_prefilled: bool) -> str | None:
    """Return the text after the last `</think>`, or the whole completion if it has no `<think>` tags.

    Return `None` if the completion or its prompt contains a `<think>` that is not closed.
    """
    closed_at = completion.rfind(THINK_CLOSE)
    if closed_at >= 0:
        rest = completion[closed_at + len(THINK_CLOSE) :]
        return None if THINK_OPEN in rest else rest
    return None if thinking_prefilled or THINK_OPEN in completion else completion
