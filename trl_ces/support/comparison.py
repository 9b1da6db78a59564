"""Types and number words shared by the grader and the rules of the Qwen2.5-Math script."""

from collections.abc import Callable

# A function that returns whether two texts are equal according to a computer algebra system.
Algebra = Callable[[str, str], bool]
_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
_ONES += "seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
NUMBER_WORDS = {word: value for value, word in enumerate(_ONES.split())}
NUMBER_WORDS |= {word: 10 * value for value, word in enumerate(_TENS.split(), start=2)}
