"""DOT in the trainer: what is cut, what the rewards see of it, and what is logged."""

import json
from collections import defaultdict

import pytest
import torch
from processes import run_processes
from tool_turns import chat_trainer, question, qwen_tokenizer
from trl import GRPOTrainer
from truncation_processes import KEPT, LENGTHS, PROMPTS, RIGHT, ended_accuracy_reward, make_trainer, scored

from trl_ces.layers import OutlierTruncation, RewardCalls
from trl_ces.layers.outlier_truncation import end_of

CUT = [[kept < length for kept, length in zip(*rows, strict=True)] for rows in zip(KEPT, LENGTHS, strict=True)]
ACCURACIES = [
    [0.0 if cut else float(right) for right, cut in zip(*rows, strict=True)] for rows in zip(RIGHT, CUT, strict=True)
]


class Alone(OutlierTruncation, RewardCalls, GRPOTrainer):
    pass


@pytest.mark.parametrize("alone", [False, True], ids=["", "alone"])
@pytest.mark.parametrize("masked", [False, True], ids=["", "tools"])
def test_what_is_cut_is_out_of_the_loss_and_graded_again(tmp_path, masked, alone):
    more = {"trainer_class": Alone} if alone else {}
    found = scored(make_trainer(tmp_path, masked=masked, **more))
    assert found["lengths"] == KEPT
    rewards = torch.tensor(found["rewards"])
    assert rewards[:, 0].view(3, 4).tolist() == ACCURACIES
    letters = [[2 * kept - 1 if masked else kept for kept in row] for row in KEPT]
    # A completion's end is a special token, which is not part of its text.
    expected = [
        [(number - (not cut)) / 100 for number, cut in zip(*rows, strict=True)]
        for rows in zip(letters, CUT, strict=True)
    ]
    torch.testing.assert_close(rewards[:, 1].view(3, 4), torch.tensor(expected))
    assert any(found["advantages"][:4])


def test_logs_are_of_what_was_generated(tmp_path):
    found, plain = scored(make_trainer(tmp_path)), scored(make_trainer(tmp_path, dot_alpha=None))
    assert found["share"] == pytest.approx([2 / 12])
    assert plain["share"] is None
    assert plain["lengths"] == LENGTHS
    for name in ("mean_length", "seen"):
        assert found[name] == plain[name]
    assert len(found["mean_length"]) == 1


def test_a_reward_logs_once_and_sees_what_the_rollout_says_of_all_rows(tmp_path):
    trainer = make_trainer(tmp_path)
    rollout = trainer.rollout_func
    trainer.rollout_func = lambda prompts, own: {**rollout(prompts, own), "source": "book"}

    def logs_its_sum(source, log_metric, log_extra, **kwargs):
        rewards = ended_accuracy_reward(**kwargs)
        log_metric(source[0], sum(rewards))
        log_extra("verdict", rewards)
        return rewards

    trainer.reward_funcs[0] = logs_its_sum
    trainer._logs["extra"] = defaultdict(list)  # TRL's forgets all but the last rows of a rollout
    scored(trainer)
    assert trainer._metrics["train"]["book"] == [sum(map(sum, ACCURACIES))]
    assert list(trainer._logs["extra"]["verdict"]) == [verdict for row in ACCURACIES for verdict in row]


def test_a_rollout_without_outliers_stays_as_it_is(tmp_path):
    found = scored(make_trainer(tmp_path, dot_least=50))
    assert (found["lengths"], found["share"]) == (LENGTHS, [0])


def test_an_evaluation_cuts_nothing(tmp_path):
    trainer = make_trainer(tmp_path, per_device_eval_batch_size=12)
    trainer.model.eval()
    batch = trainer._generate_and_score_completions([{"prompt": prompt} for prompt in PROMPTS for _ in range(4)])
    assert batch["completion_mask"].sum(dim=1).view(3, 4).tolist() == LENGTHS


def test_a_cut_group_teaches_and_dynamic_sampling_keeps_it(tmp_path):
    changes = {"dynamic_sampling": True, "dynamic_sampling_max_rounds": 1}
    found = scored(make_trainer(tmp_path, **changes))
    assert sorted(map(tuple, found["lengths"])) == sorted(map(tuple, KEPT))
    trainer = make_trainer(tmp_path, **changes)
    scored(trainer)
    assert trainer._metrics["train"]["dynamic_sampling/uninformative_groups"] == [0]


def test_sampling_log_probs_are_cut_with_their_tokens(tmp_path):
    trainer = make_trainer(tmp_path)
    rollout = trainer.rollout_func

    def with_logprobs(prompts, own):
        output = rollout(prompts, own)
        return {**output, "logprobs": [[-0.5] * len(ids) for ids in output["completion_ids"]]}

    trainer.rollout_func = with_logprobs
    trainer.model.train()
    trainer._examples = [{"prompt": prompt} for prompt in PROMPTS for _ in range(4)]
    outputs = trainer._generate([example["prompt"] for example in trainer._examples])
    for rows in (outputs[1], outputs[4]):
        assert [len(row) for row in rows] == [kept for group in KEPT for kept in group]
    assert trainer.rollout_func is with_logprobs


def test_a_completion_ends_behind_its_last_token_that_stays():
    assert [end_of([1, 0, 1, 1, 0], limit) for limit in (1, 2, 3)] == [1, 3, 5]  # uncut: a tool's last word stays


class Door:
    """An environment without tools."""

    def reset(self, **columns):
        return None


def ring():
    """Rings the bell."""


@pytest.mark.parametrize("more", [{"tools": [ring]}, {"environment_factory": Door}], ids=list)
def test_it_refuses_tools_and_environments(tmp_path, more):
    columns, changes = {"prompt": [question("go in")] * 2}, {"shaping": "none", "dot_alpha": 1.0}
    with pytest.raises(ValueError, match="`dot_alpha` cuts completions without tools and environments"):
        chat_trainer(tmp_path, [ended_accuracy_reward], qwen_tokenizer(), columns, changes, **more)


def test_it_says_what_it_needs(tmp_path):
    with pytest.raises(ValueError, match=r"Set `ces_accuracy_reward`.*'another_reward', which names 0"):
        make_trainer(tmp_path, ces_accuracy_reward="another_reward")


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_group_split_over_processes_is_cut_as_on_one(tmp_path, processes):
    expected = scored(make_trainer(tmp_path / "one"))
    run_processes("truncation_processes.py", tmp_path / "several", processes, timeout=240)
    for rank in range(processes):
        there = json.loads((tmp_path / "several" / f"rank{rank}.json").read_text())
        assert there == expected, rank
