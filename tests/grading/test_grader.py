"""Test requests to grading workers, and grades computed from their replies, without starting workers."""

import logging
import random

import pytest

from trl_ces.grading import Grade, grade, grade_many, grader, judge, usable_golds
from trl_ces.grading.pool import DEFAULT_LIMIT_S

OK, WRONG = {"status": "ok", "verdict": True}, {"status": "ok", "verdict": False}
DIED = {"status": "died", "error": "killed by the kernel"}


class Pool:
    """Pool that returns the given replies in order and records the requests."""

    def __init__(self, *replies):
        self.replies, self.requests, self.limits = list(replies), [], []

    def map(self, messages, limit_s):
        self.requests += messages
        self.limits += [limit_s]
        return [self.replies.pop(0) for _ in messages]


class SlowPool:
    """Pool that confirms comparisons within the limit. `costs` maps answers to seconds; the default is 0.01 s."""

    def __init__(self, costs):
        self.costs, self.requests = costs, []

    def map(self, messages, limit_s):
        self.requests += [(message["answer"], limit_s) for message in messages if message["op"] == "equal"]
        costs = [self.costs.get(message.get("answer"), 0.01) for message in messages]
        return [OK if cost <= limit_s else {"status": "timeout"} for cost in costs]


@pytest.fixture(autouse=True)
def empty_gold_cache(monkeypatch):
    monkeypatch.setattr(judge, "_usable_golds", {})


def boxed(answer):
    return rf"So it is $\boxed{{{answer}}}$."


def equal_request(gold, answer, op="equal"):
    return {"op": op, "gold": gold, "answer": answer}


# ---- golds


def test_golds_that_need_no_algebra_are_checked_without_a_worker():
    assert usable_golds(["5", None, "", "yes", r"\frac{", "5"], pool=Pool()) == [True, False, False, True, False, True]
    assert usable_golds(["7"], pool=Pool()) == [True]
    assert usable_golds([None], pool=Pool()) == [False]
    assert usable_golds([], pool=Pool()) == []


def test_golds_that_need_algebra_are_checked_once_by_a_worker():
    pool = Pool(OK, WRONG)
    assert usable_golds(["x+y", "x+", "x+y", "3"], limit_s=0.25, pool=pool) == [True, False, True, True]
    assert pool.requests == [{"op": "usable", "gold": "x+y"}, {"op": "usable", "gold": "x+"}]
    assert pool.limits == [0.25]
    assert usable_golds(["x+", "x+y"], pool=Pool()) == [False, True]


@pytest.mark.parametrize("reply", [{"status": "timeout"}, {"status": "error", "error": "MemoryError: "}])
def test_a_gold_that_exceeds_time_or_memory_remains_unusable(reply, caplog):
    assert usable_golds(["x+y"], pool=Pool(reply)) == [False]
    assert usable_golds(["x+y"], pool=Pool()) == [False]
    assert caplog.text == ""


def test_a_gold_with_a_dead_worker_is_checked_again(caplog):
    pool = Pool(DIED)
    with caplog.at_level(logging.WARNING):
        assert usable_golds(["x+y"], pool=pool) == [False]
    assert "died twice on the gold 'x+y'. killed by the kernel" in caplog.text
    assert pool.limits == [DEFAULT_LIMIT_S] == [3.0]
    assert usable_golds(["x+y"], pool=Pool(OK)) == [True]


def test_a_gold_that_is_not_a_string_raises_before_any_request():
    pool = Pool()
    with pytest.raises(TypeError, match="gold 2 is 5, of type int: pass a string"):
        usable_golds(["x+y", None, 5], pool=pool)  # type: ignore[list-item]
    assert pool.requests == []


def test_the_shared_pool_is_used_by_default(monkeypatch):
    pool = Pool(OK, WRONG)
    monkeypatch.setattr(judge, "shared_pool", lambda: pool)
    assert grade(boxed("x+1"), "x+y", with_qwen=False).correct is False
    assert pool.requests == [{"op": "usable", "gold": "x+y"}, equal_request("x+y", "x+1")]


# ---- answers


def test_algebra_is_requested_once_per_pair_that_no_rule_decides():
    pool = Pool(OK, OK, WRONG)
    completions = [boxed("5"), boxed("x+1"), boxed("6"), boxed("1+x"), "no answer", boxed("x+1"), boxed("x+2")]
    golds = ["5", "1+x", "5", "1+x", "1+x", "1+x", "1+x"]
    grades = grade_many(completions, golds, with_qwen=False, limit_s=0.5, pool=pool)
    assert grades == [
        Grade(correct=True, answer="5"),
        Grade(correct=True, answer="x+1"),
        Grade(correct=False, answer="6"),
        Grade(correct=True, answer="1+x"),
        Grade(correct=False, answer=None),
        Grade(correct=True, answer="x+1"),
        Grade(correct=False, answer="x+2"),
    ]
    assert pool.requests == [{"op": "usable", "gold": "1+x"}, equal_request("1+x", "x+1"), equal_request("1+x", "x+2")]
    assert pool.limits == [0.5, 0.5]


