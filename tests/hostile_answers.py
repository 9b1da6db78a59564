r"""
Completions that would hang the grader, exhaust memory, break a parser or run as code.

`run` grades each hostile completion together with an ordinary completion that needs algebra, first with the reward and
then with the evaluation grader. This command prints incorrect grades and resource usage as JSON:

    python tests/hostile_answers.py 3 1   # LIMIT_S N: the time limit of the evaluation; use every N-th completion
"""

import json
import resource
import sys
import time
from pathlib import Path

from trl_ces import rewards
from trl_ces.grading import WorkerPool, grade_many
from trl_ces.grading import pool as pool_module
from trl_ces.grading.pool import WorkerLost

# File that the code in a completion creates if it is executed.
SENTINEL = "hostile-answer-was-executed"
MEGABYTE = 1_000_000


def nested(before, middle, after, depth):
    return before * depth + middle + after * depth


def powers():
    for base in ("9", "x", r"\pi", "(1+i)", "0.5", "-3"):
        yield f"{base}^{{9^{{9^{{9}}}}}}"
        yield f"{base}**9**9**9"
        yield f"{base}^{{10^{{10^{{10}}}}}}"
    for height in (4, 10, 50):
        yield nested("9^{", "9", "}", height)
        yield nested("2^", "2", "", height)
    for exponent in (10**4, 10**6, 10**9, 10**18):
        yield f"3^{{{exponent}}}"
        yield f"(x+y+z+1)^{{{exponent}}}"
        yield rf"\left(\frac{{2}}{{3}}\right)^{{-{exponent}}}"
        yield rf"\begin{{pmatrix}}1&2\\3&4\end{{pmatrix}}^{{{exponent}}}"
    yield from ("1e400", "-1e400", "1e-400", "1e999999999", "1.5e+4300", r"10^{400}", r"10^{-999999}")
    yield from (r"5\times10^{999999999}", r"2 \cdot 10^{401}", "1E309", "1e5000/1e5000")


def factorials():
    for number in ("1000", "100000", "10000000", "9999999999", "n", "0.5", "(-1)"):
        yield f"{number}!"
        yield f"({number}!)!"
    yield from ("7" + "!" * 100, "((3!)!)!", "(((3!)!)!)!", r"\binom{10^9}{5\cdot10^8}", r"\Gamma(10^8)")
    yield from (r"\prod_{k=1}^{10^9} k", "10^{9}!/(10^{9}-1)!", "P(10^6, 10^5)")


def nesting():
    pairs = [
        ("{", "}"), ("(", ")"), ("[", "]"), (r"\{", r"\}"), (r"\left(", r"\right)"), (r"\sqrt{", "}"),
        (r"\frac{1}{", "}"), ("x^{", "}"), ("x_{", "}"), (r"\text{", "}"), (r"\boxed{", "}"), (r"\left|", r"\right|"),
        (r"\sin(", ")"), (r"\begin{pmatrix}", r"\end{pmatrix}"), ("$", "$"), ("-", ""), (r"\log_{2}{", "}"),
    ]  # fmt: skip
    for before, after in pairs:
        for depth in (30, 59, 1_000, 10_000):
            yield nested(before, "1", after, depth)


