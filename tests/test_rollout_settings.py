"""Check that rollouts use only the recipe's sampling settings, regardless of the model's generation config."""

import pytest
import torch
from peft import LoraConfig
from tiny import tiny_model
from trainers import prepare_trainer, tiny_trainer
from trl import GRPOTrainer
from trl.generation.vllm_client import VLLMClient

from trl_ces import CESTrainer
from trl_ces.layers import FiniteSteps

# Settings in a model's generation_config.json that TRL leaves unset.
MODEL_SETTINGS = {
    "no_repeat_ngram_size": 1,
    "suppress_tokens": list(range(5, 25)),
    "min_new_tokens": 11,
    "typical_p": 0.2,
    "bad_words_ids": [[7]],
    "num_beams": 2,
    "use_cache": False,
    "cache_implementation": "static",
    "max_time": 1e-6,
}
SingleLayerTrainer = type("SingleLayerTrainer", (FiniteSteps, GRPOTrainer), {})


def sample_completions(folder, model_settings=None, more=None, trainer_class=CESTrainer, **changes):
    """Sample from a model with `model_settings` in its generation config; return the completions and the model."""
    model = tiny_model()
    for name, value in (model_settings or {}).items():
        setattr(model.generation_config, name, value)
    trainer = prepare_trainer(
        tiny_trainer(folder, more={"model": model, **(more or {})}, trainer_class=trainer_class, **changes)
    )
    torch.manual_seed(0)
    return trainer._generate_single_turn([[5, 6], [7]] * 8, None, {}, 1)[0], model


@pytest.mark.parametrize("name", MODEL_SETTINGS)
def test_the_models_settings_do_not_change_its_completions(tmp_path, name):
    expected, _ = sample_completions(tmp_path)
    completions, model = sample_completions(tmp_path, {name: MODEL_SETTINGS[name]})
    assert completions == expected
    assert getattr(model.generation_config, name) == MODEL_SETTINGS[name]  # the setting is still saved with the model


@pytest.mark.parametrize(
    "case",
    [
        "single layer",
        "without row removal",
        "adapter",
        pytest.param("continuous batching", marks=pytest.mark.slow),
        "kwargs",
    ],
)
def test_the_models_settings_do_not_change_completions_in_other_cases(tmp_path, case):
    changes = {
        "single layer": {"trainer_class": SingleLayerTrainer},
        "without row removal": {"trim_padding": False},
        "adapter": {"more": {"peft_config": LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")}},
        "continuous batching": {"use_transformers_continuous_batching": True},
        "kwargs": {"generation_kwargs": {"min_new_tokens": 3}},
    }[case]
    model_settings = {name: MODEL_SETTINGS[name] for name in ("suppress_tokens", "no_repeat_ngram_size", "typical_p")}
    assert sample_completions(tmp_path, model_settings, **changes)[0] == sample_completions(tmp_path, **changes)[0]


def test_completions_stop_at_the_models_end_tokens(tmp_path):
    ends = list(range(2, 30))
    completions, _ = sample_completions(tmp_path, {"eos_token_id": ends})
    assert all(ids[-1] in [1, *ends] and not {*ids[:-1]} & {1, *ends} for ids in completions if len(ids) < 12)
    assert max(map(len, completions)) < 12


def test_top_k_none_keeps_all_tokens(tmp_path):
    calls, generate = [], type(tiny_model()).generate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            type(tiny_model()),
            "generate",
            lambda self, **inputs: (
                calls.append(self._prepare_generation_config(inputs["generation_config"])[0])
                or generate(self, **inputs)
            ),
        )
        sample_completions(tmp_path, top_k=None, trim_padding=False)
    assert calls[0].top_k == 0  # transformers' default is 50


# vLLM reads these parameters from the model's generation_config.json unless the request sets them.
MODEL_FILE_PARAMETERS = {"repetition_penalty", "temperature", "top_k", "top_p", "min_p", "max_tokens"}


def test_server_requests_set_all_parameters_that_vllm_reads_from_the_model():
    client, bodies = object.__new__(VLLMClient), []
    client.base_url, client.model = "http://here", "model"
    choice = {"prompt_token_ids": [1], "token_ids": [2], "logprobs": None}
    client._post = lambda url, json: bodies.append(json) or {"choices": [choice]}
    client.generate([[1]])
    assert {name for name, value in bodies[0].items() if value is not None} >= MODEL_FILE_PARAMETERS


def test_colocated_requests_set_all_parameters_that_vllm_reads_from_the_model(tmp_path, monkeypatch):
    from colocated_vllm import ColocatedLLM, patch_colocated_vllm

    patch_colocated_vllm(monkeypatch)
    requests, sample_output = [], ColocatedLLM._sample_output
    monkeypatch.setattr(
        ColocatedLLM,
        "_sample_output",
        lambda self, prompt, request: requests.append(request) or sample_output(self, prompt, request),
    )
    tiny_model().save_pretrained(tmp_path / "model")
    trainer = tiny_trainer(
        tmp_path, more={"model": str(tmp_path / "model")}, use_vllm=True, vllm_mode="colocate", max_steps=1
    )
    trainer.train()
    assert {name for name, value in requests[0].items() if value is not None} >= MODEL_FILE_PARAMETERS
