"""Workarounds for what lies upstream: each layer names the fault and what would end it.

Overrides of TRL and transformers: `create_accelerator_and_postprocess`, `_load_optimizer_and_scheduler`,
`_tool_call_loop`, `_generate_single_turn`. Reads `vllm_generation`: its client's `session`, its `llm`, `mode`,
`enable_sleep_mode` and `_llm_weights_sleeping`; and leans on TRL calling the model's `merge_adapter` before and
`unmerge_adapter` after it reads the weights.
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


class ServerTimeout(Layer):
    """
    Stops a run whose vLLM server stays silent for `ddp_timeout` seconds: as long as the other processes wait for it.

    TRL's client waits forever, and repeats failed requests. Here, neither a silent server nor a refused connection is
    tried again: a server restarted in the meantime would answer with the weights that it loaded at its start.

    Upstream: trl issue 6973, closed without a timeout in trl 1.16.0. Ends with a TRL whose client takes one.

    Raises:
        `requests.exceptions.ReadTimeout`, `ConnectionError`: When training stops.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.use_vllm and self.vllm_mode == "server" and self.accelerator.is_main_process:
            limit_waiting(self.vllm_generation.vllm_client.session, self.args.ddp_timeout)


def limit_waiting(session: Any, seconds: float) -> None:
    """Gives all requests of a `requests.Session` a timeout, and ends them at a refused connection; others retry."""
    # Comes with `requests`, which TRL's client of a server takes, and which nothing else here needs.
    from urllib3.exceptions import ReadTimeoutError
    from urllib3.util.retry import Retry

    class NoSecondWait(Retry):
        def increment(self, method=None, url=None, response=None, error=None, _pool=None, _stacktrace=None):
            if isinstance(error, ReadTimeoutError):
                raise error
            return super().increment(method, url, response, error, _pool, _stacktrace)

    session.request = partial(session.request, timeout=(CONNECT_SECONDS, seconds))
    for adapter in session.adapters.values():
        retries = NoSecondWait()
        retries.__dict__.update(adapter.max_retries.__dict__)
        retries.connect = 0
        adapter.max_retries = retries


class OwnSeed(Layer):
    """
    Two runs of different seeds sample different completions from colocated vLLM, too.

    vLLM's engine seeds torch, numpy and random when it is made, after TRL did. TRL gives it the number of the process,
    or of its tensor-parallel group, whatever `seed` says.

    Upstream: `_init_vllm` of trl 1.16's `VLLMGeneration`; no issue is known to us. Ends with a TRL that adds the seed.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.use_vllm and self.vllm_mode == "colocate":
            # Processes of one tensor-parallel group must sample alike.
            group = self.accelerator.process_index // self.args.vllm_tensor_parallel_size
            set_seed(self.args.seed + group)


@contextmanager
def one_sleep(generation: Any) -> Iterator[None]:
    """
    Lets colocated vLLM sleep once at the end, however often TRL generates within: it wakes and gets the weights once.

    TRL puts vLLM to sleep after each generation, which drops the weights, and sends all of them before the next.
    `generation` is a trainer's `VLLMGeneration`, if it has one.
    """
    if generation is None or generation.mode != "colocate" or not generation.enable_sleep_mode:
        yield
        return
    sleep = generation.llm.sleep

    def stay_awake(level: int) -> None:  # and TRL neither wakes it nor sends weights until `enable_sleep_mode` is back
        generation.enable_sleep_mode = False

    generation.llm.sleep = stay_awake
    try:
        yield
    finally:
        generation.llm.sleep = sleep
        if not generation.enable_sleep_mode:
            sleep(level=2)
            generation.enable_sleep_mode = generation._llm_weights_sleeping = True


class ModeAfterGeneration(Layer):
    """
    An evaluation stays one where `use_transformers_continuous_batching` generates.

    TRL puts the model into training mode after it, in an evaluation too, whose metrics then count as training's, as
    would its rollouts for rewards with a state.

    Upstream: `_generate_single_turn` of trl 1.16; no issue is known to us. Ends with a TRL that restores the mode.
    """

    def _generate_single_turn(self, *args, **kwargs):
        training = self.model.training
        outputs = super()._generate_single_turn(*args, **kwargs)
        if self.model.training != training:  # else a submodule may have a mode of its own
            self.model.train(training)
        return outputs


class ToolRounds(Layer):
    """
    Tools and environments on several processes: all make the same rounds of generation, with as many prompts.

    Each of TRL's processes goes on while it has tool calls. Where generation takes all of them (a server, tensor
    parallelism, weights in shares), one with a further round waits forever, and answers go to other rows. Here those
    with fewer prompts generate for another's, for nothing. Models with images are left as they are.

    Upstream: `_tool_call_loop` of trl 1.16; no issue is known to us. Ends with a TRL that counts rounds over all.
    """

    _in_tool_loop = False

    def _tool_call_loop(self, *args, **kwargs):
        self._in_tool_loop = PartialState().num_processes > 1 and not self._is_vlm
        outputs = super()._tool_call_loop(*args, **kwargs)
        while self._in_tool_loop and self._generate_single_turn([], None, {}, num_generations=1) is not None:
            pass
        self._in_tool_loop = False
        return outputs

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        run = super()._generate_single_turn
        if not self._in_tool_loop:
            return run(prompt_ids, *args, **kwargs)
        of_processes = gather_object([prompt_ids])
        most = max(map(len, of_processes))
        if most == 0:  # no process has tool calls left
            return None
        filler = next(prompts[0] for prompts in of_processes if prompts)
        own = len(prompt_ids)
        ids, logps = run(prompt_ids + [filler] * (most - own), *args, **kwargs)
        return ids[:own], None if logps is None else logps[:own]


class Float32Outputs(Layer):
    """
    Log-probs and entropies in float32 under FSDP2, as under every other engine.

    With `bf16` accelerate has FSDP2 cast a model's outputs to bfloat16, and TRL's model returns log-probs and
    entropies. With 8 bits, importance ratios are off by percents and entropies tie where Eq. 5 ranks them.

    Upstream: `set_mixed_precision` of accelerate 1.15's FSDP plugin sets `output_dtype`, too; no issue is known to us.
    Ends with an accelerate that leaves it alone.
    """

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        keep_outputs(getattr(self.accelerator.state, "fsdp_plugin", None))


def keep_outputs(plugin: Any) -> None:
    """Stops an FSDP2 plugin from casting outputs; layers are still gathered and computed in the policy's dtypes."""
    policy = None if plugin is None else plugin.mixed_precision_policy
    if isinstance(policy, MixedPrecisionPolicy):
        plugin.mixed_precision_policy = replace(policy, output_dtype=None)


