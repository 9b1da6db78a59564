"""The small world: its texts follow its own probabilities, its problems do not leak, its tokenizer survives a save."""

import hashlib
import itertools
import json
import math
import random
import re
import subprocess
import sys

import pytest
import torch

from trl_ces.lab.tasks import arithmetic_model
from trl_ces.lab.tasks.arithmetic import (
    CHARACTERS,
    World,
    arithmetic_accuracy_reward,
    carries,
    draw_terms,
    load_problems,
    read_prompt,
    split_of,
    write_completion,
    write_pass,
    write_prompt,
    write_solution,
    write_text,
)
from trl_ces.lab.tasks.arithmetic_evaluation import evaluate, measure
from trl_ces.lab.tasks.arithmetic_model import build_base_model, build_tokenizer, make_base_model


def passes_and_answer(text):
    working, _, answer = text.partition("#")
    return working.split("?"), answer


def test_working_goes_column_by_column_with_the_carry():
    assert write_prompt([[37, 48]]) == "37+48:"
    assert write_pass([37, 48]) == ("7+8=15,3+4+1=8", "85")
    assert write_pass([20, 31]) == ("0+1=1,2+3=5", "51")
    assert write_pass([99, 99]) == ("9+9=18,9+9+1=19", "198")
    assert write_pass([5, 7, 9]) == ("5+7+9=21", "21")
    assert write_pass([105, 207]) == ("5+7=12,0+0+1=1,1+2=3", "312")


def test_a_slip_is_carried_into_the_answer():
    assert write_pass([37, 48], slip_column=0, slip=1) == ("7+8=16,3+4+1=8", "86")
    assert write_pass([37, 43], slip_column=0, slip=-1) == ("7+3=9,3+4=7", "79")
    assert write_pass([37, 48], slip_column=1, slip=-1) == ("7+8=15,3+4+1=7", "75")
    assert write_pass([20, 30], slip_column=0, slip=-1) == ("0+0=1,2+3=5", "51")  # no column is below 0


@pytest.mark.parametrize(
    "world", [World(), World(digits=3, max_terms=4, slip_probability=0.5, check_probability=0.6, mend_probability=0.2)]
)
def test_slips_checks_and_mends_come_as_often_as_the_world_says(world):
    rng = random.Random(0)
    count, slips, forks, checks, wrong_checked, mended = 8000, 0, 0, 0, 0, 0
    for _ in range(count):
        terms = draw_terms(world, "train", rng)
        right = write_pass(terms)[0]
        passes, answer = passes_and_answer(write_completion(terms, world, rng))
        slips += passes[0] != right
        forks += len(passes)
        checks += len(passes) - 1
        for before, after in itertools.pairwise(passes):
            if before == right:
                assert after == right  # a check never spoils what is right
            else:
                wrong_checked += 1
                mended += after == right
                assert after in (before, right)
        assert (answer == str(sum(terms))) == (passes[-1] == right)
    assert slips / count == pytest.approx(world.slip_probability, abs=0.02)
    assert checks / forks == pytest.approx(world.check_probability, abs=0.02)
    assert mended / wrong_checked == pytest.approx(world.mend_probability, abs=0.05)


def test_a_forgotten_carry_leaves_the_next_column_without_it():
    assert write_pass([37, 48], forget=True) == ("7+8=15,3+4=7", "75")
    assert write_pass([31, 48], forget=True) == write_pass([31, 48])  # there is none to forget
    assert carries(*read_prompt("37+48:"))
    assert not carries(*read_prompt("31+48:"))


def test_carries_are_forgotten_as_often_as_the_world_says_and_only_where_there_are_any():
    world, rng = World(forget_probability=0.85, slip_probability=0.0, check_probability=0.0), random.Random(2)
    right = {True: [], False: []}
    for _ in range(4000):
        terms = draw_terms(world, "train", rng)
        right[carries(terms)].append(write_completion(terms, world, rng).endswith(f"#{sum(terms)}"))
    assert sum(right[True]) / len(right[True]) == pytest.approx(0.15, abs=0.02)
    assert all(right[False])


