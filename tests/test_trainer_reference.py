"""Check that losses (to 1e-5) and gradients (to 1e-4) match Algorithm 1 in float64 (reference.py).

TRL's code computes everything from the rewards to the loss. Only the completions are scripted, so that tests can
include, for example, all-correct groups and unscored completions.
"""

import copy
import itertools

import pytest
import torch
from reference import float64_copy, shaped_loss
from reference_comparison import (
    PROMPTS,
    assert_loss_and_gradients_agree,
    make_trainer,
    perturb_weights,
    reference_rows,
    rollout,
)
from tiny import random_script, scripted_rollout

MIXED = [[1, 0, 0, 1], [0, 0, 0, 1]]
BETAS = {"ces_beta_correct": 0.1, "ces_beta_incorrect": 0.9}
SWAPPED = {"ces_beta_correct": -0.4, "ces_beta_incorrect": -0.2}
ENTROPY_ADVANTAGE = {"shaping": "entropy_advantage", "entropy_advantage_alpha": 0.3, "entropy_advantage_kappa": 3.0}
PAPER_TAU = {"ces_tau": 0.01, "max_completion_length": 250}
# name: (accuracies of two groups, trainer settings, reference settings, script options)
CASES: dict[str, tuple[list, dict, dict, dict]] = {
    "mixed": (MIXED, {}, {}, {}),
    "signs swapped": (MIXED, SWAPPED, {"beta_correct": -0.4, "beta_incorrect": -0.2}, {}),
    "paper's tau": ([[1, 0, 0, 1], [0, 1, 0, 0]], PAPER_TAU, {"tau": "0.01"}, {"lengths": (150, 250)}),
    "all correct": ([[1, 1, 1, 1], [1, 1, 1, 1]], {}, {}, {}),
    "all wrong": ([[0, 0, 0, 0], [0, 0, 0, 0]], {}, {}, {}),
    "some unscored": ([[1, None, 0, 1], [None, None, 0, 1]], {}, {}, {}),
    "a whole group unscored": ([[None, None, None, None], [1, 0, 1, 1]], {}, {}, {}),
    "two betas": (MIXED, BETAS, {"beta_correct": 0.1, "beta_incorrect": 0.9}, {}),
    "without dynamic b": (MIXED, {"ces_dynamic_multiplier": False}, {"dynamic": False}, {}),
    "without entropy gradient": (MIXED, {"ces_entropy_gradient": False}, {"entropy_gradient": False}, {}),
    "cap on wrong completions": (MIXED, {"ces_cap_incorrect": 2.0}, {"cap_incorrect": 2.0}, {}),
    "cap on correct completions": (MIXED, {"ces_cap_correct": 2.0}, {"cap_correct": 2.0}, {}),
    "both caps": (
        [[1, 1, 0, 1], [1, 1, 1, 1]],
        {"ces_cap_correct": 1.0, "ces_cap_incorrect": 3.0},
        {"cap_correct": 1.0, "cap_incorrect": 3.0},
        {},
    ),
    "cap, all wrong": ([[0, 0, 0, 0], [1, 0, 0, 0]], {"ces_cap_incorrect": 1.0}, {"cap_incorrect": 1.0}, {}),
    "entropy advantage": (
        MIXED,
        ENTROPY_ADVANTAGE,
        {"rule": "entropy_advantage", "alpha": 0.3, "kappa": 3.0},
        {},
    ),
    "none": (MIXED, {"shaping": "none"}, {"rule": "none"}, {}),
    "none, some unscored": ([[1, None, 0, 1], [None, None, 0, 1]], {"shaping": "none"}, {"rule": "none"}, {}),
    "sampling temperature": (MIXED, {"temperature": 0.7}, {"temperature": 0.7}, {}),
    "tool output in the middle": (MIXED, {}, {}, {"masked": True}),
    "truncated, not masked": (MIXED, {}, {}, {"truncated": (1, 4)}),
    "truncated, masked": (MIXED, {"mask_truncated_completions": True}, {}, {"truncated": (1, 4)}),
    "grpo loss": (MIXED, {"loss_type": "grpo"}, {"loss_type": "grpo"}, {}),
    "bnpo loss": (MIXED, {"loss_type": "bnpo"}, {"loss_type": "bnpo"}, {}),
    "dr_grpo loss": (MIXED, {"loss_type": "dr_grpo"}, {"loss_type": "dr_grpo", "dr_grpo_length": 40}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_match_algorithm_1(tmp_path, case):
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


def test_the_selection_size_is_computed_without_rounding_errors(tmp_path):
    # With two of three completions correct, 100 tokens and tau 0.03, CES shapes floor(100 * 0.03 * 1/3) = 1 token of
    # the wrong completion. In float32, the floor would be 0.
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
def test_off_policy_steps_clip_with_the_shaped_advantage(tmp_path, beta):
    script = random_script(PROMPTS, [[1, 0, 0, 1], [0, 0, 0, 1]], torch.Generator().manual_seed(1))
    trainer = make_trainer(
        tmp_path, script, ces_tau=0.5, ces_beta_correct=beta, ces_beta_incorrect=beta, steps_per_generation=2,
        per_device_train_batch_size=4,
    )  # fmt: skip
    batch = rollout(trainer, script)
    assert "old_per_token_logps" in batch
    old_model = float64_copy(trainer.model)
    perturb_weights(trainer.model)
    model = float64_copy(trainer.model)
    loss = trainer._compute_loss(trainer.model, batch)
    # TRL divides by the mean number of tokens per step, but this call contains the rows of both steps.
    expected = 2 * shaped_loss(
        model, reference_rows(trainer, script), 4,
        tau="0.5", beta_correct=beta, beta_incorrect=beta, old_model=old_model,
    )  # fmt: skip
    assert_loss_and_gradients_agree(trainer, loss, model, expected)
    clip_ratio = trainer._metrics["train"]["clip_ratio/region_mean"][-1]
    assert 0.1 < clip_ratio < 0.9, "the test needs clipped and unclipped tokens"


def test_on_policy_sft_matches_the_paper_in_off_policy_steps(tmp_path):
    script = random_script(
        PROMPTS, [[1, 0, 0, 1], [0, 0, 0, None]], torch.Generator().manual_seed(1), masked=True, truncated=(1, 4)
    )
    changes = {"shaping": "on_policy_sft", "epsilon": 1.0, "epsilon_high": 1e6}
    trainer = make_trainer(tmp_path, script, steps_per_generation=2, per_device_train_batch_size=4, **changes)
    batch = rollout(trainer, script)
    old_model = float64_copy(trainer.model)
    perturb_weights(trainer.model)
    model = float64_copy(trainer.model)
    loss = trainer._compute_loss(trainer.model, batch)
    rows = reference_rows(trainer, script)
    expected = 2 * shaped_loss(model, rows, 4, old_model=old_model, rule="on_policy_sft")
    assert_loss_and_gradients_agree(trainer, loss, model, expected)
    plain = 2 * shaped_loss(model, rows, 4, old_model=old_model, rule="none")
    assert abs(plain - expected) > 1e-3, "the rule must change the loss"


def test_evaluation_uses_its_own_group_size_and_builds_no_graph(tmp_path):
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


def test_the_loss_does_not_change_buffered_rollouts(tmp_path):
    script = random_script(PROMPTS, [[1, 0, 0, 1], [0, 0, 0, 1]], torch.Generator().manual_seed(1))
    trainer = make_trainer(tmp_path, script, ces_tau=0.3)
    batch = rollout(trainer, script)
    before = copy.deepcopy(batch)
    first = trainer._compute_loss(trainer.model, batch)
    assert batch.keys() == before.keys()
    for name, value in before.items():
        assert torch.equal(batch[name], value), name
    assert trainer._compute_loss(trainer.model, batch).item() == first.item()


def test_ces_ablations_and_dapo_have_different_gradients(tmp_path):
    """Check that the tests above can distinguish these methods."""
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
    for first, second in itertools.combinations(gradients, 2):
        difference = (gradients[first] - gradients[second]).norm() / gradients["dapo"].norm()
        assert difference > 0.05, f"{first} and {second}"
