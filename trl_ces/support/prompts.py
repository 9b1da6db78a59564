"""The paper's prompt, and where the thinking ends. Shared by training and evaluation; standard library only."""

# Paper, appendix "Evaluation prompt". The paper states none for training; we train with the same (fidelity row 25).
PAPER_SYSTEM_PROMPT = (
    "You are a helpful and harmless assistant. You should think step-by-step. "
    "Please put your final answer within \\boxed{}."
)

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"


def build_prompt(question: str, system_prompt: str | None = PAPER_SYSTEM_PROMPT) -> list[dict[str, str]]:
    """
    Builds the conversational prompt of one question.

    Args:
        question (`str`):
            The problem as the data set states it; nothing is added to it.
        system_prompt (`str`, *optional*, defaults to `PAPER_SYSTEM_PROMPT`):
            System message. `None` or an empty string gives the user message alone.

    Returns:
        `list[dict[str, str]]`: Messages with the keys `"role"` and `"content"`.
    """
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    return [*system, {"role": "user", "content": question}]


def opens_thinking(prompt_text: str) -> bool:
    """
    Says whether a rendered prompt ends inside an open `<think>`, as the chat template of R1-Distill makes it.

    Args:
        prompt_text (`str`):
            The prompt as the model sees it, after the chat template. Qwen3 without thinking ends in the closed pair
            `<think>\\n\\n</think>\\n\\n`, which is not open.

    Returns:
        `bool`: Whether the completion starts inside the thinking.
    """
    return prompt_text.rstrip().endswith(THINK_OPEN)


def after_thinking(completion: str, thinking_prefilled: bool) -> str | None:
    """
    Cuts the thinking off a completion.

    Args:
        completion (`str`):
            What the model wrote.
        thinking_prefilled (`bool`):
            Whether the prompt already opened `<think>` (see [`opens_thinking`]).

    Returns:
        `str` or `None`: The text after the last `</think>`; the whole completion where no thinking was opened; `None`
        where thinking was opened, or opened again, and never closed.
    """
    closed_at = completion.rfind(THINK_CLOSE)
    if closed_at >= 0:
        answer = completion[closed_at + len(THINK_CLOSE) :]
        return None if THINK_OPEN in answer else answer
    return None if thinking_prefilled or THINK_OPEN in completion else completion
