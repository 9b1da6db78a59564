"""`CESConfig`: TRL's `GRPOConfig` with additional fields, and with DAPO's clip range as the default."""

import warnings
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn, cast

from transformers.utils import is_liger_kernel_available
from trl import GRPOConfig

from .methods import find_rule
from .methods.ces import AUTO
from .methods.rule import OR_OFF, Need, Rule, is_share
from .support.settings import (
    TRL_RANGES,
    Range,
    check_best_metric,
    check_generation,
    check_ranges,
    number,
    scheduler_kwargs,
)

# Losses that use A' as in Eq. 1. In cispo and vespo, A' multiplies log pi, so a log-probability would scale the
# gradient of the entropy. sapo and luspo are different objectives, for which the paper does not define A'.
CLIPPED_LOSS_TYPES = ("dapo", "grpo", "bnpo", "dr_grpo")


SWITCH: Range = (lambda flag: isinstance(flag, bool), "it must be true or false.")
BETA = number("(-inf, inf)", note=" (advantage per bit of entropy); the paper uses 0.4")
CAP = number("[1, inf)", None, note=" (no cap); arXiv 2506.14758 uses 2")
RANGES: dict[str, Range] = {
    **TRL_RANGES,
    "ces_tau": (
        lambda tau: tau == AUTO or is_share(tau),
        "it must be a number in [0, 1] with at most nine decimal places (a share of tokens), or `auto`.",
    ),
    **dict.fromkeys(("ces_beta_correct", "ces_beta_incorrect"), BETA),
    **dict.fromkeys(("ces_cap_correct", "ces_cap_incorrect"), CAP),
    **dict.fromkeys(("ces_dynamic_multiplier", "ces_entropy_gradient"), SWITCH),
    "ces_correct_threshold": number("(-inf, inf)", note="; use 1.0 for rewards of 0 and 1"),
    "entropy_advantage_alpha": number("[0, inf)", note=" (advantage per nat); the paper uses 0.4"),
    "entropy_advantage_kappa": number("(1, inf)", note=", so that no advantage changes sign; use 2.0"),
    "num_generations": number("[2, inf)", whole=True, note=", the size of a group; the paper uses 4"),
    "dynamic_sampling_max_rounds": number("[1, inf)", whole=True, note="; the default is 10"),
    "max_nonfinite_steps": number("[1, inf)", whole=True, note="; the default is 3"),
    "max_tokens_per_micro_batch": number("[1, inf)", None, whole=True, note="; 16384 tokens fit on many GPUs"),
    "on_reward_error": (lambda action: action in ("stop", "skip"), "choose 'stop' or 'skip'."),
}


