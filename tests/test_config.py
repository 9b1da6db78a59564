"""CESConfig: defaults, rejected values and their messages, and conversion of a GRPOConfig."""

import math

import pytest
from tiny import settings
from trl import GRPOConfig

from trl_ces import CESConfig


def test_defaults_match_the_paper_and_dapo(tmp_path):
    expected = {
        "shaping": "ces",
        "ces_tau": 0.01,
        "ces_beta_correct": 0.4,
        "ces_beta_incorrect": 0.4,
        "ces_cap_incorrect": None,
        "ces_cap_correct": None,
        "ces_dynamic_multiplier": True,
        "ces_entropy_gradient": True,
        "ces_accuracy_reward": None,
        "ces_correct_threshold": 1.0,
        "entropy_advantage_alpha": 0.4,
        "entropy_advantage_kappa": 2.0,
        "dynamic_sampling": False,
        "dynamic_sampling_max_rounds": 10,
        "ces_allow_dynamic_sampling": False,
        "loss_type": "dapo",
        "epsilon": 0.2,
        "epsilon_high": 0.28,
        "beta": 0.0,
    }
    config = CESConfig(**settings(tmp_path))
    assert {name: getattr(config, name) for name in expected} == expected


def test_every_added_field_has_help():
    own = set(CESConfig.__dataclass_fields__) - set(GRPOConfig.__dataclass_fields__)
    assert {name for name in own if CESConfig.__dataclass_fields__[name].metadata.get("help")} == own


SFT: dict = {"shaping": "on_policy_sft", "epsilon": 1e6, "epsilon_high": 1e6}

# Settings, and two parts of the error message: name and value, and the remedy.
REJECTED = [
    ({"shaping": "ce"}, "`shaping` is 'ce'", "'none'"),
    *(({"ces_tau": value}, f"`ces_tau` is {value!r}", "[0, 1]") for value in (1.5, float("nan"), "0.01", True, None)),
    *(({"ces_tau": value}, f"`ces_tau` is {value!r}", "nine decimals") for value in (0.0123456789, 1 / 3)),
    ({"ces_beta_correct": float("-inf")}, "`ces_beta_correct` is -inf", "0.4"),
    ({"ces_beta_incorrect": float("inf")}, "`ces_beta_incorrect` is inf", "finite"),
    ({"ces_cap_incorrect": 0.5}, "`ces_cap_incorrect` is 0.5", ">= 1"),
    *(({"ces_cap_correct": value}, f"`ces_cap_correct` is {value}", ">= 1") for value in (0.5, True, math.inf)),
    ({"ces_dynamic_multiplier": 1}, "`ces_dynamic_multiplier` is 1", "true or false"),
    ({"entropy_advantage_alpha": -1.0}, "`entropy_advantage_alpha` is -1.0", ">= 0"),
    ({"entropy_advantage_alpha": float("inf")}, "`entropy_advantage_alpha` is inf", "finite"),
    ({"entropy_advantage_kappa": 1.0}, "`entropy_advantage_kappa` is 1.0", "2.0"),
    ({"entropy_advantage_kappa": float("inf")}, "`entropy_advantage_kappa` is inf", "2.0"),
    ({"ces_correct_threshold": float("nan")}, "`ces_correct_threshold` is nan", "1.0"),
    ({"shaping_kwargs": {"tau": 1}}, "`shaping_kwargs` is {'tau': 1}", "fields of `CESConfig`"),
    ({"num_generations": 1}, "`num_generations` is 1", "at least 2"),
    ({"generation_kwargs": {"thinking_token_budget": 64}}, "`generation_kwargs` is", "remove `thinking_token_budget`"),
    ({"padding_free": True, "trim_padding": False}, "`padding_free` is True", "`trim_padding=False`"),
    ({"on_reward_error": "ignore"}, "`on_reward_error` is 'ignore'", "'stop', 'skip'"),
    *(({"max_nonfinite_steps": value}, "`max_nonfinite_steps`", ">= 1") for value in (0, -1, True, 1.5)),
    *(({"max_tokens_per_micro_batch": value}, "`max_tokens_per_micro_batch`", ">= 1") for value in (0, 1.5)),
    ({"max_tokens_per_micro_batch": 90, "trim_padding": False}, "`max_tokens_per_micro", "needs `trim_padding=True`"),
    *(
        ({"shaping": "none", "max_tokens_per_micro_batch": 90, **loss}, "`max_tokens_per", "must be a sum over rows")
        for loss in ({"loss_type": "bnpo"}, {"entropy_coef": 0.1})
    ),
    ({"normalize_each_step": True, "loss_type": "grpo"}, "`normalize_each_step` is True", 'only `loss_type="dapo"`'),
    ({"dynamic_sampling": True}, "`dynamic_sampling` is True", "`ces_allow_dynamic_sampling=True`"),
    *(({"dynamic_sampling_max_rounds": value}, "`dynamic_sampling_max_rounds`", ">= 1") for value in (0, 2.0)),
    ({"shaping": "on_policy_sft"}, "`epsilon` is 0.2", "on-policy SFT has no clipping"),
    ({"shaping": "on_policy_sft", "epsilon": 1.0}, "`epsilon_high` is 0.28", "on-policy SFT has no clipping"),
    (
        {"shaping": "on_policy_sft", "epsilon": 1e6, "epsilon_high": 1e6, "delta": 4.0},
        "`delta` is 4.0",
        "`delta=None`",
    ),
    ({"shaping": "on_policy_sft", "epsilon": 1e6, "epsilon_high": None, "beta": 0.1}, "`beta` is 0.1", "no KL term"),
]
# Rejected only with shaping "ces".
REJECTED_WITH_CES = [
    *(({"loss_type": loss}, f"`loss_type` is '{loss}'", "'dapo'") for loss in ("cispo", "vespo", "sapo", "luspo")),
    ({"entropy_coef": 0.01}, "`entropy_coef` is 0.01", "0.0"),
    ({"use_adaptive_entropy": True}, "`use_adaptive_entropy` is True", "False"),
    ({"top_entropy_quantile": 0.2}, "`top_entropy_quantile` is 0.2", "1.0"),
    ({"importance_sampling_level": "sequence"}, "`importance_sampling_level` is 'sequence'", "token"),
    ({"off_policy_mask_threshold": 0.5}, "`off_policy_mask_threshold` is 0.5", "None"),
]


