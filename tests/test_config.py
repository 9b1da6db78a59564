"""Test CESConfig: defaults, error messages for rejected values, and conversion of a GRPOConfig."""

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


def test_every_added_field_has_help_text():
    added = set(CESConfig.__dataclass_fields__) - set(GRPOConfig.__dataclass_fields__)
    assert {name for name in added if CESConfig.__dataclass_fields__[name].metadata.get("help")} == added


INF, NAN = float("inf"), float("nan")
WITH_EVALUATION = {"eval_strategy": "steps", "save_strategy": "steps", "save_steps": 500, "eval_steps": 500}
SFT: dict = {"shaping": "on_policy_sft", "epsilon": 1e6, "epsilon_high": 1e6}

# (settings, field name and value in the error message, remedy in the error message)
REJECTED = [
    ({"shaping": "ce"}, "`shaping` is 'ce'", "'none'"),
    *(({"ces_tau": value}, f"`ces_tau` is {value!r}", "[0, 1]") for value in (1.5, float("nan"), "0.01", True, None)),
    ({"ces_tau": "atuo"}, "`ces_tau` is 'atuo': it must be a number", "or `auto`"),
    *(({"ces_tau": value}, f"`ces_tau` is {value!r}", "nine decimal places") for value in (0.0123456789, 1 / 3)),
    ({"ces_beta_correct": float("-inf")}, "`ces_beta_correct` is -inf", "0.4"),
    ({"ces_beta_incorrect": float("inf")}, "`ces_beta_incorrect` is inf", "finite"),
    ({"ces_cap_incorrect": 0.5}, "`ces_cap_incorrect` is 0.5", "[1, inf)"),
    *(({"ces_cap_correct": value}, f"`ces_cap_correct` is {value}", "[1, inf)") for value in (0.5, True, math.inf)),
    ({"ces_dynamic_multiplier": 1}, "`ces_dynamic_multiplier` is 1", "true or false"),
    ({"entropy_advantage_alpha": -1.0}, "`entropy_advantage_alpha` is -1.0", "[0, inf)"),
    ({"entropy_advantage_alpha": float("inf")}, "`entropy_advantage_alpha` is inf", "finite"),
    ({"entropy_advantage_kappa": 1.0}, "`entropy_advantage_kappa` is 1.0", "2.0"),
    ({"entropy_advantage_kappa": float("inf")}, "`entropy_advantage_kappa` is inf", "2.0"),
    ({"ces_correct_threshold": float("nan")}, "`ces_correct_threshold` is nan", "1.0"),
    ({"shaping_kwargs": {"tau": 1}}, "`shaping_kwargs` is {'tau': 1}", "fields of `CESConfig`"),
    ({"num_generations": 1}, "`num_generations` is 1", "[2, inf)"),
    *(
        ({"generation_kwargs": {name: value}, **more}, "`generation_kwargs` is", remedy)
        for name, value, remedy, more in (
            *(
                (name, 64, f"the trainer does not support this key, so remove `{name}`", {})
                for name in ("thinking_token_budget", "max_time", "forced_eos_token_id", "return_dict_in_generate")
            ),
            *((name, 1, f"config, and remove `{name}`", {}) for name in ("eos_token_id", "pad_token_id")),
            ("eos_token_id", None, "remove `eos_token_id`", {}),
            ("stop_strings", ["x"], "remove `stop_strings`", {}),
            *((name, ["x"], f"remove `{name}`", {"use_vllm": True}) for name in ("stop", "stop_token_ids")),
            ("ignore_eos", True, "remove `ignore_eos`", {"use_vllm": True}),
            *((name, 5, "`max_completion_length`", {}) for name in ("max_new_tokens", "max_length", "max_tokens")),
            *((name, 0.5, f"set the config's `{name}`", {}) for name in ("temperature", "top_p", "min_p")),
            ("top_k", 5, "set the config's `top_k`", {"use_vllm": True}),
            ("do_sample", False, "remove `do_sample`", {}),
            *((name, 2, f"remove `{name}`", {}) for name in ("num_beams", "num_return_sequences")),
            *((name, 2, f"remove `{name}`", {"use_vllm": True}) for name in ("n", "logprobs")),
            *(("seed", 1, "set the config's `seed`", {"use_vllm": use_vllm}) for use_vllm in (True, False)),
            ("min_new_token", 3, "transformers has no `min_new_token`", {}),
            ("frequency_penalty", 0.1, "transformers has no `frequency_penalty`", {}),
            ("min_new_tokens", 3, "vLLM has no `min_new_tokens`", {"use_vllm": True}),
            *(
                (name, 3, f"continuous batching ignores `{name}`", {"use_transformers_continuous_batching": True})
                for name in ("min_new_tokens", "min_length", "encoder_repetition_penalty")
            ),
        )
    ),
    ({"max_completion_length": None}, "`max_completion_length` is None", "set a limit"),
    ({"top_k": -1}, "`top_k` is -1", "0 keeps all tokens"),
    ({"top_k": None, "use_vllm": True}, "`top_k` is None", "0 keeps all tokens"),
    (
        {"repetition_penalty": 1.1, "use_transformers_continuous_batching": True},
        "`repetition_penalty` is 1.1",
        "which ignores this penalty",
    ),
    *(
        ({name: value}, f"`{name}` is {value!r}", remedy)
        for names, values, remedy in (
            ("temperature", (0.0, -1.0, INF, NAN), "use 1.0"),
            ("top_p vllm_gpu_memory_utilization", (0.0, 2, NAN), "(0, 1]"),
            ("top_k", (-2, 1.5), "0 keeps all tokens"),
            ("min_p", (-0.1, 1.5), "[0, 1]"),
            ("repetition_penalty num_train_epochs", (0, -1.0, INF), "(0, inf)"),
            (
                "learning_rate epsilon epsilon_high beta weight_decay warmup_steps adam_epsilon",
                (-1e-6, NAN),
                "[0, inf)",
            ),
            ("learning_rate epsilon beta", (INF,), "[0, inf)"),
            ("delta", (0.0, -1.0, NAN), "[1, inf)"),
            ("adam_beta1 adam_beta2", (1.0, -0.1), "[0, 1)"),
            ("max_grad_norm", (-1.0, NAN, None), "0 disables clipping"),
            ("max_steps", (0, -2, 1.5), "or -1 to use `num_train_epochs`"),
            ("save_steps", (0, -5, 2.5, INF), "set `save_strategy` to no"),
            ("logging_steps", (0, -1), "set `logging_strategy` to no"),
            ("eval_steps", (0, -1), "or null to use `logging_steps`"),
            ("reward_weights", ([INF], [1.0, NAN], 1.0), "list of finite numbers"),
            ("scale_rewards", ("std",), "choose one of group, batch, none"),
            ("multi_objective_aggregation", ("sum",), "choose one of sum_then_normalize, normalize_then_sum"),
            ("importance_sampling_level", ("seq",), "choose one of token, sequence"),
            ("shaping", (None, 3), "'none' turns shaping off"),
            ("num_iterations per_device_train_batch_size gradient_accumulation_steps", (0, -1, 1.5), "[1, inf)"),
            ("max_completion_length steps_per_generation generation_batch_size", (0, -1), "or null"),
            ("seed", (-1, 2**32), "4294967295"),
        )
        for name in names.split()
        for value in values
    ),
    ({"shaping": "none", "loss_type": "DAPO"}, "`loss_type` is 'DAPO'", "choose one of grpo, dapo"),
    (
        {"loss_type": "dr_grpo", "max_completion_length": None, "use_vllm": True},
        "`max_completion_length`",
        "set a limit",
    ),
    ({"use_liger_kernel": True}, "`use_liger_kernel` is True", "liger-kernel"),
    *(
        (changes, f"`{next(iter(changes))}` is {next(iter(changes.values()))!r}", "set `metric_for_best_model`")
        for changes in (
            {"load_best_model_at_end": True, **WITH_EVALUATION},
            {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", **WITH_EVALUATION},
            {"save_strategy": "best", "eval_strategy": "steps"},
            {"lr_scheduler_type": "reduce_lr_on_plateau", **WITH_EVALUATION},
            {"lr_scheduler_type": "greedy", "metric_for_best_model": "loss", **WITH_EVALUATION},
            {"metric_for_best_model": "loss", **WITH_EVALUATION},
        )
    ),
    ({"save_strategy": "best", "metric_for_best_model": "eval_reward"}, "`save_strategy` is", "set `eval_strategy`"),
    (
        {"metric_for_best_model": "rewards/f/mean", "greater_is_better": False},
        "`greater_is_better` is False",
        "is better, so remove this setting",
    ),
    (
        {"metric_for_best_model": "eval_completions/mean_length"},
        "`greater_is_better` is None",
        "set it to true or false",
    ),
    ({"packing": True, "trim_padding": False}, "`packing` is True", "`trim_padding=False`"),
    ({"on_reward_error": "ignore"}, "`on_reward_error` is 'ignore'", "'stop' or 'skip'"),
    *(({"max_nonfinite_steps": value}, "`max_nonfinite_steps`", "[1, inf)") for value in (0, -1, True, 1.5)),
    *(({"max_tokens_per_micro_batch": value}, "`max_tokens_per_micro_batch`", "[1, inf)") for value in (0, 1.5)),
    ({"max_tokens_per_micro_batch": 90, "trim_padding": False}, "`max_tokens_per_micro", "needs `trim_padding=True`"),
    *(
        ({"shaping": "none", "max_tokens_per_micro_batch": 90, **loss}, "`max_tokens_per", "must be a sum over rows")
        for loss in ({"loss_type": "bnpo"}, {"entropy_coef": 0.1})
    ),
    ({"normalize_each_step": True, "loss_type": "grpo"}, "`normalize_each_step` is True", 'only `loss_type="dapo"`'),
    ({"dynamic_sampling": True}, "`dynamic_sampling` is True", "`ces_allow_dynamic_sampling=True`"),
    *(({"dynamic_sampling_max_rounds": value}, "`dynamic_sampling_max_rounds`", "[1, inf)") for value in (0, 2.0)),
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
        {"max_completion_length": None, "use_vllm": True},
        *({"top_k": value} for value in (0, 5, None)),
        {"top_k": -1, "use_vllm": True},
        {"temperature": 0.6, "top_p": 0.95, "min_p": 0.1, "repetition_penalty": 1.1},
        {"max_steps": -1, "num_train_epochs": 0.5, "save_steps": 0.1, "logging_steps": 0.5, "eval_steps": None},
        *({"max_grad_norm": value} for value in (0.0, INF)),
        {"learning_rate": 0.0, "warmup_steps": 0.1, "epsilon": 1e6, "epsilon_high": None, "delta": None},
        {"reward_weights": [0.0, -1.0, 2]},
        *(
            {"generation_kwargs": kwargs}
            for kwargs in (
                {"min_new_tokens": 2, "suppress_tokens": [3], "no_repeat_ngram_size": 3, "bad_words_ids": [[4]]},
                {"do_sample": True, "num_beams": 1, "temperature": 1.0},
                {},
            )
        ),
        {"use_vllm": True, "generation_kwargs": {"min_tokens": 2, "frequency_penalty": 0.1, "logit_bias": {"3": 1.0}}},
        {"load_best_model_at_end": True, "metric_for_best_model": "eval_reward", **WITH_EVALUATION},
        {"metric_for_best_model": "completions/mean_length", "greater_is_better": False, **WITH_EVALUATION},
    ],
    ids=str,
)
def test_allowed_settings_are_kept(tmp_path, changes):
    config = CESConfig(**settings(tmp_path, **changes))
    assert {name: getattr(config, name) for name in changes} == changes


