"""What CESConfig promises: its defaults, what it refuses and in which words, and the way from a GRPOConfig."""

import pytest
from tiny import settings
from trl import GRPOConfig

from trl_ces import CESConfig


def test_defaults_are_the_papers_and_dapos(tmp_path):
    config = CESConfig(**settings(tmp_path))
    names = [
        "shaping",
        "ces_tau",
        "ces_beta_correct",
        "ces_beta_incorrect",
        "ces_cap_incorrect",
        "ces_dynamic_multiplier",
        "ces_entropy_gradient",
        "ces_accuracy_reward",
        "ces_correct_threshold",
        "entropy_advantage_alpha",
        "entropy_advantage_kappa",
        "dynamic_sampling",
        "dynamic_sampling_max_rounds",
        "ces_allow_dynamic_sampling",
        "loss_type",
        "epsilon",
        "epsilon_high",
        "beta",
    ]
    assert [getattr(config, name) for name in names] == (
        ["ces", 0.01, 0.4, 0.4, None, True, True, None, 1.0, 0.4, 2.0, False, 10, False, "dapo", 0.2, 0.28, 0.0]
    )


def test_nine_decimals_of_tau_are_taken(tmp_path):
    assert CESConfig(**settings(tmp_path, ces_tau=0.123456789)).ces_tau == 0.123456789


@pytest.mark.parametrize("name", ["entropy_advantage_alpha", "kl_cov_coef"])
def test_a_rule_may_have_no_strength(tmp_path, name):
    assert getattr(CESConfig(**settings(tmp_path, **{name: 0.0})), name) == 0


def test_clip_cov_has_the_papers_bounds(tmp_path):
    config = CESConfig(**settings(tmp_path))
    assert (config.clip_cov_low, config.clip_cov_high) == (1.0, 5.0)


def test_every_own_field_has_help():
    own = set(CESConfig.__dataclass_fields__) - set(GRPOConfig.__dataclass_fields__)
    assert {name for name in own if CESConfig.__dataclass_fields__[name].metadata.get("help")} == own


