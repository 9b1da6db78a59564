"""Workarounds for bugs in TRL, accelerate, DeepSpeed and peft, and the conditions under which they become obsolete.

Overrides of TRL and transformers: `create_accelerator_and_postprocess`, `_load_optimizer_and_scheduler`,
`_tool_call_loop`, `_generate_single_turn`. Uses `llm`, `mode`, `enable_sleep_mode` and `_llm_weights_sleeping` of
`vllm_generation`, and the `session` of its client. Relies on TRL calling the model's `merge_adapter` before it
reads the weights, and `unmerge_adapter` afterwards.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object, is_peft_model, set_seed
from peft.tuners.tuners_utils import BaseTunerLayer
from torch.distributed.fsdp import MixedPrecisionPolicy

from .layer import Layer

CONNECT_SECONDS = 30


class UpstreamFixes(Layer):
    """
    Apply the workarounds in this file.

    Raises:
        `requests.exceptions.ReadTimeout`, `ConnectionError`: During training, if a vLLM server does not respond.
    """

    _in_tool_loop = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        register_lm_head(self.model, self.accelerator.state.deepspeed_plugin)
        if not self.use_vllm:
            return
        if is_peft_model(self.vllm_generation.model):
            restore_base_after_merge(self.vllm_generation.model)
        if self.vllm_mode == "colocate":
            seed_colocated_vllm(self.args, self.accelerator.process_index)
        elif self.accelerator.is_main_process:
            set_timeout(self.vllm_generation.vllm_client.session, self.args.ddp_timeout)

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        keep_float32_outputs(getattr(self.accelerator.state, "fsdp_plugin", None))

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            replay_offloaded_adam(self.optimizer)

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        run: Any = partial(super()._generate_single_turn, **kwargs)
        with restore_mode(self.model):
            if self._in_tool_loop:
                return generate_with_dummies(run, prompt_ids, *args)
            return run(prompt_ids, *args)

    def _tool_call_loop(self, *args, **kwargs):
        """
        Make all ranks take part in every round of tool calls, except with vision models.

        In TRL, each rank leaves the loop after its own last tool call. If generation needs all ranks (a server, tensor
        parallelism, sharded weights), the other ranks wait forever, or completions are assigned to the wrong rows.

        Upstream: `_tool_call_loop` of trl 1.16; no upstream issue found. Obsolete once TRL
        keeps all ranks in the loop until the last tool call.
        """
        self._in_tool_loop = PartialState().num_processes > 1 and not self._is_vlm
        outputs = super()._tool_call_loop(*args, **kwargs)
        while self._in_tool_loop and self._generate_single_turn([], None, {}, num_generations=1) is not None:
            pass
        self._in_tool_loop = False
        return outputs


def generate_with_dummies(run: Any, prompt_ids: list, *args: Any) -> Any:
    """Generate on all ranks, with dummy prompts on ranks with fewer prompts; return `None` if no rank has a prompt."""
    prompts_of_ranks = gather_object([prompt_ids])
    max_count = max(map(len, prompts_of_ranks))
    if max_count == 0:
        return None
    dummy = next(prompts[0] for prompts in prompts_of_ranks if prompts)
    count = len(prompt_ids)
    ids, logps = run(prompt_ids + [dummy] * (max_count - count), *args)
    return ids[:count], None if logps is None else logps[:count]


@contextmanager
def restore_mode(model: torch.nn.Module) -> Iterator[None]:
    """
    Restore the model's mode. After continuous batching, TRL leaves the model in training mode, even in evaluation.

    Upstream: `_generate_single_turn` of trl 1.16; no upstream issue found. Obsolete once TRL restores the mode.
    """
    training = model.training
    yield
    if model.training != training:  # if unchanged, keep the modes of submodules, which may differ
        model.train(training)


def set_timeout(session: Any, seconds: float) -> None:
    """
    Set a timeout for all requests of a `requests.Session`; retry neither timeouts nor refused connections.

    TRL's client waits forever. After a retry, a restarted server would generate with its initial weights.

    Upstream: trl issue 6973, which is closed, but trl 1.16.0 sets no timeout. Obsolete once TRL's client accepts one.
    """
    # urllib3 is installed with `requests`, which only TRL's vLLM client needs.
    from urllib3.exceptions import ReadTimeoutError
    from urllib3.util.retry import Retry

    class NoTimeoutRetry(Retry):
        def increment(self, method=None, url=None, response=None, error=None, _pool=None, _stacktrace=None):
            if isinstance(error, ReadTimeoutError):
                raise error
            return super().increment(method, url, response, error, _pool, _stacktrace)

    session.request = partial(session.request, timeout=(CONNECT_SECONDS, seconds))
    for adapter in session.adapters.values():
        retries = NoTimeoutRetry()
        retries.__dict__.update(adapter.max_retries.__dict__)
        retries.connect = 0
        adapter.max_retries = retries


def seed_colocated_vllm(args: Any, process_index: int) -> None:
    """
    Seed colocated vLLM from `args.seed`; ranks of one tensor-parallel group need the same seed.

    TRL seeds the engine with the rank or group number, and the engine reseeds torch, numpy and random.

    Upstream: `_init_vllm` of trl 1.16's `VLLMGeneration`; no upstream issue found. Obsolete once TRL uses `seed`.
    """
    set_seed(args.seed + process_index // args.vllm_tensor_parallel_size)


@contextmanager
def keep_awake(generation: Any) -> Iterator[None]:
    """
    Keep colocated vLLM awake within the context, so that it wakes and receives the weights only once.

    TRL puts vLLM to sleep after each generation, which discards its weights, and resends the weights before the next
    generation. `generation` is a trainer's `VLLMGeneration`, or `None`.
    """
    if generation is None or generation.mode != "colocate" or not generation.enable_sleep_mode:
        yield
        return
    sleep = generation.llm.sleep

    def stay_awake(level: int) -> None:  # without sleep mode, TRL neither wakes vLLM nor resends weights
        generation.enable_sleep_mode = False

    generation.llm.sleep = stay_awake
    try:
        yield
    finally:
        generation.llm.sleep = sleep
        if not generation.enable_sleep_mode:
            sleep(level=2)
            generation.enable_sleep_mode = generation._llm_weights_sleeping = True


def keep_float32_outputs(plugin: Any) -> None:
    """
    Keep log-probs and entropies in float32 under FSDP2, as DDP and DeepSpeed do.

    With `bf16`, accelerate makes FSDP2 cast a model's outputs to bfloat16. Importance ratios are then wrong by a few
    percent, and distinct entropies that Eq. 5 must rank become equal.

    Upstream: `set_mixed_precision` of accelerate 1.15's FSDP plugin also sets `output_dtype`; no upstream issue found.
    Obsolete once accelerate leaves `output_dtype` unset.
    """
    policy = None if plugin is None else plugin.mixed_precision_policy
    if isinstance(policy, MixedPrecisionPolicy):
        plugin.mixed_precision_policy = replace(policy, output_dtype=None)


def register_lm_head(model: Any, plugin: Any) -> None:
    """
    Register the LM head's weight, which TRL's loss reads, as an external parameter under ZeRO-3.

    ZeRO-3 does not trace this weight. If it has at most 100,000 elements, a run resumed within a rollout fails with
    "tracing error" after a sync to vLLM.

    Upstream: `ZeROOrderedDict` of DeepSpeed 0.19.8; its issue 3599 reports the same error with a different cause.
    Obsolete once TRL registers the weight.
    """
    if plugin is None or plugin.zero_stage != 3:
        return
    import deepspeed

    base = model.get_base_model() if is_peft_model(model) else model
    for parameter in base.get_output_embeddings().parameters():
        deepspeed.zero.register_external_parameter(base, parameter)


def replay_offloaded_adam(optimizer: Any) -> None:
    """
    Restore the state of DeepSpeed's offloaded Adam by repeating the steps before the checkpoint on a single element.

    Adam's C++ code keeps the powers of beta as running products in float32, but a new process computes them with
    `std::pow`, which rounds differently.

    Upstream: `IncrementStep` of DeepSpeed 0.19.8, since pull request 7982; no upstream issue found. Obsolete once
    DeepSpeed computes the power at each step.
    """
    adam = optimizer
    while hasattr(adam, "optimizer"):
        adam = adam.optimizer
    if not hasattr(adam, "ds_opt_adam"):
        return
    group, dummy = adam.param_groups[0], [torch.zeros(1) for _ in range(4)]
    settings = group["lr"], *group["betas"], group["eps"], 0.0, True
    for step in range(1, 1 + max((int(state["step"]) for state in adam.state.values()), default=0)):
        adam.ds_opt_adam.adam_update(adam.opt_id, step, *settings, *dummy)


def restore_base_after_merge(model: Any) -> None:
    """
    Make `unmerge_adapter` of a `PeftModel` restore the exact weights from before `merge_adapter`.

    Before a sync to vLLM, peft adds the adapter to the base weights and subtracts it afterwards. In bfloat16 and
    float16, both operations round, and the errors accumulate over a run. The weights of the adapted layers are
    therefore copied to host memory once. ZeRO-3 needs no copy, because it discards changes to gathered weights.

    Upstream: trl issue 6688, open. Obsolete once `GRPOTrainer` sends vLLM only the adapter (trl pull request 5188,
    open).
    """
    merge, unmerge = model.merge_adapter, model.unmerge_adapter
    copies: list[tuple[torch.Tensor, torch.Tensor]] = []

    def merge_adapter(*args: Any, **kwargs: Any) -> None:
        for weight in () if copies else _rounded_weights(model):
            copy = weight.detach().to("cpu", copy=True)  # pinned, because it is copied back after each sync
            copies.append((weight, copy.pin_memory() if weight.is_cuda and type(copy) is torch.Tensor else copy))
        merge(*args, **kwargs)

    def unmerge_adapter() -> None:
        unmerge()
        for weight, copy in copies:
            weight.data.copy_(copy)

    model.merge_adapter, model.unmerge_adapter = merge_adapter, unmerge_adapter


def _rounded_weights(model: Any) -> Iterator[torch.Tensor]:
    """Yield the frozen weights and biases of adapted layers that are stored unsharded in 16 bits."""
    for module in model.modules():
        if isinstance(module, BaseTunerLayer):
            for weight in module.get_base_layer().parameters(recurse=False):
                in_16_bits = weight.dtype in (torch.bfloat16, torch.float16)
                if in_16_bits and not weight.requires_grad and not hasattr(weight, "ds_id"):
                    yield weight