class KnownHead(Layer):
    """
    A run under ZeRO-3 that resumes inside a rollout does not end with "tracing error".

    TRL's loss reads the head's weight in the model's forward, which DeepSpeed notices once the weight is not at hand.
    With 100,000 elements or fewer that is after a sync to vLLM: too late in a run that trained before. Here it knows.

    Upstream: `ZeROOrderedDict` of DeepSpeed 0.19.8; its issue 3599 is of the same error, for another cause. Ends with
    a TRL that registers the weight.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        plugin = self.accelerator.state.deepspeed_plugin
        if plugin is not None and plugin.zero_stage == 3:
            import deepspeed

            whole: Any = self.model
            model = whole.get_base_model() if is_peft_model(whole) else whole
            for parameter in model.get_output_embeddings().parameters():
                deepspeed.zero.register_external_parameter(model, parameter)


class OffloadedAdam(Layer):
    """
    A run with DeepSpeed's offloaded Adam resumes with the same steps.

    Its C++ keeps the powers of beta as running products in float32, and a new process takes `std::pow` of the step,
    which rounds otherwise. Here the steps before the checkpoint are repeated on a single element.

    Upstream: `IncrementStep` of DeepSpeed 0.19.8, as its pull 7982 left it; no issue is known to us. Ends with a
    DeepSpeed that takes the power at each step.
    """

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        adam: Any = self.optimizer
        while hasattr(adam, "optimizer"):
            adam = adam.optimizer
        if checkpoint is None or not hasattr(adam, "ds_opt_adam"):
            return
        group, dummy = adam.param_groups[0], [torch.zeros(1) for _ in range(4)]
        settings = group["lr"], *group["betas"], group["eps"], 0.0, True
        for step in range(1, 1 + max((int(state["step"]) for state in adam.state.values()), default=0)):
            adam.ds_opt_adam.adam_update(adam.opt_id, step, *settings, *dummy)


class FrozenBase(Layer):
    """
    The base of a LoRA run in bfloat16 or float16 does not drift.

    For a sync peft adds the adapter to the base, and subtracts it afterwards. In 16 bits both round, and the errors of
    all syncs of a run add up. Here a copy of the weights is made once in host memory, as many bytes as the adapted
    layers have, and comes back after each sync.

    Under ZeRO-3 nothing is kept: what is done to gathered weights is dropped with them.

    Upstream: trl issue 6688, open. Ends with a `GRPOTrainer` that sends vLLM the adapter alone (trl pull 5188, open).
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.use_vllm and is_peft_model(self.vllm_generation.model):
            restore_after_merge(self.vllm_generation.model)


def restore_after_merge(model: Any) -> None:
    """Has `unmerge_adapter` of a `PeftModel` bring back the bits that were there before `merge_adapter`."""
    merge, unmerge = model.merge_adapter, model.unmerge_adapter
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def merge_adapter(*args: Any, **kwargs: Any) -> None:
        for weight in () if kept else _rounded(model):
            copy = weight.detach().to("cpu", copy=True)  # pinned, because it goes back after each sync
            kept.append((weight, copy.pin_memory() if weight.is_cuda and type(copy) is torch.Tensor else copy))
        merge(*args, **kwargs)

    def unmerge_adapter() -> None:
        unmerge()
        for weight, before in kept:
            weight.data.copy_(before)

    model.merge_adapter, model.unmerge_adapter = merge_adapter, unmerge_adapter


def _rounded(model: Any) -> Iterator[torch.Tensor]:
    """Frozen weights and biases under adapters that are kept whole in 16 bits."""
    for module in model.modules():
        if isinstance(module, BaseTunerLayer):
            for weight in module.get_base_layer().parameters(recurse=False):
                rounds = weight.dtype in (torch.bfloat16, torch.float16)
                if rounds and not weight.requires_grad and not hasattr(weight, "ds_id"):
                    yield weight
