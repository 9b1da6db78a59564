"""`CESConfig`: TRL's `GRPOConfig` with the paper's shaping on, DAPO's clip range, and nothing else changed."""

import dataclasses
import inspect
import math
import re
import warnings
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, NoReturn, cast

from trl import GRPOConfig

from .methods.dot import largest_deviation
from .methods.gfpo import METRICS as GFPO_METRICS
from .methods.rule import OR_OFF, Need, Rule, built_in, find_rule

ON_REWARD_ERROR = ("stop", "skip")
# Losses in which A' enters as in Eq. 1. In cispo and vespo A' multiplies log pi, so a log-probability would scale the
# entropy's gradient; sapo and luspo are other objectives, for which the paper defines nothing.
CLIPPED_LOSS_TYPES = ("dapo", "grpo", "bnpo", "dr_grpo")


def fields_of_rules() -> list[tuple[str, type, Any]]:
    """The settings of the built-in rules as fields of [`CESConfig`], `RULE_SETTING`: name, type, field."""
    return [
        (
            f"{rule.name}_{own.name}",
            cast(type, own.type),
            field(default=own.default, metadata={"help": own.metadata["help"]}),
        )
        for rule in built_in().values()
        for own in fields(rule.settings)
    ]


RuleFields: Any = dataclasses.make_dataclass("RuleFields", fields_of_rules())


def check_micro_batch(shaping: str, rows: int):
    """Raises `ValueError` if `shaping` compares the completions of a process's micro-batch, and it has one row."""
    rule = find_rule(shaping)
    if rows < 2 and rule is not None and Need.WHOLE_MICRO_BATCHES in rule.needs:
        raise ValueError(
            f'`per_device_train_batch_size` is {rows}: `shaping="{shaping}"` compares the completions of a '
            "micro-batch, so set it to 2 or more, and `responses_per_step`, if given, to a multiple of twice the "
            "processes."
        )


