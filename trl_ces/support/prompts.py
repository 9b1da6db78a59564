"""The paper's prompt and the `<think>` tags, shared by training and evaluation. Standard library only."""

# Paper, appendix "Evaluation prompt". It states none for training; we use the same (docs/deviations.md, row 25).
PAPER_SYSTEM_PROMPT = (
    "You are a helpful and harmless assistant. You should think step-by-step. "
    "Please put your final answer within \\boxed{}."
)

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"


def build_prompt(question: str, system_prompt: str | None = PAPER_SYSTEM_PROMPT) -> list[dict[str, str]]:
    """The chat messages that ask a question; without a system prompt (`None` or empty), the question alone."""
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    return [*system, {"role": "user", "content": question}]


def opens_thinking(prompt_text: str) -> bool:
    """Whether a prompt, after the chat template, ends with an open `<think>`, as R1-Distill's template leaves it.

    Qwen3 without thinking ends with the closed pair `<think>\\n\\n</think>\\n\\n`, which is not open.
    """
    return prompt_text.rstrip().endswith(THINK_OPEN)


def after_thinking(completion: str, thinking_prefilled: bool) -> str | None:
    """The text after the last `</think>`; the whole completion if thinking was never opened, by it or by the prompt.

    `None` if thinking was opened, or reopened, and never closed.
    """
    closed_at = completion.rfind(THINK_CLOSE)
    if closed_at >= 0:
        answer = completion[closed_at + len(THINK_CLOSE) :]
        return None if THINK_OPEN in answer else answer
    return None if thinking_prefilled or THINK_OPEN in completion else completion
