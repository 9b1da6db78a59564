"""Test dynamic sampling without a trainer: prompt order, kept groups, and rounds of generation."""

import random
import weakref

import pytest
import torch
from trl.trainer.utils import RepeatSampler

from trl_ces.layers.sampler import DynamicSampler, PromptStream, informative_groups, round_size

NAN = float("nan")


# Prompt stream.


def test_epochs_have_the_order_of_trls_sampler():
    sampler = RepeatSampler(range(12), mini_repeat_count=1, batch_size=4, shuffle=True, seed=5)
    expected = [prompt for _ in range(5) for prompt in sampler]  # five epochs of one sampler
    stream, drawn_prompts = PromptStream(12, seed=5, shuffle=True), []
    for count in (4, 7, 1, 30, 18):
        drawn_prompts += stream.peek(count)
        stream.position += count
    assert drawn_prompts == expected


def test_an_epoch_includes_prompts_that_do_not_fill_a_batch():
    expected = list(RepeatSampler(range(10), mini_repeat_count=1, batch_size=4, shuffle=True, seed=5))
    stream = PromptStream(10, seed=5, shuffle=True)
    assert len(expected) == 8
    assert stream.peek(8) == stream.peek(8) == expected  # `peek` does not change the position
    assert sorted(stream.peek(10)) == list(range(10))


def test_without_shuffling_an_epoch_follows_the_dataset_order():
    stream = PromptStream(3, seed=5, shuffle=False)
    stream.position = 2
    assert stream.peek(6) == [2, 0, 1, 2, 0, 1]


def test_the_position_is_the_only_state_of_a_stream():
    expected = PromptStream(7, seed=3, shuffle=True).peek(200)
    used, rng = PromptStream(7, seed=3, shuffle=True), random.Random(0)
    for _ in range(200):
        fresh = PromptStream(7, seed=3, shuffle=True)
        used.position = fresh.position = rng.randrange(150)
        count = rng.randrange(50)
        assert used.peek(count) == fresh.peek(count) == expected[fresh.position : fresh.position + count]


# Informative groups and round sizes.


@pytest.mark.parametrize(
    ("group", "informative"),
    [
        ([1, 0, 0, 0], True),
        ([1, 1, 1, 1], False),
        ([0, 0, 0, 0], False),
        ([0.5, 0.5, 0.2, 0.5], True),  # graded
        ([0.5, 0.5, 0.5, 0.5], False),
        ([NAN, 1, 0, NAN], True),
        ([NAN, 1, 1, 1], False),  # unscored completions do not count as incorrect
        ([1, NAN, NAN, NAN], False),
        ([NAN, NAN, NAN, NAN], False),
        ([-1, -1, -2, -1], True),
    ],
)
def test_a_group_is_informative_if_its_accuracy_rewards_differ(group, informative):
    mixed = [1.0, 0.0, 1.0, 0.0]
    assert informative_groups(torch.tensor(mixed + group + mixed), 4).tolist() == [True, informative, True]


@pytest.mark.parametrize(
    ("batch_size", "num_kept", "num_drawn", "unit", "size"),
    [
        (12, 0, 0, 1, 12),  # first round
        (12, 6, 12, 1, 12),  # half the groups were kept, so 6 more need 12 prompts
        (12, 9, 12, 1, 4),  # 3 * 12 / 9
        (12, 11, 12, 1, 2),  # 12 / 11, rounded up
        (12, 1, 2, 1, 12),  # 11 * 2 / 1, but at most a full batch
        (12, 0, 12, 1, 12),  # no group was kept, so the next round is full
        (12, 11, 12, 4, 4),  # rounded up to a number that the processes can share
        (12, 9, 13, 4, 8),  # 3 * 13 / 9 = 4.33
    ],
)
def test_round_size_depends_on_the_share_of_kept_groups(batch_size, num_kept, num_drawn, unit, size):
    assert round_size(batch_size, num_kept, num_drawn, unit) == size


# Sampling with fake groups: a prompt represents its group.


def make_sampler(stream, is_informative, batch_size, group_size, max_rounds, processes=1):
    """Return a sampler, a `generate` function, and the list to which the function adds the prompts of each round."""
    sampler, rounds = DynamicSampler(stream, batch_size, group_size, max_rounds, processes), []

    def generate(prompts):
        rounds.append(list(prompts))
        return [is_informative(prompt) for prompt in prompts], prompts

    return sampler, generate, rounds


