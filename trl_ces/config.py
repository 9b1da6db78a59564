"""`CESConfig`: TRL's `GRPOConfig` with the paper's shaping on, DAPO's clip range, and nothing else changed."""

import math
import warnings
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import cast

from trl import GRPOConfig

from .methods import COUPLE_ROWS, NEED_RATIOS, NEED_VERDICTS
from .methods.ces import MAX_TAU_DECIMALS
from .methods.gfpo import METRICS as GFPO_METRICS
from .support.reward_names import accuracy_reward_index

SHAPINGS = ("ces", "none", "entropy_advantage", "clip_cov", "kl_cov")
ON_REWARD_ERROR = ("stop", "skip")
NUMBERS = (
    "ces_tau",
    "ces_beta_correct",
    "ces_beta_incorrect",
    "ces_correct_threshold",
    "entropy_advantage_alpha",
    "entropy_advantage_kappa",
    "clip_cov_ratio",
    "clip_cov_low",
    "clip_cov_high",
    "kl_cov_ratio",
    "kl_cov_coef",
)
# Losses in which A' enters as in Eq. 1. In cispo and vespo A' multiplies log pi, so a log-probability would scale the
# entropy's gradient; sapo and luspo are other objectives, for which the paper defines nothing.
CES_LOSS_TYPES = ("dapo", "grpo", "bnpo", "dr_grpo")
# Shares of tokens, which are counted exactly.
SHARES = ("ces_tau", "clip_cov_ratio", "kl_cov_ratio")
# An `epsilon_high` that no importance ratio reaches.
NO_CLIP = 1e6


def check_micro_batch(shaping: str, rows: int):
    """Raises `ValueError` if `shaping` compares the completions of a process's micro-batch, and it has one row."""
    if shaping in COUPLE_ROWS and rows < 2:
        raise ValueError(
            f'`per_device_train_batch_size` is {rows}: `shaping="{shaping}"` compares the completions of a '
            "micro-batch, so set it to 2 or more, and `responses_per_step`, if given, to a multiple of twice the "
            "processes."
        )