@pytest.mark.parametrize(("value", "meaning"), [(True, "group"), (False, "none")])
def test_scale_rewards_may_be_a_boolean_as_in_trl(tmp_path, value, meaning):
    assert CESConfig(**settings(tmp_path, scale_rewards=value)).scale_rewards == meaning


def test_a_grpo_config_keeps_its_settings_and_gets_the_ces_defaults(tmp_path):
    plain = GRPOConfig(**settings(tmp_path, epsilon=0.1, beta=0.04, temperature=0.7, steps_per_generation=3))
    config = CESConfig.from_grpo(plain)
    assert isinstance(config, CESConfig)
    for name in GRPOConfig.__dataclass_fields__:
        assert getattr(config, name) == getattr(plain, name), name
    assert config.epsilon_high is None  # TRL's symmetric clip range, not DAPO's
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


@pytest.mark.parametrize(("greater", "metric"), [(True, "eval_rewards/f/mean"), (False, "completions/mean_length")])
@pytest.mark.parametrize("scheduler", ["reduce_lr_on_plateau", "greedy"])
def test_metric_schedulers_use_the_direction_of_their_metric(tmp_path, scheduler, greater, metric):
    changes = {"lr_scheduler_type": scheduler, "metric_for_best_model": metric, **WITH_EVALUATION}
    changes |= {} if greater else {"greater_is_better": False}
    for make in (CESConfig, lambda **fields: CESConfig.from_grpo(GRPOConfig(**fields))):
        config = make(**settings(tmp_path, **{**changes, "lr_scheduler_kwargs": {"patience": 3}}))
        assert config.greater_is_better is greater
        assert config.lr_scheduler_kwargs == {"mode": "max" if greater else "min", "patience": 3}
