"""Size limits for mathematical comparison; larger texts are compared as strings."""

MAX_LENGTH = 10_000
MAX_NESTING = 60
MAX_ITEMS = 100  # elements of a list or sides of a statement


def too_big(text: str) -> bool:
    """Return whether a string exceeds `MAX_LENGTH` characters or `MAX_NESTING` nested brackets."""
    return len(text) > MAX_LENGTH or nesting(text) > MAX_NESTING


def nesting(text: str) -> int:
    """Return the maximum nesting depth of brackets of any kind."""
    depth = deepest = 0
    for character in text:
        if character in "{[(":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "}])":
            depth -= 1
    return deepest
