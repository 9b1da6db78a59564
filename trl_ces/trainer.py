"""`CESTrainer`: TRL's `GRPOTrainer` with the paper's shaped advantage.

CES changes only the advantage. [`Shaping`] implements the paper by overriding TRL's methods. It relies on the
following behavior, which tests/test_trl_contract.py checks:

1. `_calculate_rewards` returns rewards gathered over all processes, with contiguous groups. At this point,
   `Correctness` determines which completions are correct, and [`Shaping`] computes the group accuracy (Eq. 2), before
   TRL computes, slices and shuffles the advantages.
2. `_generate_and_score_completions` returns the rollout. [`Shaping`] adds tensors of shape (B,) to the rollout, and
   TRL passes them on to the micro-batches.
3. `_compute_loss` calls `_get_per_token_logps_and_entropies` for differentiable log-probs and entropies (Eq. 4), and
   only then reads `inputs["advantages"]`, of shape (B,) or (B, T). In between, [`Shaping`] writes A' (Eq. 7) there.

[`CESTrainer`] combines [`Shaping`] with the layers in layers/.

Overrides of TRL: `_calculate_rewards`, `_generate_and_score_completions`, `_prepare_inputs`, `_compute_loss`,
`_get_per_token_logps_and_entropies`, `log`. Reads `_buffered_inputs` and `_metrics`.
"""

import copy
import inspect
import logging
import math
import os
from typing import Any, cast

import torch
import trl
from accelerate.utils import is_peft_model
from datasets import Dataset
from trl import GRPOTrainer
from trl.trainer.utils import get_config_model_id

from .config import CESConfig
from .layers import (
    Correctness,
    DynamicSampling,
    EndedRows,
    ExactResume,
    FiniteSteps,
    GroupRewards,
    RealTokens,
    RewardCalls,
    UpstreamFixes,
)
from .layers.divergence import DivergenceWatch
from .layers.first_rollout import rounding_warning
from .layers.reward_calls import check_columns
from .layers.rows import NUM_ITEMS, rows_of_process
from .methods.ces import (
    AUTO,
    automatic_tau,
    negative_beta_warning,
    short_completion_warning,
    unshaped_rollout_warning,
    unshaped_warning,
)
from .methods.group_reward import check_rewards
from .methods.groups import completion_facts
from .methods.metrics import ces_metrics, ces_sums, selection_metrics, selection_sums
from .methods.rule import Need, Rule, ShapedAdvantages
from .support.models import check_not_adapter, check_policy, check_reward_model
from .support.prompts import check_chat_template

logger = logging.getLogger(__name__)


