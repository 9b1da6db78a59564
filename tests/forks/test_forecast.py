"""The forecast of trl_ces/forks/forecast.py against loops, hand-computed cases and the signs that trainings had."""

import gzip
import json
import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trl_ces.forks.answers import SampledAnswer
from trl_ces.forks.forecast import (
    PACE,
    RARE,
    SOFTENING,
    advantages,
    forecast,
    gradient,
    length_change,
    policy,
    tabulate,
    train,
    weights,
)
from trl_ces.forks.tokens import ForkingToken
from trl_ces.toy.arithmetic_model import build_tokenizer

STOP, AGAIN, RIGHT, WRONG, OTHER = 10, 11, 1, 2, 3
CES = {"tau": 0.2, "beta_correct": 0.4, "beta_incorrect": 0.4}


def bits(*probabilities):
    return -sum(p * math.log2(p) for p in probabilities if p > 0)


def fork(place, first, second, p, sampled, q=None, others=0.0):
    """A fork between two tokens of probabilities p and q; the rest is a choice among others of so many bits."""
    q = 1 - p if q is None else q
    pair, probabilities = ((first, second), (p, q)) if p >= q else ((second, first), (q, p))
    rest = max(0.0, 1 - p - q)
    return ForkingToken(place, pair, probabilities, bits(p, q, rest) + rest * others, sampled)


def answer(prompt, length, forks, ended=True):
    return SampledAnswer(prompt, [0] * length, ended, [0.0] * length, forks)


def two_ways(stop, right_if_stop=1.0, right_if_again=1.0, prompts=20, samples=20):
    """Answers with one fork: to stop, 4 tokens, or to go on, 20 tokens; exactly as often as the probability says."""
    answers, correct = [], []
    for prompt in range(prompts):
        for ways, token, length, right in (
            (round(stop * samples), STOP, 4, right_if_stop),
            (samples - round(stop * samples), AGAIN, 20, right_if_again),
        ):
            for number in range(ways):
                answers.append(answer(prompt, length, [fork(2, STOP, AGAIN, stop, token)]))
                correct.append(number < round(right * ways))
    return answers, correct


def toy_world(check, slip=0.2, mend=0.6, spoil=0.07, limit=128, seed=0, prompts=64, samples=8, hard=0.0):
    """The small world as a chain: a pass of 12 tokens, right or wrong by chance, then `#` (5 tokens) or `?` again.

    A check mends a wrong pass and spoils a right one. `hard` is the share of prompts whose first pass is wrong with
    probability 0.85, as where carries are forgotten.
    """
    rng, answers, correct = random.Random(seed), [], []
    for prompt in range(prompts):
        first_slip = 0.85 if rng.random() < hard else slip
        for _ in range(samples):
            forks, place, right, wrong = [], 0, True, first_slip
            while True:
                right = rng.random() >= wrong
                forks.append(fork(place + 6, RIGHT, WRONG, 1 - wrong, RIGHT if right else WRONG))
                place += 12
                again = rng.random() < check
                forks.append(fork(place, AGAIN, STOP, check, AGAIN if again else STOP))
                if not again or place >= limit:
                    break
                wrong = spoil if right else 1 - mend
            length = min(place + 5, limit)
            forks = [one for one in forks if one.place < length]
            answers.append(answer(prompt, length, forks, ended=length < limit))
            correct.append(right and length < limit)
    return answers, correct


def run(answers, correct, **settings):
    found = forecast(answers, correct, **{"tau": 0.2, "betas": (0.4, 0.4), **settings})
    return {one.method: one for one in found}


def moved_by_hand(forks, theta, row):
    p = [float(value) for value in forks.probabilities[row]]
    shift = float(theta[forks.kinds[row]][0] + theta[forks.kinds[row]][1] * math.log(p[0] / p[1]))
    raw = [p[0] * math.exp(shift / 2), p[1] * math.exp(-shift / 2), p[2]]
    return [value / sum(raw) for value in raw]


def small_sample():
    """Three kinds of fork, two groups, one answer of each verdict with a third token drawn."""
    answers = [
        answer(0, 10, [fork(1, STOP, AGAIN, 0.7, STOP), fork(5, RIGHT, WRONG, 0.6, RIGHT, q=0.3, others=0.5)]),
        answer(0, 16, [fork(1, STOP, AGAIN, 0.4, AGAIN), fork(5, RIGHT, WRONG, 0.5, OTHER, q=0.2, others=1.5)]),
        answer(1, 12, [fork(3, AGAIN, STOP, 0.8, STOP), fork(7, WRONG, RIGHT, 0.55, WRONG, q=0.25)]),
        answer(1, 20, [fork(2, RIGHT, STOP, 0.9, STOP), fork(9, STOP, AGAIN, 0.65, AGAIN)]),
    ]
    return tabulate(answers, [True, False, False, True])