@dataclass
class CESConfig(GRPOConfig):
    r"""
    Configuration class for the [`CESTrainer`].

    Has all fields of [`~trl.GRPOConfig`] and the fields below, each described by its `help`. One default differs
    from `GRPOConfig`: `epsilon_high` is DAPO's 0.28.

    Raises:
        `ValueError`: A value is out of range, `shaping="ces"` is combined with a setting that would change the
            paper's method (`loss_type`, `entropy_coef`, `use_adaptive_entropy`, `top_entropy_quantile`,
            `importance_sampling_level`, `off_policy_mask_threshold`, `num_generations`, `dynamic_sampling`), or two
            settings contradict each other.
    """

    epsilon_high: float | None = field(
        default=0.28,
        metadata={"help": "Upper clip range. The default is DAPO's 0.28; the CES paper does not state a value."},
    )
    shaping: str = field(
        default="ces",
        metadata={
            "help": "Rule that turns advantages A (B,) into A' (B, T). `ces`: Eqs. 2-7 of arXiv "
            "2605.19358. `none`: DAPO; on a CPU, bit-identical to TRL's trainer if `trim_padding` and "
            "`arrange_by_length` are off. `entropy_advantage`: arXiv 2506.14758. `on_policy_sft`: arXiv "
            "2602.13407. `my_package.rules:my_rule`, or a name registered by an installed package: a "
            "custom rule; see trl_ces.methods.rule.Rule."
        },
    )
    shaping_kwargs: dict[str, Any] | None = field(
        default=None, metadata={"help": "Settings of a custom rule, by name."}
    )
    ces_tau: float | str = field(
        default=0.01,
        metadata={
            "help": "tau of Eq. 5: share of a completion's tokens to shape, in [0, 1], with at most nine decimal "
            "places. `auto`: 2 / mean length of the first rollout, clamped to [0.01, 0.05]. In completions "
            "under 40 tokens, it shapes at most one."
        },
    )
    ces_beta_correct: float = field(
        default=0.4,
        metadata={"help": "beta_1 of Eq. 7: advantage per bit of entropy, subtracted on correct completions."},
    )
    ces_beta_incorrect: float = field(
        default=0.4,
        metadata={"help": "beta_2 of Eq. 7: advantage per bit of entropy, added on incorrect completions."},
    )
    ces_cap_incorrect: float | None = field(
        default=None,
        metadata={"help": "kappa: limits the bonus on incorrect completions to max(0, -A) / kappa."},
    )
    ces_cap_correct: float | None = field(
        default=None,
        metadata={"help": "kappa: limits the penalty on correct completions to max(0, A) / kappa."},
    )
    ces_dynamic_multiplier: bool = field(
        default=True,
        metadata={
            "help": "Whether b depends on the group accuracy (Eq. 6). False: b = 1, the ablation `w/o Dynamic b`."
        },
    )
    ces_entropy_gradient: bool = field(
        default=True,
        metadata={"help": "Whether gradients flow through H in A'. False: the ablation `w/o Entropy Gradient`."},
    )
    ces_accuracy_reward: str | None = field(
        default=None,
        metadata={
            "help": "Name of the reward function that decides whether a completion is correct. Default: the only "
            "reward function, or the only one with `accuracy` in its name."
        },
    )
    ces_correct_threshold: float = field(
        default=1.0,
        metadata={"help": "Minimum accuracy reward of a correct completion, before weighting."},
    )
    ces_allow_dynamic_sampling: bool = field(
        default=False,
        metadata={"help": "Whether to allow CES with `dynamic_sampling`, which drops groups that CES trains on."},
    )
    stop_on_divergence: bool = field(
        default=False,
        metadata={
            "help": "Whether to save a checkpoint and stop training when CES with `ces_beta_incorrect` > 0 "
            "diverges: the last five logs have over 1.5 times the entropy and under 0.8 times the "
            "accuracy of the first five. False: only warn."
        },
    )
    entropy_advantage_alpha: float = field(
        default=0.4, metadata={"help": "alpha of Cheng et al.: advantage per nat of entropy, >= 0."}
    )
    entropy_advantage_kappa: float = field(
        default=2.0,
        metadata={"help": "kappa of Cheng et al., > 1: the bonus is at most |A| / kappa."},
    )
    dynamic_sampling: bool = field(
        default=False,
        metadata={
            "help": "Whether to drop groups whose completions all have the same accuracy and draw more prompts "
            "until the batch is full (arXiv 2503.14476, section 3.2). See docs/algorithm.md."
        },
    )
    dynamic_sampling_max_rounds: int = field(
        default=10,
        metadata={
            "help": "Maximum number of generation rounds per batch, >= 1. Afterwards, dropped groups fill the batch."
        },
    )
    trim_padding: bool = field(
        default=True,
        metadata={
            "help": "Whether to drop columns that are padding in all rows of a forward pass, and to drop finished "
            "completions during generation with transformers. Gradients match TRL's up to rounding."
        },
    )
    arrange_by_length: bool = field(
        default=True,
        metadata={
            "help": "Whether to group rows of similar length into micro-batches and balance tokens across processes. "
            "Ignored if the loss depends on which rows share a micro-batch."
        },
    )
    packing: bool | None = field(
        default=None,
        metadata={
            "help": "Whether to pack the rows of a forward pass into one unpadded sequence. Default: only with "
            "FlashAttention, because packing is slow without it."
        },
    )
    max_tokens_per_micro_batch: int | None = field(
        default=None,
        metadata={
            "help": "Split each micro-batch into forward passes of at most this many token positions per process, "
            "including padding."
        },
    )
    normalize_each_step: bool = field(
        default=False,
        metadata={
            "help": "With `loss_type: dapo`, whether to divide the loss of each optimizer step by that step's "
            "token count, as in Eq. 1. False: divide by the rollout's mean token count per step, as in TRL."
        },
    )
    on_reward_error: str = field(
        default="stop",
        metadata={
            "help": "What to do if a reward function raises an exception, or returns NaN, infinity, the wrong type or "
            "the wrong number of rewards. `stop`: stop training with an error. `skip`: warn, and ignore this "
            "function for the affected rows.",
            "choices": ["stop", "skip"],
        },
    )
    max_nonfinite_steps: int = field(
        default=3,
        metadata={
            "help": "Number of consecutive steps with a non-finite gradient after which training stops, >= 1. "
            "Each such step is skipped."
        },
    )

    def __post_init__(self):
        self._check()  # before TRL checks the devices, so that an invalid value fails on any machine
        super().__post_init__()
        self._check()  # again, because TRL has derived more values
        self.lr_scheduler_kwargs = scheduler_kwargs(self)
        self._warn_about_sequence_ratios()

    @classmethod
    def from_grpo(cls, args: GRPOConfig) -> "CESConfig":
        """
        Convert `args` to a `CESConfig`, with defaults for the additional fields. Return a `CESConfig` unchanged.

        The CES settings are checked again, because they may have changed. If `args` is an instance of a subclass of
        `GRPOConfig`, the result keeps the values of the subclass's fields, but not its methods.

        Raises:
            `ValueError`: See [`CESConfig`].
        """
        if isinstance(args, cls):
            args._check()
            return args
        config = object.__new__(cls)  # not cls(**...): __post_init__ would derive the batch sizes a second time
        config.__dict__.update(args.__dict__)
        for entry in fields(cls):
            if entry.name not in args.__dict__:
                setattr(config, entry.name, entry.default)
        config._check()
        config.lr_scheduler_kwargs = scheduler_kwargs(config)
        config._warn_about_sequence_ratios()
        return config

    @property
    def rule(self) -> Rule | None:
        """The rule selected by `shaping`; `None` for `"none"`."""
        return find_rule(self.shaping)

    def needs(self, need: Need) -> bool:
        """Return whether the rule requires `need`."""
        return self.rule is not None and need in self.rule.needs

    @property
    def needs_accuracy(self) -> bool:
        """Whether the rule or dynamic sampling reads the accuracy reward. Group rewards also read it."""
        return self.needs(Need.CORRECTNESS) or self.dynamic_sampling

    def shaping_settings(self) -> dict[str, Any]:
        """Return the keyword arguments of the rule's function."""
        rule = self.rule
        if rule is None:
            return {}
        if rule.settings is None:
            return {name: getattr(self, f"{rule.name}_{name}") for name in rule.config_fields}
        return rule.read_settings(self.shaping_kwargs or {}, self._reject)

    def _reject(self, name: str, reason: str) -> NoReturn:
        value = (vars(self) | (self.shaping_kwargs or {})).get(name)
        raise ValueError(f"`{name}` is {value!r}: {reason}")

    def _check(self) -> None:
        reject, rule = self._reject, self.rule  # `rule` raises if the name is unknown
        check_ranges(self, RANGES)
        check_generation(self, reject)
        check_best_metric(self, reject)
        if self.shaping_kwargs and (rule is None or rule.settings is None):
            reject("shaping_kwargs", "it is for custom rules only; built-in rules use fields of `CESConfig`.")
        if self.use_liger_kernel and not is_liger_kernel_available():
            reject("use_liger_kernel", "liger-kernel is not installed: install it, or set this field to false.")
        if self.packing and not self.trim_padding:
            reject("packing", "packing removes the padding that `trim_padding=False` keeps: change either setting.")
        if self.normalize_each_step and self.loss_type != "dapo":
            reject("normalize_each_step", 'it supports only `loss_type="dapo"`.')
        if self.max_tokens_per_micro_batch is not None:
            self._check_token_budget()
        if self.needs(Need.RATIOS):
            self._check_ratios()
        if rule is not None:
            self.shaping_settings()
            if rule.check is not None:
                rule.check(self, reject)

    def rows_are_independent(self) -> bool:
        """Return whether the loss of an optimizer step is a sum over rows, regardless of their micro-batches."""
        return (
            self.loss_type != "bnpo"  # normalizes by the micro-batch's token count
            and self.top_entropy_quantile == 1.0  # computes the quantile per micro-batch
            and self.entropy_coef == 0.0  # averages the entropy per micro-batch
            and not self.use_adaptive_entropy
        )

    def micro_batches_to_arrange(self) -> int:
        """Return the number of micro-batches per optimizer step if rows can be moved between them, else 0."""
        steps, accumulated = cast(int, self.steps_per_generation), self.gradient_accumulation_steps
        aligned = max(steps, accumulated) % min(steps, accumulated) == 0
        if not self.arrange_by_length or not aligned or not self.rows_are_independent():
            return 0
        return min(steps, accumulated)

    def _check_token_budget(self) -> None:
        if not (self.trim_padding and self.arrange_by_length):
            self._reject("max_tokens_per_micro_batch", "it needs `trim_padding=True` and `arrange_by_length=True`.")
        if not self.rows_are_independent():
            self._reject(
                "max_tokens_per_micro_batch",
                'the loss of a micro-batch must be a sum over rows, which excludes `loss_type="bnpo"`, '
                "`top_entropy_quantile` below 1.0, `entropy_coef` and `use_adaptive_entropy`: change the excluded "
                "setting, or set this field to None.",
            )

    def _check_ratios(self) -> None:
        if self.loss_type not in CLIPPED_LOSS_TYPES:
            allowed = ", ".join(map(repr, CLIPPED_LOSS_TYPES))
            self._reject(
                "loss_type",
                f'`shaping="{self.shaping}"` needs the clipped objective, Eq. 1: use one of {allowed}, {OR_OFF}.',
            )
        if self.importance_sampling_level != "token":
            self._reject(
                "importance_sampling_level",
                f'A\' is per token, so the importance ratio must be per token too: set it to "token", {OR_OFF}.',
            )
        if self.off_policy_mask_threshold is not None:
            self._reject(
                "off_policy_mask_threshold",
                f"it masks completions by the sign of A, but A' may have the opposite sign: set it to None, {OR_OFF}.",
            )

    def _warn_about_sequence_ratios(self) -> None:
        if (
            self.needs(Need.RATIOS)
            and self.use_vllm
            and self.vllm_importance_sampling_correction
            and self.vllm_importance_sampling_mode.startswith("sequence")
        ):
            warnings.warn(
                f"`vllm_importance_sampling_mode` is {self.vllm_importance_sampling_mode!r}: it masks or scales each "
                "completion by the product of its token ratios, which drifts far from 1 over thousands of tokens. For "
                'long completions, use "token_truncate" or, as in the paper\'s recipes, '
                "`vllm_importance_sampling_correction=False`.",
                stacklevel=3,
            )