REFUSED = [
    ({"shaping": "ce"}, "`shaping` is 'ce'", "'none'"),
    ({"ces_tau": 1.5}, "`ces_tau` is 1.5", "[0, 1]"),
    ({"ces_tau": "much"}, "`ces_tau` is 'much'", "must be a number"),
    ({"ces_tau": float("nan")}, "`ces_tau` is nan", "[0, 1]"),
    ({"ces_tau": 0.0123456789}, "`ces_tau` is 0.0123456789", "9 decimals at most"),
    ({"ces_tau": 1 / 3}, "`ces_tau` is 0.3333333333333333", "round"),
    ({"ces_beta_correct": float("-inf")}, "`ces_beta_correct` is -inf", "0.4"),
    ({"ces_beta_incorrect": float("inf")}, "`ces_beta_incorrect` is inf", "finite"),
    ({"entropy_advantage_alpha": -1.0}, "`entropy_advantage_alpha` is -1.0", ">= 0"),
    ({"entropy_advantage_alpha": float("inf")}, "`entropy_advantage_alpha` is inf", "finite"),
    ({"entropy_advantage_kappa": 1.0}, "`entropy_advantage_kappa` is 1.0", "2.0"),
    ({"entropy_advantage_kappa": float("inf")}, "`entropy_advantage_kappa` is inf", "2.0"),
    ({"clip_cov_ratio": -0.1}, "`clip_cov_ratio` is -0.1", "0.0002"),
    ({"clip_cov_ratio": 0.0}, "`clip_cov_ratio` is 0.0", '`shaping="none"`'),
    ({"kl_cov_ratio": 0}, "`kl_cov_ratio` is 0", "at least one token"),
    ({"kl_cov_ratio": 1e-10}, "`kl_cov_ratio` is 1e-10", "round"),
    ({"clip_cov_high": float("nan")}, "`clip_cov_high` is nan", "a number"),
    ({"kl_cov_coef": -1.0}, "`kl_cov_coef` is -1.0", ">= 0"),
    ({"kl_cov_coef": float("inf")}, "`kl_cov_coef` is inf", "finite"),
    ({"gfpo_keep": 4}, "`gfpo_keep` is 4", "below `num_generations`, 4"),
    ({"gfpo_keep": 1}, "`gfpo_keep` is 1", "above 1"),
    ({"gfpo_keep": 2.0}, "`gfpo_keep` is 2.0", "counts completions"),
    ({"gfpo_keep": True}, "`gfpo_keep` is True", "counts completions"),
    ({"epsilon_high_target_entropy": -0.1}, "`epsilon_high_target_entropy` is -0.1", "in nats"),
    ({"epsilon_high_target_entropy": 0.2, "epsilon_high_delta": 0.0}, "`epsilon_high_delta` is 0.0", "above 0"),
    ({"epsilon_high_target_entropy": 0.2, "epsilon_high_max": float("inf")}, "`epsilon_high_max` is inf", "above 0"),
    ({"whiten_over_tokens": True}, "`whiten_over_tokens` is True", '`scale_rewards="none"`'),
    (
        {"whiten_over_tokens": True, "scale_rewards": "none", "multi_objective_aggregation": "normalize_then_sum"},
        "`whiten_over_tokens` is True",
        "`multi_objective_aggregation`",
    ),
    ({"dot_alpha": 1.5}, "`dot_alpha` is 1.5", "more than 1.5 standard"),
    ({"dot_alpha": 0.0}, "`dot_alpha` is 0.0", "above 0 and below"),
    ({"dot_alpha": 1.4, "dot_least": 0}, "`dot_least` is 0", "the paper uses 32"),
    ({"dot_alpha": 1.4, "mask_truncated_completions": True}, "`dot_alpha` is 1.4", "out of the loss"),
    ({"qlpo_preferred": 0.4}, "`qlpo_preferred` is 0.4", "gives 0.75"),
    ({"qlpo_preferred": 1.1}, "`qlpo_preferred` is 1.1", "[0.5, 1]"),
    ({"gfpo_metric": "qlpo"}, "`gfpo_metric` is 'qlpo'", "nothing without `gfpo_keep`"),
    ({"gfpo_metric": "shortest"}, "`gfpo_metric` is 'shortest'", "'reward_per_token'"),
    ({"ces_correct_threshold": float("nan")}, "`ces_correct_threshold` is nan", "1.0"),
    ({"num_generations": 1}, "`num_generations` is 1", "at least 2"),
    (
        {"generation_kwargs": {"thinking_token_budget": 64}},
        "`generation_kwargs` is {'thinking_token_budget': 64}",
        "would enter the loss: remove `thinking_token_budget`",
    ),
    ({"padding_free": True, "trim_padding": False}, "`padding_free` is True", "`trim_padding=False`"),
    ({"on_reward_error": "ignore"}, "`on_reward_error` is 'ignore'", "'stop', 'skip'"),
    *(({"max_nonfinite_steps": value}, "`max_nonfinite_steps`", "1 or more") for value in (0, -1, True, 1.5)),
    ({"loss_type": "cispo"}, "`loss_type` is 'cispo'", "'dapo'"),
    ({"loss_type": "vespo"}, "`loss_type` is 'vespo'", "'dapo'"),
    ({"loss_type": "sapo"}, "`loss_type` is 'sapo'", "'dapo'"),
    ({"loss_type": "luspo"}, "`loss_type` is 'luspo'", "'dapo'"),
    ({"entropy_coef": 0.01}, "`entropy_coef` is 0.01", "0.0"),
    ({"use_adaptive_entropy": True}, "`use_adaptive_entropy` is True", "False"),
    ({"top_entropy_quantile": 0.2}, "`top_entropy_quantile` is 0.2", "1.0"),
    ({"importance_sampling_level": "sequence"}, "`importance_sampling_level` is 'sequence'", "token"),
    ({"off_policy_mask_threshold": 0.5}, "`off_policy_mask_threshold` is 0.5", "None"),
]
DYNAMIC = {"shaping": "none", "dynamic_sampling": True}
REFUSED_WITH_DYNAMIC_SAMPLING = [
    ({"dynamic_sampling": True}, "`dynamic_sampling` is True", "`ces_allow_dynamic_sampling=True`"),
    ({"dynamic_sampling": True}, "section 3.2", "`dynamic_sampling=False`"),
    ({**DYNAMIC, "dynamic_sampling_max_rounds": 0}, "`dynamic_sampling_max_rounds` is 0", "1 or more"),
    ({**DYNAMIC, "dynamic_sampling_max_rounds": 2.0}, "`dynamic_sampling_max_rounds` is 2.0", "1 or more"),
    ({**DYNAMIC, "dynamic_sampling_max_rounds": True}, "`dynamic_sampling_max_rounds` is True", "1 or more"),
    ({"dynamic_sampling_max_rounds": -1}, "`dynamic_sampling_max_rounds` is -1", "10"),
]


