"""How large a text may be to count as mathematics. Larger ones are compared as text; no benchmark's gold is close."""

MAX_LENGTH = 10_000
MAX_NESTING = 60
# Values of a list, sides of a statement.
MAX_ITEMS = 100


def too_big(text: str) -> bool:
    """Whether a text is longer than `MAX_LENGTH` characters or nested deeper than `MAX_NESTING` brackets."""
    return len(text) > MAX_LENGTH or nesting(text) > MAX_NESTING


def nesting(text: str) -> int:
    """The greatest depth of brackets of any kind."""
    depth = deepest = 0
    for character in text:
        if character in "{[(":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "}])":
            depth -= 1
    return deepest