def test_answers_to_an_unusable_gold_are_not_compared():
    golds = ["", r"\frac{", None]
    grades = grade_many([boxed("3"), boxed("x+1"), boxed("4")], golds, with_qwen=False, pool=Pool())  # type: ignore[arg-type]
    assert grades == [Grade(None, "3"), Grade(None, "x+1"), Grade(None, "4")]


@pytest.mark.parametrize("reply", [{"status": "timeout"}, {"status": "error", "error": "RecursionError: "}])
def test_an_answer_that_exceeds_time_or_memory_is_incorrect(reply, caplog):
    assert grade(boxed("x+1"), "1+x", with_qwen=False, pool=Pool(OK, reply)).correct is False
    assert caplog.text == ""


def test_an_answer_with_a_dead_worker_stays_ungraded_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        assert grade(boxed("x+1"), "1+x", with_qwen=False, pool=Pool(OK, DIED)) == Grade(correct=None, answer="x+1")
    assert "died twice on the answer 'x+1' (gold '1+x'), which stays ungraded. killed by the kernel" in caplog.text


def test_long_numbers_are_compared_in_a_worker():
    longest = "1" * judge._QUICK_LENGTH
    assert grade(boxed("2" + longest[1:]), longest, with_qwen=False, pool=Pool()).correct is False
    for gold, answer in ((longest + "1", "2"), ("2", longest + "1")):
        pool = Pool(WRONG)
        assert grade(boxed(answer), gold, with_qwen=False, pool=pool).correct is False
        assert pool.requests == [equal_request(gold, answer)]


@pytest.mark.parametrize("large", ["(" * 100 + "x" + ")" * 100, "1" * 20_000], ids=["deep", "long"])
def test_texts_beyond_the_size_limits_are_compared_only_as_text(large):
    assert grade(boxed(large), "x", with_qwen=False, pool=Pool()).correct is False
    assert grade(boxed("x"), large, with_qwen=False, pool=Pool()) == Grade(correct=None, answer="x")
    pairs = [("equal", large, "x"), ("equal", "x", large), ("equal", large, f" {large}\n")]
    assert list(judge._compare(pairs, 1.0, Pool()).values()) == [False, False, True]


def test_thinking_is_removed_if_the_prompt_or_the_completion_opens_it():
    completion = r"\boxed{3} so </think> \boxed{4}"
    expected = [("4", False), ("4", False), (None, False), ("3", True)]
    completions = [completion, completion, r"\boxed{3}", r"\boxed{3}"]
    prefilled = [True, False, True, False]
    grades = grade_many(completions, ["3"] * 4, thinking_prefilled=prefilled, with_qwen=False, pool=Pool())
    assert [(g.answer, g.correct) for g in grades] == expected
    assert grade(r"\boxed{3}", "3", thinking_prefilled=True, with_qwen=False, pool=Pool()).correct is False
    assert grade(r"\boxed{3}", "3", with_qwen=False, pool=Pool()).correct is True
    grades = grade_many([r"\boxed{3}"] * 2, ["3"] * 2, thinking_prefilled=True, with_qwen=False, pool=Pool())
    assert [g.correct for g in grades] == [False, False]


@pytest.mark.parametrize(
    ("arguments", "settings", "match"),
    [
        ((["a", "b"], ["1"]), {}, "golds has 1 entries for 2 answers: pass one per answer"),
        ((["a"], ["1"], ["What?", "Why?"]), {}, "questions has 2 entries for 1 answers"),
        (
            (["a"], ["1"]),
            {"benchmarks": ["gsm8k", "math"], "with_qwen": True},
            "benchmarks has 2 entries for 1 answers",
        ),
        ((["a"], ["1"]), {"thinking_prefilled": [True, False]}, "thinking_prefilled has 2 entries for 1 answers"),
    ],
)
def test_sequences_of_different_lengths_raise_an_error(arguments, settings, match):
    with pytest.raises(ValueError, match=match):
        grade_many(*arguments, **settings, pool=Pool())
    assert grade_many([], [], pool=Pool()) == []


