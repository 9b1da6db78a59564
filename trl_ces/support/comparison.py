"""Shared by the rules of grading and by those of the Qwen2.5-Math script: the type of the algebra, number words."""

from collections.abc import Callable

# Whether two texts are equal by computer algebra.
Algebra = Callable[[str, str], bool]
_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
_ONES += "seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
NUMBER_WORDS = {word: value for value, word in enumerate(_ONES.split())}
NUMBER_WORDS |= {word: 10 * value for value, word in enumerate(_TENS.split(), start=2)}
