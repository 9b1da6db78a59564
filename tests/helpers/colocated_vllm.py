"""Stand-in for colocated vLLM that samples with torch on a CPU and emulates sleep states and weight updates.

Like vLLM 0.31, it seeds all random generators when it is created (`set_random_seed` in the worker). Sleep level 2
discards the cache and the weights, which become NaN. `wake_up` restores the parts named by its tags. Weights remain
NaN until `load_weights` is called.
"""

from types import SimpleNamespace

import torch
from server_runs import use_vllm_stub
from transformers import Qwen2Config, Qwen2ForCausalLM, set_seed
from vllm_sampling import digest, sample
from vllm_signatures import keyword_checker

ALL = {"weights", "kv_cache"}


class ColocatedLLM:
    """Stand-in for `vllm.LLM` that records its calls, and the digest of its weights at each `generate` call."""

    last = None

    def __init__(self, model, *, seed, enable_sleep_mode, **settings):
        keyword_checker("LLM.__init__", "EngineArgs")(**settings)
        set_seed(seed)
        self.model = Qwen2ForCausalLM(Qwen2Config.from_pretrained(model)).eval()  # unsharded, even under ZeRO-3
        self.awake, self.calls, self.sampled_from = set(ALL), [], []
        self._discard_weights()
        runner = SimpleNamespace(model=SimpleNamespace(load_weights=self._load_weights))
        executor = SimpleNamespace(driver_worker=SimpleNamespace(model_runner=runner))
        config = SimpleNamespace(max_model_len=settings["max_model_len"])
        self.llm_engine = SimpleNamespace(model_executor=executor, model_config=config)
        ColocatedLLM.last = self

    def _discard_weights(self):
        for value in self.model.state_dict().values():
            value.fill_(torch.nan)

    def _load_weights(self, weights):
        assert "weights" in self.awake, "the engine received weights while it slept"
        state = self.model.state_dict()
        for name, value in weights:
            state[name].copy_(value)
        self.calls.append("load")

    def sleep(self, level):
        assert level == 2
        assert self.awake == ALL
        self._discard_weights()
        self.awake = set()
        self.calls.append("sleep")

    def wake_up(self, tags):
        assert not self.awake & set(tags), f"cannot wake {tags}: already awake"
        self.awake |= set(tags)
        self.calls.append("wake " + "+".join(tags))

    def reset_prefix_cache(self):
        pass

    def generate(self, prompts, sampling_params, *, use_tqdm):
        assert self.awake == ALL
        assert all(value.isfinite().all() for value in self.model.state_dict().values()), "the weights were not loaded"
        self.calls.append("generate")
        self.sampled_from.append(digest(self.model))
        return [self._sample_output(prompt["prompt_token_ids"], sampling_params) for prompt in prompts]

    def _sample_output(self, prompt, request):
        [(ids, reported)] = sample(self.model, prompt, request, None, "processed_logprobs")
        logprobs = [
            {token: make_object("Logprob", rank=1, logprob=of_token[token].item())}
            for token, of_token in zip(ids, reported, strict=True)
        ]
        outputs = [make_object("CompletionOutput", token_ids=ids, logprobs=logprobs)]
        return make_object("RequestOutput.__init__", prompt_token_ids=prompt, outputs=outputs)


def make_object(name, **fields):
    """Make a substitute for a vLLM object with these fields."""
    return SimpleNamespace(**keyword_checker(name)(**fields))


def patch_colocated_vllm(monkeypatch):
    """Make TRL use the stand-in instead of vLLM in this process."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # TRL sets these variables; monkeypatch removes them after the test
        monkeypatch.delenv(name)
    patch_colocated_vllm_in_worker(monkeypatch)


def patch_colocated_vllm_in_worker(monkeypatch):
    """Like [`patch_colocated_vllm`], but for a process that a launcher started."""
    import trl.generation.vllm_generation as generation

    use_vllm_stub(monkeypatch)
    monkeypatch.setattr(generation, "LLM", ColocatedLLM, raising=False)
    monkeypatch.setattr(generation, "SamplingParams", keyword_checker("SamplingParams"), raising=False)
