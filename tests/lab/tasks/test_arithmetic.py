"""The arithmetic toy task: generated texts, disjoint splits, and a reproducible base model."""

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
    ToyTask,
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


def split_completion(text):
    """Split a completion into its passes and its final answer."""
    passes, _, final_answer = text.partition("#")
    return passes.split("?"), final_answer


@pytest.mark.parametrize(
    ("terms", "changes", "expected"),
    [
        ([37, 48], {}, ("7+8=15,3+4+1=8", "85")),
        ([99, 99], {}, ("9+9=18,9+9+1=19", "198")),
        ([5, 7, 9], {}, ("5+7+9=21", "21")),
        ([105, 207], {}, ("5+7=12,0+0+1=1,1+2=3", "312")),
        # An error propagates to the carry and the result, and no column becomes negative.
        ([37, 48], {"error_column": 0, "error": 1}, ("7+8=16,3+4+1=8", "86")),
        ([37, 43], {"error_column": 0, "error": -1}, ("7+3=9,3+4=7", "79")),
        ([37, 48], {"error_column": 1, "error": -1}, ("7+8=15,3+4+1=7", "75")),
        ([20, 30], {"error_column": 0, "error": -1}, ("0+0=1,2+3=5", "51")),
        ([37, 48], {"forget": True}, ("7+8=15,3+4=7", "75")),
        ([31, 48], {"forget": True}, ("1+8=9,3+4=7", "79")),
    ],
)
def test_a_pass_adds_column_by_column(terms, changes, expected):
    assert write_pass(terms, **changes) == expected


@pytest.mark.parametrize(
    "task",
    [ToyTask(), ToyTask(digits=3, max_terms=4, slip_probability=0.5, check_probability=0.6, mend_probability=0.2)],
)
def test_errors_rechecks_and_corrections_occur_with_the_configured_probabilities(task):
    rng = random.Random(0)
    count, errors, pass_count, rechecked_errors, corrected_errors = 8000, 0, 0, 0, 0
    for _ in range(count):
        terms = draw_terms(task, "train", rng)
        correct = write_pass(terms)[0]
        passes, final_answer = split_completion(write_completion(terms, task, rng))
        errors += passes[0] != correct
        pass_count += len(passes)
        for before, after in itertools.pairwise(passes):
            if before == correct:
                assert after == correct
            else:
                rechecked_errors += 1
                corrected_errors += after == correct
                assert after in (before, correct)
        assert (final_answer == str(sum(terms))) == (passes[-1] == correct)
    assert errors / count == pytest.approx(task.slip_probability, abs=0.02)
    assert (pass_count - count) / pass_count == pytest.approx(task.check_probability, abs=0.02)
    assert corrected_errors / rechecked_errors == pytest.approx(task.mend_probability, abs=0.05)


@pytest.mark.parametrize(
    ("task", "digest"),
    [
        (ToyTask(), "ca0bf454f80242b9671ffa9ce255eefe63e1589b75b4c208e5d6dc3a7777a68d"),
        (
            ToyTask(digits=3, max_terms=4, forget_probability=0.5, check_probability=0.6),
            "07210b373a93e66a44595a583fcdfac3e8dfa58ea19503463de9d589bffe6308",
        ),
        (
            ToyTask(guess_first=True, forget_probability=0.5),
            "58dd235af6305971320790bab77ab044ce084ed19695783818d0478875cb51f5",
        ),
    ],
)
def test_the_training_texts_of_the_published_results_are_reproduced(task, digest):
    rng, texts = random.Random(0), []
    for _ in range(500):
        terms = draw_terms(task, "train", rng)
        texts.append(write_prompt([terms]) + write_completion(terms, task, rng))
    assert hashlib.sha256("\n".join(texts).encode()).hexdigest() == digest


def test_several_sums_are_labeled_and_solved_in_order():
    problem = [[37, 48], [21, 30]]
    task = ToyTask(sums=2, slip_probability=0.0, check_probability=0.0)
    assert write_prompt(problem) == "a37+48b21+30:"
    assert read_prompt("a37+48b21+30:") == problem
    assert write_solution(problem) == "85,51"
    assert write_text(problem, task, random.Random(0)) == "a7+8=15,3+4+1=8#85b1+0=1,2+3=5#51"
    for row in load_problems("train", 20, seed=3, sums=12):
        problem = read_prompt(row["prompt"])
        assert len(problem) == 12
        assert row["solution"] == ",".join(str(sum(terms)) for terms in problem)
        assert all(split_of(terms) == "train" for terms in problem)


