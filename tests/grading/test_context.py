r"""What the text around an answer does to it: it stands in `TEXT` exactly if nothing denies, changes or hides it."""

import pytest

from trl_ces.grading.context import stands
from trl_ces.support.limits import MAX_LENGTH


def stands_in(text, value="5"):
    answer = rf"\boxed{{{value}}}"
    start = text.index("@")
    return stands(text.replace("@", answer), start, start + len(answer), value)


@pytest.mark.parametrize(
    "text",
    [
        # mathematics before it
        "$-@$", r"$-\,@$", r"$-\left(@\right)$", "The answer is -@.", "$x=$ $-$@", "$1 - @$", r"$2 \cdot @$",
        "2@", "0.@",
        r"$\sqrt{@}$", r"\sqrt@", r"$\ln@$", r"$\frac{1}{@}$", r"$\frac{@}{2}$", r"\tfrac{1}{2}@", r"$x \neq @$",
        "$x > @$",
        "$6 = @$", "x+@", "$2@$",
        # and behind it
        "$@^2$", "@^2", "($@$)^2", "(@)_8", "{@}^2", "$@ + 1$", "$@ + y$", "@ + 1", "@ - 1", "$@000$", "@000",
        "@,000", "$@.5$",
        r"$@\pi$", r"@\pi", "$@i$", "$@!$", r"$@ \bmod 3$", r"@ \cup \{1\}", r"$@\,/\,2$", "$@ = 6$",
        r"$@ \approx 6.1$",
        # words before it
        "The answer is minus @.", "half of @", "Twice @", "greater than @", "at most @", "anything but @",
        "It is not @.",
        "It cannot be equal to $@$.", "It isn't @", "neither @", "instead of @", "不是 @", "everything except @",
        "It is false that the answer is @.", "Suppose the answer were @.", "if the answer is @", "perhaps @",
        "I do not think that it is @", "A wrong answer is @", "答案是大约@",
        # and behind it
        "@ thousand", "$@$ million", "@ squared", "@ dozen eggs", "@ more than that", "@万", "@的一半", r"$@\%$ of 50",
        "@ to 6", "@, or possibly 6", "@ or 6", "@ times 6", r"$@$ times $\pi$", "@ times that",
        # another answer, or none
        "@. Wait, it is 6.", "@. No, it is 6.", "@. But wait, I dropped a sign. It is 6.", "@. Final answer: 6",
        "@. Ignore the box.",
        "@. The correct sum is 6.",
        "@, but that is odd. Final: 6",
        "@. The answer is 6, as 2+4 shows.",
        "@. Edit: should be 6.", "@. The correct answer is $6$.", "@. Hmm, on second thought, it must be 6.",
        "@ (this fails and 6 is right)", "@. I made a mistake.", "@. That is wrong.", "@ is wrong.",
        "@. Hence I change my final answer to D.",
        "@, which is wrong.",
        "@, but it is wrong.", "@。不对", "@. Scratch that.", "@. Strike that.",
        "@. Wait, that is definitely not right.", "@ is a wrong answer", "@; please ignore that result.",
        "@是错误的", "@, no wait, 6",
        # hidden
        "~~@~~", r"\sout{The answer is @}", r"\textcolor{white}{@}", r"\color{White}@", r"\phantom{@}", "% @",
        "<!-- @ -->",
        r"\newcommand{\x}{@}",
    ],
)  # fmt: skip
def test_an_answer_does_not_stand_where_the_text_denies_changes_or_hides_it(text):
    assert not stands_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "一年可以节约 @ 千克",
        "__@__ dollars",
        "@", "The answer is @.", "**Final Answer**\n@", "$@$", "$$@$$", r"\[ @ \]", r"\(@\)", "$x = @$", "$2+3 = @$",
        r"$\frac{10}{2} = @$", r"$x \approx @$", r"$\implies @$", r"\begin{aligned} x &= @ \end{aligned}",
        r"${\color{blue}@}$",
        r"$\text{So } @$",
        r"$\therefore\quad @$", r"\textbf{@}", r"$\mathbf{@}$", r"\text{@}", "(@)", "{@}", "**@**", "_@_", "*@*",
        "- @", "* @",
        "-> @", "=> @", "> @", "| total | @ |", "<answer>@</answer>", "The answer - @ - is prime.",
        "It is not 6 but @.", "Not $6$ but $@$", "nothing but @", "The sum does not vanish: @",
        "6 would be wrong. So it is @", "Which is wrong? @", "Either way it is @", "If n is even, then @",
        "She has $3 and pays $2, so @", "Step 2. @", "so x = 5, not 6.\n\n$$@$$",
        "$@$ cm", r"$@\text{ cm}$", r"$@^\circ$", r"$@\%$", "@!", "@.", "@, since 2+3 = 5",
        "$@$, and 7 is not needed.",
        "@\n\n- 2 from the first case", "@ - the sum", "@. No other value works.", "@. No, 4 is not possible.",
        "@. However, note that 4 is close.", "@. A common mistake is to add 1.", "@ dollars", "@ = 5.0", "@, or 5.0",
        "@. Wait times are not included.", "@. Sorry for the length!", "@. Option A is incorrect.",
        "@. So the answer is 5.",
        "So $x =$@!", "@. The answers are 1,23.", "if" + 100 * " word" + " @",
        "$k=0$; the scalar we were looking for is @", "So $c$ is @ times $b$.", "He ran @ times.", "$@$ 千克",
        "$@$ and a remainder", "Earlier I made a mistake. @", "50% of them: @",
    ],
)  # fmt: skip
def test_it_stands_in_any_other_text(text):
    assert stands_in(text)


def test_another_number_takes_back_a_number_only():
    assert stands_in("@. The answer is 6.", "x+1")
    assert stands_in("@. The answer is 0.33.", r"\frac{1}{3}")  # rounded
    assert not stands_in("@. The answer is 0.25.", r"\frac{1}{3}")
    assert not stands_in("@. The answer is $0.5$.", "0")
    assert not stands_in("@. The answer is 9999.5.", "9900")  # by more than one in a hundred


@pytest.mark.timeout(60)  # a search that is not linear takes hours
@pytest.mark.parametrize(
    ("before", "behind", "expected"),
    [
        (r"\text  " * 40 + "x", "", True),
        ("", " the answer is" + " " * 200_000 + "x", True),
        ("", " " + "1" * 200_000, True),
        ("", " for " + "and 1 " * 30_000, True),
        ("", " no wait" * 25_000, True),
        ("", ". no" * 50_000, True),
        ("", ")" * 200_000 + "^2", False),
    ],
    ids=range(7),
)
def test_what_a_policy_writes_around_an_answer_cannot_hang_the_trainer(before, behind, expected):
    assert stands_in(f"{before}@{behind}") is expected


@pytest.mark.timeout(60)
def test_mathematics_within_an_answer_cannot_hang_the_trainer():
    assert stands_in("@", r"\[" * 100_000)


def test_a_very_long_answer_is_not_read():
    assert not stands_in("@. The answer is 6.", "5" + " " * (MAX_LENGTH - 1))
    assert stands_in("@. The answer is 6.", "5" + " " * MAX_LENGTH)


def test_a_formula_that_is_the_answer_is_not_inside_one():
    assert stands("Hence $5$!", 6, 9, "$5$")