def test_benchmarks_without_with_qwen_raise_an_error():
    with pytest.raises(ValueError, match="`benchmarks` only affects `correct_qwen`"):
        grade_many(["1"], ["1"], benchmarks=["gsm8k"], pool=Pool())
    with pytest.raises(ValueError, match="set `with_qwen=True`"):
        grade("1", "1", benchmark="gsm8k", pool=Pool())


# ---- batches with hostile answers


HOSTILE = {f"x^{{9^{{9^{n}}}}}": 99.0 for n in range(20)}


def correctness_of(answers, pool, **settings):
    """Grade answers with the limits of the reward, and map each answer to its correctness."""
    settings = {"limit_s": 1.0, "first_limit_s": 0.2, "with_qwen": False, **settings}
    grades = grade_many([boxed(answer) for answer in answers], ["1+x"] * len(answers), pool=pool, **settings)
    return {grade.answer: grade.correct for grade in grades}


def test_without_a_first_limit_all_comparisons_get_the_full_limit():
    pool = SlowPool({"x+2": 2.9, **HOSTILE})
    correctness = correctness_of(["x+2", *HOSTILE], pool, first_limit_s=None, limit_s=3.0)
    assert correctness == {"x+2": True, **dict.fromkeys(HOSTILE, False)}
    assert pool.requests == [(answer, 3.0) for answer in ("x+2", *HOSTILE)]


def test_comparisons_that_exceed_the_first_limit_get_the_full_limit(caplog):
    costs = {"x+2": 0.2, "x+3": 0.3, "x+4": 1.0, "x+5": 1.1}
    pool = SlowPool(costs)
    assert correctness_of(["x+1", *costs], pool) == {"x+1": True, "x+2": True, "x+3": True, "x+4": True, "x+5": False}
    assert pool.requests[:5] == [(answer, 0.2) for answer in ("x+1", *costs)]
    assert sorted(pool.requests[5:]) == [(answer, 1.0) for answer in ("x+3", "x+4", "x+5")]
    assert caplog.text == ""


def test_only_three_hostile_answers_get_the_full_limit(caplog):
    pool = SlowPool(HOSTILE)
    correctness = correctness_of(["x+1", *HOSTILE, "x+2"], pool)
    assert correctness.pop("x+1") is True
    assert correctness.pop("x+2") is True
    assert sorted(correctness.values(), key=str) == [False] * 3 + [None] * 17
    # The batch takes at most 22 times the first limit plus 3 times the full limit.
    assert [limit for _, limit in pool.requests] == [0.2] * 22 + [1.0] * 3
    assert "20 comparisons exceeded 0.2 s of CPU time. 3 of them were repeated with 1 s; the rest stay" in caplog.text
    ungraded = [answer for answer, correct in correctness.items() if correct is None]
    assert any(repr(answer) in caplog.text for answer in ungraded)


@pytest.mark.parametrize(("completions", "count"), [(30, 3), (1199, 3), (1200, 4), (3000, 10)])
def test_one_in_300_answers_may_get_the_full_limit(completions, count):
    pool = SlowPool(HOSTILE)
    correctness = correctness_of([*HOSTILE] + ["7"] * (completions - 20), pool)
    assert [correctness[answer] for answer in HOSTILE].count(False) == count
    assert [limit for _, limit in pool.requests].count(1.0) == count


def test_correctness_does_not_depend_on_the_order_of_a_batch(monkeypatch):
    rng = random.Random(0)
    quick = {f"x+{n}": rng.uniform(0.0, 0.2) for n in range(10)}
    slow = {f"x-{n}": rng.uniform(0.2, 1.0) for n in range(1, 6)}
    batch = [*quick, *slow, *HOSTILE]
    outcomes = []
    for _ in range(5):
        monkeypatch.setattr(judge, "_cached_replies", {})
        rng.shuffle(batch)
        outcomes.append(correctness_of(batch, SlowPool({**quick, **slow, **HOSTILE})))
    assert all(correctness == outcomes[0] for correctness in outcomes)  # independent of the order
    for answer, correct in outcomes[0].items():
        assert correct is True if answer in quick else correct in (answer in slow, None)
    assert all(correctness_of([answer], SlowPool(slow))[answer] is True for answer in slow)