THETA = np.array([[0.3, -0.2], [-0.4, 0.5], [0.1, 0.7], [0.0, 0.2]])


def test_a_lean_and_a_sharpness_change_the_log_odds_of_a_fork_and_leave_the_others_between_them():
    forks = small_sample()
    for row, moved in enumerate(policy(forks, THETA)):
        assert moved.tolist() == pytest.approx(moved_by_hand(forks, THETA, row), rel=1e-12)
    lean, sharp = THETA[forks.kinds[0]]
    before, after = math.log(0.3 / 0.7), math.log(policy(forks, THETA)[0][1] / policy(forks, THETA)[0][0])
    assert forks.pairs[forks.kinds[0]] == (STOP, AGAIN)
    assert -after == pytest.approx((1 + sharp) * -before + lean, rel=1e-4)


def test_answers_weigh_within_their_prompt_as_their_forks_together_have_become_likelier():
    forks = small_sample()
    raw = [1.0] * 4
    for row, number in enumerate(forks.answers):
        drawn = forks.sampled[row]
        raw[number] *= moved_by_hand(forks, THETA, row)[drawn] / forks.probabilities[row][drawn]
    first, second = raw[0] + raw[1], raw[2] + raw[3]
    both = [raw[0] / first / 2, raw[1] / first / 2, raw[2] / second / 2, raw[3] / second / 2]
    assert weights(forks, policy(forks, THETA), np.ones(4)).tolist() == pytest.approx(both, rel=1e-9)
    kept = np.array([0.0, 0.0, 1.0, 1.0])
    alone = [0.0, 0.0, raw[2] / second, raw[3] / second]
    assert weights(forks, policy(forks, THETA), kept).tolist() == pytest.approx(alone, rel=1e-9)


def test_advantages_are_those_of_the_group_as_it_is_weighted():
    forks = small_sample()
    found, a = advantages(forks, np.array([0.3, 0.1, 0.2, 0.4]))
    first, second = 0.3 / 0.4, 0.4 / 0.6
    assert a.tolist() == pytest.approx([first, first, second, second])
    spread = [math.sqrt(a * (1 - a)) + SOFTENING for a in (first, first, second, second)]
    expected = [(1 - first) / spread[0], -first / spread[1], -second / spread[2], (1 - second) / spread[3]]
    assert found.tolist() == pytest.approx(expected)


def surrogate(forks, theta, at, weight, advantage, selected, rule):
    """The objective that [`gradient`] climbs, with everything but log p and H held at `at`: Eqs. 1 and 7, in loops."""
    total = mass = 0.0
    for row, number in enumerate(forks.answers):
        now, held = moved_by_hand(forks, theta, row), moved_by_hand(forks, at, row)
        beta = 0.0
        if rule is not None and selected[row]:
            beta = -rule["beta_correct"] if forks.correct[number] else rule["beta_incorrect"]
        others = float(forks.others_bits[row])
        entropy, held_entropy = bits(*now) + now[2] * others, bits(*held) + held[2] * others
        shaped = advantage[number] + beta * held_entropy
        total += weight[number] * (shaped * math.log(now[forks.sampled[row]]) + beta * entropy)
        mass += weight[number]
    return total / mass


@pytest.mark.parametrize("rule", [None, {"tau": 0.2, "beta_correct": 0.4, "beta_incorrect": 0.7}])
def test_the_gradient_is_that_of_the_methods_objective(rule):
    forks = small_sample()
    assert forks.others_bits.max() == pytest.approx(1.5)
    moved = policy(forks, THETA)
    weight = weights(forks, moved, np.ones(4))
    advantage, a = advantages(forks, weight)
    selected = [False] * len(forks.answers)
    for number in range(4):
        rows = [row for row, of in enumerate(forks.answers) if of == number]
        hand = {row: moved_by_hand(forks, THETA, row) for row in rows}
        entropy = {row: bits(*hand[row]) + hand[row][2] * forks.others_bits[row] for row in rows}
        b = a[number] if forks.correct[number] else 1 - a[number]
        k = math.floor(forks.lengths[number] * 0.2 * b)
        for row in sorted(rows, key=lambda row: -entropy[row])[:k]:
            selected[row] = True
    found = gradient(forks, moved, weight, rule)
    assert sum(selected) not in (0, len(selected))
    for kind in range(len(forks.pairs) + 1):
        for part in range(2):
            up, down = THETA.copy(), THETA.copy()
            up[kind, part] += 1e-5
            down[kind, part] -= 1e-5
            slope = [surrogate(forks, theta, THETA, weight, advantage, selected, rule) for theta in (up, down)]
            expected = (slope[0] - slope[1]) / 2e-5
            if kind == len(forks.pairs) and part == 0:
                expected = 0.0  # the rest has no lean
            assert found[kind, part] == pytest.approx(expected, abs=1e-7)


