"""`CESTrainer`: TRL's `GRPOTrainer` with a shaped advantage. The only file that names TRL's private methods.

CES changes the advantage; everything else is TRL's. The seam, pinned fact by fact in tests/test_trl_contract.py:

1. `_generate` returns the tokens of prompts and completions: whether the template opened <think>, and what the model
   wrote after that, is read from them and passed to the rewards.
2. `_calculate_rewards` returns rewards gathered over all processes, groups contiguous: correctness and the group
   accuracy are taken there, before TRL slices by process and shuffles.
3. `_generate_and_score_completions` returns the rollout: the (B,) tensors join it, and TRL carries them to the
   micro-batch.
4. `_compute_loss` asks `_get_per_token_logps_and_entropies` for the entropies, in the graph, and reads
   `inputs["advantages"]` only afterwards, as (B,) or (B, T): the shaped ones are written between the two.
"""

from typing import Any, cast

import torch
import trl
from packaging.version import Version
from trl import GRPOTrainer
from trl.trainer.utils import get_callable_name, get_config_model_id

from .config import CESConfig
from .prompts import opens_thinking
from .shaping import SHAPING_RULES, group_counts
from .shaping_metrics import ces_metrics, ces_sums

SUPPORTED_TRL = ("1.16.0", "2.0.0")  # from, below
# Enough tokens to hold "<think>" and white space in any tokenizer, one character a token included.
_PROMPT_TAIL = 32


class CESTrainer(GRPOTrainer):
    """
    Trainer for Conditional Entropy Shaping inside DAPO (arXiv 2605.19358).

    Takes what [`~trl.GRPOTrainer`] takes. With `args` a plain [`~trl.GRPOConfig`], its settings stay and the fields of
    [`CESConfig`] take their defaults.

    Reward functions get two more keyword arguments, one entry for each completion: `thinking_prefilled`
    (`list[bool]`), whether the model's last turn began inside an open `<think>`, and `last_turns` (`list[str]`), what
    it wrote in that turn. Where TRL parses responses, the completion's `content` has lost its thinking; this has it.

    Args:
        model (`str`, `PreTrainedModel` or `PeftModel`): The policy, as in [`~trl.GRPOTrainer`].
        reward_funcs (`RewardFunc` or `list[RewardFunc]`, *optional*): As in [`~trl.GRPOTrainer`].
        args ([`CESConfig`] or [`~trl.GRPOConfig`], *optional*): Settings.
        **kwargs: Passed on to [`~trl.GRPOTrainer`].

    Raises:
        `ImportError`: TRL's version is not one that this seam was tested with.
        `ValueError`: See [`CESConfig`]; or `shaping="ces"` and it is not clear which reward is the accuracy reward.
    """

    args: CESConfig
    model: torch.nn.Module
    num_generations: int
    num_generations_eval: int

    _tag_names = ["trl", "ces"]  # noqa: RUF012
    _name = "CES"
    _paper = {  # noqa: RUF012
        "title": "Taming the Thinker: Conditional Entropy Shaping for Adaptive LLM Reasoning",
        "id": "2605.19358",
        # docstyle-ignore
        "citation": """\
@article{wei2026taming,
    title   = {{Taming the Thinker: Conditional Entropy Shaping for Adaptive LLM Reasoning}},
    author  = {Shuyu Wei and Jian Sun and Delai Qiu and Yining Wang and Shengping Liu and Jiaen Liang and Ying Fu and Wei Huang and Jitao Sang},
    year    = 2026,
    eprint  = {arXiv:2605.19358},
}""",  # noqa: E501
    }

    def __init__(self, model, reward_funcs=None, args=None, *positional, **kwargs):
        check_trl_version(trl.__version__)
        if args is None:
            name = model if isinstance(model, str) else get_config_model_id(model.config)
            args = CESConfig(f"{name.split('/')[-1]}-CES")
        args = CESConfig.from_grpo(args)
        # (B,) tensors of this process's latest generation batch, in its order.
        self._rollout: dict[str, torch.Tensor] = {}
        # The inputs of the running _compute_loss.
        self._loss_inputs: dict | None = None
        # Sums of the micro-batches since the last optimizer step; then reduced over processes, one for each step.
        self._ces_sums: torch.Tensor | None = None
        self._ces_totals: dict[str, list[torch.Tensor]] = {"train": [], "eval": []}
        if args.shaping == "ces" and kwargs.get("environment_factory") is None and reward_funcs is not None:
            funcs = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
            accuracy_reward_index([_reward_name(func) for func in funcs], args.ces_accuracy_reward)  # before loading
        super().__init__(model, reward_funcs, args, *positional, **kwargs)
        if args.shaping == "ces":
            self._accuracy_index = accuracy_reward_index(self.reward_func_names, args.ces_accuracy_reward)

    def _generate(self, prompts):
        outputs = super()._generate(prompts)
        # The last turn starts behind the last token that is not the policy's; with one turn, at the start.
        prompt_ids, completion_ids, tool_masks = outputs[:3]
        starts = [0 if mask is None else _after_last_zero(mask) for mask in tool_masks or [None] * len(prompts)]
        rows = list(zip(prompt_ids, completion_ids, starts, strict=True))
        seen = [(prompt + completion[:start])[-_PROMPT_TAIL:] for prompt, completion, start in rows]
        said = [completion[start:] for _, completion, start in rows]
        self._turns = {
            "thinking_prefilled": [opens_thinking(tail) for tail in self._tokenizer.batch_decode(seen)],
            "last_turns": self._tokenizer.batch_decode(said, skip_special_tokens=True),
        }
        return outputs

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        inputs = [
            {**example, **{name: values[row] for name, values in self._turns.items()}}
            for row, example in enumerate(inputs)
        ]
        rewards_per_func = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self.args.shaping == "ces":
            ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
            truncated = [not ids or ids[-1] not in ends for ids in completion_ids_list]
            self._rollout = self._judge_rollout(rewards_per_func, len(prompts))
            self._rollout["truncated"] = torch.tensor(truncated, device=rewards_per_func.device)
        return rewards_per_func

    def _judge_rollout(self, rewards_per_func, local_size: int) -> dict[str, torch.Tensor]:
        """This process's rows of what CES must know of a rollout, from the rewards (all rows, functions) of all."""
        group_size = self.num_generations if self.model.training else self.num_generations_eval
        accuracy = rewards_per_func[:, self._accuracy_index]
        scorable = ~accuracy.isnan()
        correct = accuracy >= self.args.ces_correct_threshold  # False where it is NaN
        group_correct, group_scorable = group_counts(correct, scorable, group_size)  # Eq. 2
        rewards = (rewards_per_func * self.reward_weights.to(accuracy.device)).nansum(dim=1).view(-1, group_size)
        unscorable = rewards_per_func.isnan().all(dim=1).view(-1, group_size)  # TRL leaves these out of the baseline
        highest = rewards.masked_fill(unscorable, -torch.inf).amax(dim=1)
        lowest = rewards.masked_fill(unscorable, torch.inf).amin(dim=1)
        rollout = {
            "correct": correct,
            "scorable": scorable,
            "group_correct": group_correct,
            "group_scorable": group_scorable,
            "equal_rewards": (highest <= lowest).repeat_interleave(group_size),
        }
        start = self.accelerator.process_index * local_size
        return {name: values[start : start + local_size] for name, values in rollout.items()}

    def _generate_and_score_completions(self, inputs):
        return {**super()._generate_and_score_completions(inputs), **self._rollout}

    def _compute_loss(self, model, inputs):
        if self.args.shaping == "none":
            return super()._compute_loss(model, inputs)
        self._loss_inputs = dict(inputs)  # a copy: TRL keeps the original in its buffer for the next iteration
        try:
            loss = super()._compute_loss(model, self._loss_inputs)
        finally:
            self._loss_inputs = None
        if self._ces_sums is not None and (self.accelerator.sync_gradients or not self.model.training):
            mode = "train" if self.model.training else "eval"
            self._ces_totals[mode].append(self.accelerator.reduce(self._ces_sums, reduction="sum"))
            self._ces_sums = None
        return loss

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        outputs = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._loss_inputs is not None:
            self._shape_advantages(self._loss_inputs, entropies_nats=outputs[1])
        return outputs

    def _shape_advantages(self, inputs, entropies_nats):
        """Replace `inputs["advantages"]`, (B,), by the shaped ones, (B, T)."""
        mask = inputs["completion_mask"]
        if "tool_mask" in inputs:
            mask = mask * inputs["tool_mask"]
        rule = SHAPING_RULES[self.args.shaping]
        shaped = rule(inputs, entropies_nats, mask, **self.args.shaping_settings())
        if self.args.shaping == "ces":
            sums = ces_sums(inputs, entropies_nats, mask, shaped)
            self._ces_sums = sums if self._ces_sums is None else self._ces_sums + sums
        inputs["advantages"] = shaped.advantages

    def log(self, logs, start_time=None):
        mode = "train" if self.model.training else "eval"
        if self._ces_totals[mode]:
            totals = torch.stack(self._ces_totals[mode]).cpu().double().sum(dim=0).tolist()
            for name, value in ces_metrics(totals).items():
                self._metrics[mode][name].append(value)
            self._ces_totals[mode].clear()
        super().log(logs, start_time)


