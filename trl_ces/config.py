"""`CESConfig`: TRL's `GRPOConfig` with the paper's shaping on, DAPO's clip range, and nothing else changed."""

import math
import warnings
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import cast

from trl import GRPOConfig

from .methods import NEED_VERDICTS
from .methods.ces import MAX_TAU_DECIMALS
from .support.reward_names import accuracy_reward_index

SHAPINGS = ("ces", "none", "entropy_advantage")
ON_REWARD_ERROR = ("stop", "skip")
NUMBERS = (
    "ces_tau",
    "ces_beta_correct",
    "ces_beta_incorrect",
    "ces_correct_threshold",
    "entropy_advantage_alpha",
    "entropy_advantage_kappa",
)
# Those in which A' stands as in Eq. 1. In cispo and vespo A' multiplies log pi, so the gradient of the entropy would
# be scaled by a log-probability; sapo and luspo are other objectives, for which the paper defines nothing.
CES_LOSS_TYPES = ("dapo", "grpo", "bnpo", "dr_grpo")


@dataclass
class CESConfig(GRPOConfig):
    r"""
    Configuration of [`CESTrainer`]: every field of [`~trl.GRPOConfig`] and those below.

    Differs from `GRPOConfig` in one default: `epsilon_high` is DAPO's 0.28.

    Args:
        shaping (`str`, *optional*, defaults to `"ces"`):
            `"ces"`: Conditional Entropy Shaping, Eqs. 2-7 of arXiv 2605.19358. `"none"`: plain DAPO, TRL's trainer bit
            for bit where `trim_padding` and `arrange_by_length` are off. `"entropy_advantage"`: the baseline of Cheng
            et al., arXiv 2506.14758.
        ces_tau (`float`, *optional*, defaults to `0.01`):
            Top-rate tau of Eq. 5, share of a completion's tokens in [0, 1], at most nine decimals.
        ces_beta_correct (`float`, *optional*, defaults to `0.4`):
            beta_1 of Eq. 7, advantage per bit taken from correct completions, >= 0.
        ces_beta_incorrect (`float`, *optional*, defaults to `0.4`):
            beta_2 of Eq. 7, advantage per bit given to wrong completions, >= 0.
        ces_dynamic_multiplier (`bool`, *optional*, defaults to `True`):
            Whether b is the group accuracy of Eq. 6. `False`: b = 1, the paper's "w/o Dynamic b".
        ces_entropy_gradient (`bool`, *optional*, defaults to `True`):
            Whether the gradient flows through the entropy in A'. `False`: the paper's "w/o Entropy Gradient".
        ces_accuracy_reward (`str`, *optional*):
            Name of the reward function that says whether a completion is correct. `None`: the only one there is, or
            the only one whose name contains "accuracy".
        ces_correct_threshold (`float`, *optional*, defaults to `1.0`):
            A completion is correct when that reward, before its weight, is at least this.
        entropy_advantage_alpha (`float`, *optional*, defaults to `0.4`):
            alpha of Cheng et al., advantage per nat, >= 0.
        entropy_advantage_kappa (`float`, *optional*, defaults to `2.0`):
            kappa of Cheng et al.: the bonus is at most |A| / kappa, > 1.
        dynamic_sampling (`bool`, *optional*, defaults to `False`):
            DAPO's dynamic sampling, arXiv 2503.14476, section 3.2: groups whose completions all have the same accuracy
            are dropped, and further prompts drawn until the generation batch is full. See docs/algorithm.md.
        dynamic_sampling_max_rounds (`int`, *optional*, defaults to `10`):
            Rounds of generation for one batch, the first included, >= 1. Then dropped groups fill it.
        ces_allow_dynamic_sampling (`bool`, *optional*, defaults to `False`):
            Says that `dynamic_sampling` is meant although `shaping="ces"` learns from the groups that it drops.
        trim_padding (`bool`, *optional*, defaults to `True`):
            Keep columns that are padding in all rows of a forward out of it. Gradients are TRL's up to rounding.
        arrange_by_length (`bool`, *optional*, defaults to `True`):
            Place the rows of an optimizer step so that those of like length share a micro-batch and processes carry
            like numbers of tokens. Gradients are TRL's up to rounding; left off where a loss depends on which rows
            share a micro-batch.
        padding_free (`bool`, *optional*):
            Put the rows of a forward into one without padding. `None`: where the attention implementation is one of
            flash attention's. `True` also elsewhere, which is right but slow.
        max_tokens_per_micro_batch (`int`, *optional*):
            Rows of a micro-batch go through the model in pieces of at most so many token positions (prompts,
            completions and the padding between them) on each process: memory follows tokens, and
            `per_device_train_batch_size` may be large.
        normalize_each_step (`bool`, *optional*, defaults to `False`):
            With `loss_type="dapo"`, divide each optimizer step by its own loss tokens, as Eq. 1 does. `False`: by the
            mean tokens of a step over the rollout, as TRL does. See docs/deviations.md.
        on_reward_error (`str`, *optional*, defaults to `"stop"`):
            When a reward function raises, or returns NaN, infinity, another type or another number of rewards:
            `"stop"` training, naming the function, and the row if known; or `"skip"`, with a warning: the bad rows, or
            all rows if the function raised or the number is wrong, go without its reward.
        max_nonfinite_steps (`int`, *optional*, defaults to `3`):
            A step whose gradient is not finite is skipped, and its rows are saved in `output_dir`/_nonfinite; after so
            many in a row training stops, >= 1. Under DeepSpeed the first such loss stops it.

    Raises:
        `ValueError`: A value is out of its range, or `shaping="ces"` meets a setting that would change what the paper
            defines (`loss_type`, `entropy_coef`, `use_adaptive_entropy`, `top_entropy_quantile`,
            `importance_sampling_level`, `off_policy_mask_threshold`, `num_generations`, `dynamic_sampling`), or two
            settings contradict each other.
    """

    epsilon_high: float | None = field(
        default=0.28,
        metadata={"help": "Upper clip range. DAPO's 0.28 by default; the CES paper does not state its own."},
    )
    shaping: str = field(
        default="ces",
        metadata={
            "help": "How the advantage is shaped: `ces` (Conditional Entropy Shaping, arXiv 2605.19358), `none` "
            "(plain DAPO) or `entropy_advantage` (Cheng et al., arXiv 2506.14758).",
            "choices": list(SHAPINGS),
        },
    )
    ces_tau: float = field(
        default=0.01,
        metadata={"help": "Top-rate tau of Eq. 5: share of a completion's tokens, in [0, 1], at most nine decimals."},
    )
    ces_beta_correct: float = field(
        default=0.4,
        metadata={"help": "beta_1 of Eq. 7: advantage per bit of entropy taken from correct completions, >= 0."},
    )
    ces_beta_incorrect: float = field(
        default=0.4,
        metadata={"help": "beta_2 of Eq. 7: advantage per bit of entropy given to wrong completions, >= 0."},
    )
    ces_dynamic_multiplier: bool = field(
        default=True,
        metadata={"help": "Eq. 6: scale k by the group accuracy. False is the paper's ablation `w/o Dynamic b`."},
    )
    ces_entropy_gradient: bool = field(
        default=True,
        metadata={
            "help": "Let the gradient flow through the entropy in A'. False is the paper's ablation "
            "`w/o Entropy Gradient`."
        },
    )
    ces_accuracy_reward: str | None = field(
        default=None,
        metadata={
            "help": "Name of the reward function that says whether a completion is correct. By default the only "
            "reward function, or the only one whose name contains `accuracy`."
        },
    )
    ces_correct_threshold: float = field(
        default=1.0,
        metadata={"help": "A completion is correct when the accuracy reward, before its weight, is >= this."},
    )
    entropy_advantage_alpha: float = field(
        default=0.4,
        metadata={"help": "alpha of Cheng et al.: advantage per nat of entropy, >= 0."},
    )
    entropy_advantage_kappa: float = field(
        default=2.0,
        metadata={"help": "kappa of Cheng et al.: the bonus is at most |A| / kappa, > 1 so that no sign flips."},
    )
    dynamic_sampling: bool = field(
        default=False,
        metadata={
            "help": "DAPO's dynamic sampling: drop groups whose completions all have the same accuracy and draw "
            "further prompts until the generation batch is full."
        },
    )
    dynamic_sampling_max_rounds: int = field(
        default=10,
        metadata={
            "help": "Rounds of generation for one batch, the first included, >= 1. Then dropped groups fill it."
        },
    )
    ces_allow_dynamic_sampling: bool = field(
        default=False,
        metadata={"help": "Allow `dynamic_sampling` with `shaping: ces`, which learns from the groups that it drops."},
    )
    trim_padding: bool = field(
        default=True,
        metadata={"help": "Keep columns that are padding in all rows of a forward out of it."},
    )
    arrange_by_length: bool = field(
        default=True,
        metadata={
            "help": "Place the rows of an optimizer step so that those of like length share a micro-batch and "
            "processes carry like numbers of tokens."
        },
    )
    padding_free: bool | None = field(
        default=None,
        metadata={
            "help": "Put the rows of a forward into one without padding. By default where attention is "
            "flash attention."
        },
    )
    max_tokens_per_micro_batch: int | None = field(
        default=None,
        metadata={
            "help": "Send the rows of a micro-batch through the model in pieces of at most so many token positions, "
            "on each process."
        },
    )
    normalize_each_step: bool = field(
        default=False,
        metadata={
            "help": "With `loss_type: dapo`, divide each optimizer step by its own loss tokens, as Eq. 1 does, not by "
            "the mean over the rollout, as TRL does."
        },
    )
    on_reward_error: str = field(
        default="stop",
        metadata={
            "help": "When a reward function raises, or returns NaN, infinity, another type or another number of "
            "rewards: `stop` training, or `skip` those rows with a warning.",
            "choices": list(ON_REWARD_ERROR),
        },
    )
    max_nonfinite_steps: int = field(
        default=3,
        metadata={"help": "Stop after so many steps in a row whose gradient is not finite; fewer are skipped."},
    )

    def __post_init__(self):
        self._check_shaping()  # before TRL looks at devices and batches: a wrong value needs no machine to be seen
        super().__post_init__()

    @classmethod
    def from_grpo(cls, args: GRPOConfig) -> "CESConfig":
        """
        `args` with every setting as it is and the fields of CES at their defaults; `args` itself if it has them.

        Checks the settings of CES, also those that were changed after `args` was made. Of a subclass of `GRPOConfig`
        with fields and methods of its own, the fields' values are kept.
        """
        if isinstance(args, cls):
            args._check_shaping()
            return args
        config = object.__new__(cls)  # not cls(**...): __post_init__ would derive the batch sizes a second time
        config.__dict__.update(args.__dict__)
        for own in fields(cls):
            if own.name not in args.__dict__:
                setattr(config, own.name, own.default)
        config._check_shaping()
        return config

    def accuracy_reward_index(self, names: list[str]) -> int:
        """Which of the reward functions `names` is the accuracy reward; `ValueError` if that cannot be told."""
        try:
            return accuracy_reward_index(names, self.ces_accuracy_reward)
        except ValueError as error:
            if self.needs_verdicts:
                raise
            raise ValueError(
                f"`ces_accuracy_reward` is {self.ces_accuracy_reward!r}, which does not tell by which reward "
                "`dynamic_sampling` should judge groups: set `ces_accuracy_reward` to its name, or "
                f"`dynamic_sampling=False`. There are: {', '.join(names) or 'none'}."
            ) from error

    @property
    def needs_verdicts(self) -> bool:
        """Whether the shaping rule asks which completions are correct."""
        return self.shaping in NEED_VERDICTS

    def shaping_settings(self) -> dict:
        """The keyword arguments of the rule in [`SHAPING_RULES`] that `shaping` names."""
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
        return {}

    def _check_shaping(self):
        def refuse(name: str, rule: str):
            raise ValueError(f"`{name}` is {getattr(self, name)!r}: {rule}")

        if self.shaping not in SHAPINGS:
            refuse("shaping", f"choose one of {', '.join(map(repr, SHAPINGS))}.")
        for name in NUMBERS:
            if isinstance(getattr(self, name), bool) or not isinstance(getattr(self, name), int | float):
                refuse(name, "it must be a number.")
        if not 0 <= self.ces_tau <= 1:
            refuse("ces_tau", "it is a share of tokens and lies in [0, 1]; the paper uses 0.01.")
        if (Fraction(repr(float(self.ces_tau))) * 10**MAX_TAU_DECIMALS).denominator != 1:
            refuse("ces_tau", f"k is computed exactly, for at most {MAX_TAU_DECIMALS} decimals; round it.")
        for name in ("ces_beta_correct", "ces_beta_incorrect", "entropy_advantage_alpha"):
            if not 0 <= getattr(self, name) < math.inf:
                refuse(name, "it is advantage per unit of entropy, a finite number >= 0; the papers use 0.4.")
        if not 1 < self.entropy_advantage_kappa < math.inf:
            refuse("entropy_advantage_kappa", "it must be above 1, so that no advantage changes its sign; use 2.0.")
        if not math.isfinite(self.ces_correct_threshold):
            refuse("ces_correct_threshold", "it must be a finite reward; 1.0 fits a reward of 0 or 1.")
        if self.num_generations is None or self.num_generations < 2:
            refuse("num_generations", "a group needs at least 2 completions; the paper uses 4.")
        rounds = self.dynamic_sampling_max_rounds
        if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
            refuse("dynamic_sampling_max_rounds", "it counts rounds of generation, 1 or more; 10 is the default.")
        if self.on_reward_error not in ON_REWARD_ERROR:
            refuse("on_reward_error", f"choose one of {', '.join(map(repr, ON_REWARD_ERROR))}.")
        steps = self.max_nonfinite_steps
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            refuse("max_nonfinite_steps", "it counts steps in a row, 1 or more; 3 is the default.")
        if self.padding_free and not self.trim_padding:
            refuse("padding_free", "packed rows have no padding, and `trim_padding=False` keeps it: set one of them.")
        if self.normalize_each_step and self.loss_type != "dapo":
            refuse(
                "normalize_each_step",
                'only `loss_type="dapo"` divides by the tokens of a rollout.',
            )
        if self.dynamic_sampling:
            self._check_dynamic_sampling(refuse)
        if self.max_tokens_per_micro_batch is not None:
            self._check_token_budget(refuse)
        if self.shaping == "ces":
            self._check_ces_combinations(refuse)

    def _check_dynamic_sampling(self, refuse):
        if self.shaping == "ces" and not self.ces_allow_dynamic_sampling:
            refuse(
                "dynamic_sampling",
                "it drops the groups of equal accuracy, which CES keeps on purpose (section 3.2 of the paper): their "
                "A is 0, but A' = -/+ beta H still teaches. Set `dynamic_sampling=False`, or, if you mean it, "
                "`ces_allow_dynamic_sampling=True`.",
            )

    def rows_are_independent(self) -> bool:
        """Whether the loss of an optimizer step is a sum over rows, in whatever micro-batches they stand."""
        return (
            self.loss_type != "bnpo"  # divides by the tokens of a micro-batch
            and self.top_entropy_quantile == 1.0  # a quantile of a micro-batch
            and self.entropy_coef == 0.0  # a mean over the tokens of a micro-batch
            and not self.use_adaptive_entropy
        )

    def micro_batches_to_arrange(self) -> int:
        """
        How many consecutive micro-batches of a rollout belong to one optimizer step and may exchange rows; 0 where
        that number differs from step to step, where it matters which rows share a micro-batch, or as wished.
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
                'the loss of a micro-batch must be a sum over its rows, which it is not with `loss_type="bnpo"`, '
                "`top_entropy_quantile` below 1.0, `entropy_coef` or `use_adaptive_entropy`: change that, or leave "
                "the budget out.",
            )

    def _check_ces_combinations(self, refuse):
        off = 'or set `shaping="none"` (a field of `CESConfig`)'
        if self.loss_type not in CES_LOSS_TYPES:
            allowed = ", ".join(map(repr, CES_LOSS_TYPES))
            refuse(
                "loss_type",
                f'with `shaping="ces"` A\' must stand in the clipped objective, Eq. 1: use one of {allowed}, {off}.',
            )
        if self.entropy_coef != 0.0:
            refuse("entropy_coef", f"CES already puts the entropy into the loss: set it to 0.0, {off}.")
        if self.use_adaptive_entropy:
            refuse("use_adaptive_entropy", f"CES already puts the entropy into the loss: set it to False, {off}.")
        if self.top_entropy_quantile < 1.0:
            refuse("top_entropy_quantile", f"it would drop tokens that CES leaves unshaped: set it to 1.0, {off}.")
        if self.importance_sampling_level != "token":
            refuse(
                "importance_sampling_level",
                f'A\' differs from token to token, so the ratio must too: set it to "token", {off}.',
            )
        if self.off_policy_mask_threshold is not None:
            refuse(
                "off_policy_mask_threshold",
                f"that mask keeps or drops a whole completion by the sign of A, which A' may change at a token: "
                f"set it to None, {off}.",
            )
        if (
            self.use_vllm
            and self.vllm_importance_sampling_correction
            and self.vllm_importance_sampling_mode.startswith("sequence")
        ):
            warnings.warn(
                f"`vllm_importance_sampling_mode` is {self.vllm_importance_sampling_mode!r}: it takes the product of "
                "all ratios of a completion, which drifts far from 1 over thousands of tokens, and masks or scales "
                'the completion by it. For long completions use "token_truncate", or, as the paper\'s recipes do, '
                "`vllm_importance_sampling_correction=False`.",
                stacklevel=4,
            )