def test_the_defaults_write_the_texts_that_they_always_wrote():
    for world, digest in (
        (World(), "ca0bf454f80242b9671ffa9ce255eefe63e1589b75b4c208e5d6dc3a7777a68d"),
        (
            World(digits=3, max_terms=4, forget_probability=0.5, check_probability=0.6),
            "07210b373a93e66a44595a583fcdfac3e8dfa58ea19503463de9d589bffe6308",
        ),
    ):
        rng, texts = random.Random(0), []
        for _ in range(500):
            terms = draw_terms(world, "train", rng)
            texts.append(write_prompt([terms]) + write_completion(terms, world, rng))
        assert hashlib.sha256("\n".join(texts).encode()).hexdigest() == digest


def test_a_guess_is_the_answer_without_working_and_misses_every_carry():
    world, rng = World(guess_first=True, forget_probability=1.0, slip_probability=0.0), random.Random(3)
    wrong_checked, mended = 0, 0
    for _ in range(4000):
        terms = draw_terms(world, "train", rng)
        right, forgetful = write_pass(terms), write_pass(terms, forget=True)
        (guess, *checks), answer = passes_and_answer(write_completion(terms, world, rng))
        assert guess == forgetful[1]
        assert (guess == str(sum(terms))) == (not carries(terms))
        assert set(checks) <= {right[0], forgetful[0]}
        assert answer == (right[1] if right[0] in checks else guess)
        if checks and carries(terms):
            wrong_checked += 1
            mended += checks[0] == right[0]
    assert mended / wrong_checked == pytest.approx(world.mend_probability, abs=0.05)
    assert write_completion([37, 48], World(guess_first=True, slip_probability=0.0, check_probability=0.0), rng) == (
        "85#85"
    )


def test_several_sums_are_named_worked_and_answered_in_turn():
    problem = [[37, 48], [21, 30]]
    world = World(sums=2, slip_probability=0.0, check_probability=0.0)
    assert write_prompt(problem) == "a37+48b21+30:"
    assert read_prompt("a37+48b21+30:") == problem
    assert write_solution(problem) == "85,51"
    assert write_text(problem, world, random.Random(0)) == "a7+8=15,3+4+1=8#85b1+0=1,2+3=5#51"
    for row in load_problems("train", 20, seed=3, sums=12):
        problem = read_prompt(row["prompt"])
        assert len(problem) == 12
        assert row["solution"] == ",".join(str(sum(terms)) for terms in problem)
        assert all(split_of(terms) == "train" for terms in problem)


def test_each_sum_of_a_problem_slips_and_checks_by_itself():
    world, rng = World(sums=4), random.Random(5)
    right, checked = [[], [], [], []], [[], [], [], []]
    for _ in range(2000):
        problem = [draw_terms(world, "train", rng) for _ in range(4)]
        texts = re.split(r"[abcd]", write_text(problem, world, rng))[1:]
        for place, (terms, text) in enumerate(zip(problem, texts, strict=True)):
            right[place].append(text.endswith(f"#{sum(terms)}"))
            checked[place].append("?" in text)
    # A slip (0.2) stays unless a check mends it: 1 - 0.2 * 0.7 / (1 - 0.3 * 0.3), summed over the number of checks.
    assert [sum(one) / 2000 for one in right] == pytest.approx([1 - 0.2 * 0.7 / 0.91] * 4, abs=0.03)
    assert [sum(one) / 2000 for one in checked] == pytest.approx([0.3] * 4, abs=0.03)
    together = sum(all(one) for one in zip(*right, strict=True)) / 2000
    assert together == pytest.approx((1 - 0.2 * 0.7 / 0.91) ** 4, abs=0.035)