@pytest.mark.parametrize(("changes", "setting", "remedy"), REJECTED + REJECTED_WITH_CES, ids=str)
def test_errors_name_the_field_the_value_and_the_remedy(tmp_path, changes, setting, remedy):
    with pytest.raises(ValueError) as error:
        CESConfig(**settings(tmp_path, **changes))
    assert setting in str(error.value)
    assert remedy in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"ces_tau": 0.123456789},
        {"ces_tau": "auto"},
        {"entropy_advantage_alpha": 0.0},
        *({"loss_type": loss} for loss in ("grpo", "bnpo", "dr_grpo")),
        *({"shaping": "none", **changes} for changes, *_ in REJECTED_WITH_CES),
        {"shaping": "none", "dynamic_sampling": True, "dynamic_sampling_max_rounds": 1, "scale_rewards": "none"},
        {"shaping": "entropy_advantage", "dynamic_sampling": True},
        {"dynamic_sampling": True, "ces_allow_dynamic_sampling": True},
        {"scale_rewards": "batch", "multi_objective_aggregation": "normalize_then_sum"},
    ],
    ids=str,
)
def test_allowed_settings_are_kept(tmp_path, changes):
    config = CESConfig(**settings(tmp_path, **changes))
    assert {name: getattr(config, name) for name in changes} == changes


def test_a_grpo_config_keeps_its_settings_and_gets_the_defaults_of_ces(tmp_path):
    plain = GRPOConfig(**settings(tmp_path, epsilon=0.1, beta=0.04, temperature=0.7, steps_per_generation=3))
    config = CESConfig.from_grpo(plain)
    assert isinstance(config, CESConfig)
    for name in GRPOConfig.__dataclass_fields__:
        assert getattr(config, name) == getattr(plain, name), name
    assert config.epsilon_high is None  # the user's value (TRL's symmetric clip range), not DAPO's
    assert (config.shaping, config.ces_tau) == ("ces", 0.01)
    assert config.generation_batch_size == 24


def test_a_ces_config_is_returned_unchanged(tmp_path):
    config = CESConfig(**settings(tmp_path, ces_tau=0.05))
    assert CESConfig.from_grpo(config) is config


def test_conversion_checks_grpo_settings_and_settings_changed_later(tmp_path):
    plain = GRPOConfig(**settings(tmp_path, top_entropy_quantile=0.2))
    changed = CESConfig(**settings(tmp_path))
    changed.ces_tau = 3.0
    for config, message in ((plain, r"`top_entropy_quantile` is 0\.2"), (changed, r"`ces_tau` is 3\.0")):
        with pytest.raises(ValueError, match=message):
            CESConfig.from_grpo(config)


@pytest.mark.parametrize("mode", ["sequence_mask", "sequence_truncate"])
def test_sequence_ratios_with_vllm_cause_a_warning(tmp_path, mode):
    changes = {"use_vllm": True, "vllm_importance_sampling_mode": mode}
    with pytest.warns(UserWarning, match=f"`vllm_importance_sampling_mode` is '{mode}'.*token_truncate"):
        CESConfig(**settings(tmp_path, **changes))
