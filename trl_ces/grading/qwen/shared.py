"""What both verdicts use."""

from collections.abc import Callable

# Whether two texts are equal by computer algebra.
Algebra = Callable[[str, str], bool]
_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
_ONES += "seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
NUMBER_WORDS = {word: value for value, word in enumerate(_ONES.split())}
NUMBER_WORDS |= {word: 10 * value for value, word in enumerate(_TENS.split(), start=2)}