def test_train_and_held_out_problems_never_meet():
    train = set(load_problems("train", 6000, seed=1)["prompt"])
    held_out = set(load_problems("held_out", 600, seed=2)["prompt"])
    assert len(train) == 6000  # distinct
    assert len(held_out) == 600
    swapped = {"+".join(reversed(prompt.rstrip(":").split("+"))) + ":" for prompt in train}
    assert not held_out & (train | swapped)
    assert split_of([37, 48]) == split_of([48, 37])


def test_about_a_tenth_of_the_problems_is_held_out():
    share = sum(split_of([a, b]) == "held_out" for a in range(10, 100) for b in range(10, 100)) / 8100
    assert share == pytest.approx(0.1, abs=0.02)


def test_problems_have_their_sum_as_solution_and_depend_on_the_seed_alone():
    problems = load_problems("train", 50, seed=3)
    assert problems.column_names == ["prompt", "solution"]
    for row in problems:
        terms = [int(term) for term in re.fullmatch(r"(\d\d)\+(\d\d):", row["prompt"]).groups()]
        assert row["solution"] == str(sum(terms))
    assert load_problems("train", 50, seed=3)["prompt"] == problems["prompt"]
    assert load_problems("train", 50, seed=4)["prompt"] != problems["prompt"]
    assert {prompt.count("+") for prompt in load_problems("train", 50, max_terms=3)["prompt"]} == {1, 2}


def test_asking_for_more_problems_than_there_are_says_how_many_there_are():
    with pytest.raises(ValueError, match=r"num_problems 200 is more than .* 'held_out' has"):
        load_problems("held_out", 200, digits=1)
    with pytest.raises(ValueError, match="train, held_out, got 'test'"):
        load_problems("test", 1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"slip_probability": 1.5}, "slip_probability is a probability"),
        ({"check_probability": 1}, "check_probability must be below 1"),
        ({"digits": 0}, "digits >= 1"),
        ({"min_terms": 3}, "min_terms=3, max_terms=2"),
        ({"sums": 0}, "1 to 26 sums"),
        ({"sums": 27}, "1 to 26 sums"),
    ],
)
def test_impossible_worlds_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        World(**fields)


def test_only_one_final_right_number_earns_the_reward():
    completions = ["7+8=15,3+4+1=8#85", "nonsense#85", "7+8=16#86", "#085", "#85#85", "#85?", "#8", "85", "", "#-85"]
    rewards = arithmetic_accuracy_reward(completions, ["85"] * len(completions), trainer_state=None)
    assert rewards == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_of_several_sums_every_number_must_be_right_and_in_its_place():
    completions = [
        "a7+8=15#85b3+4=7#51",
        "a#85b#52",
        "a#86b#51",
        "#51#85",
        "#85",
        "#85#51#7",
        "#85#51?",
        "#85#",
        "85#51",
    ]
    rewards = arithmetic_accuracy_reward(completions, ["85,51"] * len(completions))
    assert rewards == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_the_tokenizer_has_a_token_for_each_character_and_refuses_others():
    tokenizer = build_tokenizer()
    text = "37+48:7+8=15,3+4+1=8?7+8=15,3+4+1=8#85"
    ids = tokenizer(text)["input_ids"]
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text
    assert len(tokenizer) == len(CHARACTERS) + 2
    assert tokenizer.decode(tokenizer("1#2<eos>")["input_ids"], skip_special_tokens=True) == "1#2"
    with pytest.raises(Exception, match="UNK"):
        tokenizer("37 48")
    assert build_tokenizer(sums=2).get_vocab() == {**tokenizer.get_vocab(), "a": 18, "b": 19}


@pytest.fixture(scope="module")
def tiny_base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    seen = []
    assert build_base_model(folder, seed=0, steps=40, batch_size=16, on_step=lambda *step: seen.append(step))
    return folder, seen