def test_a_kind_steps_by_its_gradient_over_the_root_of_its_share(monkeypatch):
    monkeypatch.setattr("trl_ces.forks.forecast.STEPS", 1)
    forks = small_sample()
    climb = gradient(forks, forks.probabilities, np.full(4, 0.25), CES)
    theta = train(forks, CES, np.ones(4))
    kinds = forks.kinds.tolist()
    for kind in set(kinds):
        pace = PACE / (math.sqrt(kinds.count(kind) / len(kinds)) + RARE)
        assert theta[kind].tolist() == pytest.approx((pace * climb[kind]).tolist(), rel=1e-9)


def test_forks_beyond_the_likeliest_kinds_share_one_sharpness(monkeypatch):
    monkeypatch.setattr("trl_ces.forks.forecast.KINDS", 1)
    forks = small_sample()
    assert forks.pairs == [(RIGHT, WRONG)]
    assert sorted(set(forks.kinds.tolist())) == [0, 1]
    theta = train(forks, CES, np.ones(4))
    assert theta[1, 0] == 0.0
    assert theta[1, 1] != 0.0


@pytest.mark.parametrize(("stop", "verdict", "gains"), [(0.8, "shortens", STOP), (0.2, "lengthens", AGAIN)])
def test_ces_takes_the_likelier_branch_and_says_why(stop, verdict, gains):
    """All answers are right, so DAPO has nothing to learn, and CES all the more: b = 1."""
    answers, correct = two_ways(stop)
    found = run(answers, correct, tau=0.25)
    ces = found["CES"]
    assert (ces.verdict, ces.reason.gains, ces.length) == (verdict, gains, pytest.approx(20 - 16 * stop))
    assert ces.reason.before == pytest.approx(0.8)
    assert ces.reason.after > 0.95
    assert {ces.reason.gains_left, ces.reason.loses_left} == {2.0, 18.0}  # 4 - 2 and 20 - 2
    # The forecast is the branch's: 4 p + 20 (1 - p) tokens at the probability that it arrives at.
    p = ces.reason.after if gains == STOP else 1 - ces.reason.after
    assert ces.length + ces.change == pytest.approx(20 - 16 * p, abs=1e-4)
    assert ces.reason.change == pytest.approx(ces.change)
    assert found["DAPO"].change == 0
    assert (found["DAPO"].verdict, found["DAPO"].reason) == ("cannot tell", None)


def test_an_answer_that_was_cut_off_counts_in_the_length_and_not_in_the_tokens_to_go():
    answers, correct = two_ways(0.8)
    cut = [answer(0, 64, [fork(2, STOP, AGAIN, 0.8, AGAIN)], ended=False)]
    found = run([*answers, *cut], [*correct, False])["CES"]
    assert found.length == pytest.approx((400 * 7.2 + 64) / 401)
    assert found.reason.loses_left == 18.0


def test_dapo_takes_the_branch_that_is_right_more_often():
    for rates, verdict in (((0.9, 0.5), "shortens"), ((0.5, 0.9), "lengthens")):
        assert run(*two_ways(0.5, *rates))["DAPO"].verdict == verdict


def test_where_the_rewards_are_equal_and_the_fork_is_even_it_cannot_tell():
    answers, correct = two_ways(0.5, 0.7, 0.7)
    rng = random.Random(0)
    correct = [rng.random() < 0.7 for _ in correct]
    assert run(answers, correct)["DAPO"].verdict == "cannot tell"


def test_one_prompt_has_no_error_and_no_verdict():
    found = run(*two_ways(0.8, 0.9, 0.5, prompts=1))["CES"]
    assert math.isnan(found.error)
    assert found.change < 0
    assert found.verdict == "cannot tell"


