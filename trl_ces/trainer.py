"""`CESTrainer`: TRL's `GRPOTrainer` with a shaped advantage. The only file that names TRL's private methods.

CES changes the advantage; everything else is TRL's. The seam, pinned fact by fact in tests/test_trl_contract.py:

1. `_generate` returns the tokens of prompts and completions: whether the template opened <think>, and what the model
   wrote after that, is read from them and passed to the rewards. Grading starts here, beside TRL's forwards for the
   old and the reference log-probs.
2. `_calculate_rewards` returns rewards gathered over all processes, groups contiguous: correctness and the group
   accuracy are taken there, before TRL slices by process and shuffles.
3. `_generate_and_score_completions` returns the rollout: the (B,) tensors join it, and TRL carries them to the
   micro-batch.
4. `_compute_loss` asks `_get_per_token_logps_and_entropies` for the entropies, in the graph, and reads
   `inputs["advantages"]` only afterwards, as (B,) or (B, T): the shaped ones are written between the two.

DAPO's dynamic sampling, off by default, sits in points 2 and 3: the rewards say which groups teach, and TRL's method
for a rollout runs once for each round.

Padding is kept out of forwards at point 4: TRL only calls the `model` that it is given there, so it may be one that
trims or packs its rows. `_prepare_inputs` keeps a rollout in `_buffered_inputs`, a list of micro-batches: there rows
are placed by length.
"""

import inspect
import logging
import math
from pathlib import Path
from typing import Any, cast

import torch
import trl
from accelerate.utils import DistributedType, gather_object, send_to_device
from packaging.specifiers import SpecifierSet
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer
from trl.trainer.utils import get_config_model_id

from .config import CESConfig
from .methods import SHAPING_RULES
from .methods.groups import judge, odd_reward
from .methods.metrics import ces_metrics, ces_sums
from .rollout.files import load_micro_batches, save_micro_batches
from .rollout.micro_batches import (
    PIECES,
    arranged,
    backward,
    can_be_arranged,
    rows_at_a_time,
    rows_between,
    without_sync,
)
from .rollout.padding import padding_plan, real_spans, unpadded
from .rollout.reward_guard import guarded_rewards, start_early
from .rollout.rows import COMPLETION_LENGTHS, row_layout, rows_of_process, trimmed
from .rollout.sampler import DynamicSampler, PromptStream, check_can_be_drawn, informative_groups
from .rollout.turns import read_turns
from .support.reward_names import reward_name

logger = logging.getLogger(__name__)

SUPPORTED_TRL = ">=1.16,<2"


