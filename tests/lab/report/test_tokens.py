"""The shaped tokens: their values by hand, their files, what they turn into, how they are shown and made."""

import json
import math
from dataclasses import replace

import pytest
from bigram import ENTROPY_OF_A, STORY, bigram_model
from report_runs import POINTS, write_evaluation, write_training
from tiny import tiny_tokenizer

from trl_ces.cli.main import main
from trl_ces.lab.inspect.answers import SampledAnswer
from trl_ces.lab.inspect.tokens import ForkingToken
from trl_ces.lab.report.page import make_page
from trl_ces.lab.report.runs import read_runs
from trl_ces.lab.report.shaped_pairs import most_shaped, turned_into
from trl_ces.lab.report.token_runs import sample_tokens, shaping_of
from trl_ces.lab.report.tokens import (
    FollowedToken,
    ShapedToken,
    TokenAnswer,
    TokenFile,
    digest,
    read_tokens,
    token_answers,
    write_tokens,
)
from trl_ces.lab.report.viewer import LONGEST, choose_pairs, later_rows, level, view_answer, view_run, visible
from trl_ces.support.errors import UserError

SHAPING = {"tau": 0.5, "beta_correct": 0.4, "beta_incorrect": 0.2, "dynamic_multiplier": True}


def sampled(bits):
    """A completion whose tokens all are forks, as many as there are entropies."""
    forks = [ForkingToken(place, (4, 5), (0.7, 0.2), value, 4) for place, value in enumerate(bits)]
    return SampledAnswer(0, [4] * len(bits), True, list(bits), forks)


def test_shaping_is_that_of_algorithm_1():
    answers = [sampled([0.1, 0.9, 0.3, 0.2]), sampled([0.5, 0.1, 0.8, 0.7]), sampled([0.6, 0.4, 0.2, 0.9])]
    answers += [sampled([1.0] * 4)]
    found = token_answers(answers, [True, False, False, None], tiny_tokenizer(), num_samples=4, shaping=SHAPING)
    # a = 1/3 of those that could be judged. Right: b = 1/3, k = floor(4/2/3) = 0. Wrong: b = 2/3, k = floor(4/3) = 1.
    assert [[(entry.place, entry.shaping) for entry in answer.shaped] for answer in found] == [
        [],
        [(2, pytest.approx(0.16))],
        [(3, pytest.approx(0.18))],
        [],
    ]
    still = {**SHAPING, "dynamic_multiplier": False}
    found = token_answers(answers, [True, False, False, None], tiny_tokenizer(), num_samples=4, shaping=still)
    assert [(entry.place, entry.shaping) for entry in found[0].shaped] == [
        (1, pytest.approx(-0.36)),
        (2, pytest.approx(-0.12)),
    ]
    # With one of two correct A = -sqrt(1/2), and the cap |A| / 2 is below 0.2 x 4 bits; without a correct one A is 0.
    own = {"ces_tau": 0.5, "ces_beta_incorrect": 0.2, "ces_cap_incorrect": 2.0, "ces_dynamic_multiplier": False}
    capped = shaping_of(own)
    assert capped == {**SHAPING, "cap_incorrect": 2.0, "dynamic_multiplier": False}
    wrong = [sampled([4.0, 0.9]), sampled([0.1, 0.1])]
    for verdicts, shaping in (([False, True], math.sqrt(1 / 2) / 2), ([False, False], 0.0)):
        found = token_answers(wrong, verdicts, tiny_tokenizer(), num_samples=2, shaping=capped)
        assert found[0].shaped[0].shaping == pytest.approx(shaping, abs=1e-4)
    masked = {**capped, "mask_truncated": True}
    assert shaping_of({**own, "mask_truncated_completions": True}) == masked
    cut = replace(wrong[0], ended=False)  # the loss leaves it out
    found = token_answers([cut, wrong[0]], [False, True], tiny_tokenizer(), num_samples=2, shaping=masked)
    assert [len(answer.shaped) for answer in found] == [0, 1]
    unknown = token_answers(answers, None, tiny_tokenizer(), num_samples=4, shaping=SHAPING)
    assert [answer.shaped for answer in unknown] == [[], [], [], []]
    assert unknown[0].correct is None


def answer(correct, entries, length=4, prompt=0, tokens=None):
    """`entries`: place -> (entropy, shaping, pair)."""
    shaped = [
        ShapedToken(place, bits, value, list(pair), [0.7, 0.2]) for place, (bits, value, pair) in entries.items()
    ]
    entropies = [entries[place][0] if place in entries else 0.0 for place in range(length)]
    return TokenAnswer(prompt, [3] * length, tokens or ["x"] * length, entropies, True, correct, shaped)