def megabytes():
    for filling in ("1", "x", " ", "\n", ",", "+1", r"\,", "$", "{}", "汉", "😀", "1,", "=", "(", r"\cup", "\u0301"):
        yield filling * (MEGABYTE // len(filling))
    yield "0." + "3" * MEGABYTE
    yield "1/" + "7" * MEGABYTE


def long_numbers():
    for digits in (401, 4_299, 4_301, 9_990):
        yield "7" * digits
        yield "0." + "7" * digits
        yield f"{'7' * (digits // 2)}/{'3' * (digits // 2)}"
        yield rf"\frac{{{'7' * (digits // 2)}}}{{{'3' * (digits // 2)}}}"
        yield rf"\sqrt{{{'7' * digits}}}"
    yield from (",".join(["123"] * 120), " ".join(["123"] * 120), "0" * 399 + "1", "1." + "0" * 398, "-" * 350 + "5")


def control_characters():
    for code in (*range(32), *range(127, 160)):
        yield f"7{chr(code)}8"
    marks = "\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2028\u2029\u2060\u2066\u2069\ufeff\ufff9"
    for mark in marks:
        yield f"7{mark}8"
    yield from ("\x00" * 1_000, "\u202e24", "7\u202e8\u202c" * 500, "7" + "\u0301" * 9_000, "\x1b[2J\x1b[31m7")


def broken_text():
    yield from ("\ud800", "\udfff", "7\udc80", "\udc00\ud800", "\ud83d", r"\sqrt{" + "\udcff" + "}", "\uffff\ufffe")
    data = r"\frac{汉}{7}é😀".encode()
    parts = [data[:end].decode(errors=mode) for end in range(7, len(data)) for mode in ("replace", "surrogateescape")]
    yield from dict.fromkeys(parts)
    yield from (data.decode("latin-1"), data.decode("utf-16-le", errors="replace"), "\U0010ffff" * 50)


def latex_bombs():
    yield from (
        r"\def\a{\a\a}\a", r"\newcommand{\x}{\x\x}\x", r"\loop\iftrue\repeat", r"\input{/etc/passwd}",
        r"\immediate\write18{touch " + SENTINEL + "}", r"\csname " * 500 + r"\endcsname " * 500,
        r"\expandafter" * 900, r"\begin{array}{" + "c" * 5_000 + "}1", r"\begin{pmatrix}" * 50, r"\end{pmatrix}" * 50,
        r"\begin{pmatrix}" + r"\\".join(["&".join("123456789") for _ in range(100)]) + r"\end{pmatrix}",
        r"\det\begin{pmatrix}" + r"\\".join(["&".join(f"x_{{{r}{c}}}" for c in range(9)) for r in range(9)])
        + r"\end{pmatrix}", r"\left" * 1_000, r"\right" * 1_000, r"\frac" * 1_000, r"\frac{" * 40, r"\sqrt" * 1_000,
        r"\text" * 1_000, "^" * 1_000, "_" * 1_000, "&" * 1_000, "\\" * 9_999, r"\over" * 300, "~" * 9_000, "%" * 999,
        r"\verb|}|", r"\{" * 50 + "1", r"\unicode{x41}", r"\char" + "9" * 300, r"\overset" * 300, "{" * 55, "}" * 55,
    )  # fmt: skip


def calculus():
    integrand = r"\frac{\sin(x^{y^{z}})}{\log(\cos(e^{x^x}))}"
    yield from (
        rf"\int_0^1 \int_0^x {integrand} \, dy \, dx", rf"\int {integrand} dx" * 20, r"\int_0^\infty e^{-x^{x}} dx",
        r"\sum_{n=1}^{10^{12}} \frac{1}{n^{1.5}}", r"\sum_{n=1}^{\infty} \frac{\sin(n^n)}{n!}",
        r"\prod_{p=1}^{10^8}(1+\frac{1}{p^2})", r"\lim_{x\to0}\frac{\sin(\tan(\sin x))-\tan(\sin(\tan x))}{x^{70}}",
        r"\lim_{n\to\infty}(1+\frac{1}{n})^{n^{n}}", r"\frac{d^{5000}}{dx^{5000}} e^{x^{x}}",
        r"\sum_{i=1}^{1000}\sum_{j=1}^{1000}\sum_{k=1}^{1000} x^{ijk}", r"\int_0^1 \cdots \int_0^1 \max(x) dx",
        "+".join(rf"\sqrt{{{n}}}" for n in range(2, 300)), "*".join(rf"(x-\sqrt{{{n}}})" for n in range(2, 90)),
        r"\sqrt[3]{" * 20 + "2+x" + "}" * 20, r"\sin(10^{10^{6}})", r"\cos(" * 30 + "x^{x}" + ")" * 30,
        "+".join(f"x^{{{n}}}" for n in range(900)), r"\log(" * 40 + "x" + ")" * 40, r"e^{" * 30 + "x" + "}" * 30,
        r"\arctan(\frac{1}{239})" * 100, r"\lfloor 10^{5000}\pi \rfloor", r"7^{7^{7}} \mod 10^{9}",
    )  # fmt: skip


def undefined():
    yield from (
        "i*oo", "oo", "-oo", "zoo", "nan", "NaN", "oo-oo", "oo*0", "0/0", "1/0", "0^0", r"\infty-\infty", "inf",
        r"\frac{0}{0}", r"\frac{1}{0}", r"\log 0", r"\tan(\frac{\pi}{2})", r"\sqrt{-1}^{\sqrt{-1}}", r"0^{-1}",
        r"\infty^{\infty}", "1/(1-1)", r"\frac{1}{\infty}", "i^i^i^i", r"0^{i}", r"\ln(-\infty)", "-inf%", "1/0.0",
    )  # fmt: skip


def python_code():
    touch = f"open('{SENTINEL}','w')"
    yield from (
        f"__import__('os').system('touch {SENTINEL}')", f"exec(\"{touch}\")", f"eval('{touch}')", touch,
        f"(lambda: {touch})()", f"[{touch} for _ in [0]]", "().__class__.__base__.__subclasses__()",
        f"sympify('{touch}')", f"{{x: {touch}}}", "{0.__class__}", "{answer.__globals__}", "%s%s%s%n", "f'{1/0}'",
        f"import os; os.system('touch {SENTINEL}')", "os._exit(0)", "exit()", "quit()", "raise SystemExit(0)",
        "raise KeyboardInterrupt", "while True: pass", "[0]*10**12", "'a'*10**12", "range(10**12)", "9**9**9**9 # no",
        "S.__class__.__mro__", "Symbol('x').__reduce__()", "print(open('/etc/passwd').read())", "globals()",
        "breakpoint()", "input()", "lambda: (yield)", "Integer(3).__class__", "Matrix(10**5, 10**5, lambda i, j: 1)",
        "!!python/object/apply:os.system ['true']", "cos\nsystem\n(S'true'\ntR.", f"$(touch {SENTINEL})",
        f"`touch {SENTINEL}`", f"; touch {SENTINEL} #", "{{7*7}}", "${7*7}", "<script>alert(1)</script>",
        '"}\n{"id": 1, "status": "ok", "verdict": true}\n', '\n{"id": 2, "status": "ok", "verdict": true}\n', "\n\n\n",
        '", "gold": "7', "' or '1'='1", "factorint(10**80+1)", "primepi(10**15)", "nextprime(10**500)",
    )  # fmt: skip


def lists():
    yield from (
        ",".join(rf"\sqrt{{{n}}}" for n in range(2, 97)), ",".join(["x"] * 3_000), ";".join(["x^2"] * 99),
        r"\cup".join(["(0,1)"] * 99), r"\{" + ",".join(rf"\sin({n})" for n in range(99)) + r"\}", "," * 9_000,
        ";" * 9_000, "(" + ",".join(["x+y"] * 99) + ")", r"\pm" * 300, r"1\pm" * 99 + "1", r"x\in" * 300,
        "=".join(["x"] * 2_000), "a=" * 300, "<" * 3_000, r"\{x \mid " * 40, r"x \leq " * 1_000, " or ".join("12" * 9),
    )  # fmt: skip


def regex_catastrophes():
    yield from (
        "a" * 299 + "!", "1 " * 149, "1," * 149, "." * 299, "1." * 149, "-+" * 149, "1 1/" * 70, r"\frac1" * 49,
        r"\text{" + "a" * 280, r"\text{a}" * 9, r"\mathrm{" * 29 + "}" * 29, r"{\text{}" * 30, "\\ " * 140, "\\" * 299,
        "the answer is " * 20, "$" * 299, "{" + "}" * 298, "x=" * 149, " " * 298 + "x", "twenty-" * 40, "m " * 149,
        "1" + " m" * 140, r"7\text{ " + "m " * 140 + "}", "7^{" + " " * 280 + "}", "^{ \\circ" * 33, "[1,2)" * 60,
        "_{" * 90 + "}" * 90, "x_{1}" * 59, "x'" * 140, r"\angle{A}" * 30, "10^" * 90, "e" * 299, "1e" * 9, "％" * 9,
    )  # fmt: skip


FAMILIES = (
    powers, factorials, nesting, megabytes, long_numbers, control_characters, broken_text, latex_bombs, calculus,
    undefined, python_code, lists, regex_catastrophes,
)  # fmt: skip


def whole_texts():
    """Yield texts with hostile content around the final answer: boxes, thinking tags, statements."""
    yield from (
        r"\boxed{" * 10_000, r"\boxed{" * 10_000 + "7" + "}" * 10_000, r"\boxed" * 50_000, r"\boxed{7}" * 50_000 + "8",
        r"\boxed " * 50_000, r"\boxed{}", r"\boxed{}" * 9_999, r"\boxed{7", r"\boxed 7}", r"\fbox{7}\boxed{",
        r"\boxed{7\}", r"\boxed{\{7}", r"\boxed{\\}7}", "{" * MEGABYTE + r"\boxed{7}", "}" * MEGABYTE + r"\boxed{7}",
        "{" * 300_000 + r"\boxed{7}" + "}" * 300_000, "</think>" * 100_000, "<think>" * 100_000,
        "<think></think>" * 50_000 + r"\boxed{7}", r"<think>\boxed{7}", "<think" * 100_000, "</think" * 100_000,
        # text around a box, for context.py
        r"\text  " * 40 + r"x\boxed{7}", r"\boxed{7} the answer is" + " " * MEGABYTE + "x",
        r"\boxed{7} " + "1" * MEGABYTE, r"\boxed{7} for " + "and 1 " * 170_000, r"\boxed{" + r"\[" * 100_000 + "}",
        r"\boxed{7} " + "no wait " * 125_000, r"\boxed{7}" + ", " * 500_000, r"\boxed{7} " + "or " * 330_000,
        r"\boxed{7}" + ". no" * 250_000, r"\boxed{7}" + ")" * MEGABYTE + "^2",
        r"\boxed{7}" + r"\right" * 160_000, r"\boxed{7} " + "1 is " * 200_000,
        "the answer is " * 70_000, "the answer is", "answer: " * 100_000, "答案是" * 100_000, "故选" * 100_000,
        "final answer is $" * 50_000 + "$. I hope", "**" * 500_000, "**7" * 300_000, "$7" * 500_001, "$$" * 500_000,
        r"\(" * 500_000, r"\[" * 500_000, r"\(7" * 300_000 + r"\)", "$7$ and " * 100_000, "$7$," * 200_000 + "?",
        "1" * MEGABYTE, "1." * 500_000, "-" * MEGABYTE, ".-1" * 300_000, "\n" * MEGABYTE, "\x00" * MEGABYTE, "",
        " ", "\ud800" * 1_000, "boxed" * 200_000, "boxed{" * 100_000, "choice is " * 100_000, "A B C D " * 100_000,
        "7" + " " * MEGABYTE, "the answer is 7" + " " * MEGABYTE, "the answer is " + "9^" * 900, "answer=" * 100_000,
    )  # fmt: skip


def hostile_completions():
    """Map names to completions. All completions are incorrect for all `GOLDS`."""
    corpus = {}
    for family in FAMILIES:
        for number, content in enumerate(family()):
            corpus[f"{family.__name__} {number}"] = rf"So the result is \boxed{{{content}}}."
    for number, text in enumerate(whole_texts()):
        corpus[f"whole_texts {number}"] = text
    return corpus


GOLDS = ("42", r"\sqrt{x}+42\pi", "(41,42]", "41, 42; 43", r"\begin{pmatrix}41\\42\end{pmatrix}", "x=42", "D")


def neighbor(number):
    """Return a completion that needs algebra, its gold and its correctness. All completions are different."""
    n = number + 2
    return (
        (rf"\boxed{{\sqrt{{{2 * n * n}}}}}", rf"{n}\sqrt{{2}}", True),
        (rf"\boxed{{\frac{{x^2-{n * n}}}{{x-{n}}}}}", f"x+{n}", True),
        (rf"\boxed{{(x+{n})^2}}", f"x^2+{n * n}", False),
    )[number % 3]


class WatchedPool(WorkerPool):
    """Worker pool that records the status of each reply, or "lost" if the worker exited or hung."""

    def __init__(self):
        super().__init__()
        self.statuses = []
        for worker in self.workers:
            worker.request = self._watch(worker.request)

    def _watch(self, request):
        def watched_request(message, limit_s):
            try:
                reply = request(message, limit_s)
            except WorkerLost:
                self.statuses.append("lost")
                raise
            self.statuses.append(reply["status"])
            return reply

        return watched_request

    def wait_for_exit(self):
        """Close the workers' input and wait until they exit, so that RUSAGE_CHILDREN includes their memory."""
        for worker in self.workers:
            if worker.process is not None:
                worker.process.stdin.close()
                worker.process.wait()


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def run(corpus, limit_s):
    """Grade each completion of the corpus and its neighbor, as in training and in the evaluation."""
    # On a busy machine, replies are late. A worker should be lost only if the kernel does not end the comparison.
    pool_module.GRACE_S = 60.0
    pool = pool_module._shared = WatchedPool()
    pool.map([{"op": "equal", "gold": "x", "answer": "y"}] * 8)  # start the workers
    texts, golds, expected, names = [], [], [], []
    for number, (name, text) in enumerate(corpus.items()):
        neighbor_text, neighbor_gold, neighbor_is_correct = neighbor(number)
        texts += [text, neighbor_text]
        golds += [GOLDS[number % len(GOLDS)], neighbor_gold]
        expected += [False, neighbor_is_correct]
        names += [name, f"neighbor of {name}"]
    before = resident_bytes()
    start = time.monotonic()
    reward_values = rewards.accuracy_reward(texts, golds, prompts=[""] * len(golds))
    rewards.think_format_reward(texts)
    reward_seconds, start = time.monotonic() - start, time.monotonic()
    grades = grade_many(texts, golds, with_qwen=True, limit_s=limit_s)
    grading_seconds = time.monotonic() - start
    growth = resident_bytes() - before
    pool.wait_for_exit()
    return {
        "completions": len(corpus),
        "wrong_rewards": [
            names[i]
            for i, (a, b) in enumerate(zip(reward_values, expected, strict=True))
            if a != float(b) and not (a is None and names[i] in corpus)
        ],
        "no_reward": reward_values.count(None),
        "wrong_grades": [
            names[i] for i, (a, b) in enumerate(zip(grades, expected, strict=True)) if a.correct is not b
        ],
        "reward_seconds": round(reward_seconds, 1),
        "grading_seconds": round(grading_seconds, 1),
        "lost_workers": pool.statuses.count("lost"),
        "requests_at_the_limit": pool.statuses.count("timeout"),
        "largest_worker_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        "growth_bytes": growth,
    }


if __name__ == "__main__":
    limit_s, step = float(sys.argv[1]), int(sys.argv[2])
    completions = hostile_completions()
    print(json.dumps(run({name: completions[name] for name in list(completions)[::step]}, limit_s)))
