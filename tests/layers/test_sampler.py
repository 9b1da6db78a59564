"""Dynamic sampling without a trainer: prompt order, kept groups, and rounds that form a batch."""

import json
import random
import weakref

import pytest
import torch
from trl.trainer.utils import RepeatSampler

from trl_ces.layers.sampler import DynamicSampler, PromptStream, informative_groups, round_size

NAN = float("nan")


# The stream.


def test_each_pass_has_the_order_of_trls_sampler():
    sampler = RepeatSampler(range(12), mini_repeat_count=1, batch_size=4, shuffle=True, seed=5)
    expected = [prompt for _ in range(5) for prompt in sampler]  # five epochs of one sampler
    stream = PromptStream(12, seed=5, shuffle=True)
    drawn = []
    for count in (4, 7, 1, 30, 18):
        drawn += stream.ahead(count)
        stream.position += count
    assert drawn == expected


def test_a_pass_has_every_prompt_also_those_that_fill_no_batch():
    expected = list(RepeatSampler(range(10), mini_repeat_count=1, batch_size=4, shuffle=True, seed=5))
    stream = PromptStream(10, seed=5, shuffle=True)
    assert len(expected) == 8
    assert stream.ahead(8) == expected  # looking ahead uses nothing up
    assert stream.ahead(8) == expected
    assert sorted(stream.ahead(10)) == list(range(10))


def test_without_shuffling_a_pass_is_the_data():
    stream = PromptStream(3, seed=5, shuffle=False)
    stream.position = 2
    assert stream.ahead(6) == [2, 0, 1, 2, 0, 1]


def test_the_position_is_all_that_a_stream_is():
    whole = PromptStream(7, seed=3, shuffle=True).ahead(200)
    one, choose = PromptStream(7, seed=3, shuffle=True), random.Random(0)
    for _ in range(200):
        one.position, count = choose.randrange(150), choose.randrange(50)
        fresh = PromptStream(7, seed=3, shuffle=True)
        fresh.position = one.position
        assert one.ahead(count) == fresh.ahead(count) == whole[one.position : one.position + count]


# The judgement.


@pytest.mark.parametrize(
    ("group", "informative"),
    [
        ([1, 0, 0, 0], True),
        ([1, 1, 1, 1], False),
        ([0, 0, 0, 0], False),
        ([0.5, 0.5, 0.2, 0.5], True),  # graded
        ([0.5, 0.5, 0.5, 0.5], False),
        ([NAN, 1, 0, NAN], True),
        ([NAN, 1, 1, 1], False),  # no verdict is not a wrong one
        ([NAN, 0, 0, 0], False),
        ([1, NAN, NAN, NAN], False),
        ([NAN, NAN, NAN, NAN], False),
        ([-1, -1, -2, -1], True),
    ],
)
def test_a_group_teaches_when_its_verdicts_differ(group, informative):
    beside = [1.0, 0.0, 1.0, 0.0]
    assert informative_groups(torch.tensor(beside + group + beside), 4).tolist() == [True, informative, True]


@pytest.mark.parametrize(
    ("wanted", "kept", "decided", "unit", "size"),
    [
        (12, 0, 0, 1, 12),  # first round
        (12, 6, 12, 1, 12),  # half were kept, so 6 more take 12
        (12, 9, 12, 1, 4),  # 3 * 12 / 9
        (12, 11, 12, 1, 2),  # 12 / 11, rounded up
        (12, 10, 30, 1, 6),
        (12, 1, 2, 1, 12),  # 11 * 2 / 1 would be needed; never more than a batch
        (12, 0, 12, 1, 12),  # none was kept: a full round again
        (12, 1, 24, 1, 12),  # 264, likewise
        (12, 11, 12, 4, 4),  # rounded up to a number that the processes can share
        (12, 9, 11, 4, 4),  # 3 * 11 / 9 = 3.67
        (12, 9, 13, 4, 8),  # 4.33
    ],
)
def test_the_next_round_is_as_large_as_the_share_of_kept_groups_asks_for(wanted, kept, decided, unit, size):
    assert round_size(wanted, kept, decided, unit) == size


# Many rollouts.


def scripted_sampler(stream, outcome, wanted, group_size, max_rounds, processes=1):
    """A sampler, its `generate`, and the prompts of each round. A group is its prompt."""
    sampler = DynamicSampler(stream, wanted, group_size, max_rounds, processes)
    rounds = []

    def generate(prompts):
        rounds.append(list(prompts))
        return [outcome(prompt) for prompt in prompts], prompts

    return sampler, generate, rounds