REFERENCE = TokenFile(
    {"step": 0, "reference": None},
    ["1+1="],
    [[3]],
    [
        answer(True, {1: (0.8, -0.32, "#?"), 2: (0.4, -0.16, "12")}),
        answer(False, {0: (0.6, 0.24, "?#"), 3: (1.0, 0.40, "#?")}),
    ],
)
LATER = TokenFile(
    {"step": 40, "reference": digest(REFERENCE.settings)},
    ["1+1="],
    [[3]],
    [],
    [
        FollowedToken(0, 1, 0.1, ["#", "?"], [0.99, 0.01]),
        FollowedToken(0, 2, 0.3, ["3", "1"], [0.6, 0.3]),
        FollowedToken(1, 0, 0.2, ["#", "!"], [0.9, 0.1]),
        FollowedToken(1, 3, 0.3, ["#", "?"], [0.8, 0.2]),
    ],
)


def test_forks_are_counted_by_their_pair_in_either_order():
    first, second = most_shaped(REFERENCE)
    assert first.pair == ("#", "?")
    assert (first.in_correct, first.in_wrong) == (1, 2)
    assert (first.entropy, first.shaping) == (pytest.approx(0.8), pytest.approx(0.32))
    assert (second.pair, second.in_correct, second.places) == (("1", "2"), 1, [(0, 2)])


def test_forks_are_followed_at_their_own_places():
    first, second = (turned_into(fork, REFERENCE, [LATER]) for fork in most_shaped(REFERENCE))
    assert [(found.step, found.entropy, found.places) for found in first] == [
        (0, pytest.approx(0.8), 3),
        (40, pytest.approx(0.2), 3),
    ]
    # "?" was the likelier one at the third place, and is no longer among the two likeliest.
    assert first[1].probability == pytest.approx((0.99 + 0.0 + 0.8) / 3)
    assert first[1].turned == {"#": 1}
    assert (second[1].probability, second[1].turned) == (0.3, {"3": 1})
    steps, rows = later_rows([REFERENCE, LATER])
    assert steps == ["step 0", "step 40"]
    assert rows[0] == ["“#” or “?”", "3", "0.80 bits, 70 %", "0.20 bits, 60 %, 1 to “#”"]


def test_places_of_another_reference_are_not_followed():
    assert LATER.follows(REFERENCE)
    other = TokenFile({"step": 0, "seed": 1}, ["1+1="], [[3]], REFERENCE.answers)
    assert not LATER.follows(other)
    assert later_rows([other, LATER]) == ([], [])


def test_a_file_comes_back_as_it_was_and_a_damaged_one_is_named(tmp_path):
    for content in (LATER, REFERENCE):
        write_tokens(tmp_path, content)
    assert read_tokens(tmp_path) == [REFERENCE, LATER]
    (tmp_path / "other").mkdir()
    write_tokens(tmp_path / "other", replace(LATER, questions=["line\u2028separator\x85"]))
    assert read_tokens(tmp_path / "other")[0].questions == ["line\u2028separator\x85"]
    (tmp_path / "tokens-latest.jsonl").write_text("not one of ours")
    assert len(read_tokens(tmp_path)) == 2
    text = (tmp_path / "tokens-40.jsonl").read_text()
    for damaged in (text[:-30], text.replace('"version": 2', '"version": 9'), ""):
        (tmp_path / "tokens-40.jsonl").write_text(damaged)
        with pytest.raises(UserError, match=r"tokens-40.jsonl is damaged .*remove it"):
            read_tokens(tmp_path)


def test_an_answer_is_shown_with_classes_of_entropy_and_the_shaping_of_each_marked_token():
    shown = TokenAnswer(
        0, [3] * 5, ["4", "7", "\n", " x", "?"], [0.0, 0.01, 0.3, 1.2, 3.0], False, True,
        [ShapedToken(2, 0.3, -0.12, ["\n", " "], [0.8, 0.2]), ShapedToken(4, 3.0, -1.2, ["?", "#"], [0.5, 0.4])],
    )  # fmt: skip
    view = view_answer(shown, "1+1=")
    assert [(token.text, token.level, token.kind, token.value) for token in view.tokens] == [
        ("47", 0, "", ""),
        ("↵", 2, "down", "−0.12"),
        ("\n", 0, "", ""),
        (" x", 4, "", ""),
        ("?", 5, "down", "−1.20"),
    ]
    assert view.facts == "5 tokens, 2 shaped, cut off"
    assert view.shaped[0] == ["↵", "3", "0.30", "−0.12", "“↵” 80 % or “␣” 20 %"]
    assert [level(bits) for bits in (0.049, 0.05, 0.25, 0.5, 1.0, 2.0)] == [0, 1, 2, 3, 4, 5]
    assert visible(" a\t") == "␣a⇥"