def test_comparisons_are_cached():
    first = correctness_of(["x+1", *HOSTILE], SlowPool(HOSTILE))
    pool = SlowPool(HOSTILE)
    assert correctness_of(["x+1", *HOSTILE], pool) == first
    assert pool.requests == []
    # The cache also applies to later batches and without a first limit, but not to a longer limit.
    cached = next(answer for answer, correct in first.items() if correct is False)
    pool = SlowPool(HOSTILE)
    assert correctness_of([cached], pool, first_limit_s=None)[cached] is False
    assert pool.requests == []
    assert correctness_of([cached], pool, first_limit_s=None, limit_s=1.5)[cached] is False
    assert pool.requests == [(cached, 1.5)]
    # A comparison with a different gold is not cached.
    assert grade(boxed(cached), "x+2", with_qwen=False, limit_s=1.0, pool=pool).correct is False
    assert pool.requests[1:] == [(cached, 1.0)]


def test_comparisons_just_below_and_above_the_first_limit_are_graded():
    assert correctness_of(["x+1"], SlowPool({"x+1": 0.19})) == {"x+1": True}
    assert correctness_of(["x+1"], SlowPool({"x+1": 0.21})) == {"x+1": True}


def test_failures_are_not_cached_and_the_cache_size_is_limited(monkeypatch):
    for reply in (DIED, {"status": "error", "error": "MemoryError: "}, OK):
        graded = grade(boxed("x+1"), "1+x", with_qwen=False, pool=Pool(*[OK] * (not judge._usable_golds), reply))
    assert graded.correct is True
    assert [reply for _, reply in judge._cached_replies.values()] == [OK]
    monkeypatch.setattr(judge, "_cached_replies", {})
    monkeypatch.setattr(judge, "_CACHE_SIZE", 3)
    sizes = []
    for answer in [*HOSTILE][:8]:
        correctness_of([answer], SlowPool(HOSTILE))
        sizes.append(len(judge._cached_replies))
    assert sizes == [1, 2, 3, 1, 2, 3, 1, 2]


# ---- correct_qwen


def test_correct_qwen_is_requested_in_the_same_round():
    pool = Pool(OK, WRONG, OK)
    graded = grade(boxed("x+1"), "1+x", with_qwen=True, limit_s=0.5, pool=pool)
    assert graded == Grade(correct=False, answer="x+1", correct_qwen=True)
    assert pool.requests[1:] == [equal_request("1+x", "x+1"), equal_request("1+x", "x+1", op="equal_as_script")]
    assert pool.limits == [0.5, 0.5]


def test_correct_qwen_is_computed_on_request():
    assert grade(boxed("5"), "5", with_qwen=True, pool=Pool()) == Grade(correct=True, answer="5", correct_qwen=True)
    assert grade(boxed("5"), "5", pool=Pool()) == Grade(correct=True, answer="5", correct_qwen=None)
    [graded] = grade_many([boxed("5")], ["5"], pool=Pool())
    assert graded.correct_qwen is None


def test_correct_qwen_is_false_for_empty_texts_and_dead_workers():
    assert grade("", "5", with_qwen=True, pool=Pool()) == Grade(correct=False, answer=None, correct_qwen=False)
    assert grade(boxed("x+1"), "1+x", with_qwen=True, pool=Pool(OK, DIED, DIED)) == Grade(
        correct=None, answer="x+1", correct_qwen=False
    )


def test_benchmark_rules_apply_only_to_correct_qwen():
    for benchmark, correct_qwen in (("minerva_math", False), ("cmath", True), (None, True)):
        graded = grade(boxed("10 km"), "10", benchmark=benchmark, with_qwen=True, pool=Pool(WRONG))
        assert graded == Grade(correct=True, answer="10 km", correct_qwen=correct_qwen)
    benchmarks = ["minerva_math", "cmath"]
    grades = grade_many([boxed("10 km")] * 2, ["10"] * 2, benchmarks=benchmarks, with_qwen=True, pool=Pool(WRONG))
    assert [g.correct_qwen for g in grades] == [False, True]


def test_a_script_that_cannot_be_loaded_is_reported_with_a_remedy():
    reply = {"status": "error", "error": "ImportError: No module named 'sympy.parsing.latex._antlr'"}
    with pytest.raises(RuntimeError, match=r"installed sympy \(ImportError.*_antlr.*`with_qwen=False`"):
        grade(boxed("x+1"), "1+x", with_qwen=True, pool=Pool(OK, OK, reply))


def test_a_parser_that_cannot_run_is_reported_before_any_request(monkeypatch):
    monkeypatch.setattr(grader, "parser_problem", lambda: "correct_qwen needs antlr4-python3-runtime 4.11 to 4.13")
    with pytest.raises(RuntimeError, match="needs antlr4-python3-runtime"):
        grade(boxed("x+1"), "1+x", with_qwen=True, pool=Pool())
    assert grade(boxed("5"), "5", pool=Pool()).correct is True
