"""The paper's prompt and the `<think>` tags, shared by training and evaluation. Standard library only."""

# Paper, appendix "Evaluation prompt". It states none for training; we use the same (docs/deviations.md, row 25).
PAPER_SYSTEM_PROMPT = (
    "You are a helpful and harmless assistant. You should think step-by-step. "
    "Please put your final answer within \\boxed{}."
)

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"


def build_prompt(question: str, system_prompt: str | None = PAPER_SYSTEM_PROMPT) -> list[dict[str, str]]:
    """
    Builds the conversational prompt for a question.

    Args:
        question (`str`):
            The problem as the dataset states it; nothing is added.
        system_prompt (`str`, *optional*, defaults to `PAPER_SYSTEM_PROMPT`):
            System message. `None` or an empty string leaves it out.

    Returns:
        `list[dict[str, str]]`: Messages with the keys `"role"` and `"content"`.
    """
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    return [*system, {"role": "user", "content": question}]


def opens_thinking(prompt_text: str) -> bool:
    """
    Whether a rendered prompt ends with an open `<think>`, as R1-Distill's chat template leaves it.

    Args:
        prompt_text (`str`):
            The prompt as the model sees it, after the chat template. Qwen3 without thinking ends with the closed pair
            `<think>\\n\\n</think>\\n\\n`, which is not open.

    Returns:
        `bool`: Whether the completion starts inside thinking.
    """
    return prompt_text.rstrip().endswith(THINK_OPEN)


def after_thinking(completion: str, thinking_prefilled: bool) -> str | None:
    """
    Strips the thinking from a completion.

    Args:
        completion (`str`):
            The text that the model generated.
        thinking_prefilled (`bool`):
            Whether the prompt already opened `<think>`; see [`opens_thinking`].

    Returns:
        `str` or `None`: The text after the last `</think>`; the whole completion if thinking was never opened; `None`
        if thinking was opened, or reopened, and never closed.
    """
    closed_at = completion.rfind(THINK_CLOSE)
    if closed_at >= 0:
        answer = completion[closed_at + len(THINK_CLOSE) :]
        return None if THINK_OPEN in answer else answer
    return None if thinking_prefilled or THINK_OPEN in completion else completion