@dataclass
class CESConfig(GRPOConfig):
    r"""
    Configuration of [`CESTrainer`]: every field of [`~trl.GRPOConfig`], and those below.

    One default differs from `GRPOConfig`: `epsilon_high` is DAPO's 0.28.

    Args:
        shaping (`str`, *optional*, defaults to `"ces"`):
            `"ces"`: Conditional Entropy Shaping, Eqs. 2-7 of arXiv 2605.19358. `"none"`: plain DAPO, bit for bit TRL's
            trainer if `trim_padding` and `arrange_by_length` are off. `"entropy_advantage"`: the baseline of Cheng
            et al., arXiv 2506.14758. `"clip_cov"`, `"kl_cov"`: Clip-Cov and KL-Cov of Cui et al., arXiv 2505.22617.
        ces_tau (`float`, *optional*, defaults to `0.01`):
            Top-rate tau of Eq. 5: share of a completion's tokens, in [0, 1], at most nine decimals.
        ces_beta_correct (`float`, *optional*, defaults to `0.4`):
            beta_1 of Eq. 7: advantage per bit subtracted from correct completions. Below 0 it is added: an ablation.
        ces_beta_incorrect (`float`, *optional*, defaults to `0.4`):
            beta_2 of Eq. 7: advantage per bit added to wrong completions. Below 0 it is subtracted: an ablation.
        ces_dynamic_multiplier (`bool`, *optional*, defaults to `True`):
            Whether b follows the group accuracy, Eq. 6. `False`: b = 1, the paper's "w/o Dynamic b".
        ces_entropy_gradient (`bool`, *optional*, defaults to `True`):
            Whether gradients flow through the entropy in A'. `False`: the paper's "w/o Entropy Gradient".
        ces_accuracy_reward (`str`, *optional*):
            Name of the reward function that decides whether a completion is correct. `None`: the only reward function,
            or the only one whose name contains "accuracy".
        ces_correct_threshold (`float`, *optional*, defaults to `1.0`):
            A completion is correct if that reward, before weighting, is at least this.
        entropy_advantage_alpha (`float`, *optional*, defaults to `0.4`):
            alpha of Cheng et al.: advantage per nat, >= 0.
        entropy_advantage_kappa (`float`, *optional*, defaults to `2.0`):
            kappa of Cheng et al.: the bonus is at most |A| / kappa, > 1.
        clip_cov_ratio (`float`, *optional*, defaults to `0.0002`):
            r of Clip-Cov, Eq. 11: share of a micro-batch's tokens that get no gradient, above 0, at most 1, at most
            nine decimals; at least one token, if any qualifies.
        clip_cov_low (`float`, *optional*, defaults to `1.0`):
            omega_low of Clip-Cov, Eq. 11: these tokens' covariance of log-prob and advantage is above this.
        clip_cov_high (`float`, *optional*, defaults to `5.0`):
            omega_high of Clip-Cov, Eq. 11: and below this.
        kl_cov_ratio (`float`, *optional*, defaults to `0.0002`):
            k of KL-Cov, Eq. 13: share of a micro-batch's tokens, those of highest covariance, that get a KL penalty,
            above 0, at most 1, at most nine decimals; at least one token. The paper has 0.002 for 7B and 0.0002 for
            32B.
        kl_cov_coef (`float`, *optional*, defaults to `1.0`):
            beta of KL-Cov, Eq. 14: loss per nat of |log-prob - old log-prob|, >= 0.
        gfpo_keep (`int`, *optional*):
            k of GFPO, arXiv 2508.09726, with any shaping: in training only the k best completions of each group get an
            advantage, normalized over those k. Above 1 and below `num_generations`. `None`: all.
        gfpo_metric (`str`, *optional*, defaults to `"length"`):
            What is best: `"length"`, the fewest tokens, or `"reward_per_token"`, the weighted reward per token.
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
            their rows saved in `output_dir`/_nonfinite. Under DeepSpeed the first such loss stops training.

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
    shaping: str = field(
        default="ces",
        metadata={
            "help": "Advantage shaping: `ces` (Conditional Entropy Shaping, arXiv 2605.19358), `none` (plain DAPO), "
            "`entropy_advantage` (Cheng et al., arXiv 2506.14758), `clip_cov` or `kl_cov` (arXiv 2505.22617).",
            "choices": list(SHAPINGS),
        },
    )
    ces_tau: float = field(
        default=0.01,
        metadata={"help": "Top-rate tau of Eq. 5: share of a completion's tokens, in [0, 1], at most nine decimals."},
    )
    ces_beta_correct: float = field(
        default=0.4,
        metadata={"help": "beta_1 of Eq. 7: advantage per bit subtracted from correct completions; below 0, added."},
    )
    ces_beta_incorrect: float = field(
        default=0.4,
        metadata={"help": "beta_2 of Eq. 7: advantage per bit added to wrong completions; below 0, subtracted."},
    )
    ces_dynamic_multiplier: bool = field(
        default=True,
        metadata={"help": "Scale k by the group accuracy, Eq. 6. False: the paper's ablation `w/o Dynamic b`."},
    )
    ces_entropy_gradient: bool = field(
        default=True,
        metadata={
            "help": "Let gradients flow through the entropy in A'. False: the paper's ablation `w/o Entropy Gradient`."
        },
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
        metadata={"help": "A completion is correct if the accuracy reward, before weighting, is >= this."},
    )
    entropy_advantage_alpha: float = field(
        default=0.4,
        metadata={"help": "alpha of Cheng et al.: advantage per nat, >= 0."},
    )
    entropy_advantage_kappa: float = field(
        default=2.0,
        metadata={"help": "kappa of Cheng et al.: the bonus is at most |A| / kappa; > 1, so that no sign flips."},
    )
    clip_cov_ratio: float = field(
        default=0.0002,
        metadata={"help": "r of Clip-Cov: share of a micro-batch's tokens that get no gradient, in (0, 1]."},
    )
    clip_cov_low: float = field(
        default=1.0,
        metadata={"help": "omega_low of Clip-Cov: these tokens' covariance of log-prob and advantage is above this."},
    )
    clip_cov_high: float = field(
        default=5.0,
        metadata={"help": "omega_high of Clip-Cov: these tokens' covariance is below this."},
    )
    kl_cov_ratio: float = field(
        default=0.0002,
        metadata={"help": "k of KL-Cov: share of a micro-batch's tokens that get a KL penalty, in (0, 1]."},
    )
    kl_cov_coef: float = field(
        default=1.0,
        metadata={"help": "beta of KL-Cov: loss per nat of |log-prob - old log-prob|, >= 0."},
    )
    gfpo_keep: int | None = field(
        default=None,
        metadata={"help": "k of GFPO: in training only the k best completions of a group get an advantage."},
    )
    gfpo_metric: str = field(
        default="length",
        metadata={
            "help": "What GFPO keeps: the completions of fewest tokens (`length`), or of most reward per token.",
            "choices": list(GFPO_METRICS),
        },
    )
    dynamic_sampling: bool = field(
        default=False,
        metadata={
            "help": "DAPO's dynamic sampling: drop groups whose completions all have the same accuracy, and draw more "
            "prompts until the generation batch is full."
        },
    )
    dynamic_sampling_max_rounds: int = field(
        default=10,
        metadata={
            "help": "Rounds of generation per batch, including the first, >= 1. Dropped groups then fill the batch."
        },
    )
    ces_allow_dynamic_sampling: bool = field(
        default=False,
        metadata={"help": "Allow `dynamic_sampling` with `shaping: ces`, although CES learns from dropped groups."},
    )
    trim_padding: bool = field(
        default=True,
        metadata={
            "help": "Drop the columns of a forward that are padding in all of its rows, and rows that have ended "
            "from transformers' generation."
        },
    )
    arrange_by_length: bool = field(
        default=True,
        metadata={
            "help": "Arrange the rows of an optimizer step so that rows of similar length share a micro-batch and "
            "processes get similar token counts."
        },
    )
    padding_free: bool | None = field(
        default=None,
        metadata={"help": "Pack each forward into one unpadded sequence. Default: on with FlashAttention."},
    )
    max_tokens_per_micro_batch: int | None = field(
        default=None,
        metadata={"help": "Split each micro-batch into forwards of at most this many token positions per process."},
    )
    normalize_each_step: bool = field(
        default=False,
        metadata={
            "help": "With `loss_type: dapo`, divide each optimizer step by its own tokens in the loss, as in Eq. 1, "
            "not by the rollout's mean, as TRL does."
        },
    )
    on_reward_error: str = field(
        default="stop",
        metadata={
            "help": "If a reward function raises, or returns NaN, infinity, a wrong type or a wrong number of "
            "rewards: `stop` training, or `skip` those rows with a warning.",
            "choices": list(ON_REWARD_ERROR),
        },
    )
    max_nonfinite_steps: int = field(
        default=3,
        metadata={"help": "Stop after this many consecutive steps with a non-finite gradient; fewer are skipped."},
    )

    def __post_init__(self):
        self._check_shaping()  # before TRL looks at devices: a wrong value fails on any machine
        super().__post_init__()
        self._check_steps_of_a_rollout()

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
            args._check_shaping()
            args._check_steps_of_a_rollout()
            return args
        config = object.__new__(cls)  # not cls(**...): __post_init__ would derive the batch sizes a second time
        config.__dict__.update(args.__dict__)
        for own in fields(cls):
            if own.name not in args.__dict__:
                setattr(config, own.name, own.default)
        config._check_shaping()
        config._check_steps_of_a_rollout()
        return config

    def accuracy_reward_index(self, names: list[str]) -> int:
        """Index of the accuracy reward among the reward functions `names`; `ValueError` if it is ambiguous."""
        try:
            return accuracy_reward_index(names, self.ces_accuracy_reward)
        except ValueError as error:
            if self.needs_verdicts:
                raise
            needs_it = "`dynamic_sampling`" if self.dynamic_sampling else "rewards of whole groups"
            otherwise = "`dynamic_sampling=False`" if self.dynamic_sampling else "remove them"
            raise ValueError(
                f"`ces_accuracy_reward` is {self.ces_accuracy_reward!r}, so the accuracy reward for {needs_it} is "
                f"ambiguous: set `ces_accuracy_reward` to its name, or {otherwise}. There are: "
                f"{', '.join(names) or 'none'}."
            ) from error

    @property
    def needs_verdicts(self) -> bool:
        """Whether the shaping rule needs to know which completions are correct."""
        return self.shaping in NEED_VERDICTS

    def shaping_settings(self) -> dict:
        """The keyword arguments of `SHAPING_RULES[shaping]`; empty for `"none"`."""
        if self.shaping == "ces":
            return {
                "tau": self.ces_tau,
                "beta_correct": self.ces_beta_correct,
                "beta_incorrect": self.ces_beta_incorrect,
                "dynamic_multiplier_on": self.ces_dynamic_multiplier,
                "entropy_gradient": self.ces_entropy_gradient,
            }
        if self.shaping == "entropy_advantage":
            return {"alpha": self.entropy_advantage_alpha, "kappa": self.entropy_advantage_kappa}
        if self.shaping == "clip_cov":
            return {
                "ratio": self.clip_cov_ratio,
                "low": self.clip_cov_low,
                "high": self.clip_cov_high,
                "epsilon_low": self.epsilon,
                "epsilon_high": self._epsilon_high(),
                "delta": math.inf if self.delta is None else self.delta,
            }
        if self.shaping == "kl_cov":
            return {"ratio": self.kl_cov_ratio, "coef": self.kl_cov_coef}
        return {}

    def _epsilon_high(self) -> float:
        """The upper clip range as TRL resolves it."""
        return self.epsilon if self.epsilon_high is None else self.epsilon_high

    def _check_shaping(self):
        def refuse(name: str, rule: str):
            raise ValueError(f"`{name}` is {getattr(self, name)!r}: {rule}")

        if self.shaping not in SHAPINGS:
            refuse("shaping", f"choose one of {', '.join(map(repr, SHAPINGS))}.")
        self._check_strengths(refuse)
        if self.num_generations is None or self.num_generations < 2:
            refuse("num_generations", "a group needs at least 2 completions; the paper uses 4.")
        if self.gfpo_metric not in GFPO_METRICS:
            refuse("gfpo_metric", f"choose one of {', '.join(map(repr, GFPO_METRICS))}.")
        kept, size = self.gfpo_keep, cast(int, self.num_generations)
        if kept is not None and (isinstance(kept, bool) or not isinstance(kept, int) or not 1 < kept < size):
            refuse("gfpo_keep", f"it counts completions of a group, above 1 and below `num_generations`, {size}.")
        rounds = self.dynamic_sampling_max_rounds
        if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
            refuse("dynamic_sampling_max_rounds", "it counts rounds of generation, 1 or more; 10 is the default.")
        if self.on_reward_error not in ON_REWARD_ERROR:
            refuse("on_reward_error", f"choose one of {', '.join(map(repr, ON_REWARD_ERROR))}.")
        steps = self.max_nonfinite_steps
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            refuse("max_nonfinite_steps", "it counts consecutive steps, 1 or more; 3 is the default.")
        if self.padding_free and not self.trim_padding:
            refuse(
                "padding_free", "packing removes the padding that `trim_padding=False` keeps: set only one of them."
            )
        if self.normalize_each_step and self.loss_type != "dapo":
            refuse("normalize_each_step", 'only `loss_type="dapo"` divides by the tokens of a rollout.')
        if self.dynamic_sampling:
            self._check_dynamic_sampling(refuse)
        if self.max_tokens_per_micro_batch is not None:
            self._check_token_budget(refuse)
        off = 'or set `shaping="none"` (a field of `CESConfig`)'
        if self.shaping in NEED_RATIOS:
            self._check_ratios(refuse, off)
        check_micro_batch(self.shaping, self.per_device_train_batch_size)
        if self.shaping == "kl_cov":
            self._check_no_clip(refuse, off)
        if self.shaping == "ces":
            self._check_ces_combinations(refuse, off)

    def _check_strengths(self, refuse):
        """The numbers of the shaping rules."""
        for name in NUMBERS:
            if isinstance(getattr(self, name), bool) or not isinstance(getattr(self, name), int | float):
                refuse(name, "it must be a number.")
        for name in SHARES:
            value = getattr(self, name)
            if not 0 <= value <= 1:
                refuse(name, f"it is a share of tokens, in [0, 1]; {getattr(type(self), name)} is the default.")
            if (Fraction(repr(float(value))) * 10**MAX_TAU_DECIMALS).denominator != 1:
                refuse(name, f"k is computed exactly, with at most {MAX_TAU_DECIMALS} decimals; round it.")
        for name in ("clip_cov_ratio", "kl_cov_ratio"):
            if getattr(self, name) == 0:
                refuse(name, 'at least one token is chosen, so 0 is not "off": for that set `shaping="none"`.')
        for name in ("ces_beta_correct", "ces_beta_incorrect"):
            if not math.isfinite(getattr(self, name)):
                refuse(name, "it is advantage per bit of entropy, a finite number; the paper uses 0.4.")
        if not 0 <= self.entropy_advantage_alpha < math.inf:
            refuse("entropy_advantage_alpha", "it is advantage per nat, a finite number >= 0; the paper uses 0.4.")
        if not 0 <= self.kl_cov_coef < math.inf:
            refuse("kl_cov_coef", "it is loss per nat, a finite number >= 0; the paper uses 1.0.")
        if not self.clip_cov_low < self.clip_cov_high:
            refuse("clip_cov_low", f"it must be below `clip_cov_high`, {self.clip_cov_high}; the paper: 1.0 and 5.0.")
        if not 1 < self.entropy_advantage_kappa < math.inf:
            refuse("entropy_advantage_kappa", "it must be above 1, so that no advantage changes sign; use 2.0.")
        if not math.isfinite(self.ces_correct_threshold):
            refuse("ces_correct_threshold", "it must be a finite reward; 1.0 fits a reward of 0 or 1.")

    def _check_dynamic_sampling(self, refuse):
        if self.shaping == "ces" and not self.ces_allow_dynamic_sampling:
            refuse(
                "dynamic_sampling",
                "it drops groups of equal accuracy, which CES keeps on purpose (section 3.2 of the paper): their A is "
                "0, but A' = -/+ beta H still trains. Set `dynamic_sampling=False`, or, if you mean it, "
                "`ces_allow_dynamic_sampling=True`.",
            )

    def rows_are_independent(self) -> bool:
        """Whether the loss of an optimizer step is a sum over rows, whatever their micro-batches."""
        return (
            self.shaping not in COUPLE_ROWS  # means and ranks of a micro-batch
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

    def _check_token_budget(self, refuse):
        budget = self.max_tokens_per_micro_batch
        if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
            refuse("max_tokens_per_micro_batch", "it counts token positions, 1 or more; 16384 fits many GPUs.")
        if not (self.trim_padding and self.arrange_by_length):
            refuse("max_tokens_per_micro_batch", "it needs `trim_padding=True` and `arrange_by_length=True`.")
        if not self.rows_are_independent():
            refuse(
                "max_tokens_per_micro_batch",
                'the loss of a micro-batch must be a sum over rows, which excludes `loss_type="bnpo"`, '
                "`top_entropy_quantile` below 1.0, `entropy_coef`, `use_adaptive_entropy`, and "
                '`shaping="clip_cov"` and `"kl_cov"`: change that setting, or remove the budget.',
            )

    def _check_ratios(self, refuse, off):
        if self.loss_type not in CES_LOSS_TYPES:
            allowed = ", ".join(map(repr, CES_LOSS_TYPES))
            refuse(
                "loss_type",
                f'`shaping="{self.shaping}"` needs A\' in the clipped objective, Eq. 1: use one of {allowed}, {off}.',
            )
        if self.importance_sampling_level != "token":
            refuse(
                "importance_sampling_level",
                f'A\' is per token, so the importance ratio must be too: set it to "token", {off}.',
            )
        if self.off_policy_mask_threshold is not None:
            refuse(
                "off_policy_mask_threshold",
                f"it masks whole completions by the sign of A, which A' may flip at a token: set it to None, {off}.",
            )

    def _check_no_clip(self, refuse, off):
        wide = f"KL-Cov has no clipping: set `epsilon=1.0`, `epsilon_high={NO_CLIP}` and `delta=None`, {off}."
        if self.epsilon < 1:
            refuse("epsilon", wide)
        if self._epsilon_high() < NO_CLIP:
            refuse("epsilon_high", wide)
        if self.delta is not None:
            refuse("delta", wide)

    def _check_steps_of_a_rollout(self):
        """For what TRL derives: after its own `__post_init__`."""
        micro_steps = cast(int, self.steps_per_generation) * self.num_iterations
        accumulated = self.gradient_accumulation_steps
        if self.shaping == "kl_cov" and accumulated % micro_steps == 0:
            raise ValueError(
                "`shaping` is 'kl_cov', and each rollout is used in one optimizer step, where its KL is 0: set "
                f"`steps_per_generation` x `num_iterations`, {micro_steps}, above `gradient_accumulation_steps`, "
                f"{accumulated} (in a recipe, `responses_per_rollout` above `responses_per_step`)."
            )

    def _check_ces_combinations(self, refuse, off):
        if self.entropy_coef != 0.0:
            refuse("entropy_coef", f"CES already adds the entropy to the loss: set it to 0.0, {off}.")
        if self.use_adaptive_entropy:
            refuse("use_adaptive_entropy", f"CES already adds the entropy to the loss: set it to False, {off}.")
        if self.top_entropy_quantile < 1.0:
            refuse("top_entropy_quantile", f"it would drop tokens that CES leaves unshaped: set it to 1.0, {off}.")
        if (
            self.use_vllm
            and self.vllm_importance_sampling_correction
            and self.vllm_importance_sampling_mode.startswith("sequence")
        ):
            warnings.warn(
                f"`vllm_importance_sampling_mode` is {self.vllm_importance_sampling_mode!r}: it masks or scales each "
                "completion by the product of its token ratios, which drifts far from 1 over thousands of tokens. For "
                'long completions use "token_truncate", or, as the paper\'s recipes do, '
                "`vllm_importance_sampling_correction=False`.",
                stacklevel=4,
            )