def test_whatever_is_dropped_every_prompt_is_decided_once_a_pass_and_in_order(monkeypatch):
    choose = random.Random(1)
    for trial in range(150):
        prompts, group_size = choose.randint(3, 60), choose.choice([2, 3, 4])
        processes = choose.choice([1, 1, 2, 4])
        wanted = processes * choose.randint(1, 6)
        share = choose.choice([0.05, 0.3, 0.6, 0.9, 1.0])
        teaches = [choose.random() < share for _ in range(prompts)]
        max_rounds = choose.choice([1, 2, 4, 1000])
        if not any(teaches):
            teaches[0] = True
        stream = PromptStream(prompts, seed=trial, shuffle=True)
        sampler, generate, rounds = scripted_sampler(
            stream, teaches.__getitem__, wanted, group_size, max_rounds, processes
        )
        # A round takes a second.
        monkeypatch.setattr("trl_ces.layers.sampler.time.perf_counter", lambda rounds=rounds: float(len(rounds)))
        reference = PromptStream(prompts, seed=trial, shuffle=True)
        end = 0
        for _ in range(8):
            start, rounds[:] = stream.position, []
            assert start == end
            groups, metrics = sampler.sample(generate)
            end = stream.position
            reference.position = start
            expected_order = reference.ahead(end - start + wanted)
            decided = expected_order[: end - start]
            good = [prompt for prompt in decided if teaches[prompt]]
            # Every round continues exactly after the prompts that the previous one decided.
            seen = 0
            for drawn in rounds:
                assert drawn == expected_order[seen : seen + len(drawn)]
                assert len(drawn) <= wanted
                assert len(drawn) * group_size % processes == 0
                seen += len(drawn)
            assert seen >= end - start
            assert all(rounds), "a round without prompts"
            if max_rounds == 1000:
                assert len(good) == wanted
                assert teaches[decided[-1]], "nothing behind the last group that was needed may be used up"
                expected = good
            else:
                assert len(rounds) <= max_rounds
                assert len(good) == wanted or len(rounds) == max_rounds
                missing = wanted - len(good)
                spare = [place for place, prompt in enumerate(decided) if not teaches[prompt]][:missing]
                expected = [prompt for place, prompt in enumerate(decided) if teaches[prompt] or place in spare]
                assert metrics["dynamic_sampling/uninformative_groups"] == missing / wanted
            assert groups == expected
            assert metrics["dynamic_sampling/prompts"] == end - start
            assert metrics["dynamic_sampling/dropped_groups"] == (len(decided) - len(good)) / len(decided)
            assert metrics["dynamic_sampling/epoch"] == end / prompts
            assert metrics["dynamic_sampling/rounds"] == len(rounds)
            assert metrics["dynamic_sampling/extra_generation_time"] == len(rounds) - 1


def test_only_groups_that_can_still_be_needed_are_kept_in_memory():
    class Group:
        """Something that a weak reference can watch."""

    alive = weakref.WeakSet()

    def generate(prompts):
        assert len(alive) <= 8  # those of the batch, and of the round before
        groups = [Group() for _ in prompts]
        alive.update(groups)
        return [False] * len(prompts), groups

    sampler = DynamicSampler(PromptStream(9, 1, True), 4, 2, max_rounds=20, num_processes=1)
    assert len(sampler.sample(generate)[0]) == 4


# The checkpoint.


def test_a_checkpoint_says_what_comes_next_and_inside_a_rollout_what_that_rollout_began_with(tmp_path):
    sampler, generate, _ = scripted_sampler(PromptStream(9, 1, True), lambda prompt: prompt % 2 == 0, 4, 2, 100)
    sampler.save(tmp_path, inside_rollout=True)
    assert json.loads((tmp_path / "dynamic_sampling.json").read_text()) == {"position": 0, "after_rollout": 0}
    sampler.sample(generate)
    first = sampler.stream.position
    sampler.sample(generate)
    second = sampler.stream.position
    assert 4 <= first < second
    for inside, position in ((False, second), (True, first)):
        folder = tmp_path / "not" / "there" / f"checkpoint-{inside}"
        sampler.save(folder, inside)
        saved = json.loads((folder / "dynamic_sampling.json").read_text())
        assert saved == {"position": position, "after_rollout": second}
        other = scripted_sampler(PromptStream(9, 1, True), lambda prompt: True, 4, 2, 100)[0]
        other.load(folder, planned_rollouts=77)
        assert other.stream.position == position
        other.load(folder, planned_rollouts=77, with_rollout=True)
        assert other.stream.position == second
        other.save(folder, inside)  # once more inside the rollout that was resumed
        assert json.loads((folder / "dynamic_sampling.json").read_text()) == saved