@pytest.mark.parametrize(
    "changes",
    [
        {**DYNAMIC, "dynamic_sampling_max_rounds": 1},
        {**DYNAMIC, "scale_rewards": "none"},
        {**DYNAMIC, "shaping": "entropy_advantage"},
        {"dynamic_sampling": True, "ces_allow_dynamic_sampling": True},
        {"scale_rewards": "batch", "multi_objective_aggregation": "normalize_then_sum"},  # without dynamic sampling
    ],
    ids=str,
)
def test_allowed_with_dynamic_sampling(tmp_path, changes):
    config = CESConfig(**settings(tmp_path, **changes))
    assert {name: getattr(config, name) for name in changes} == changes


ONLY_CES = next(place for place, (changes, *_) in enumerate(REFUSED) if "loss_type" in changes)


@pytest.mark.parametrize("changes", [row[0] for row in REFUSED[ONLY_CES:]], ids=str)
def test_what_ces_refuses_plain_dapo_keeps(tmp_path, changes):
    config = CESConfig(**settings(tmp_path, shaping="none", **changes))
    assert {name: getattr(config, name) for name in changes} == changes


KL_COV = {"shaping": "kl_cov", "epsilon": 1.0, "epsilon_high": 1e6, "num_iterations": 2}
ONE_ROW = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4, "steps_per_generation": 8}
REFUSED_WITH_COVARIANCE = [
    ({"shaping": "clip_cov", "clip_cov_low": 5.0}, "`clip_cov_low` is 5.0", "below `clip_cov_high`, 5.0"),
    ({"shaping": "clip_cov", "loss_type": "cispo"}, "`loss_type` is 'cispo'", '`shaping="clip_cov"`'),
    ({"shaping": "clip_cov", "importance_sampling_level": "sequence"}, "`importance_sampling_level` is", '"token"'),
    ({**KL_COV, "off_policy_mask_threshold": 0.5}, "`off_policy_mask_threshold` is 0.5", "None"),
    ({**KL_COV, "epsilon_high_target_entropy": 0.2}, "`epsilon_high_target_entropy` is 0.2", "set it to None"),
    (
        {"shaping": "clip_cov", "epsilon_high_target_entropy": 0.2},
        "`epsilon_high_target_entropy` is 0.2",
        "set it to None",
    ),
    (
        {"shaping": "none", "loss_type": "cispo", "epsilon_high_target_entropy": 0.2},
        "`epsilon_high_target_entropy` is 0.2",
        "set it to None",
    ),
    ({"shaping": "on_policy_sft"}, "`epsilon` is 0.2", "on-policy SFT has no clipping"),
    ({**KL_COV, "shaping": "on_policy_sft", "beta": 0.1}, "`beta` is 0.1", "no KL term"),
    ({**KL_COV, "shaping": "on_policy_sft", "gfpo_keep": 2}, "`gfpo_keep` is 2", "reads verdicts"),
    (
        {**KL_COV, "shaping": "on_policy_sft", "whiten_over_tokens": True, "scale_rewards": "none"},
        "reads verdicts",
        "set it to False",
    ),
    ({"shaping": "kl_cov"}, "`epsilon` is 0.2", "`epsilon=1.0`, `epsilon_high=1000000.0` and `delta=None`"),
    ({**KL_COV, "epsilon": 0.99}, "`epsilon` is 0.99", "`epsilon=1.0`"),
    ({**KL_COV, "epsilon_high": 5.0}, "`epsilon_high` is 5.0", "`epsilon_high=1000000.0`"),
    ({**KL_COV, "epsilon_high": None}, "`epsilon_high` is None", "`epsilon_high=1000000.0`"),
    ({**KL_COV, "delta": 4.0}, "`delta` is 4.0", "`delta=None`"),
    ({"shaping": "clip_cov", "max_tokens_per_micro_batch": 99}, "`max_tokens_per_micro_batch` is 99", "compares"),
    ({"shaping": "clip_cov", **ONE_ROW}, "`per_device_train_batch_size` is 1", "2 or more"),
    ({**KL_COV, **ONE_ROW}, "`per_device_train_batch_size` is 1", "a multiple of twice the processes"),
    ({**KL_COV, "num_iterations": 1}, "one optimizer step", "`steps_per_generation` x `num_iterations`, 1, above"),
    ({**KL_COV, "gradient_accumulation_steps": 4, "steps_per_generation": 1}, "one optimizer", "2, above `gr"),
    (
        {**KL_COV, "gradient_accumulation_steps": 4, "steps_per_generation": 2},
        "one optimizer",
        "steps`, 4 (in a recipe",
    ),
    ({**KL_COV, "max_tokens_per_micro_batch": 99}, "`max_tokens_per_micro_batch` is 99", "remove the budget"),
    ({"max_tokens_per_micro_batch": 0}, "`max_tokens_per_micro_batch` is 0", "1 or more"),
    ({"max_tokens_per_micro_batch": 1.5}, "`max_tokens_per_micro_batch` is 1.5", "1 or more"),
    ({"max_tokens_per_micro_batch": 90, "trim_padding": False}, "`max_tokens_per_micro", "needs `trim_padding=True`"),
    (
        {"shaping": "none", "max_tokens_per_micro_batch": 90, "loss_type": "bnpo"},
        "`max_tokens_per_micro_batch`",
        "must be a sum over rows",
    ),
    (
        {"shaping": "none", "max_tokens_per_micro_batch": 90, "entropy_coef": 0.1},
        "`max_tokens_per_micro_batch`",
        "must be a sum over rows",
    ),
]