def test_a_long_answer_is_cut_and_says_what_is_left_out():
    far = answer(False, {3: (0.5, 0.2, "ab"), LONGEST + 7: (0.5, 0.2, "ab")}, length=LONGEST + 10)
    view = view_answer(far, "")
    assert view.rest == "10 more tokens, 1 of them shaped, are not shown."
    assert sum(token.kind == "up" for token in view.tokens) == 1
    assert len(view.shaped) == 2


def test_right_and_wrong_answers_to_one_question_stand_side_by_side():
    few, many = {0: (0.5, 0.1, "ab")}, {0: (0.5, 0.1, "ab"), 1: (0.5, 0.1, "ab")}
    answers = [
        answer(True, few, prompt=0), answer(False, {}, prompt=0),
        answer(True, few, prompt=1), answer(False, many, prompt=1), answer(True, many, prompt=1),
        answer(True, many, prompt=2),
    ]  # fmt: skip
    pairs = choose_pairs(TokenFile({"step": 0}, ["q0", "q1", "q2"], [[3]] * 3, answers), count=1)
    assert [(right.question, len(right.shaped), len(wrong.shaped)) for right, wrong in pairs] == [("q1", 2, 2)]
    only_right = TokenFile({"step": 0}, ["q"], [[3]], [answer(True, few)])
    ((right, wrong),) = choose_pairs(only_right)
    assert right.correct
    assert wrong is None


def test_a_run_without_ces_and_one_without_verdicts_say_so():
    plain = TokenFile({"step": 8, "trained_with": "none"}, ["q"], [[3]], [answer(True, {})])
    assert "trained without CES: the marks show what CES would have done" in view_run("DAPO", 0, [plain]).note
    blind = TokenFile({"step": 8, "not_judged": "the reward is a model."}, ["q"], [[3]], [answer(None, {})])
    view = view_run("CES", None, [blind])
    assert "Nothing is shaped, because the completions were not judged: the reward is a model." in view.note
    assert view.steps[0].facts.startswith("1 completions for 1 problems, not judged")


