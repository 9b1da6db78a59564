"""Reports of made-up runs."""

from trl_ces.lab.report.page import make_page
from trl_ces.lab.report.runs import read_runs
from trl_ces.lab.report.tokens import ShapedToken, TokenAnswer

EVIL = "<script>alert(1)</script>"
T, F = True, False
BASE = {"gsm8k": [[(T, 10), (T, 14)], [(T, 20), (F, 20)], [(F, 40), (F, 40)]], "svamp": [[(T, 8), (T, 8)]] * 2}
OURS = {"gsm8k": [[(T, 8), (T, 8)], [(T, 30), (T, 30)], [(T, 50), (F, 50)]], "svamp": [[(T, 6), (T, 6)]] * 2}


def page_of(*places, names=None, **options):
    return make_page(read_runs(places, names), "trl-ces report", **options)


def answer(correct, tokens=("1", "+", EVIL), shaping=0.4, prompt=0):
    pair = ([EVIL, "?"], [0.7, 0.2])
    entropies = [0.0] * (len(tokens) - 1) + [1.0]
    shaped = [ShapedToken(len(tokens) - 1, 1.0, -shaping if correct else shaping, *pair)]
    return TokenAnswer(prompt, [3] * len(tokens), list(tokens), entropies, True, correct, shaped)
