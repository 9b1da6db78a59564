"""GFPO in the trainer: who gets an advantage, and what is logged."""

import pytest
import torch
from group_processes import ACCURACIES, OF_ALL, PROMPTS, make_script, make_trainer, scored
from reference import group_advantages, rewards_of_gfpo

OF_ALL += ["reward", "reward_std", "completions/mean_length"]


def script_rows():
    """The rows of a rollout, with rewards of weights 1 and 2."""
    return [
        {"mask": row["mask"], "rewards": (row["accuracy"] or 0) + 2 * row["bonus"]}
        for prompt in PROMPTS
        for row in make_script()[prompt]
    ]


@pytest.mark.parametrize("metric", ["length", "reward_per_token"])
def test_only_the_best_of_each_group_have_an_advantage_normalized_over_them(tmp_path, metric):
    found = scored(make_trainer(tmp_path, gfpo_metric=metric))["advantages"]
    expected = group_advantages(rewards_of_gfpo(script_rows(), 4, 2, metric), 4)
    assert found == pytest.approx(expected, rel=1e-5)
    assert sum(value != 0 for value in expected) >= 4  # two of each group, but for equal rewards


def test_verdicts_are_of_all_completions_and_equal_rewards_of_the_kept(tmp_path):
    found, plain = scored(make_trainer(tmp_path)), scored(make_trainer(tmp_path, gfpo_keep=None))
    assert found["correct"] == plain["correct"] == [accuracy == 1 for group in ACCURACIES for accuracy in group]
    assert found["scored"] == plain["scored"]
    groups = torch.tensor(found["advantages"]).view(3, 4)
    equal = (groups == 0).all(dim=1).repeat_interleave(4).tolist()
    assert found["equal_rewards"] == equal
    assert plain["equal_rewards"] != equal, "the script needs a group that differs, but not among its kept"


def test_logged_rewards_and_the_table_are_those_of_all_completions(tmp_path):
    found, plain = make_trainer(tmp_path), make_trainer(tmp_path, gfpo_keep=None)
    for trainer in (found, plain):
        scored(trainer)
        scored(trainer)  # the table holds the latest rollout
    for name in OF_ALL:
        assert found._metrics["train"][name] == plain._metrics["train"][name], name
    assert found._metrics["train"]["frac_reward_zero_std"] != plain._metrics["train"]["frac_reward_zero_std"]
    for name, values in plain._logs["rewards"].items():
        assert str(found._logs["rewards"][name]) == str(values), name
    assert list(found._logs["advantages"]) != list(plain._logs["advantages"])


def test_dynamic_sampling_judges_all_and_filters_what_it_kept(tmp_path):
    # The third group has one accuracy: it is drawn again until the rounds run out.
    changes = {"dynamic_sampling": True, "ces_allow_dynamic_sampling": True, "dynamic_sampling_max_rounds": 2}
    trainer, plain = (make_trainer(tmp_path, **changes, gfpo_keep=keep) for keep in (2, None))
    calls, calculate = [], trainer._calculate_rewards

    def record(inputs, prompts, *others):
        calls.append((prompts[::4], calculate(inputs, prompts, *others)))
        return calls[-1][1]

    trainer._calculate_rewards = record
    kept = rewards_of_gfpo(script_rows(), 4, 2, "length")
    kept = {prompt: [value is not None for value in kept[4 * row : 4 * row + 4]] for row, prompt in enumerate(PROMPTS)}
    for _ in range(2):
        calls.clear()
        found = scored(trainer)
        scored(plain)
        assert len(calls) == 3  # two rounds, and the replay of what was kept
        for prompts, rewards in calls:
            assert (~rewards.view(-1, 4, 2).isnan().all(dim=2)).tolist() == [kept[prompt] for prompt in prompts]
        assert calls[2][0] != calls[0][0]
        equal = (torch.tensor(found["advantages"]).view(3, 4) == 0).all(dim=1).repeat_interleave(4)
        assert found["equal_rewards"] == equal.tolist()
    ours, theirs = trainer._metrics["train"], plain._metrics["train"]
    logged = [*OF_ALL, *(name for name in theirs if name.startswith("dynamic_sampling/") and "time" not in name)]
    assert {name: ours[name] for name in logged} == {name: theirs[name] for name in logged}
    assert len(ours["reward"]) == 4
    assert not plain._every_reward  # nothing to filter, nothing to gather