@pytest.mark.parametrize(
    ("changes", "what", "way_out"), REFUSED + REFUSED_WITH_DYNAMIC_SAMPLING + REFUSED_WITH_COVARIANCE, ids=str
)
def test_refused_in_one_sentence_with_name_value_and_way_out(tmp_path, changes, what, way_out):
    with pytest.raises(ValueError) as refusal:
        CESConfig(**settings(tmp_path, **changes))
    assert what in str(refusal.value)
    assert way_out in str(refusal.value)


@pytest.mark.parametrize(
    "changes", [{"shaping": "clip_cov"}, KL_COV, {**KL_COV, "epsilon": 1e6, "epsilon_high": None}]
)
def test_rows_that_share_covariances_are_not_rearranged(tmp_path, changes):
    assert CESConfig(**settings(tmp_path, shaping="none")).micro_batches_to_arrange() == 1
    assert CESConfig(**settings(tmp_path, **changes)).micro_batches_to_arrange() == 0


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "bnpo", "dr_grpo"])
def test_the_clipped_losses_are_allowed(tmp_path, loss_type):
    assert CESConfig(**settings(tmp_path, loss_type=loss_type)).loss_type == loss_type


def test_a_plain_grpo_config_keeps_its_settings_and_gets_the_defaults_of_ces(tmp_path):
    plain = GRPOConfig(**settings(tmp_path, epsilon=0.1, beta=0.04, temperature=0.7, steps_per_generation=3))
    config = CESConfig.from_grpo(plain)
    assert isinstance(config, CESConfig)
    for name in GRPOConfig.__dataclass_fields__:
        assert getattr(config, name) == getattr(plain, name), name
    assert config.epsilon_high is None  # the user's, which means TRL's symmetric clip; not DAPO's
    assert (config.shaping, config.ces_tau) == ("ces", 0.01)
    assert config.generation_batch_size == 24


def test_a_grpo_config_that_ces_cannot_work_with_is_refused(tmp_path):
    plain = GRPOConfig(**settings(tmp_path, top_entropy_quantile=0.2))
    with pytest.raises(ValueError, match=r"`top_entropy_quantile` is 0\.2"):
        CESConfig.from_grpo(plain)


def test_numbers_that_are_none_are_refused(tmp_path):
    for value in ("0.01", True, None):
        with pytest.raises(ValueError, match=r"`ces_tau` is .*: it must be a number"):
            CESConfig(**settings(tmp_path, ces_tau=value))


def test_settings_changed_after_the_config_was_made_are_checked_too(tmp_path):
    config = CESConfig(**settings(tmp_path))
    config.ces_tau = 3.0
    with pytest.raises(ValueError, match=r"`ces_tau` is 3\.0"):
        CESConfig.from_grpo(config)


@pytest.mark.parametrize("mode", ["sequence_mask", "sequence_truncate"])
def test_a_product_of_vllm_ratios_over_a_completion_is_warned_of(tmp_path, mode):
    changes = {"use_vllm": True, "vllm_importance_sampling_mode": mode}
    with pytest.warns(UserWarning, match=f"`vllm_importance_sampling_mode` is '{mode}'.*token_truncate"):
        CESConfig(**settings(tmp_path, **changes))


def test_a_ces_config_is_taken_as_it_is(tmp_path):
    config = CESConfig(**settings(tmp_path, ces_tau=0.05))
    assert CESConfig.from_grpo(config) is config