class CESTrainer(GRPOTrainer):
    """
    Trainer for Conditional Entropy Shaping inside DAPO (arXiv 2605.19358).

    Takes what [`~trl.GRPOTrainer`] takes. With `args` a plain [`~trl.GRPOConfig`], its settings stay and the fields of
    [`CESConfig`] take their defaults.

    Reward functions get two more keyword arguments, one entry for each completion: `thinking_prefilled`
    (`list[bool]`), whether the model's last turn began inside an open `<think>`, and `last_turns` (`list[str]`), what
    it wrote in that turn. Where TRL parses responses, the completion's `content` has lost its thinking; this has it.
    A column of that name in the data goes before.

    Args:
        model (`str`, `PreTrainedModel` or `PeftModel`): The policy, as in [`~trl.GRPOTrainer`].
        reward_funcs (`RewardFunc` or `list[RewardFunc]`, *optional*): As in [`~trl.GRPOTrainer`].
        args ([`CESConfig`] or [`~trl.GRPOConfig`], *optional*): Settings.
        **kwargs: Passed on to [`~trl.GRPOTrainer`].

    Raises:
        `ImportError`: TRL's version is not one that this seam was tested with.
        `ValueError`: See [`CESConfig`]; or `shaping="ces"` or `dynamic_sampling` and it is not clear which reward is
            the accuracy reward; or `dynamic_sampling` and a data set that is streamed or has pictures.
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
        self._examples: list[dict] = []  # the rows of the data for which completions are being written
        # What the latest prompts ended in and what the model wrote after them, by the names of REWARD_KEYWORDS.
        self._turns: dict[str, list] = {}
        # The inputs of the running _compute_loss: TRL's, and the copy that TRL is working on.
        self._loss_inputs: tuple[dict, dict] | None = None
        # Sums of the micro-batches since the last optimizer step; then reduced over processes, one for each step.
        self._ces_sums: dict[str, torch.Tensor] = {}
        self._ces_totals: dict[str, list[torch.Tensor]] = {"train": [], "eval": []}
        self._sampler: DynamicSampler | None = None
        self._informative: list[bool] = []  # which groups of its latest round are
        self._arranged: list[dict] | None = None  # TRL's buffer of micro-batches, once rows are placed by length
        self._nonfinite_steps = self._nonfinite_in_a_row = 0
        self._train_sampler: Any = None
        needs_accuracy = args.needs_verdicts or args.dynamic_sampling
        if needs_accuracy and kwargs.get("environment_factory") is None and reward_funcs is not None:
            funcs = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
            args.accuracy_reward_index([reward_name(func) for func in funcs])  # before loading
        if args.dynamic_sampling:
            check_can_be_drawn(kwargs.get("train_dataset", positional[0] if positional else None))
        super().__init__(model, reward_funcs, args, *positional, **kwargs)
        if needs_accuracy:
            self._accuracy_index = args.accuracy_reward_index(self.reward_func_names)
        if args.dynamic_sampling:
            self._sampler = self._make_sampler(cast(Any, self.train_dataset))
        parallelism = getattr(self.accelerator, "parallelism_config", None)
        split = parallelism is not None and (parallelism.cp_enabled or parallelism.sp_enabled)
        policy = self.accelerator.unwrap_model(self.model)
        self._padding = padding_plan(policy, args.trim_padding, args.padding_free, split)
        # The load-balancing loss of a mixture of experts is no sum over rows.
        self._per_step = 0 if self.aux_loss_enabled or split else args.micro_batches_to_arrange()
        if args.max_tokens_per_micro_batch is not None and (self._per_step == 0 or not self._padding.right):
            raise ValueError(
                "`max_tokens_per_micro_batch` needs rows that can change places and be trimmed: "
                "`steps_per_generation` and `gradient_accumulation_steps` must be multiples of one another, "
                "`router_aux_loss_coef` 0.0, sequences whole, and the model's positions independent of padding."
            )
        if args.needs_verdicts:
            logger.info("CES takes correctness from %s.", self.reward_func_names[self._accuracy_index])
            # A number that the user named or set a threshold for may be graded; one that we found should be 0 or 1.
            self._expects_binary = args.ces_accuracy_reward is None and args.ces_correct_threshold == 1.0

    def _generate(self, prompts):
        outputs = super()._generate(prompts)
        prompt_ids, completion_ids, masks = outputs[:3]  # lists, but a user's rollout_func may return tensors
        self._turns = read_turns(prompt_ids, completion_ids, masks, self._tokenizer)
        start_early(self.reward_funcs, self._with_turns(self._examples))
        return outputs

    def _with_turns(self, examples: list[dict]) -> list[dict]:
        """Examples with `REWARD_KEYWORDS`; a column of that name goes before."""
        return [
            {**{name: values[row] for name, values in self._turns.items()}, **example}
            for row, example in enumerate(examples)
        ]

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        with guarded_rewards(self, self.args.on_reward_error):
            rewards_per_func = super()._calculate_rewards(
                self._with_turns(inputs), prompts, completions, completion_ids_list
            )
        if self.args.needs_verdicts:
            ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
            truncated = [not ids or ids[-1] not in ends for ids in completion_ids_list]
            self._warn_unless_binary(rewards_per_func[:, self._accuracy_index])
            group_size = self.num_generations if self.model.training else self.num_generations_eval
            threshold = self.args.ces_correct_threshold
            judged = judge(rewards_per_func, self._accuracy_index, self.reward_weights, threshold, group_size)
            self._rollout = rows_of_process(judged, self.accelerator)
            self._rollout["truncated"] = torch.tensor(truncated, device=rewards_per_func.device)
        if self._sampler is not None and self.model.training:
            accuracy = rewards_per_func[:, self._accuracy_index]
            self._informative = informative_groups(accuracy, self.num_generations).tolist()
            lengths = [len(ids) for ids in completion_ids_list]
            self._rollout[COMPLETION_LENGTHS] = torch.tensor(lengths, device=rewards_per_func.device)
        return rewards_per_func

    def _warn_unless_binary(self, accuracy):
        odd = odd_reward(accuracy) if self._expects_binary else None
        if odd is not None:
            self._expects_binary = False  # said once
            if self.accelerator.is_main_process:
                logger.warning(
                    "The reward function %s, which CES takes for the accuracy reward, returned %g. A completion "
                    "counts as correct when it is >= `ces_correct_threshold` (1.0): set that, or name the "
                    "accuracy reward in `ces_accuracy_reward`.",
                    self.reward_func_names[self._accuracy_index],
                    odd,
                )

    def _generate_and_score_completions(self, inputs):
        if self._sampler is None or not self.model.training:
            return self._sample(inputs)
        layout = row_layout(self._tokenizer.pad_token_id)
        rows, metrics = self._sampler.sample(self._sample_round, layout)
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)
        return trimmed(rows, layout, cast(Any, self.pad_to_multiple_of))

    def _sample(self, inputs):
        self._rollout, self._examples = {}, inputs
        return {**super()._generate_and_score_completions(inputs), **self._rollout}

    def _sample_round(self, prompts: list[int]) -> tuple[list[bool], dict[str, torch.Tensor]]:
        """Which of `prompts`, row numbers of the data, gave informative groups, and this process's rows of them."""
        numbers = torch.tensor(prompts).repeat_interleave(self.num_generations)
        here = rows_of_process({"numbers": numbers}, self.accelerator)["numbers"].tolist()
        # As TRL's data loader hands examples over.
        dataset = self._remove_unused_columns(self.train_dataset, description="Training")
        rows = self._sample(send_to_device(dataset.__getitems__(here), self.accelerator.device))
        return self._informative, rows

    def _make_sampler(self, dataset) -> DynamicSampler:
        args, group_size = self.args, self.num_generations
        stream = PromptStream(len(dataset), args.seed, bool(self.shuffle_dataset))
        wanted = cast(int, args.generation_batch_size) // group_size
        return DynamicSampler(stream, wanted, group_size, args.dynamic_sampling_max_rounds, self.accelerator)

    def _prepare_inputs(self, generation_batch):
        inputs = super()._prepare_inputs(generation_batch)
        if not self.model.training or self._per_step == 0 or self._buffered_inputs is self._arranged:
            return inputs
        layout, budget = row_layout(self._tokenizer.pad_token_id), self.args.max_tokens_per_micro_batch
        buffer = cast(list[dict], self._buffered_inputs)
        # Together, since some processes may have pictures and others none.
        if all(gather_object([all(can_be_arranged(batch, layout) for batch in buffer)])):
            unit = cast(Any, self.pad_to_multiple_of) or 1
            buffer = arranged(buffer, self._per_step, layout, self.accelerator, self._padding, budget, unit)
        elif budget is not None:
            logger.warning(
                "A rollout has more than rows of tokens: `max_tokens_per_micro_batch` does not hold for it."
            )
        self._buffered_inputs = self._arranged = cast(Any, buffer)
        return buffer[self._step % len(buffer)]

    def compute_loss(self, model, inputs, *args, **kwargs):
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        # DeepSpeed's backward makes the optimizer's step itself, so it must not come to that.
        deepspeed = self.accelerator.distributed_type == DistributedType.DEEPSPEED
        if deepspeed and self.model.training and not torch.isfinite(loss):
            self._report_nonfinite("loss", self._step, stop=True)
        return loss

    def _compute_loss(self, model, inputs):
        sizes = inputs.get(PIECES, [])
        if len(sizes) < 2:
            return self._loss_of_rows(model, inputs)
        start, earlier = 0, 0.0
        for size in sizes[:-1]:
            with without_sync(self.accelerator, model):
                loss = self._loss_of_piece(model, inputs, start, size, sum(sizes))
                backward(self.accelerator, loss)
            start, earlier = start + size, earlier + loss.detach()
        last = self._loss_of_piece(model, inputs, start, sizes[-1], sum(sizes))
        return last + earlier  # for the log: the backward that follows is that of the last rows

    def _loss_of_piece(self, model, inputs, start: int, size: int, total: int):
        """What `size` rows add to the loss of `total`, which TRL divides by the rollout's tokens or by its rows."""
        loss = self._loss_of_rows(model, rows_between(inputs, start, start + size))
        return loss if self.loss_type in ("dapo", "cispo", "vespo") else loss * size / total

    def _loss_of_rows(self, model, inputs):
        if self.args.shaping == "none":
            return super()._compute_loss(model, inputs)
        # A copy, because TRL keeps the original in its buffer for the next iteration; and without the advantages, so
        # that a TRL that would train on the unshaped ones fails instead.
        copy = {name: value for name, value in inputs.items() if name != "advantages"}
        self._loss_inputs = inputs, copy
        try:
            loss = super()._compute_loss(model, copy)
        except KeyError as error:
            if error.args != ("advantages",):
                raise
            raise RuntimeError(
                f"trl {trl.__version__} reads the advantages before it computes the entropies, so CES cannot shape "
                "them: install the version in constraints.txt, and please report it."
            ) from error
        finally:
            self._loss_inputs = None
        mode = "train" if self.model.training else "eval"
        if mode in self._ces_sums and (mode == "eval" or self.accelerator.sync_gradients):
            self._ces_totals[mode].append(self.accelerator.reduce(self._ces_sums.pop(mode), reduction="sum"))
        return loss

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **kwargs
    ):
        others = kwargs.keys() - {"compute_entropy", "compute_aux_loss"}
        pictures = any(kwargs[name] is not None for name in others)
        budget = self.args.max_tokens_per_micro_batch if self.model.training and batch_size is not None else None
        if budget is not None and any(gather_object([pictures])):
            budget = None
        if self._padding.right and not pictures:
            outputs = self._forward_without_padding(
                model, input_ids, attention_mask, logits_to_keep, batch_size, budget, **kwargs
            )
        else:
            outputs = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size=batch_size, **kwargs
            )
        if self._loss_inputs is not None:
            inputs, copy = self._loss_inputs
            copy["advantages"] = self._shaped_advantages(inputs, entropies_nats=outputs[1])
        return outputs

    def _forward_without_padding(self, model, input_ids, attention_mask, logits_to_keep, batch_size, budget, **kwargs):
        """TRL's method on a model that trims or packs; without a gradient, on rows of like length at a time."""
        run, spans = super()._get_per_token_logps_and_entropies, real_spans(attention_mask)
        unit = cast(Any, self.pad_to_multiple_of) or 1
        if batch_size is None:
            model = unpadded(model, self._padding, spans, unit)
            return run(model, input_ids, attention_mask, logits_to_keep, **kwargs)
        sort = self.args.arrange_by_length
        together = rows_at_a_time(spans, batch_size, sort, self._padding, self.accelerator, budget, unit)
        parts = []
        for rows in together:
            here = unpadded(model, self._padding, [spans[row] for row in rows], unit)
            parts.append(run(here, input_ids[rows], attention_mask[rows], logits_to_keep, **kwargs))
        places = torch.tensor([row for rows in together for row in rows], device=input_ids.device).argsort()
        logps, entropies = (
            None if part[0] is None else torch.cat(part)[places] for part in list(zip(*parts, strict=True))[:2]
        )
        return logps, entropies, None  # no auxiliary loss without a gradient

    def _shaped_advantages(self, inputs, entropies_nats):
        """A', (B, T), from `inputs["advantages"]`, (B,)."""
        mask = inputs["completion_mask"]
        if "tool_mask" in inputs:
            mask = mask * inputs["tool_mask"]
        rule = SHAPING_RULES[self.args.shaping]
        shaped = rule(inputs, entropies_nats, mask, **self.args.shaping_settings())
        if self.args.needs_verdicts:
            mode = "train" if self.model.training else "eval"
            sums = ces_sums(inputs, entropies_nats, mask, shaped)
            self._ces_sums[mode] = self._ces_sums[mode] + sums if mode in self._ces_sums else sums
        return shaped.advantages

    def log(self, logs, start_time=None):
        mode = "train" if self.model.training else "eval"
        if mode == "train" and self._nonfinite_steps:
            self._metrics[mode]["nonfinite_steps"].append(self._nonfinite_steps)
        if self._ces_totals[mode]:
            totals = torch.stack(self._ces_totals[mode]).cpu().double().sum(dim=0).tolist()
            for name, value in ces_metrics(totals).items():
                if not math.isnan(value):  # TRL would log None, at which TensorBoard warns on every line
                    self._metrics[mode][name].append(value)
            self._ces_totals[mode].clear()
        super().log(logs, start_time)

    def _save_checkpoint(self, model, trial):
        folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        inside_rollout = self._step % self._steps_of_a_rollout() != 0
        if not self.args.save_only_model:  # first, so that no whole checkpoint lacks it
            self._save_rollout(folder, cast(Any, self._buffered_inputs) if inside_rollout else [])
        if self._sampler is not None and self.args.should_save:
            self._sampler.save(folder, inside_rollout)
        super()._save_checkpoint(model, trial)

    def _save_rollout(self, folder: Path, micro_batches: list[dict]):
        """What TRL keeps in memory only: where in a rollout training stands, the rollout, metrics not yet logged."""
        totals = torch.stack(self._ces_totals["train"]).tolist() if self._ces_totals["train"] else []
        more = {
            "step": self._step,
            "metrics": self._metrics["train"],
            "totals": totals,
            "of": self._rollout_settings(),
            "nonfinite": [self._nonfinite_steps, self._nonfinite_in_a_row],
        }
        try:
            save_micro_batches(folder / self._rollout_file(), micro_batches, more)
        except TypeError as error:  # pictures in lists
            logger.warning("The rollout is not saved (%s): resumed, it is generated anew.", error)

    def _rollout_settings(self) -> dict[str, Any]:
        """What a rollout that is taken up must have been made with."""
        names = ["shaping", "beta", "num_generations", "num_iterations", "steps_per_generation"]
        names += ["per_device_train_batch_size", "gradient_accumulation_steps", "max_tokens_per_micro_batch"]
        return {name: getattr(self.args, name) for name in names} | {"num_processes": self.accelerator.num_processes}

    def _get_train_sampler(self, dataset=None):
        self._train_sampler = super()._get_train_sampler(dataset)
        return self._train_sampler

    def _rollout_file(self) -> str:
        return f"rollout-{self.accelerator.process_index}.safetensors"

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        if self._train_sampler is not None and self.shuffle_dataset:
            # TRL's sampler draws an order for each pass from one generator: those of the passes made are used up.
            for _ in range(int(cast(float, self.state.epoch))):
                torch.randperm(self._train_sampler.num_samples, generator=self._train_sampler.generator)
        restored = self._load_rollout(Path(checkpoint))
        if self._sampler is not None:
            steps = self.state.global_step * self.args.gradient_accumulation_steps
            begun = -(-steps // self._steps_of_a_rollout()) if restored else steps // self._steps_of_a_rollout()
            self._sampler.load(Path(checkpoint), planned_rollouts=begun, with_rollout=restored)

    def _load_rollout(self, checkpoint: Path) -> bool:
        """Takes up what [`_save_rollout`] wrote, if every process finds its part and it fits these settings."""
        found = load_micro_batches(checkpoint / self._rollout_file(), self.accelerator.device)
        micro_batches, more = found or ([], {})
        if not all(gather_object([more.get("of") == self._rollout_settings()])):
            inside = self.state.global_step * self.args.gradient_accumulation_steps % self._steps_of_a_rollout()
            if inside and self.accelerator.is_main_process:
                logger.warning(
                    "%s stands inside a rollout, which is not there, damaged, or made with other settings or "
                    "processes: it is generated anew, so training will differ a little from what it would have been.",
                    checkpoint,
                )
            return False
        self._step = more["step"]
        self._metrics["train"].update(more["metrics"])
        self._nonfinite_steps, self._nonfinite_in_a_row = more["nonfinite"]
        self._ces_totals["train"] = [torch.tensor(row, device=self.accelerator.device) for row in more["totals"]]
        if micro_batches:
            self._buffered_inputs = self._arranged = cast(Any, micro_batches)
        return True

    def _get_grad_norm(self, model, grad_norm=None):
        """Between the backward and the optimizer's step: a gradient that is not finite makes no step."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        if norm is None or self.args.fp16:  # DeepSpeed that computes none; loss scaling has steps of its own to skip
            return norm
        finite = math.isfinite(norm.item() if isinstance(norm, torch.Tensor) else norm)
        self._nonfinite_in_a_row = 0 if finite else self._nonfinite_in_a_row + 1
        if not finite:
            for parameter in model.parameters():
                parameter.grad = None  # the optimizer passes over these
            self._nonfinite_steps += 1
            deepspeed = self.accelerator.distributed_type == DistributedType.DEEPSPEED  # has made the step by now
            too_many = self._nonfinite_in_a_row >= self.args.max_nonfinite_steps
            self._report_nonfinite("gradient", self._step - 1, stop=deepspeed or too_many)
        return norm

    def _report_nonfinite(self, what: str, micro_step: int, stop: bool):
        """Saves the rows of the step that ends in `micro_step`, those of the latest rollout; may `stop` training."""
        step, buffer = self.state.global_step + 1, cast(list[dict], self._buffered_inputs)
        end = micro_step % len(buffer) + 1
        rows = buffer[max(0, end - self.args.gradient_accumulation_steps) : end]
        name = f"step-{step}-process-{self.accelerator.process_index}.safetensors"
        file = Path(cast(str, self.args.output_dir)) / "nonfinite" / name
        message = f"The {what} of step {step} is not finite (NaN or infinite). Its rows are in {file}"
        try:
            save_micro_batches(file, rows, {"global_step": step})
        except (TypeError, OSError) as error:
            message = f"The {what} of step {step} is not finite (NaN or infinite). Its rows cannot be saved ({error})"
        if stop:
            raise RuntimeError(
                f"{message}. Training stops here (`max_nonfinite_steps` is {self.args.max_nonfinite_steps}): look at "
                "these rows and their rewards, lower `learning_rate` or `max_grad_norm`, or train in bf16 or float32."
            )
        logger.warning("%s; the step is skipped.", message)

    def _steps_of_a_rollout(self) -> int:
        """Forward and backward passes for which TRL uses a rollout."""
        return cast(int, self.args.steps_per_generation) * self.num_iterations


# Help and editors show TRL's parameters; the list itself stays TRL's.
CESTrainer.__init__.__signature__ = inspect.signature(GRPOTrainer.__init__)  # type: ignore[attr-defined]


def check_trl_version(version: str):
    """Raise `ImportError` unless `version` lies in `SUPPORTED_TRL`: another TRL could train something else."""
    if not SpecifierSet(SUPPORTED_TRL).contains(version, prereleases=True):
        raise ImportError(
            f"trl {version} is installed, but CESTrainer builds on the internals of trl{SUPPORTED_TRL}: "
            f"pip install 'trl{SUPPORTED_TRL}'."
        )
