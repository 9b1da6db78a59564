"""`CESConfig`: TRL's `GRPOConfig` with the paper's shaping and DAPO's clip range; other defaults are TRL's."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn, cast

from trl import GRPOConfig

from .methods import find_rule
from .methods.ces import AUTO, BETA_RANGE, CAP_RANGE
from .methods.rule import OR_OFF, Need, Rule, is_share

# Losses that use A' as in Eq. 1. In cispo and vespo, A' multiplies log pi, so a log-probability would scale the
# entropy's gradient; sapo and luspo are other objectives, for which the paper does not define A'.
CLIPPED_LOSS_TYPES = ("dapo", "grpo", "bnpo", "dr_grpo")


def is_count(value: Any) -> bool:
    """Return whether `value` is an integer of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def is_number(value: Any) -> bool:
    """Return whether `value` is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_cap(value: Any) -> bool:
    """Return whether `value` is a kappa of CES: a finite number of at least 1, or `None`."""
    return value is None or (is_number(value) and value >= 1)


# Field -> range check of a value, and the end of the error message.
RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "ces_tau": (
        lambda tau: tau == AUTO or is_share(tau),
        "it is a share of tokens in [0, 1] with at most nine decimals, or `auto`; 0.01 is the default.",
    ),
    "ces_beta_correct": (is_number, BETA_RANGE),
    "ces_beta_incorrect": (is_number, BETA_RANGE),
    "ces_cap_incorrect": (is_cap, CAP_RANGE),
    "ces_cap_correct": (is_cap, CAP_RANGE),
    "ces_dynamic_multiplier": (lambda flag: isinstance(flag, bool), "it must be true or false."),
    "ces_entropy_gradient": (lambda flag: isinstance(flag, bool), "it must be true or false."),
    "ces_correct_threshold": (is_number, "it must be a finite reward; 1.0 fits a reward of 0 or 1."),
    "entropy_advantage_alpha": (
        lambda alpha: is_number(alpha) and alpha >= 0,
        "it is advantage per nat, a finite number >= 0; the paper uses 0.4.",
    ),
    "entropy_advantage_kappa": (
        lambda kappa: is_number(kappa) and kappa > 1,
        "it must be above 1, so that no advantage changes sign; use 2.0.",
    ),
    "num_generations": (
        lambda size: size is not None and size >= 2,
        "a group needs at least 2 completions; the paper uses 4.",
    ),
    "dynamic_sampling_max_rounds": (is_count, "it counts rounds of generation, 1 or more; 10 is the default."),
    "max_nonfinite_steps": (is_count, "it counts consecutive steps, 1 or more; 3 is the default."),
    "max_tokens_per_micro_batch": (
        lambda tokens: tokens is None or is_count(tokens),
        "it counts token positions, 1 or more; 16384 fits many GPUs.",
    ),
    "on_reward_error": (lambda action: action in ("stop", "skip"), "choose one of 'stop', 'skip'."),
}


@dataclass
class CESConfig(GRPOConfig):
    r"""
    Configuration of [`CESTrainer`]: all fields of [`~trl.GRPOConfig`], and those below, each with its `help`.

    One default differs from `GRPOConfig`: `epsilon_high` is DAPO's 0.28.

    Raises:
        `ValueError`: A value is out of range, `shaping="ces"` is combined with a setting that would change the
            paper's method (`loss_type`, `entropy_coef`, `use_adaptive_entropy`, `top_entropy_quantile`,
            `importance_sampling_level`, `off_policy_mask_threshold`, `num_generations`, `dynamic_sampling`), or two
            settings contradict each other.
    """

    epsilon_high: float | None = field(
        default=0.28,
        metadata={"help": "Upper clip range. Default: DAPO's 0.28; the CES paper states none."},
    )
    shaping: str = field(
        default="ces",
        metadata={
            "help": "Rule that turns the advantages A, (B,), into A', (B, T). `ces`: Conditional Entropy Shaping, "
            "Eqs. 2-7 of arXiv 2605.19358. `none`: DAPO without shaping, on a CPU bit for bit TRL's trainer if "
            "`trim_padding` and `arrange_by_length` are off. `entropy_advantage`: the baseline of Cheng et al., arXiv "
            "2506.14758. `on_policy_sft`: arXiv 2602.13407. `my_package.rules:my_rule`, or a name that an installed "
            "package registers: your own rule, see trl_ces.methods.rule.Rule."
        },
    )
    shaping_kwargs: dict[str, Any] | None = field(
        default=None, metadata={"help": "Settings of your own rule, a mapping from name to value."}
    )
    ces_tau: float | str = field(
        default=0.01,
        metadata={
            "help": "Top-rate tau of Eq. 5: share of a completion's tokens, in [0, 1], at most nine decimals. `auto`: "
            "2 / mean length of the first rollout, at least 0.01 and at most 0.05. Completions under about 40 tokens "
            "are too short for CES."
        },
    )
    ces_beta_correct: float = field(
        default=0.4,
        metadata={"help": "beta_1 of Eq. 7: advantage per bit subtracted from correct completions. Below 0: added."},
    )
    ces_beta_incorrect: float = field(
        default=0.4,
        metadata={"help": "beta_2 of Eq. 7: advantage per bit added to wrong completions. Below 0: subtracted."},
    )
    ces_cap_incorrect: float | None = field(
        default=None,
        metadata={"help": "kappa: bounds the bonus of a wrong completion by max(0, -A) / kappa. Default: no cap."},
    )
    ces_cap_correct: float | None = field(
        default=None,
        metadata={"help": "kappa: bounds what a correct completion loses by max(0, A) / kappa. Default: no cap."},
    )
    ces_dynamic_multiplier: bool = field(
        default=True,
        metadata={"help": "Whether b follows the group accuracy, Eq. 6. False: the ablation `w/o Dynamic b`, b = 1."},
    )
    ces_entropy_gradient: bool = field(
        default=True,
        metadata={"help": "Whether gradients flow through H in A'. False: the ablation `w/o Entropy Gradient`."},
    )
    ces_accuracy_reward: str | None = field(
        default=None,
        metadata={
            "help": "Name of the reward function that decides whether a completion is correct. Default: the only "
            "reward function, or the only one whose name contains `accuracy`."
        },
    )
    ces_correct_threshold: float = field(
        default=1.0,
        metadata={"help": "Lowest accuracy reward, before weighting, of a correct completion."},
    )
    ces_allow_dynamic_sampling: bool = field(
        default=False,
        metadata={"help": "Allow `dynamic_sampling` with CES, although it drops groups that CES learns from."},
    )
    stop_on_divergence: bool = field(
        default=False,
        metadata={
            "help": "Whether to end training, after a checkpoint, when CES with `ces_beta_incorrect` > 0 diverges: "
            "the last five logs have over 1.5 times the entropy of the first five and under 0.8 times the accuracy. "
            "If false, the trainer only warns."
        },
    )
    entropy_advantage_alpha: float = field(
        default=0.4, metadata={"help": "alpha of Cheng et al.: advantage per nat, >= 0."}
    )
    entropy_advantage_kappa: float = field(
        default=2.0,
        metadata={"help": "kappa of Cheng et al.: the bonus is at most |A| / kappa; > 1, so that no sign flips."},
    )
    dynamic_sampling: bool = field(
        default=False,
        metadata={
            "help": "DAPO's dynamic sampling, arXiv 2503.14476, section 3.2: drop groups whose completions all have "
            "the same accuracy, and draw more prompts until the generation batch is full. See docs/algorithm.md."
        },
    )
    dynamic_sampling_max_rounds: int = field(
        default=10,
        metadata={"help": "Most rounds of generation per batch, >= 1; dropped groups then fill the batch."},
    )
    trim_padding: bool = field(
        default=True,
        metadata={
            "help": "Drop the columns of a forward that are padding in all of its rows. Gradients equal TRL's up to "
            "rounding. Where transformers generates, ended completions are removed from the batch."
        },
    )
    arrange_by_length: bool = field(
        default=True,
        metadata={
            "help": "Arrange the rows of an optimizer step so that rows of similar length share a micro-batch and "
            "processes get similar token counts. Gradients equal TRL's up to rounding. Ignored where the loss depends "
            "on which rows share a micro-batch."
        },
    )
    padding_free: bool | None = field(
        default=None,
        metadata={
            "help": "Pack each forward into one unpadded sequence. Default: on with FlashAttention; slow with other "
            "attention implementations."
        },
    )
    max_tokens_per_micro_batch: int | None = field(
        default=None,
        metadata={
            "help": "Split each micro-batch into forwards of at most this many token positions per process (prompts, "
            "completions and the padding between them). Memory then depends on tokens, and "
            "`per_device_train_batch_size` can be large."
        },
    )
    normalize_each_step: bool = field(
        default=False,
        metadata={
            "help": "With `loss_type: dapo`, divide each optimizer step by its own tokens in the loss, as in Eq. 1. "
            "False: by the rollout's mean tokens per step, as TRL does. See docs/deviations.md."
        },
    )
    on_reward_error: str = field(
        default="stop",
        metadata={
            "help": "What to do if a reward function raises, or returns NaN, infinity, a wrong type or a wrong number "
            "of rewards. `stop`: end training with an error that names the function, and the row if known. `skip`: "
            "warn, and ignore its reward for the invalid rows, or for all rows if it raised or the number is wrong.",
            "choices": ["stop", "skip"],
        },
    )
    max_nonfinite_steps: int = field(
        default=3,
        metadata={
            "help": "Stop training after this many consecutive steps whose gradient is not finite, >= 1. Each is "
            "skipped, and its rows are saved in `output_dir`/_nonfinite."
        },
    )

    def __post_init__(self):
        self._check()  # before TRL looks at devices, so that a wrong value fails on any machine
        super().__post_init__()
        self._check()  # again, because TRL derives values
        self._warn_about_sequence_ratios()

    @classmethod
    def from_grpo(cls, args: GRPOConfig) -> "CESConfig":
        """
        Convert `args`: keep its settings, and give the fields of CES their defaults. Return a `CESConfig` unchanged.

        The settings of CES are checked again, since they may have changed. The result keeps the values of fields that
        a subclass of `GRPOConfig` adds, but not its methods.

        Raises:
            `ValueError`: See the class.
        """
        if isinstance(args, cls):
            args._check()
            return args
        config = object.__new__(cls)  # not cls(**...): __post_init__ would derive the batch sizes a second time
        config.__dict__.update(args.__dict__)
        for own in fields(cls):
            if own.name not in args.__dict__:
                setattr(config, own.name, own.default)
        config._check()
        config._warn_about_sequence_ratios()
        return config

    @property
    def rule(self) -> Rule | None:
        """The rule that `shaping` names; `None` for `"none"`."""
        return find_rule(self.shaping)

    def needs(self, need: Need) -> bool:
        """Return whether the rule has this need."""
        return self.rule is not None and need in self.rule.needs

    @property
    def needs_accuracy(self) -> bool:
        """Whether the rule or dynamic sampling reads the accuracy reward. Rewards of whole groups also read it."""
        return self.needs(Need.CORRECTNESS) or self.dynamic_sampling

    def shaping_settings(self) -> dict[str, Any]:
        """Return the keyword arguments of the rule's function."""
        rule = self.rule
        if rule is None:
            return {}
        if rule.settings is None:
            return {name: getattr(self, f"{rule.name}_{name}") for name in rule.config_fields}
        return rule.read_settings(self.shaping_kwargs or {}, self._refuse)

    def _refuse(self, name: str, reason: str) -> NoReturn:
        value = (vars(self) | (self.shaping_kwargs or {})).get(name)
        raise ValueError(f"`{name}` is {value!r}: {reason}")

    def _check(self) -> None:
        refuse, rule = self._refuse, self.rule  # refuses an unknown name
        for name, (is_valid, reason) in RANGES.items():
            if not is_valid(getattr(self, name)):
                refuse(name, reason)
        if self.shaping_kwargs and (rule is None or rule.settings is None):
            refuse("shaping_kwargs", "it is for your own rule; the built-in rules have fields of `CESConfig`.")
        if "thinking_token_budget" in (self.generation_kwargs or {}):
            refuse("generation_kwargs", "forced tokens would enter the loss: remove `thinking_token_budget`.")
        if self.padding_free and not self.trim_padding:
            refuse(
                "padding_free", "packing removes the padding that `trim_padding=False` keeps: set only one of them."
            )
        if self.normalize_each_step and self.loss_type != "dapo":
            refuse("normalize_each_step", 'only `loss_type="dapo"` divides by the tokens of a rollout.')
        if self.max_tokens_per_micro_batch is not None:
            self._check_token_budget()
        if self.needs(Need.RATIOS):
            self._check_ratios()
        if rule is not None:
            self.shaping_settings()
            if rule.check is not None:
                rule.check(self, refuse)

    def rows_are_independent(self) -> bool:
        """Return whether the loss of an optimizer step is a sum over rows, regardless of their micro-batches."""
        return (
            self.loss_type != "bnpo"  # divides by the tokens of a micro-batch
            and self.top_entropy_quantile == 1.0  # a quantile of a micro-batch
            and self.entropy_coef == 0.0  # a mean over the tokens of a micro-batch
            and not self.use_adaptive_entropy
        )

    def micro_batches_to_arrange(self) -> int:
        """
        Count the consecutive micro-batches of a rollout that belong to one optimizer step and may exchange rows.

        Return 0 if the number differs between steps, if the loss depends on which rows share a micro-batch, or if
        `arrange_by_length` is off.
        """
        steps, accumulated = cast(int, self.steps_per_generation), self.gradient_accumulation_steps
        aligned = max(steps, accumulated) % min(steps, accumulated) == 0
        if not self.arrange_by_length or not aligned or not self.rows_are_independent():
            return 0
        return min(steps, accumulated)

    def _check_token_budget(self) -> None:
        if not (self.trim_padding and self.arrange_by_length):
            self._refuse("max_tokens_per_micro_batch", "it needs `trim_padding=True` and `arrange_by_length=True`.")
        if not self.rows_are_independent():
            self._refuse(
                "max_tokens_per_micro_batch",
                'the loss of a micro-batch must be a sum over rows, which excludes `loss_type="bnpo"`, '
                "`top_entropy_quantile` below 1.0, `entropy_coef` and `use_adaptive_entropy`: change that setting, or "
                "remove the budget.",
            )

    def _check_ratios(self) -> None:
        if self.loss_type not in CLIPPED_LOSS_TYPES:
            allowed = ", ".join(map(repr, CLIPPED_LOSS_TYPES))
            self._refuse(
                "loss_type",
                f'`shaping="{self.shaping}"` needs the clipped objective, Eq. 1: use one of {allowed}, {OR_OFF}.',
            )
        if self.importance_sampling_level != "token":
            self._refuse(
                "importance_sampling_level",
                f'A\' is per token, so the importance ratio must be too: set it to "token", {OR_OFF}.',
            )
        if self.off_policy_mask_threshold is not None:
            self._refuse(
                "off_policy_mask_threshold",
                f"it masks completions by the sign of A, which A' may flip at a token: set it to None, {OR_OFF}.",
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
                'long completions use "token_truncate", or, as the paper\'s recipes do, '
                "`vllm_importance_sampling_correction=False`.",
                stacklevel=3,
            )