def test_train_and_held_out_problems_are_disjoint():
    train = set(load_problems("train", 6000, seed=1)["prompt"])
    held_out = set(load_problems("held_out", 600, seed=2)["prompt"])
    assert (len(train), len(held_out)) == (6000, 600)  # all prompts are distinct
    swapped_prompts = {"+".join(reversed(prompt.rstrip(":").split("+"))) + ":" for prompt in train}
    assert not held_out & (train | swapped_prompts)
    fraction = sum(split_of([a, b]) == "held_out" for a in range(10, 100) for b in range(10, 100)) / 8100
    assert fraction == pytest.approx(0.1, abs=0.02)


def test_solutions_are_sums_and_problems_depend_only_on_the_seed():
    problems = load_problems("train", 50, seed=3)
    assert problems.column_names == ["prompt", "solution"]
    for row in problems:
        terms = [int(term) for term in re.fullmatch(r"(\d\d)\+(\d\d):", row["prompt"]).groups()]
        assert row["solution"] == str(sum(terms))
    assert load_problems("train", 50, seed=3)["prompt"] == problems["prompt"]
    assert load_problems("train", 50, seed=4)["prompt"] != problems["prompt"]
    assert {prompt.count("+") for prompt in load_problems("train", 50, max_terms=3)["prompt"]} == {1, 2}


def test_too_many_problems_for_a_split_are_rejected():
    with pytest.raises(ValueError, match=r"num_problems is 200, but the 'held_out' split has about \d+ problems"):
        load_problems("held_out", 200, digits=1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"slip_probability": 1.5}, r"probabilities in \[0, 1\] .* slip_probability=1.5"),
        ({"check_probability": 1}, "check_probability below 1"),
        ({"min_terms": 3}, "min_terms=3, max_terms=2"),
        ({"sums": 27}, "1 to 26 sums"),
    ],
)
def test_invalid_tasks_are_rejected(fields, message):
    with pytest.raises(ValueError, match=message):
        ToyTask(**fields)


@pytest.mark.parametrize(
    ("solution", "correct", "incorrect"),
    [
        ("85", ["7+8=15,3+4+1=8#85", "#85"], ["7+8=16#86", "#085", "#85#85", "#85?", "#8", "85", "", "#-85"]),
        ("85,51", ["a7+8=15#85b3+4=7#51"], ["a#85b#52", "#51#85", "#85", "#85#51#7", "#85#51?", "#85#", "85#51"]),
    ],
)
def test_the_reward_requires_the_correct_numbers_in_order_at_the_end(solution, correct, incorrect):
    texts = correct + incorrect
    rewards = arithmetic_accuracy_reward(texts, [solution] * len(texts), trainer_state=None)
    assert rewards == [1.0] * len(correct) + [0.0] * len(incorrect)


def test_the_tokenizer_has_one_token_per_character_and_rejects_other_characters():
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
    """Train a base model; return its folder and the arguments of all `on_step` calls."""
    folder, steps = tmp_path_factory.mktemp("parent") / "base", []
    make_base_model(str(folder), lambda *step: steps.append(step), steps=40, batch_size=16)
    return folder, steps


def test_base_model_learns_and_loads_with_auto_classes(tiny_base):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, steps = tiny_base
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    expected = build_tokenizer()
    assert tokenizer.get_vocab() == expected.get_vocab()  # for a Qwen2 model, AutoTokenizer would add tokens
    assert tokenizer("37+48:#?<eos>")["input_ids"] == expected("37+48:#?<eos>")["input_ids"]
    assert (tokenizer.pad_token, tokenizer.eos_token, tokenizer.padding_side) == ("<pad>", "<eos>", "left")
    assert model.config.vocab_size == len(tokenizer)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert [step[:2] for step in steps] == [(done, 40) for done in range(1, 41)]
    assert steps[0][2] == pytest.approx(math.log(18), abs=0.1)  # the loss of a uniform distribution
    assert steps[-1][2] < 2.0


def test_a_base_model_is_reproducible_trained_once_and_never_replaced(tmp_path):
    folder, settings = tmp_path / "models" / "base", {"seed": 3, "steps": 4, "batch_size": 2, "check_probability": 0.1}
    weights = folder / "model.safetensors"
    assert make_base_model(str(folder), **settings) == str(folder)
    saved = json.loads((folder / "base_model.json").read_text())
    assert (saved["seed"], saved["steps"], saved["task"]["check_probability"]) == (3, 4, 0.1)
    modified_at = weights.stat().st_mtime_ns
    make_base_model(str(folder), **settings)
    make_base_model(str(folder))  # without settings, any existing model is accepted
    assert weights.stat().st_mtime_ns == modified_at
    with pytest.raises(ValueError, match="use a different directory"):
        make_base_model(str(folder), **{**settings, "seed": 4})
    build_base_model(tmp_path / "again", ToyTask(check_probability=0.1), seed=3, steps=4, batch_size=2)
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == weights.read_bytes()


