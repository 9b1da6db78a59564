"""CESTrainer against Algorithm 1 in float64 (reference.py): the loss to 1e-5, every parameter's gradient to 1e-4.

TRL's own code runs from the rewards to the loss; only the completions are scripted, so that a test can have a group
all correct, or a completion without a verdict.
"""

import copy
import math

import pytest
import torch
from against_reference import (
    PROMPTS,
    assert_loss_and_gradients_agree,
    make_trainer,
    move_a_little,
    reference_rows,
    rollout,
)
from reference import float64_copy, shaped_loss
from tiny import random_script, scripted_rollout

# name: (accuracies of two groups, settings of the trainer, the same for the reference, options of the script)
CASES = {
    "mixed": ([[1, 0, 0, 1], [0, 0, 0, 1]], {}, {}, {}),
    "signs swapped": (
        [[1, 0, 0, 1], [0, 0, 0, 1]],
        {"ces_beta_correct": -0.4, "ces_beta_incorrect": -0.2},
        {"beta_correct": -0.4, "beta_incorrect": -0.2},
        {},
    ),
    "paper's tau": (
        [[1, 0, 0, 1], [0, 1, 0, 0]],
        {"ces_tau": 0.01, "max_completion_length": 250},
        {"tau": "0.01"},
        {"lengths": (150, 250)},
    ),
    "all correct": ([[1, 1, 1, 1], [1, 1, 1, 1]], {}, {}, {}),
    "all wrong": ([[0, 0, 0, 0], [0, 0, 0, 0]], {}, {}, {}),
    "no verdict for some": ([[1, None, 0, 1], [None, None, 0, 1]], {}, {}, {}),
    "no verdict for a whole group": ([[None, None, None, None], [1, 0, 1, 1]], {}, {}, {}),
    "two betas": (
        [[1, 0, 0, 1], [0, 0, 0, 1]],
        {"ces_beta_correct": 0.1, "ces_beta_incorrect": 0.9},
        {"beta_correct": 0.1, "beta_incorrect": 0.9},
        {},
    ),
    "without dynamic b": ([[1, 0, 0, 1], [0, 0, 0, 1]], {"ces_dynamic_multiplier": False}, {"dynamic": False}, {}),
    "without entropy gradient": (
        [[1, 0, 0, 1], [0, 0, 0, 1]],
        {"ces_entropy_gradient": False},
        {"entropy_gradient": False},
        {},
    ),
    "cap on wrong answers": (
        [[1, 0, 0, 1], [0, 0, 0, 1]],
        {"ces_cap_incorrect": 2.0},
        {"cap_incorrect": 2.0},
        {},
    ),
    "cap where all are wrong": ([[0, 0, 0, 0], [1, 0, 0, 0]], {"ces_cap_incorrect": 1.0}, {"cap_incorrect": 1.0}, {}),
    "entropy advantage": (
        [[1, 0, 0, 1], [0, 0, 0, 1]],
        {"shaping": "entropy_advantage", "entropy_advantage_alpha": 0.3, "entropy_advantage_kappa": 3.0},
        {"rule": "entropy_advantage", "alpha": 0.3, "kappa": 3.0},
        {},
    ),
    "none": ([[1, 0, 0, 1], [0, 0, 0, 1]], {"shaping": "none"}, {"rule": "none"}, {}),
    "sampling temperature": ([[1, 0, 0, 1], [0, 0, 0, 1]], {"temperature": 0.7}, {"temperature": 0.7}, {}),
    "tool output in the middle": ([[1, 0, 0, 1], [0, 0, 0, 1]], {}, {}, {"masked": True}),
    "truncated, not masked": ([[1, 0, 0, 1], [0, 0, 0, 1]], {}, {}, {"truncated": (1, 4)}),
    "truncated, masked": (
        [[1, 0, 0, 1], [0, 0, 0, 1]],
        {"mask_truncated_completions": True},
        {},
        {"truncated": (1, 4)},
    ),
    "gfpo, shortest": (
        [[1, 0, 0, 1], [0, None, 1, 1]],
        {"shaping": "none", "gfpo_keep": 3},
        {"rule": "none", "gfpo_keep": 3},
        {"masked": True},
    ),
    "gfpo, reward per token": (
        [[1, 0, 0, 1], [0, 1, None, 1]],
        {"shaping": "none", "gfpo_keep": 2, "gfpo_metric": "reward_per_token", "reward_weights": [1.0, 1.0]},
        {"rule": "none", "gfpo_keep": 2, "gfpo_metric": "reward_per_token"},
        {"truncated": (1, 4)},
    ),
    "gfpo and ces": ([[1, 0, 0, 1], [0, None, 0, 1]], {"gfpo_keep": 3}, {"gfpo_keep": 3}, {}),
    "grpo loss": ([[1, 0, 0, 1], [0, 0, 0, 1]], {"loss_type": "grpo"}, {"loss_type": "grpo"}, {}),
    "bnpo loss": ([[1, 0, 0, 1], [0, 0, 0, 1]], {"loss_type": "bnpo"}, {"loss_type": "bnpo"}, {}),
    "dr_grpo loss": (
        [[1, 0, 0, 1], [0, 0, 0, 1]],
        {"loss_type": "dr_grpo"},
        {"loss_type": "dr_grpo", "dr_grpo_length": 40},
        {},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_are_those_of_algorithm_1(tmp_path, case):
    accuracies, changes, reference_changes, script_options = CASES[case]
    changes, reference_changes = {"ces_tau": 0.3, **changes}, {"tau": "0.3", **reference_changes}
    length = changes.pop("max_completion_length", 40)
    script = random_script(PROMPTS, accuracies, torch.Generator().manual_seed(1), **script_options)
    trainer = make_trainer(tmp_path, script, **changes)
    trainer.max_completion_length = length
    batch = rollout(trainer, script)
    loss = trainer._compute_loss(trainer.model, batch)
    model = float64_copy(trainer.model)
    rows = reference_rows(trainer, script, mask_truncated=case == "truncated, masked")
    assert_loss_and_gradients_agree(trainer, loss, model, shaped_loss(model, rows, 4, **reference_changes))


def test_thirds_select_the_exact_number_of_tokens_in_the_trainer(tmp_path):
    # Two of three correct, 100 tokens, tau 0.03: the wrong one gets floor(100 * 0.03 * 1/3) = 1 token, in float32 0.
    script = random_script(PROMPTS, [[1, 1, 0], [1, 1, 0]], torch.Generator().manual_seed(3), lengths=(100, 101))
    trainer = make_trainer(tmp_path, script, group_size=3, ces_tau=0.03)
    batch = rollout(trainer, script, group_size=3)
    loss = trainer._compute_loss(trainer.model, batch)
    model = float64_copy(trainer.model)
    expected = shaped_loss(model, reference_rows(trainer, script), 3, tau="0.03")
    assert_loss_and_gradients_agree(trainer, loss, model, expected)
    trainer.log({})
    assert trainer.state.log_history[-1]["ces/selected_tokens"] == pytest.approx((2 + 2 + 1) / 3)


@pytest.mark.parametrize("beta", [0.4, 2.0])
def test_off_policy_steps_clip_with_the_live_advantage_in_both_branches(tmp_path, beta):
    script = random_script(PROMPTS, [[1, 0, 0, 1], [0, 0, 0, 1]], torch.Generator().manual_seed(1))
    trainer = make_trainer(
        tmp_path, script, ces_tau=0.5, ces_beta_correct=beta, ces_beta_incorrect=beta, steps_per_generation=2,
        per_device_train_batch_size=4,
    )  # fmt: skip
    batch = rollout(trainer, script)
    assert "old_per_token_logps" in batch
    old_model = float64_copy(trainer.model)
    move_a_little(trainer.model)
    model = float64_copy(trainer.model)
    loss = trainer._compute_loss(trainer.model, batch)
    # TRL divides by the mean tokens of the two steps; here one call has both steps' rows.
    expected = 2 * shaped_loss(
        model, reference_rows(trainer, script), 4,
        tau="0.5", beta_correct=beta, beta_incorrect=beta, old_model=old_model,
    )  # fmt: skip
    assert_loss_and_gradients_agree(trainer, loss, model, expected)
    clipped = trainer._metrics["train"]["clip_ratio/region_mean"][-1]
    assert 0.1 < clipped < 0.9, "the test needs clipped and unclipped tokens"


# name: (settings of the trainer, the same for the reference)
OFF_POLICY_CASES = {
    # A tenth of the tokens is less than the candidates: which ones is a draw.
    "clip_cov": (
        {"shaping": "clip_cov", "clip_cov_ratio": 0.1, "clip_cov_low": 0.2, "clip_cov_high": 1.5},
        {"rule": "clip_cov", "ratio": "0.1", "low": 0.2, "high": 1.5},
    ),
    "clip_cov, all candidates": (
        {"shaping": "clip_cov", "clip_cov_ratio": 0.9, "clip_cov_low": -0.3, "clip_cov_high": 0.4},
        {"rule": "clip_cov", "ratio": "0.9", "low": -0.3, "high": 0.4},
    ),
    "clip_cov, other clip range": (
        {"shaping": "clip_cov", "clip_cov_ratio": 0.9, "clip_cov_low": 0.1, "epsilon": 0.02, "epsilon_high": None},
        {"rule": "clip_cov", "ratio": "0.9", "low": 0.1, "epsilon_low": 0.02, "epsilon_high": 0.02},
    ),
    "clip_cov, two-sided clip": (
        {"shaping": "clip_cov", "clip_cov_ratio": 0.9, "clip_cov_low": 0.1, "delta": 1.3},
        {"rule": "clip_cov", "ratio": "0.9", "low": 0.1, "delta": 1.3},
    ),
    "clip_cov, none between the bounds": (
        {"shaping": "clip_cov", "clip_cov_low": 1e3, "clip_cov_high": 1e4},
        {"rule": "none"},
    ),
    "kl_cov": (
        {"shaping": "kl_cov", "kl_cov_ratio": 0.2, "epsilon": 1.0, "epsilon_high": 1e6},
        {"rule": "kl_cov", "ratio": "0.2"},
    ),
    "stare": ({"shaping": "stare", "stare_weight": 2.0}, {"rule": "stare", "ratio": "0.1", "weight": 2.0}),
    "stare, a third": (
        {"shaping": "stare", "stare_ratio": 0.33, "stare_weight": 1.5},
        {"rule": "stare", "ratio": "0.33", "weight": 1.5},
    ),
    "repo_r": ({"shaping": "repo_r"}, {"rule": "repo_r"}),
    "repo_r, some at 0": ({"shaping": "repo_r", "repo_r_zeta": 0.3}, {"rule": "repo_r", "zeta": 0.3}),
    "repo_r, against entropy": ({"shaping": "repo_r", "repo_r_zeta": -0.3}, {"rule": "repo_r", "zeta": -0.3}),
    "on_policy_sft": (
        {"shaping": "on_policy_sft", "epsilon": 1.0, "epsilon_high": 1e6},
        {"rule": "on_policy_sft"},
    ),
    "kl_cov, one token": (
        {"shaping": "kl_cov", "kl_cov_coef": 30.0, "epsilon": 1.0, "epsilon_high": 1e6},
        {"rule": "kl_cov", "coef": 30.0},
    ),
}


@pytest.mark.parametrize("case", OFF_POLICY_CASES)
def test_token_rules_have_the_loss_and_gradient_of_their_paper_off_policy(tmp_path, case):
    changes, reference_changes = OFF_POLICY_CASES[case]
    script = random_script(
        PROMPTS, [[1, 0, 0, 1], [0, 0, 0, None]], torch.Generator().manual_seed(1), masked=True, truncated=(1, 4)
    )
    trainer = make_trainer(tmp_path, script, steps_per_generation=2, per_device_train_batch_size=4, **changes)
    batch = rollout(trainer, script)
    old_model = float64_copy(trainer.model)
    move_a_little(trainer.model)
    model = float64_copy(trainer.model)
    torch.manual_seed(11)
    priorities = torch.rand(batch["completion_ids"].shape).tolist()
    torch.manual_seed(11)
    loss = trainer._compute_loss(trainer.model, batch)
    expected = 2 * shaped_loss(
        model, reference_rows(trainer, script), 4, old_model=old_model, priorities=priorities, **reference_changes
    )
    assert_loss_and_gradients_agree(trainer, loss, model, expected)
    plain = 2 * shaped_loss(
        model, reference_rows(trainer, script), 4,
        old_model=old_model, rule="none", delta=reference_changes.get("delta", math.inf),
    )  # fmt: skip
    assert (abs(plain - expected) < 1e-6) == (reference_changes["rule"] == "none"), "the rule must change the loss"


def test_evaluation_shapes_with_its_own_group_size_and_without_a_graph(tmp_path):
    script = random_script(PROMPTS, [[1, 0, 0, 1], [0, 0, 0, 1]], torch.Generator().manual_seed(1))
    trainer = make_trainer(tmp_path, script, ces_tau=0.3, num_generations_eval=2)
    trainer.model.eval()
    examples = [{"prompt": prompt} for prompt in script for _ in range(2)]
    half = {prompt: group[:2] for prompt, group in script.items()}
    trainer.rollout_func = scripted_rollout(half, 2)
    with torch.no_grad():
        loss = trainer._compute_loss(trainer.model, trainer._generate_and_score_completions(examples))
    model = float64_copy(trainer.model)
    expected = shaped_loss(model, reference_rows(trainer, half), 2, tau="0.3")
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert not loss.requires_grad


def test_buffered_rollouts_are_not_changed_by_the_loss(tmp_path):
    script = random_script(PROMPTS, [[1, 0, 0, 1], [0, 0, 0, 1]], torch.Generator().manual_seed(1))
    trainer = make_trainer(tmp_path, script, ces_tau=0.3)
    batch = rollout(trainer, script)
    before = copy.deepcopy(batch)
    first = trainer._compute_loss(trainer.model, batch)
    assert batch.keys() == before.keys()
    for name, value in before.items():
        assert torch.equal(batch[name], value), name
    assert trainer._compute_loss(trainer.model, batch).item() == first.item()


def test_unused_gradient_of_the_entropy_is_what_the_ablation_loses(tmp_path):
    """The two ablations and CES give three different gradients, so no test above passes for the wrong one."""
    script = random_script(PROMPTS, [[1, 0, 0, 1], [0, 0, 0, 1]], torch.Generator().manual_seed(1))
    gradients = {}
    for name, changes in {
        "ces": {},
        "without dynamic b": {"ces_dynamic_multiplier": False},
        "without entropy gradient": {"ces_entropy_gradient": False},
        "dapo": {"shaping": "none"},
    }.items():
        trainer = make_trainer(tmp_path, script, ces_tau=0.3, **changes)
        trainer._compute_loss(trainer.model, rollout(trainer, script)).backward()
        gradients[name] = trainer.model.lm_head.weight.grad.flatten()
    names = list(gradients)
    for index, one in enumerate(names):
        for other in names[index + 1 :]:
            difference = (gradients[one] - gradients[other]).norm() / gradients["dapo"].norm()
            assert difference > 0.05, f"{one} and {other}"