def _after_last_zero(mask: list[int]) -> int:
    return len(mask) - (mask[::-1].index(0) if 0 in mask else len(mask))


def _reward_name(func: Any) -> str:
    """The name that TRL logs a reward function or reward model under."""
    if isinstance(func, str):
        return func.split("/")[-1]
    if isinstance(func, torch.nn.Module):
        return get_config_model_id(cast(Any, func.config)).split("/")[-1]
    return get_callable_name(func)


def accuracy_reward_index(names: list[str], wanted: str | None) -> int:
    """
    Which reward function says that a completion is correct.

    Args:
        names (`list[str]`): Names of the reward functions, as TRL logs them.
        wanted (`str`, *optional*): `ces_accuracy_reward`.

    Returns:
        `int`: Its place in `names`.

    Raises:
        `ValueError`: There is no such function, or more than one.
    """
    there_are = f"There are: {', '.join(names) or 'none'}."
    if wanted is not None:
        matches = [index for index, name in enumerate(names) if name == wanted]
        problem = f"`ces_accuracy_reward` is {wanted!r}, which names {len(matches)} of the reward functions."
    elif len(names) == 1:
        return 0
    else:
        matches = [index for index, name in enumerate(names) if "accuracy" in name.lower()]
        problem = f"`ces_accuracy_reward` is None, and {len(matches)} reward functions have 'accuracy' in their name."
    if len(matches) != 1:
        raise ValueError(
            f"{problem} CES needs the one that tells right completions from wrong: set `ces_accuracy_reward` to "
            f'its name, or `shaping="none"`. {there_are}'
        )
    return matches[0]


def check_trl_version(version: str):
    """Raise `ImportError` unless `version` lies in `SUPPORTED_TRL`: an untested TRL could train something else."""
    lowest, below = map(Version, SUPPORTED_TRL)
    if not lowest <= Version(version) < below:
        raise ImportError(
            f"trl {version} is installed, but CESTrainer builds on the internals of trl >= {lowest}, < {below}: "
            f"pip install 'trl>={lowest},<{below}'."
        )