def recorded(world):
    """16 prompts x 32 answers of a base model of a study, its forks above 0.02 bits, rounded to 3 decimals."""
    one = json.loads(gzip.decompress((Path(__file__).parent / "worlds.json.gz").read_bytes()))[world]
    forks = [[] for _ in one["lengths"]]
    for number, place, low, high, p, q, entropy, sampled in zip(*one["forks"], strict=True):
        forks[number].append(ForkingToken(place, (low, high), (p, q), entropy, sampled))
    parts = zip(one["prompts"], one["lengths"], forks, one["ended"], strict=True)
    answers = [answer(prompt, length, found, bool(ended)) for prompt, length, found, ended in parts]
    return answers, list(map(bool, one["correct"]))


# What trainings did to the length: docs/study/forecast.md, three to five seeds each. The sizes are those of CES below
# the turn.
@pytest.mark.parametrize(
    ("world", "ces", "stop"),
    [
        ("check 0.20", -3.6, "#"),
        ("check 0.30", -5.8, "#"),
        ("check 0.40", -9.4, "#"),
        ("check 0.60", None, "?"),
        ("forgotten carries", -4.8, "#"),
    ],
)
def test_the_signs_and_sizes_of_the_study_come_out_of_its_base_models(world, ces, stop):
    found = run(*recorded(world))
    gains = build_tokenizer().convert_ids_to_tokens(found["CES"].reason.gains)
    assert (found["CES"].verdict, gains) == ("shortens" if ces else "lengthens", stop)
    if ces:
        assert found["CES"].change == pytest.approx(ces, rel=0.2)
    # With so few prompts DAPO's change is often within its error, but it has the sign of the trainings.
    assert found["DAPO"].change < 0


def test_a_branch_is_worth_less_once_the_slips_that_it_mends_are_rare():
    """At first checks gain weight; the longer training loses them again, as the trainings on forgotten carries did."""
    answers, correct = toy_world(0.3, slip=0.1, hard=0.5, limit=64, mend=0.5, spoil=0.15, prompts=100, samples=32)
    forks = tabulate(answers, correct)
    kept = np.ones(len(answers))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trl_ces.forks.forecast.STEPS", 5)
        early = length_change(forks, train(forks, None, kept), kept)
    late = length_change(forks, train(forks, None, kept), kept)
    assert early > 0.5
    assert late < -0.5


def test_near_a_tie_ces_cannot_be_told():
    assert run(*toy_world(0.5, prompts=16, seed=1))["CES"].verdict == "cannot tell"


def test_answers_without_a_verdict_are_left_out_and_none_at_all_gives_no_forecast():
    answers, correct = two_ways(0.8, 0.9, 0.5)
    odd = answer(0, 500, [fork(2, STOP, AGAIN, 0.8, AGAIN)])
    assert run([*answers, odd], [*correct, None]) == run(answers, correct)
    assert forecast(answers, [None] * len(answers), tau=0.2, betas=(0.4, 0.4)) == []


def test_the_forecast_does_not_depend_on_token_numbers_or_on_the_order_of_the_samples():
    answers, correct = toy_world(0.3, prompts=16)
    swap = {STOP: AGAIN, AGAIN: STOP}

    def renamed(one):
        forks = [
            replace(f, pair=tuple(swap.get(t, t) for t in f.pair), sampled=swap.get(f.sampled, f.sampled))
            for f in one.forks
        ]
        return replace(one, forks=forks)

    plain, other = run(answers, correct), run([renamed(one) for one in answers], correct)
    turned = run(answers[::-1], correct[::-1])
    for method in plain:
        assert other[method].change == pytest.approx(plain[method].change, abs=1e-6)
        assert other[method].error == pytest.approx(plain[method].error, abs=1e-6)
        assert turned[method].change == pytest.approx(plain[method].change, abs=1e-6)
        assert other[method].reason.gains == swap[plain[method].reason.gains]


def test_the_error_is_the_jackknifes_over_blocks_of_prompts():
    answers, correct = toy_world(0.3, prompts=8)
    forks = tabulate(answers, correct)
    changes = []
    for prompt in range(8):
        kept = np.array([float(one.prompt != prompt) for one in answers])
        changes.append(length_change(forks, train(forks, CES, kept), kept))
    middle = sum(changes) / 8
    expected = math.sqrt(7 / 8 * sum((change - middle) ** 2 for change in changes))
    assert run(answers, correct)["CES"].error == pytest.approx(expected, rel=1e-9)
    # A block left out is as if it had never been drawn.
    rest = [(a, c) for a, c in zip(answers, correct, strict=True) if a.prompt != 0]
    alone = run(*map(list, zip(*rest, strict=True)))["CES"]
    assert alone.change == pytest.approx(changes[0], abs=1e-6)