def test_auto_classes_load_what_was_saved(tiny_base):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, _ = tiny_base
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    own = build_tokenizer()
    assert tokenizer.get_vocab() == own.get_vocab()  # AutoTokenizer adds tokens of its own to a Qwen2's
    assert tokenizer("37+48:#?<eos>")["input_ids"] == own("37+48:#?<eos>")["input_ids"]
    assert (tokenizer.pad_token, tokenizer.eos_token, tokenizer.padding_side) == ("<pad>", "<eos>", "left")
    assert model.config.vocab_size == len(tokenizer)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id


def test_the_base_model_learns_and_is_kept_only_while_its_settings_match(tiny_base):
    folder, seen = tiny_base
    assert [step[:2] for step in seen] == [(done, 40) for done in range(1, 41)]
    assert seen[0][2] == pytest.approx(math.log(18), abs=0.1)  # nats per token: knows nothing
    assert seen[-1][2] < 2.0
    weights = folder / "model.safetensors"
    first = weights.read_bytes()
    assert not build_base_model(folder, seed=0, steps=40, batch_size=16)
    assert make_base_model(str(folder)) == str(folder)
    assert weights.read_bytes() == first
    assert build_base_model(folder, world=World(check_probability=0.4), seed=0, steps=40, batch_size=16)
    assert json.loads((folder / "arithmetic_world.json").read_text())["world"]["check_probability"] == 0.4
    assert weights.read_bytes() != first
    assert build_base_model(folder, seed=0, steps=40, batch_size=16)
    assert weights.read_bytes() == first  # the same settings and seed, the same weights


def test_the_loss_is_the_whole_batchs_however_its_rows_are_parted():
    tokenizer, world = build_tokenizer(), World()
    model = arithmetic_model._new_model(tokenizer, seed=0, layers=1, width=32)
    batch = arithmetic_model._supervised_batch(tokenizer, world, 1, 10, random.Random(0))
    assert len(set(batch["attention_mask"].sum(dim=1).tolist())) > 3
    whole = model(**batch).loss
    whole.backward()
    expected = [weights.grad.clone() for weights in model.parameters()]
    model.zero_grad()
    assert arithmetic_model._backward(model, batch) == pytest.approx(whole.item(), rel=1e-5)
    for weights, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(weights.grad, gradient, rtol=1e-4, atol=1e-6)


def test_a_measurement_counts_up_to_the_end_token_and_in_bits(tmp_path):
    """With every weight 0 each of the 18 tokens is equally likely: log2(18) bits, 18 tokens to the end on average."""
    from transformers import AutoModelForCausalLM

    build_base_model(tmp_path, steps=1, batch_size=2)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    model.save_pretrained(tmp_path)
    problems = load_problems("held_out", 25)
    found = measure(tmp_path, problems, num_samples=8, seed=0, max_new_tokens=150)
    assert found.entropy_bits == pytest.approx(4.169925, abs=1e-4)
    assert found.length == pytest.approx(18, abs=3.8)  # three standard errors of 18 / sqrt(200)
    assert found.accuracy < 0.05
    assert found.problems == list(problems["prompt"])
    assert [len(texts) for texts in found.completions] == [8] * 25
    assert measure(tmp_path, problems, num_samples=8, seed=0, max_new_tokens=150) == found


def test_the_builder_makes_what_is_asked_for_once_and_never_over_another(tmp_path):
    folder = tmp_path / "models" / "base"
    settings = {"seed": 3, "steps": 4, "batch_size": 2, "check_probability": 0.1}
    assert make_base_model(str(folder), **settings) == str(folder)
    written = json.loads((folder / "arithmetic_world.json").read_text())
    assert (written["seed"], written["steps"], written["world"]["check_probability"]) == (3, 4, 0.1)
    made = (folder / "model.safetensors").stat().st_mtime_ns
    make_base_model(str(folder), **settings)
    make_base_model(str(folder))  # whatever is there will do
    assert (folder / "model.safetensors").stat().st_mtime_ns == made
    with pytest.raises(ValueError, match="name another directory"):
        make_base_model(str(folder), **{**settings, "seed": 4})
    (folder / "arithmetic_world.json").unlink()  # a model of someone else's
    with pytest.raises(ValueError, match="settings unknown"):
        make_base_model(str(folder), **settings)
    assert (folder / "model.safetensors").stat().st_mtime_ns == made


