"""DAPO's dynamic sampling: drop groups whose completions all have the same accuracy, and draw more prompts.

Each round runs TRL's rollout method without log-probs and keeps the completions and rewards. Once the batch is full,
the method runs again on the kept groups and reuses these completions and rewards. Old and reference log-probs are
therefore computed once, and only for the rows that are trained on.

Overrides of TRL: `_generate`, `_get_per_token_logps_and_entropies`, `_calculate_rewards`,
`_generate_and_score_completions`, `_save_checkpoint`, `_load_optimizer_and_scheduler`. Reads `_step`, `_metrics`,
`_logs` and `_buffered_inputs`.
"""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from accelerate.utils import broadcast_object_list, gather_object, send_to_device

from ..methods.groups import Groups
from .correctness import Correctness
from .rows import rows_of_process
from .sampler import DynamicSampler, PromptStream, check_dataset, informative_groups
from .upstream import keep_awake

# Checkpoint file that stores the position in the prompt stream.
STATE_FILE = "dynamic_sampling.json"
# TRL's placeholder prompt for environments that supply the data.
NO_PROMPT = [{"role": "user", "content": ""}]


class Group(NamedTuple):
    """Data that a round stores for one group."""

    prompt: int  # row number in the dataset
    rewards: torch.Tensor  # (G, functions), float, over all processes
    facts: Groups  # with P = 1
    generated: dict[int, tuple]  # index in the group -> outputs of `_generate`; only this process's completions


class Replay(NamedTuple):
    """Completions and rewards that TRL's method reuses instead of computing them again."""

    generated: tuple  # this process's rows, in the format of `_generate`
    rewards: torch.Tensor  # (N, functions), over all processes
    facts: Groups