def test_every_prompt_is_kept_or_dropped_once_per_epoch_in_order(monkeypatch):
    rng = random.Random(1)
    for trial in range(150):
        prompts, group_size = rng.randint(3, 60), rng.choice([2, 3, 4])
        processes = rng.choice([1, 1, 2, 4])
        batch_size = processes * rng.randint(1, 6)
        share = rng.choice([0.05, 0.3, 0.6, 0.9, 1.0])
        informative = [rng.random() < share for _ in range(prompts)]
        max_rounds = rng.choice([1, 2, 4, 1000])
        informative[0] |= not any(informative)
        stream, reference = (PromptStream(prompts, seed=trial, shuffle=True) for _ in range(2))
        sampler, generate, rounds = make_sampler(
            stream, informative.__getitem__, batch_size, group_size, max_rounds, processes
        )
        # Simulate rounds of one second each.
        monkeypatch.setattr("trl_ces.layers.sampler.time.perf_counter", lambda rounds=rounds: float(len(rounds)))
        for _ in range(8):
            reference.position, rounds[:] = stream.position, []
            groups, metrics = sampler.sample(generate)
            count = stream.position - reference.position
            expected_order = reference.peek(count + batch_size)
            used_prompts = expected_order[:count]
            informative_prompts = [prompt for prompt in used_prompts if informative[prompt]]
            drawn_prompts = [prompt for prompts in rounds for prompt in prompts]
            # Each round begins where the previous one ended.
            assert drawn_prompts == expected_order[: len(drawn_prompts)]
            assert len(drawn_prompts) >= count
            assert all(0 < len(prompts) <= batch_size for prompts in rounds)
            assert all(len(prompts) * group_size % processes == 0 for prompts in rounds)
            missing = batch_size - len(informative_prompts)
            if missing:
                assert len(rounds) == max_rounds < 1000
            else:
                assert len(rounds) <= max_rounds
                assert informative[used_prompts[-1]], "prompts after the last needed group must be drawn again"
            fill = [i for i, prompt in enumerate(used_prompts) if not informative[prompt]][:missing]
            assert groups == [prompt for i, prompt in enumerate(used_prompts) if informative[prompt] or i in fill]
            assert metrics == {
                "dynamic_sampling/prompts": count,
                "dynamic_sampling/dropped_groups": (count - len(informative_prompts)) / count,
                "dynamic_sampling/uninformative_groups": missing / batch_size,
                "dynamic_sampling/epoch": stream.position / prompts,
                "dynamic_sampling/rounds": len(rounds),
                "dynamic_sampling/extra_generation_time": len(rounds) - 1,
            }


def test_only_groups_that_may_be_needed_stay_in_memory():
    class Group:
        """Object that supports weak references."""

    alive = weakref.WeakSet()

    def generate(prompts):
        assert len(alive) <= 8  # groups of the batch and of the previous round
        groups = [Group() for _ in prompts]
        alive.update(groups)
        return [False] * len(prompts), groups

    sampler = DynamicSampler(PromptStream(9, 1, True), 4, 2, max_rounds=20, num_processes=1)
    assert len(sampler.sample(generate)[0]) == 4


def test_a_checkpoint_stores_the_positions_before_and_after_a_rollout():
    sampler, generate, _ = make_sampler(PromptStream(9, 1, True), lambda prompt: prompt % 2 == 0, 4, 2, 100)
    sampler.sample(generate)
    first = sampler.stream.position
    sampler.sample(generate)
    second = sampler.stream.position
    assert 4 <= first < second
    for inside, position in ((False, second), (True, first)):
        saved = sampler.state_dict(inside)
        assert saved == {"position": position, "after_rollout": second}
        resumed = make_sampler(PromptStream(9, 1, True), lambda prompt: True, 4, 2, 100)[0]
        resumed.load_state_dict(saved)
        assert resumed.stream.position == position
        resumed.load_state_dict(saved, with_rollout=True)
        assert resumed.stream.position == second
        assert resumed.state_dict(inside) == saved  # the same state in a checkpoint of the resumed rollout
