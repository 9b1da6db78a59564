"""A 16-bit base is the same bits after any number of syncs to vLLM, each of which merges the adapter for a while."""

from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny import tiny_model
from trl import GRPOTrainer
from trl.distributed import DistributedBackend
from trl.generation.vllm_generation import VLLMGeneration

from trl_ces import CESTrainer
from trl_ces.layers import FrozenBase, upstream
from trl_ces.layers.upstream import restore_after_merge

SYNCS = 20
ALONE = SimpleNamespace(deepspeed_plugin=None, fsdp_plugin=None)


def adapted(dtype, **changes):
    model = tiny_model().to(dtype)
    return get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", **changes))


def base_of(model):
    """The base's weights by the names that vLLM knows them by."""
    return {
        name.removeprefix("base_model.model.").replace(".base_layer", ""): weight.detach().clone()
        for name, weight in model.named_parameters()
        if "lora_" not in name
    }


def sync(model):
    """An adapter that has learned, and TRL's own sync; the weights that vLLM would get."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter += 0.01 * torch.randn_like(parameter)
    generation = VLLMGeneration.__new__(VLLMGeneration)
    generation.model = model
    generation._dist = DistributedBackend(SimpleNamespace(state=ALONE))
    return {name: weight.clone() for name, weight in generation._iter_named_params()}


def changed(before, after):
    return [name for name in before if not torch.equal(before[name], after[name])]


def test_trl_alone_lets_the_base_drift():
    """The reason for the layer: remove it once this fails."""
    model = adapted(torch.bfloat16)
    before = base_of(model)
    for _ in range(SYNCS):
        sync(model)
    assert changed(before, base_of(model))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_base_is_the_same_bits_after_any_number_of_syncs(dtype):
    model, plain = adapted(dtype), adapted(dtype)
    plain.load_state_dict(model.state_dict())
    restore_after_merge(model)
    before = base_of(model)
    for seed in range(SYNCS):
        torch.manual_seed(seed)
        sent = sync(model)
        if seed == 0:  # what is sent is what peft merges
            torch.manual_seed(seed)
            assert changed(sync(plain), sent) == []
            assert changed(before, sent)
        assert changed(before, base_of(model)) == []


def test_the_copy_is_made_once_and_biases_that_are_trained_keep_what_they_learned(monkeypatch):
    copied, rounded = [], upstream._rounded
    monkeypatch.setattr(upstream, "_rounded", lambda model: copied.extend(rounded(model)) or rounded(model))
    model = adapted(torch.bfloat16, bias="all")
    restore_after_merge(model)
    trained = {name: weight for name, weight in model.named_parameters() if name.endswith("bias")}
    assert trained
    for number in range(3):
        for weight in trained.values():
            weight.data.fill_(number)
        sync(model)
        assert all((weight == number).all() for weight in trained.values())
    frozen = [weight for name, weight in model.named_parameters() if ".base_layer.weight" in name]
    assert len(copied) == len(frozen) > 0


@pytest.mark.parametrize(
    ("use_vllm", "peft", "kept"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_the_trainer_keeps_the_base_where_vllm_gets_merged_weights(monkeypatch, use_vllm, peft, kept):
    model = adapted(torch.bfloat16) if peft else tiny_model()

    def init(self):
        self.use_vllm, self.vllm_generation = use_vllm, SimpleNamespace(model=model)

    monkeypatch.setattr(GRPOTrainer, "__init__", init)
    FrozenBase()
    assert ("merge_adapter" in vars(model)) == kept
    assert issubclass(CESTrainer, FrozenBase)