class DynamicSampling(Correctness):
    """
    Dynamic sampling during training (DAPO, arXiv 2503.14476, section 3.2), enabled by `dynamic_sampling`.

    Raises:
        `ValueError`: The dataset is streamed or contains images, or a checkpoint was saved without dynamic sampling.
        `RuntimeError`: During training, if generation returns images.
    """

    _sampler: DynamicSampler | None = None
    _round: list | None = None  # data of the current round: the outputs of `_generate`, then the rewards
    _replay: Replay | None = None  # set while TRL's method runs on the kept groups

    def __init__(self, model, reward_funcs=None, args=None, *positional, **kwargs):
        if args is not None and args.dynamic_sampling:
            check_dataset(kwargs.get("train_dataset", positional[0] if positional else None))
        super().__init__(model, reward_funcs, args, *positional, **kwargs)
        if self.args.dynamic_sampling:
            rows = len(cast(Any, self.train_dataset))
            self._sampler = DynamicSampler(
                PromptStream(rows, self.args.seed, bool(self.shuffle_dataset)),
                cast(int, self.args.generation_batch_size) // self.num_generations,
                self.num_generations,
                self.args.dynamic_sampling_max_rounds,
                self.accelerator.num_processes,
                self.accelerator.is_main_process,
            )

    def _required_inputs(self):
        return super()._required_inputs() | ({"accuracy"} if self.args.dynamic_sampling else set())

    def _generate_and_score_completions(self, inputs):
        if self._sampler is None or not self.model.training:
            return super()._generate_and_score_completions(inputs)
        with keep_awake(getattr(self, "vllm_generation", None)):
            groups, metrics = self._sampler.sample(self._sample_round)
        batch = self._score(groups)
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)
        return batch

    def _sample_round(self, prompts: list[int]) -> tuple[list[bool], list[Group]]:
        """Generate completions for `prompts` (row numbers); return whether groups are informative, and the groups."""
        size = self.num_generations
        rows = self._rows_of_this_process(torch.tensor(prompts).repeat_interleave(size))
        # vLLM's importance ratio needs old log-probs, which a round does not compute.
        correction, self.vllm_importance_sampling_correction = self.vllm_importance_sampling_correction, False
        self._round = []
        try:
            self._sample(self._examples(rows))
            generated, rewards = self._round
        finally:
            self._round, self.vllm_importance_sampling_correction = None, correction
        groups = [
            Group(prompt, group_rewards, self._groups.group(number), {})
            for number, (prompt, group_rewards) in enumerate(
                zip(prompts, rewards.view(len(prompts), size, -1), strict=True)
            )
        ]
        first = self.accelerator.process_index * len(rows)
        for row, values in enumerate(generated, start=first):
            groups[row // size].generated[row % size] = values
        return informative_groups(self._groups.rewards.flatten(), size).tolist(), groups

    def _sample(self, inputs):
        """Run TRL's method for one round."""
        return super()._generate_and_score_completions(inputs)

    def _score(self, groups: list[Group]) -> dict[str, Any]:
        """Return this process's part of TRL's rollout of `groups`, reusing their completions and rewards."""
        rows = self._rows_of_this_process(
            torch.tensor([group.prompt for group in groups]).repeat_interleave(self.num_generations)
        )
        examples = [{"prompt": NO_PROMPT, **example} for example in self._examples(rows)]
        self._replay = Replay(
            self._collect_generated(groups),
            torch.cat([group.rewards for group in groups]),
            Groups.concatenate([group.facts for group in groups]),
        )
        try:
            with self._discard_metrics(), self._hide_environments():
                return super()._generate_and_score_completions(examples)
        finally:
            self._replay = None

    def _collect_generated(self, groups: list[Group]) -> tuple:
        """Collect this process's rows of `groups` from the processes that generated them, in `_generate`'s format."""
        size = self.num_generations
        local_outputs = {
            place * size + member: values
            for place, group in enumerate(groups)
            for member, values in group.generated.items()
        }
        outputs = dict(gather_object(list(local_outputs.items())))
        columns = zip(
            *(outputs[row] for row in self._rows_of_this_process(torch.arange(len(groups) * size))), strict=True
        )
        ids, completion_ids, masks, completions, logps = map(list, columns)
        # If any process has tool masks, all processes add them, so that all create the same tensors.
        tool_masks = None
        if any(values[2] is not None for values in outputs.values()):
            pairs = zip(masks, completion_ids, strict=True)  # without a mask, the policy generated every token
            tool_masks = [[1] * len(row) if mask is None else mask for mask, row in pairs]
        has_logps = all(values[4] is not None for values in outputs.values())
        return ids, completion_ids, tool_masks, completions, logps if has_logps else None, {}, None, []

    @contextmanager
    def _discard_metrics(self) -> Iterator[None]:
        """Discard metrics logged within the context, except vLLM's sampling metrics, which the rounds did not log."""
        metrics, logs = self._metrics, self._logs
        self._metrics, self._logs = copy.deepcopy(metrics), copy.deepcopy(logs)
        try:
            yield
            new = {name: values for name, values in self._metrics["train"].items() if name.startswith("sampling/")}
            metrics["train"].update(new)
        finally:
            self._metrics, self._logs = metrics, logs

    @contextmanager
    def _hide_environments(self) -> Iterator[None]:
        """Hide the environments within the context, because they already ran in the rounds."""
        saved = self.environment_factories, self.environments
        self.environment_factories = self.environments = None
        try:
            yield
        finally:
            self.environment_factories, self.environments = saved

    def _generate(self, prompts):
        if self._replay is not None:
            return self._replay.generated
        outputs = super()._generate(prompts)
        if self._round is not None:
            *columns, _, images, tool_images = outputs
            if images is not None or any(tool_images):
                raise RuntimeError("`dynamic_sampling` does not support images: set `dynamic_sampling=False`.")
            rows = len(prompts)
            columns = [[None] * rows if values is None else values for values in columns]
            self._round.append(list(zip(*columns, strict=True)))
        return outputs

    def _get_per_token_logps_and_entropies(self, model, input_ids, attention_mask, logits_to_keep, *args, **kwargs):
        if self._round:  # empty during generation, when a rollout_func may compute its own log-probs
            return torch.zeros(input_ids.size(0), logits_to_keep, device=input_ids.device), None, None
        return super()._get_per_token_logps_and_entropies(
            model, input_ids, attention_mask, logits_to_keep, *args, **kwargs
        )

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        if self._replay is not None:
            self._groups = self._replay.facts
            return self._replay.rewards
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self._round is not None:
            self._round.append(rewards)
        return rewards

    def _rows_of_this_process(self, numbers: torch.Tensor) -> list[int]:
        """Return this process's part of `numbers`, which has one entry per row over all processes."""
        return rows_of_process({"numbers": numbers}, self.accelerator)["numbers"].tolist()

    def _examples(self, rows: list[int]) -> list[dict]:
        """Return examples in the format of TRL's data loader."""
        dataset = self._remove_unused_columns(self.train_dataset, description="Training")
        return send_to_device(dataset.__getitems__(rows), self.accelerator.device)

    def _save_checkpoint(self, model, trial):
        if self._sampler is not None and self.args.should_save:
            folder = self._checkpoint_folder(trial)
            folder.mkdir(parents=True, exist_ok=True)
            state = self._sampler.state_dict(inside_rollout=self._step % self._micro_steps_per_rollout() != 0)
            (folder / STATE_FILE).write_text(json.dumps(state))
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None or self._sampler is None:
            return
        file = Path(checkpoint) / STATE_FILE
        # The file may exist only on the first node.
        [state] = broadcast_object_list([json.loads(file.read_text()) if file.is_file() else None])
        if state is None:
            raise ValueError(
                f"{file} does not exist, so the checkpoint was saved without dynamic sampling: resume it with "
                "`dynamic_sampling=False`, or start a new run."
            )
        # ExactResume may have restored the batch in progress.
        self._sampler.load_state_dict(state, with_rollout=self._buffered_inputs is not None)