@pytest.mark.parametrize(
    ("steps", "sums", "expected"),
    [(3, 1, [1] * 3), (4, 2, [2] * 4), (4, 3, [2, 2, 3, 3]), (12, 10, [2, 2, 4, 4, 8, 8] + [10] * 6)],
)
def test_texts_grow_to_their_number_of_sums_in_half_of_the_steps(tmp_path, monkeypatch, steps, sums, expected):
    asked, batch = [], arithmetic_model._supervised_batch

    def spy(tokenizer, world, count, size, rng):
        assert world.sums == sums
        asked.append((count, size))
        return batch(tokenizer, world, count, size, rng)

    monkeypatch.setattr(arithmetic_model, "_supervised_batch", spy)
    build_base_model(tmp_path, World(sums=sums), steps=steps, batch_size=2)
    assert asked == [(count, 2 * sums // count) for count in expected]


def test_any_letters_name_the_sums_of_a_shorter_text_and_the_first_those_of_a_full_one():
    tokenizer, world = build_tokenizer(sums=4), World(sums=4, slip_probability=0.0, check_probability=0.0)
    seen = set()
    for count in (2, 4):
        for ids in arithmetic_model._supervised_batch(tokenizer, world, count, 40, random.Random(1))["input_ids"]:
            prompt, _, text = tokenizer.decode(ids, skip_special_tokens=True).partition(":")
            names = "".join(re.findall("[a-z]", prompt))
            assert names == "".join(re.findall("[a-z]", text))
            assert len(names) == count
            assert list(names) == sorted(set(names))
            assert arithmetic_accuracy_reward([text], [write_solution(read_prompt(prompt))]) == [1.0]
            seen.add(names)
    assert seen == {"ab", "ac", "ad", "bc", "bd", "cd", "abcd"}


def test_two_processes_that_want_the_same_base_make_it_once(tmp_path):
    folder = tmp_path / "base"
    code = (
        "import sys; from trl_ces.lab.tasks.arithmetic_model import make_base_model\n"
        "make_base_model(sys.argv[1], steps=3)"
    )
    both = [subprocess.Popen([sys.executable, "-c", code, str(folder)]) for _ in range(2)]
    assert [child.wait() for child in both] == [0, 0]
    assert (folder / "config.json").is_file()
    assert not list(tmp_path.glob("*.partial"))


def test_an_evaluation_groups_the_held_out_problems(tiny_base):
    folder, _ = tiny_base
    found = evaluate(folder, num_problems=12, num_samples=2, max_new_tokens=20, group_by="terms", max_terms=3)
    assert list(found) == ["2 terms", "3 terms"]
    problems = load_problems("held_out", 12, 0, max_terms=3)
    rows = [row for row, prompt in enumerate(problems["prompt"]) if prompt.count("+") == 1]
    alone = measure(folder, problems.select(rows), 2, 0, 20)
    assert found["2 terms"]["length_tokens"] == alone.length
    assert found["2 terms"]["entropy_bits"] == alone.entropy_bits
    assert found["2 terms"]["area"] == alone.area
    texts = [text for group in alone.completions for text in group]
    assert found["2 terms"]["checks"] == sum("?" in text for text in texts) / len(texts)
    assert list(evaluate(folder, 12, 1, max_new_tokens=4, group_by="carry")) == ["with a carry", "without a carry"]
    with pytest.raises(ValueError, match="group_by is one of terms, carry or null, got 'digits'"):
        evaluate(folder, group_by="digits")