REWARDS = """
def y_is_right(completions, **kwargs):
    return [float(completion[0]["content"] == "yzw") for completion in completions]
"""
RECIPE = """model_name_or_path: {folder}/base
output_dir: {folder}/run
dataset_name: {folder}/data.jsonl
system_prompt: null
use_cpu: true
dtype: float32
reward_funcs: [report_test_rewards.y_is_right]
max_completion_length: 8
num_generations: 8
shaping: {shaping}
ces_tau: 1.0
seed: 0
max_train_samples: 4
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run whose base hesitates after "a" between "x" (wrong) and "y" (right), and whose last model hardly does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "report_test_rewards.py").write_text(REWARDS)
    rows = [{"question": f"{n}+{n}=", "answer": "1"} for n in range(4)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    folder = write_training(tmp_path / "run", POINTS, RECIPE.format(folder=tmp_path, shaping="ces"))
    sure = STORY | {"a": {"x": 0.03125, "y": 0.96875}}
    for place, story in (("base", STORY), ("run", sure)):
        bigram_model(story).save_pretrained(tmp_path / place)
        tiny_tokenizer().save_pretrained(tmp_path / place)
    return folder


def test_saved_models_answer_and_their_forks_are_followed_from_the_base_to_the_end(run, capsys):
    assert main(["report", "run", "--out", "r.html", "--tokens", "3"]) == 0
    assert "sampling the model of step 8 on 3 problems" in capsys.readouterr().out
    base, last = read_tokens(run)
    assert (base.step, last.step, len(base.questions), len(base.answers)) == (0, 8, 3, 24)
    for answer_, group in ((entry, [a for a in base.answers if a.prompt == entry.prompt]) for entry in base.answers):
        accuracy = sum(other.correct for other in group) / 8
        text = "".join(answer_.tokens)
        assert (text, answer_.correct) in (("x<eos>", False), ("yzw<eos>", True))
        b = accuracy if answer_.correct else 1 - accuracy
        k = math.floor(len(answer_.tokens) * b)
        sign = -0.4 if answer_.correct else 0.4
        # The hesitation is at the first token, and every later one has no entropy: the earlier goes first.
        expected = [(place, pytest.approx(sign * ENTROPY_OF_A * (place == 0), abs=1e-3)) for place in range(k)]
        assert [(entry.place, entry.shaping) for entry in answer_.shaped] == expected
    forks = {fork.pair: fork for fork in most_shaped(base)}
    at_a = turned_into(forks["x", "y"], base, [last])
    sure = -(math.log2(0.96875) * 0.96875 + math.log2(0.03125) * 0.03125)
    assert [found.entropy for found in at_a] == [pytest.approx(ENTROPY_OF_A, abs=1e-3), pytest.approx(sure, abs=1e-3)]
    assert [found.probability for found in at_a] == [pytest.approx(0.75, abs=1e-3), pytest.approx(0.03125, abs=1e-3)]
    assert at_a[1].turned == {"y": at_a[1].places}
    assert "What the shaped tokens turn into" in (run.parent / "r.html").read_text(encoding="utf-8")


def test_files_that_are_there_are_kept_and_those_of_other_settings_made_anew(run, capsys):
    with (run / "recipe.yaml").open("a") as recipe:
        recipe.write("ces_dynamic_multiplier: false\n")  # tau 1: every token is shaped
    assert main(["report", "run", "--out", "r.html", "--tokens", "2"]) == 0
    kept = (run / "tokens-0.jsonl").stat().st_mtime_ns
    capsys.readouterr()
    assert main(["report", "run", "--out", "r.html", "--tokens", "2"]) == 0
    assert "sampling" not in capsys.readouterr().out.split("Missing")[0]
    assert (run / "tokens-0.jsonl").stat().st_mtime_ns == kept
    assert main(["report", "run", "--out", "r.html", "--tokens", "3"]) == 0
    base, last = read_tokens(run)
    assert (len(base.questions), len(last.questions)) == (3, 3)
    assert len(last.places) == sum(len(entry.tokens) for entry in base.answers)


def test_a_tau_that_the_first_rollout_decided_is_the_recipes_number(run):
    found = read_runs([run])
    (training,) = found.trainings
    found.trainings[:] = [replace(training, settings=training.settings | {"ces_tau": "auto"})]  # as in a study's rows
    sample_tokens(found, 2, say=print)
    assert read_tokens(run)[0].settings["shaping"]["tau"] == 1.0


def test_a_run_without_ces_shows_what_the_ces_beside_it_would_do(run, tmp_path):
    other = write_training(tmp_path / "dapo", POINTS, RECIPE.format(folder=tmp_path, shaping="none"))
    text = (other / "recipe.yaml").read_text()
    (other / "recipe.yaml").write_text(text.replace("ces_tau: 1.0\n", ""))
    bigram_model().save_pretrained(other)
    tiny_tokenizer().save_pretrained(other)
    assert main(["report", "dapo", "run", "--names", "DAPO", "CES", "--out", "r.html", "--tokens", "2"]) == 0
    assert read_tokens(other)[0].settings["shaping"]["tau"] == 1.0
    page = make_page(read_runs([other, run], ["DAPO", "CES"]), "trl-ces report")
    assert [view.title for view in page.tokens] == ["CES, seed 0", "DAPO, seed 0"]
    assert "trained without CES" in page.tokens[1].note


def test_a_checkpoint_answers_too_but_one_that_was_cut_off_and_a_base_that_is_gone_are_left_out(run, tmp_path):
    (tmp_path / "base").rename(run / "checkpoint-6")
    write_training(run / "checkpoint-6", POINTS[:3])
    half = run / "checkpoint-4"
    half.mkdir()
    (half / "config.json").write_text("{}")
    assert main(["report", "run", "--out", "r.html", "--tokens", "2"]) == 0
    assert [content.step for content in read_tokens(run)] == [6, 8]


def test_a_base_beside_its_runs_is_found_where_a_study_was_moved(run, tmp_path, monkeypatch):
    moved = tmp_path / "elsewhere" / "moved"
    moved.mkdir(parents=True)
    for name in ("base", "run"):
        (tmp_path / name).rename(moved / name)
    text = (moved / "run" / "recipe.yaml").read_text()
    relative = text.replace(f"{tmp_path}/base", "runs/mine/base").replace(f"{tmp_path}/run", "runs/mine/run")
    (moved / "run" / "recipe.yaml").write_text(relative)
    assert main(["report", "elsewhere/moved/run", "--out", "r.html", "--tokens", "2"]) == 0
    assert [content.step for content in read_tokens(moved / "run")] == [0, 8]
    (moved / "base").rename(tmp_path / "gone")
    for file in (moved / "run").glob("tokens-*"):
        file.unlink()
    assert main(["report", "elsewhere/moved/run", "--out", "r.html", "--tokens", "2"]) == 0
    assert [content.step for content in read_tokens(moved / "run")] == [8]
    assert "--tokens 2 --tokens 32" not in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_tokens_are_not_asked_of_evaluations_beside_a_training(run, tmp_path):
    write_evaluation(tmp_path / "evaluation", {"gsm8k": [[(True, 5)]]})
    assert main(["report", "run", "evaluation", "--out", "r.html", "--tokens", "2"]) == 0