class Shaping(Correctness):
    """
    Compute A' from correctness and differentiable entropies, as set by `shaping` in [`CESConfig`].

    Raises:
        `ValueError`: The rule needs correctness, but the accuracy reward is ambiguous.
        `RuntimeError`: During training, if TRL's entropies carry no gradient or TRL reads the advantages too early.
    """

    _rule: Rule | None = None
    # [`completion_facts`] of the latest rollout for this process's rows, each of shape (B,).
    _facts: dict[str, torch.Tensor] = {}  # noqa: RUF012
    # Inputs of the current `_compute_loss` call: the original and the copy passed to TRL.
    _loss_inputs: tuple[dict, dict] | None = None

    def __init__(self, *args, **kwargs):
        # Metric sums of the current optimizer step, and the totals of the finished steps, reduced over processes.
        self._ces_sums: dict[str, torch.Tensor] = {}
        self._ces_totals: dict[str, list[torch.Tensor]] = {"train": [], "eval": []}
        super().__init__(*args, **kwargs)
        self._rule = self.args.rule
        self._is_ces = self.args.shaping == "ces"
        self._uses_auto_tau = self._is_ces and self.args.ces_tau == AUTO
        if self._uses_auto_tau:  # copy the config before changing it, because another trainer may share it
            self.args = copy.copy(self.args)
        steps = cast(int, self.args.steps_per_generation)
        if self.args.normalize_each_step and steps % self.args.gradient_accumulation_steps:
            raise ValueError(
                f"`normalize_each_step` needs a whole number of optimizer steps per rollout: set "
                f"`steps_per_generation` ({steps}) to a multiple of `gradient_accumulation_steps` "
                f"({self.args.gradient_accumulation_steps})."
            )
        self._warn_before_training()
        if self._is_ces and self.args.ces_beta_incorrect > 0:
            reward = self.reward_func_names[cast(int, self._accuracy_index)]
            advice = "the `ces_mai` or `ces_correct_only` overlay, or a smaller `ces_tau`"
            self.add_callback(DivergenceWatch(reward, self.args.stop_on_divergence, advice))

    def _warn_before_training(self):
        args = self.args
        if self._is_ces:
            self._log_warning(negative_beta_warning(args.ces_beta_correct, args.ces_beta_incorrect))
            self._log_warning(unshaped_warning(args.ces_tau, args.max_completion_length))
        sharded = self.is_deepspeed_enabled or self.is_fsdp_enabled  # DeepSpeed and FSDP update fp32 copies
        if not sharded and not is_peft_model(self.model):
            self._log_warning(rounding_warning(max(self.model.parameters(), key=torch.numel), args.learning_rate))

    def _log_warning(self, warning: str):
        """Log a warning on the main process, unless it is empty."""
        if warning and self.accelerator.is_main_process:
            logger.warning(warning)

    def _required_inputs(self):
        return super()._required_inputs() | ({"correct"} if self.args.needs(Need.CORRECTNESS) else set())

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        is_first = not self._had_rollout
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self.args.needs(Need.CORRECTNESS):
            facts = completion_facts(self._groups, rewards, self.reward_weights)
            self._facts = rows_of_process(facts, self.accelerator)
        if self._is_ces and self.model.training:
            self._resolve_tau(facts, self._groups.lengths.flatten(), is_first)
        return rewards

    def _resolve_tau(self, facts: dict[str, torch.Tensor], lengths: torch.Tensor, is_first: bool):
        """Replace `ces_tau: auto` with a number; warn if few completions of the first rollout are shaped."""
        if self.args.ces_tau == AUTO:
            mean = lengths.float().mean().item()
            self.args.ces_tau = automatic_tau(mean)
            result = f"`ces_tau: auto` resolved to {self.args.ces_tau:g}: 2 / {mean:.0f} tokens, from 0.01 to 0.05."
            self._log_warning(f"{result} {short_completion_warning(mean)}".rstrip())
        if is_first and not unshaped_warning(self.args.ces_tau, self.args.max_completion_length):
            self._log_warning(unshaped_rollout_warning(facts, lengths, self.args.shaping_settings()))

    def _generate_and_score_completions(self, inputs):
        self._facts = {}
        return {**super()._generate_and_score_completions(inputs), **self._facts}

    def _compute_loss(self, model, inputs):
        if self._rule is None:
            return super()._compute_loss(model, inputs)
        # Pass a copy, because TRL keeps the original in its buffer for the next iteration. Remove the advantages, so
        # that a TRL version that reads them too early fails.
        trl_inputs = {name: value for name, value in inputs.items() if name != "advantages"}
        self._loss_inputs = inputs, trl_inputs
        try:
            loss = super()._compute_loss(model, trl_inputs)
        except KeyError as error:
            if error.args != ("advantages",):
                raise
            raise RuntimeError(
                f"trl {trl.__version__} reads the advantages before it computes the entropies, so CES cannot shape "
                "them: install the TRL version in constraints.txt, and please report this error."
            ) from error
        finally:
            self._loss_inputs = None
        mode = "train" if self.model.training else "eval"
        if mode in self._ces_sums and (mode == "eval" or self.accelerator.sync_gradients):
            self._ces_totals[mode].append(self.accelerator.reduce(self._ces_sums.pop(mode), reduction="sum"))
        return loss

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        outputs = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._loss_inputs is not None:
            inputs, trl_inputs = self._loss_inputs
            trl_inputs["advantages"] = self._shaped_advantages(inputs, logps=outputs[0], entropies_nats=outputs[1])
        return outputs

    def _shaped_advantages(self, inputs, logps, entropies_nats):
        """Compute A', (B, T), from `inputs["advantages"]`, (B,)."""
        rule, settings = cast(Rule, self._rule), self.args.shaping_settings()
        differentiable = rule.differentiates == "entropies" and settings.get("entropy_gradient", True)
        if differentiable and torch.is_grad_enabled() and not entropies_nats.requires_grad:
            raise RuntimeError(
                f"The entropies of trl {trl.__version__} carry no gradient, so this run would be the paper's ablation "
                '"w/o Entropy Gradient": install the TRL version in constraints.txt, or set '
                "`ces_entropy_gradient=False` if this is intended."
            )
        if self._is_ces and self.args.ces_tau == AUTO:  # evaluation before the first training rollout
            settings["tau"] = automatic_tau(self._groups.lengths.float().mean().item())
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        old_logps = inputs.get("old_per_token_logps", logps.detach())  # as in TRL's _compute_loss
        batch = {**inputs, "logps": logps, "old_logps": old_logps}
        shaped = rule.function(batch, entropies_nats, mask, **settings)
        mode = "train" if self.model.training else "eval"
        has_facts = self.args.needs(Need.CORRECTNESS)
        if has_facts:  # the advantage of an unscored completion is 0 under every rule
            scored = inputs["scored"].unsqueeze(1)
            shaped = ShapedAdvantages(torch.where(scored, shaped.advantages, 0.0), shaped.selected & scored)
        sums = ces_sums(inputs, entropies_nats, mask, shaped) if has_facts else selection_sums(mask, shaped)
        self._ces_sums[mode] = self._ces_sums[mode] + sums if mode in self._ces_sums else sums
        return shaped.advantages

    def _prepare_inputs(self, generation_batch):
        previous_buffer = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if self.args.normalize_each_step and self.model.training and self._buffered_inputs is not previous_buffer:
            self._count_tokens_of_steps(cast(list[dict], self._buffered_inputs))
        return inputs

    def _count_tokens_of_steps(self, buffer: list[dict]):
        """Make TRL divide each step's loss by the step's token count (Eq. 1), not by the rollout's mean count."""
        tokens = torch.stack([(batch["completion_mask"] * batch.get("tool_mask", 1)).sum() for batch in buffer])
        tokens_per_step = tokens.view(-1, self.args.gradient_accumulation_steps).sum(dim=1)
        totals = self.accelerator.reduce(tokens_per_step, reduction="sum") * len(tokens_per_step)
        for index, batch in enumerate(buffer):
            batch[NUM_ITEMS] = totals[index // self.args.gradient_accumulation_steps]

    def log(self, logs, start_time=None):
        mode = "train" if self.model.training else "eval"
        if self._ces_totals[mode]:
            totals = torch.stack(self._ces_totals[mode]).cpu().double().sum(dim=0).tolist()
            has_facts, rule = self.args.needs(Need.CORRECTNESS), cast(Rule, self._rule)
            metrics = ces_metrics(totals) if has_facts else selection_metrics(rule.name, totals)
            for name, value in metrics.items():
                if not math.isnan(value):  # TRL would log NaN as None, and TensorBoard would warn each time
                    self._metrics[mode][name].append(value)
            self._ces_totals[mode].clear()
        super().log(logs, start_time)

    def _rollout_settings(self):
        return {**super()._rollout_settings(), "decides_tau": self._uses_auto_tau}

    def state_dict(self):
        totals = [totals.tolist() for totals in self._ces_totals["train"]]
        return {**super().state_dict(), "totals": totals, "tau": self.args.ces_tau if self._uses_auto_tau else None}

    def load_state_dict(self, state: dict[str, Any]):
        super().load_state_dict(state)
        if state["settings"]["shaping"] != self.args.shaping:
            return
        device = self.accelerator.device
        self._ces_totals["train"] = [torch.tensor(row, device=device) for row in state["totals"]]
        if self.args.ces_tau == AUTO:
            self.args.ces_tau = state["tau"] or AUTO


# The outermost layer comes first. RealTokens calls Shaping once for each piece of a micro-batch. DynamicSampling is
# inside Shaping, which therefore receives only the kept groups. Correctness is inside all layers that read its groups,
# and outside RewardCalls, which returns the rewards.
class CESTrainer(
    RealTokens,
    EndedRows,
    Shaping,
    DynamicSampling,
    GroupRewards,
    Correctness,
    ExactResume,
    FiniteSteps,
    RewardCalls,
    UpstreamFixes,
):
    """
    Trainer for Conditional Entropy Shaping with DAPO (arXiv 2605.19358).

    Takes the arguments of [`~trl.GRPOTrainer`]. If `args` is a plain [`~trl.GRPOConfig`], its settings are kept, and
    the additional fields of [`CESConfig`] take their defaults.

    Reward functions receive two extra keyword arguments, with one entry per completion: `thinking_prefilled`
    (`list[bool]`), whether the model's last turn began inside an open `<think>`, and `last_turns` (`list[str]`), the
    text of that turn. If TRL parses completions, `last_turns` still contains the thinking, but `content` does not. A
    dataset column with either name takes precedence.

    Args:
        model (`str`, `PreTrainedModel` or `PeftModel`): The policy, as in [`~trl.GRPOTrainer`].
        reward_funcs (`RewardFunc` or `list[RewardFunc]`, *optional*): As in [`~trl.GRPOTrainer`].
        args ([`CESConfig`] or [`~trl.GRPOConfig`], *optional*): Settings.
        **kwargs: Passed on to [`~trl.GRPOTrainer`].

    Raises:
        `ImportError`: The installed TRL is not supported.
        `ValueError`: See [`CESConfig`]. Also raised if the accuracy reward is ambiguous and `shaping="ces"`,
            `dynamic_sampling` or a group reward needs it, if `dynamic_sampling` is used with a dataset that is
            streamed or contains images, if a dataset lacks `prompt` or a column that a reward function requires, or if
            `reward_funcs` is empty.
    """

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
        if args is None:
            name = model if isinstance(model, str) else get_config_model_id(model.config)
            args = CESConfig(f"{name.split('/')[-1]}-CES")
        args = CESConfig.from_grpo(args)
        args.output_dir = os.path.abspath(str(args.output_dir))  # a reward function may change the working directory
        if kwargs.get("environment_factory") is None and reward_funcs is not None:
            funcs = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
            check_rewards(args, funcs)  # before the model is loaded
            for func in funcs:
                check_reward_model(func)
        if isinstance(model, str):
            check_not_adapter(model)
        arguments = dict(zip(("train_dataset", "eval_dataset", "processing_class"), positional, strict=False)) | kwargs
        data, tokenizer = arguments.get("train_dataset"), arguments.get("processing_class")
        for name in ("train_dataset", "eval_dataset"):
            value = arguments.get(name)
            for rows in value.values() if isinstance(value, dict) else [value]:
                if isinstance(rows, Dataset) and "prompt" not in rows.column_names:
                    raise ValueError(f"`{name}` has no `prompt` column. Its columns are {rows.column_names}.")
                # A rollout function or a transform can add columns.
                if isinstance(rows, Dataset) and not arguments.get("rollout_func") and rows.format["type"] != "custom":
                    check_columns(reward_funcs, rows.column_names, name)
        if isinstance(data, Dataset) and data and not arguments.get("rollout_func"):
            name = model if isinstance(model, str) else get_config_model_id(model.config)
            revision = (args.model_init_kwargs or {}).get("revision")
            check_chat_template(data["prompt"][0], name, tokenizer, revision, args.trust_remote_code)
        if args.shaping != "ces":  # use TRL's model card and Hub tags
            self._tag_names, self._name, self._paper = GRPOTrainer._tag_names, GRPOTrainer._name, GRPOTrainer._paper
        super().__init__(model, reward_funcs, args, *positional, **kwargs)
        check_policy(self.model, self._tokenizer)


# Make help() and editors show TRL's parameters.
CESTrainer.__init__.__signature__ = inspect.signature(GRPOTrainer.__init__)  # type: ignore[attr-defined]