@dataclass
class CESConfig(RuleFields, GRPOConfig):
    r"""
    Configuration of [`CESTrainer`]: every field of [`~trl.GRPOConfig`], and those below.

    One default differs from `GRPOConfig`: `epsilon_high` is DAPO's 0.28.

    Args:
        shaping (`str`, *optional*, defaults to `"ces"`):
            The rule that turns A, (B,), into A', (B, T). `"ces"`: Conditional Entropy Shaping, Eqs. 2-7 of arXiv
            2605.19358. `"none"`: plain DAPO, on a CPU bit for bit TRL's trainer if `trim_padding` and
            `arrange_by_length` are off. `"entropy_advantage"`: the baseline of Cheng et al., arXiv 2506.14758.
            `"clip_cov"`, `"kl_cov"`: Clip-Cov and KL-Cov of Cui et al., arXiv 2505.22617. Their settings are the
            fields that begin with the rule's name: `ces_tau`, `kl_cov_coef`. `"my_package.rules:my_rule"`, or a name
            that an installed package registers: a rule of your own, see [`~trl_ces.methods.rule.Rule`].
        shaping_kwargs (`dict[str, Any]`, *optional*):
            Settings of a rule of your own.
        epsilon_high_target_entropy (`float`, *optional*):
            Nats, H* of MAI-Thinking-1's controller: after each optimizer step the upper clip range, which starts at
            `epsilon_high`, moves by `epsilon_high_delta` up if the policy's entropy was below, down if above. With any
            shaping that has a clip range, except Clip-Cov. `None`: it is fixed.
        epsilon_high_delta (`float`, *optional*, defaults to `0.01`):
            Change of the upper clip range per step. The report does not give it; this value is ours.
        epsilon_high_max (`float`, *optional*, defaults to `1.0`):
            Highest upper clip range; the lowest is 0.
        ces_accuracy_reward (`str`, *optional*):
            Name of the reward function that decides whether a completion is correct. `None`: the only reward function,
            or the only one whose name contains "accuracy".
        ces_correct_threshold (`float`, *optional*, defaults to `1.0`):
            A completion is correct if that reward, before weighting, is at least this.
        stop_on_runaway (`bool`, *optional*, defaults to `False`):
            Whether training ends, after a checkpoint, when CES with `ces_beta_incorrect` > 0 ruins the model: the last
            five logs have over 1.5 times the entropy of the first five and under 0.8 times the accuracy. Otherwise it
            warns.
        gfpo_keep (`int`, *optional*):
            k of GFPO, arXiv 2508.09726: in training only the k best completions of each group get an advantage,
            normalized over those k. Above 1 and below `num_generations`. `None`: all.
        gfpo_metric (`str`, *optional*, defaults to `"length"`):
            What is best: `"length"`, the fewest tokens, or `"reward_per_token"`, the weighted reward per token.
            `"qlpo"`: QLPO's draw instead, arXiv 2607.21793, which keeps the share of correct completions.
        qlpo_preferred (`float`, *optional*, defaults to `0.75`):
            1 / (1 + alpha) of QLPO: share that is drawn from the shorter correct and the longer wrong completions, in
            [0.5, 1]. 0.5 prefers none.
        whiten_over_tokens (`bool`, *optional*, defaults to `False`):
            DLER's advantages, by its public code (arXiv 2510.15110): those of TRL, in training, less their mean over
            all tokens of the rollout, over their standard deviation over these. Needs `scale_rewards="none"` and
            `multi_objective_aggregation="sum_then_normalize"`.
        dot_alpha (`float`, *optional*):
            alpha of DOT, arXiv 2601.03969: in groups that are all correct, completions longer than the mean by more
            than this many standard deviations are cut there, and graded again. The paper: 3.0, in groups of 32.
            `None`: none are cut.
        dot_least (`int`, *optional*, defaults to `32`):
            Fewest tokens that DOT cuts off.
        dynamic_sampling (`bool`, *optional*, defaults to `False`):
            DAPO's dynamic sampling, arXiv 2503.14476, section 3.2: drop groups whose completions all have the same
            accuracy, and draw more prompts until the generation batch is full. See docs/algorithm.md.
        dynamic_sampling_max_rounds (`int`, *optional*, defaults to `10`):
            Rounds of generation per batch, including the first, >= 1. Dropped groups then fill the batch.
        ces_allow_dynamic_sampling (`bool`, *optional*, defaults to `False`):
            Allow `dynamic_sampling` with `shaping="ces"`, although CES learns from the groups that it drops.
        trim_padding (`bool`, *optional*, defaults to `True`):
            Drop the columns of a forward that are padding in all of its rows. Gradients equal TRL's up to rounding.
            Where transformers generates, completions that have ended leave the batch.
        arrange_by_length (`bool`, *optional*, defaults to `True`):
            Arrange the rows of an optimizer step so that rows of similar length share a micro-batch and processes get
            similar token counts. Gradients equal TRL's up to rounding. Ignored where the loss depends on which rows
            share a micro-batch.
        padding_free (`bool`, *optional*):
            Pack each forward into one unpadded sequence. `None`: on with FlashAttention. `True` works with any
            attention implementation, but is slow with others.
        max_tokens_per_micro_batch (`int`, *optional*):
            Split each micro-batch into forwards of at most this many token positions per process (prompts,
            completions and the padding between them). Memory then follows tokens, and
            `per_device_train_batch_size` can be large.
        normalize_each_step (`bool`, *optional*, defaults to `False`):
            With `loss_type="dapo"`, divide each optimizer step by its own tokens in the loss, as in Eq. 1. `False`: by
            the rollout's mean tokens per step, as TRL does. See docs/deviations.md.
        on_reward_error (`str`, *optional*, defaults to `"stop"`):
            What to do if a reward function raises, or returns NaN, infinity, a wrong type or a wrong number of
            rewards. `"stop"`: stop training with an error that names the function, and the row if known. `"skip"`:
            warn, and ignore its reward for the invalid rows, or for all rows if it raised or the number is wrong.
        max_nonfinite_steps (`int`, *optional*, defaults to `3`):
            Stop training after this many consecutive steps whose gradient is not finite, >= 1. Fewer are skipped, and
            their rows saved in `output_dir`/_nonfinite.

    Raises:
        `ValueError`: A value is out of range, `shaping="ces"` is combined with a setting that would change what the
            paper defines (`loss_type`, `entropy_coef`, `use_adaptive_entropy`, `top_entropy_quantile`,
            `importance_sampling_level`, `off_policy_mask_threshold`, `num_generations`, `dynamic_sampling`),
            `shaping="clip_cov"` or `"kl_cov"` with another objective than a clipped one with a ratio per token, or
            with one completion in a micro-batch, `shaping="kl_cov"` with a clip range or one optimizer step per
            rollout, or two settings contradict each other.
    """

    epsilon_high: float | None = field(
        default=0.28,
        metadata={"help": "Upper clip range. Default: DAPO's 0.28; the CES paper states none."},
    )
    shaping: str = "ces"
    shaping_kwargs: dict[str, Any] | None = None
    epsilon_high_target_entropy: float | None = None
    epsilon_high_delta: float = 0.01
    epsilon_high_max: float = 1.0
    ces_accuracy_reward: str | None = None
    ces_correct_threshold: float = 1.0
    stop_on_runaway: bool = False
    gfpo_keep: int | None = None
    gfpo_metric: str = field(default="length", metadata={"choices": list(GFPO_METRICS)})
    qlpo_preferred: float = 0.75
    whiten_over_tokens: bool = False
    dot_alpha: float | None = None
    dot_least: int = 32
    dynamic_sampling: bool = False
    dynamic_sampling_max_rounds: int = 10
    ces_allow_dynamic_sampling: bool = False
    trim_padding: bool = True
    arrange_by_length: bool = True
    padding_free: bool | None = None
    max_tokens_per_micro_batch: int | None = None
    normalize_each_step: bool = False
    on_reward_error: str = field(default="stop", metadata={"choices": list(ON_REWARD_ERROR)})
    max_nonfinite_steps: int = 3

    def __post_init__(self):
        self._check()  # before TRL looks at devices: a wrong value fails on any machine
        super().__post_init__()
        self._check()  # what TRL derives
        self._warn_of_sequence_ratios()

    @classmethod
    def from_grpo(cls, args: GRPOConfig) -> "CESConfig":
        """
        Converts `args`: keeps its settings, with the fields of CES at their defaults. Returns a `CESConfig` as it is.

        Checks the settings of CES again, since they may have changed. The values of fields that a subclass of
        `GRPOConfig` adds are kept, its methods are not.

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
        config._warn_of_sequence_ratios()
        return config

    @property
    def rule(self) -> Rule | None:
        """The rule that `shaping` names; `None` for `"none"`."""
        return find_rule(self.shaping)

    def needs(self, need: Need) -> bool:
        """Whether the rule needs it."""
        return self.rule is not None and need in self.rule.needs

    @property
    def needs_verdicts(self) -> bool:
        """Whether the rule needs to know which completions are correct."""
        return self.needs(Need.VERDICTS)

    @property
    def keeps_by_verdict(self) -> bool:
        """Whether GFPO's filter needs to know which completions are correct."""
        return self.gfpo_keep is not None and self.gfpo_metric == "qlpo"

    @property
    def needs_accuracy(self) -> bool:
        """Whether the rule or a layer reads the accuracy reward; rewards of whole groups do, too."""
        return self.needs_verdicts or self.dynamic_sampling or self.dot_alpha is not None or self.keeps_by_verdict

    def shaping_settings(self) -> dict[str, Any]:
        """The keyword arguments of the rule's function."""
        rule = self.rule
        if rule is None:
            return {}
        return self._settings_of(rule) | (rule.given(self) if rule.given is not None else {})

    def _settings_of(self, rule: Rule) -> dict[str, Any]:
        if rule in built_in().values():
            own = {entry.name: getattr(self, f"{rule.name}_{entry.name}") for entry in fields(rule.settings)}
            return rule.read(own, lambda name, why: self._refuse(f"{rule.name}_{name}", why))
        return rule.read(self.shaping_kwargs or {}, self._refuse)

    def _refuse(self, name: str, why: str) -> NoReturn:
        value = (vars(self) | (self.shaping_kwargs or {})).get(name)
        raise ValueError(f"`{name}` is {value!r}: {why}")

    def _check(self) -> None:
        refuse = self._refuse
        for known in built_in().values():  # of rules that are not in use too: a wrong value stays wrong
            self._settings_of(known)
        rule = self.rule  # refuses an unknown name
        if self.shaping_kwargs and (rule is None or rule in built_in().values()):
            refuse("shaping_kwargs", "it is for a rule of your own; those of this package have fields of their own.")
        if not math.isfinite(self.ces_correct_threshold):
            refuse("ces_correct_threshold", "it must be a finite reward; 1.0 fits a reward of 0 or 1.")
        if self.num_generations is None or self.num_generations < 2:
            refuse("num_generations", "a group needs at least 2 completions; the paper uses 4.")
        if self.gfpo_metric not in GFPO_METRICS:
            refuse("gfpo_metric", f"choose one of {', '.join(map(repr, GFPO_METRICS))}.")
        if self.gfpo_keep is None and self.gfpo_metric != "length":
            refuse("gfpo_metric", "it does nothing without `gfpo_keep`, the completions to keep of a group.")
        kept, size = self.gfpo_keep, cast(int, self.num_generations)
        if kept is not None and not (is_count(kept) and 1 < kept < size):
            refuse("gfpo_keep", f"it counts completions of a group, above 1 and below `num_generations`, {size}.")
        if not 0.5 <= self.qlpo_preferred <= 1:
            refuse(
                "qlpo_preferred", "it is 1 / (1 + alpha), a share in [0.5, 1]; the paper's alpha of 1/3 gives 0.75."
            )
        scaled = self.scale_rewards not in ("none", False) or self.multi_objective_aggregation != "sum_then_normalize"
        if self.whiten_over_tokens and scaled:
            refuse(
                "whiten_over_tokens",
                'TRL would divide by another deviation first: set `scale_rewards="none"`, and leave '
                '`multi_objective_aggregation` at "sum_then_normalize".',
            )
        if self.dot_alpha is not None:
            self._check_dot(size)
        if not is_count(self.dynamic_sampling_max_rounds):
            refuse("dynamic_sampling_max_rounds", "it counts rounds of generation, 1 or more; 10 is the default.")
        if "thinking_token_budget" in (self.generation_kwargs or {}):
            refuse("generation_kwargs", "forced tokens would enter the loss: remove `thinking_token_budget`.")
        if self.on_reward_error not in ON_REWARD_ERROR:
            refuse("on_reward_error", f"choose one of {', '.join(map(repr, ON_REWARD_ERROR))}.")
        if not is_count(self.max_nonfinite_steps):
            refuse("max_nonfinite_steps", "it counts consecutive steps, 1 or more; 3 is the default.")
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
        if self.epsilon_high_target_entropy is not None:
            self._check_clip_control()
        check_micro_batch(self.shaping, self.per_device_train_batch_size)
        if rule is not None:
            self._settings_of(rule)
            if rule.check is not None:
                rule.check(self, refuse)

    def rows_are_independent(self) -> bool:
        """Whether the loss of an optimizer step is a sum over rows, whatever their micro-batches."""
        return (
            not self.needs(Need.WHOLE_MICRO_BATCHES)
            and self.loss_type != "bnpo"  # divides by the tokens of a micro-batch
            and self.top_entropy_quantile == 1.0  # a quantile of a micro-batch
            and self.entropy_coef == 0.0  # a mean over the tokens of a micro-batch
            and not self.use_adaptive_entropy
        )

    def micro_batches_to_arrange(self) -> int:
        """
        Number of consecutive micro-batches of a rollout that belong to one optimizer step and may exchange rows.

        0 if the number differs between steps, if the loss depends on which rows share a micro-batch, or if
        `arrange_by_length` is off.
        """
        steps, accumulated = cast(int, self.steps_per_generation), self.gradient_accumulation_steps
        aligned = max(steps, accumulated) % min(steps, accumulated) == 0
        if not self.arrange_by_length or not aligned or not self.rows_are_independent():
            return 0
        return min(steps, accumulated)

    def _check_token_budget(self) -> None:
        if not is_count(self.max_tokens_per_micro_batch):
            self._refuse("max_tokens_per_micro_batch", "it counts token positions, 1 or more; 16384 fits many GPUs.")
        if not (self.trim_padding and self.arrange_by_length):
            self._refuse("max_tokens_per_micro_batch", "it needs `trim_padding=True` and `arrange_by_length=True`.")
        if not self.rows_are_independent():
            self._refuse(
                "max_tokens_per_micro_batch",
                'the loss of a micro-batch must be a sum over rows, which excludes `loss_type="bnpo"`, '
                "`top_entropy_quantile` below 1.0, `entropy_coef`, `use_adaptive_entropy`, and a rule that compares "
                'completions, such as `shaping="kl_cov"`: change that setting, or remove the budget.',
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

    def _check_dot(self, size: int) -> None:
        if not 0 < cast(float, self.dot_alpha) < largest_deviation(size):
            self._refuse(
                "dot_alpha",
                f"of {size} completions (`num_generations`) none is more than {largest_deviation(size):.3g} standard "
                "deviations above the mean: choose a number above 0 and below that, or sample more.",
            )
        if not is_count(self.dot_least):
            self._refuse("dot_least", "it counts tokens, 1 or more; the paper uses 32.")
        if self.mask_truncated_completions:
            self._refuse("dot_alpha", "`mask_truncated_completions` would take what it cuts out of the loss: set one.")

    def _check_clip_control(self) -> None:
        if not 0 <= cast(float, self.epsilon_high_target_entropy) < math.inf:
            self._refuse("epsilon_high_target_entropy", "it is an entropy in nats, a finite number >= 0, or None.")
        for name in ("epsilon_high_delta", "epsilon_high_max"):
            if not 0 < getattr(self, name) < math.inf:
                self._refuse(name, "it is a clip range, a finite number above 0.")
        fixed = self.rule is not None and self.rule.given is not None
        if self.loss_type not in CLIPPED_LOSS_TYPES or fixed:
            self._refuse(
                "epsilon_high_target_entropy",
                f"`loss_type={self.loss_type!r}` with `shaping={self.shaping!r}` has no upper clip range that may "
                "move: set it to None.",
            )

    def _warn_of_sequence_ratios(self) -> None:
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


# The docstring's texts are the fields' help, for `trl-ces train --help` and every parser of dataclasses.
for _name, _text in re.findall(
    r"^    (\w+) \(.*\):\n((?:        .*\n)+)", inspect.getdoc(CESConfig) or "", re.MULTILINE
):
    _field = CESConfig.__dataclass_fields__[_name]
    _field.metadata = MappingProxyType({**_field.metadata, "help": " ".join(_text.split())})


def is_count(value: Any) -> bool:
    """Whether it is a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