@pytest.mark.slow
def test_two_processes_train_the_same_base_model_only_once(tmp_path):
    folder = tmp_path / "base"
    code = (
        "import sys; from trl_ces.lab.tasks.arithmetic_model import make_base_model\n"
        "make_base_model(sys.argv[1], steps=3)"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert sum("Training the base model" in child.communicate()[0] for child in children) == 1
    assert [child.returncode for child in children] == [0, 0]
    assert (folder / "config.json").is_file()
    assert not list(tmp_path.glob("*.partial"))


def test_splitting_a_batch_into_groups_preserves_loss_and_gradients():
    tokenizer = build_tokenizer()
    model = arithmetic_model._new_model(tokenizer, seed=0, layers=1, width=32)
    batch = arithmetic_model._supervised_batch(tokenizer, ToyTask(), 1, 10, random.Random(0))
    assert len(set(batch["attention_mask"].sum(dim=1).tolist())) > 3
    loss = model(**batch).loss
    loss.backward()
    expected = [weights.grad.clone() for weights in model.parameters()]
    model.zero_grad()
    assert arithmetic_model._backward(model, batch) == pytest.approx(loss.item(), rel=1e-5)
    for weights, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(weights.grad, gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("steps", "sums", "expected"),
    [(3, 1, [1] * 3), (4, 2, [2] * 4), (4, 3, [2, 2, 3, 3]), (12, 10, [2, 2, 4, 4, 8, 8] + [10] * 6)],
)
def test_the_number_of_sums_grows_in_the_first_half_of_training(steps, sums, expected):
    assert [arithmetic_model.sums_at(step, steps, sums) for step in range(steps)] == expected


def test_texts_with_fewer_sums_use_any_letters_in_alphabetical_order():
    tokenizer = build_tokenizer(sums=4)
    task = ToyTask(sums=4, slip_probability=0.0, check_probability=0.0)
    letter_sets = set()
    for count in (2, 4):
        for ids in arithmetic_model._supervised_batch(tokenizer, task, count, 40, random.Random(1))["input_ids"]:
            prompt, _, text = tokenizer.decode(ids, skip_special_tokens=True).partition(":")
            letters = "".join(re.findall("[a-z]", prompt))
            assert letters == "".join(re.findall("[a-z]", text))
            assert arithmetic_accuracy_reward([text], [write_solution(read_prompt(prompt))]) == [1.0]
            letter_sets.add(letters)
    assert letter_sets == {"ab", "ac", "ad", "bc", "bd", "cd", "abcd"}


def test_lengths_include_the_end_token_and_entropies_are_in_bits(tmp_path):
    """Zero weights make all 18 tokens equally likely, so the entropy is log2(18) bits and the mean length is 18."""
    from transformers import AutoModelForCausalLM

    build_base_model(tmp_path, steps=1, batch_size=2)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    model.save_pretrained(tmp_path)
    problems = load_problems("held_out", 25)
    measures, completions = measure(tmp_path, problems, num_samples=8, seed=0, max_new_tokens=150)
    assert measures["entropy_bits"] == pytest.approx(4.169925, abs=1e-4)
    assert measures["length_tokens"] == pytest.approx(18, abs=3.8)  # three standard errors
    assert measures["accuracy"] < 0.05
    assert [len(texts) for texts in completions] == [8] * 25
    repeated = measure(tmp_path, problems, num_samples=8, seed=0, max_new_tokens=150)
    assert repeated == (measures, completions)


def test_held_out_problems_are_grouped_by_carry(tiny_base):
    folder, _ = tiny_base
    benchmarks = evaluate(folder, num_problems=12, num_samples=2, max_new_tokens=20, group_by="carry", max_terms=3)
    assert list(benchmarks) == ["with a carry", "without a carry"]
    problems = load_problems("held_out", 12, 0, max_terms=3)
    rows = [row for row, prompt in enumerate(problems["prompt"]) if carries(*read_prompt(prompt))]
    measures, completions = measure(folder, problems.select(rows), 2, 0, 20)
    texts = [text for samples in completions for text in samples]
    assert benchmarks["with a carry"] == measures | {"checks": sum("?" in text for text in texts) / len(texts)}
    assert list(evaluate(folder, 2, 1, max_new_tokens=4)) == ["held out"]
    with pytest.raises(ValueError, match="`group_by` must be carry or null, got 'digits'"):
        evaluate(folder, group_by="digits")
