"""Test training in this process with a stand-in for a vLLM server (tests/helpers/vllm_server.py)."""

import pytest
import requests
from processes import free_port
from server_runs import serve_in_thread, use_vllm_stub
from tiny import tiny_model, tiny_tokenizer
from trainers import assert_bitwise_equal, tiny_trainer, weights
from vllm_sampling import digest, make_generator, sample

PROMPTS = ["1+2=", "3+4=", "5+6=", "7+8="]
STEPS = 2


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_model().save_pretrained(folder)
    return folder


@pytest.fixture
def stand_in(model, monkeypatch):
    use_vllm_stub(monkeypatch)
    with serve_in_thread(model) as (server, _):
        yield server


@pytest.fixture(scope="module")
def weights_without_failures(model, tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch, serve_in_thread(model) as (server, _):
        use_vllm_stub(monkeypatch)
        trainer = make_trainer(tmp_path_factory.mktemp("without_failures"), server)
        trainer.train()
    return weights(trainer)


def make_trainer(folder, stand_in=None, rollout_func=None, **changes):
    arguments = {"max_steps": STEPS, "ces_tau": 0.3, "temperature": 0.7, "learning_rate": 1e-2, **changes}
    if stand_in is not None:
        arguments |= {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": stand_in.url}
        arguments |= {"vllm_group_port": free_port()}
    return tiny_trainer(folder, prompts=PROMPTS, more={"rollout_func": rollout_func}, **arguments)


def test_training_with_a_server_matches_sampling_from_the_policy(tmp_path, stand_in):
    """Check that each rollout is sampled from the weights of its step."""
    with_server = make_trainer(tmp_path / "with_server", stand_in, vllm_importance_sampling_correction=False)
    with_server.train()
    requests_sent = stand_in.log("completions")
    assert len(requests_sent) == len({entry["weights"] for entry in requests_sent}) == STEPS
    assert requests_sent[0]["weights"] == digest(tiny_model())
    rollouts = iter(requests_sent)

    def sample_from_policy(prompts, trainer):
        body = next(rollouts)["body"]
        encoded = [tiny_tokenizer().encode(prompt) for prompt in prompts]
        assert body["prompt"] == encoded[::4]
        generator = make_generator(digest(trainer.model), body)
        samples = [item for ids in body["prompt"] for item in sample(trainer.model, ids, body, generator, "")]
        return {"prompt_ids": encoded, "completion_ids": [ids for ids, _ in samples], "logprobs": None}

    without_server = make_trainer(tmp_path / "without_server", rollout_func=sample_from_policy)
    without_server.train()
    assert_bitwise_equal(weights(with_server), weights(without_server))
    token_ids = [[choice["token_ids"] for choice in entry["response"]["choices"]] for entry in requests_sent]
    assert token_ids[0] != token_ids[1]


def test_the_log_probs_of_server_and_trainer_match(tmp_path, stand_in):
    trainer = make_trainer(tmp_path, stand_in)  # with TRL's importance sampling correction, which is on by default
    trainer.train()
    differences = [entry["sampling/sampling_logp_difference/max"] for entry in trainer.state.log_history[:STEPS]]
    assert len(differences) == STEPS
    assert 0 < max(differences) < 1e-4


@pytest.mark.parametrize(
    ("path", "failure"),
    [("/v1/completions", 503), ("/v1/completions", "drop"), ("/update_weights", 503), ("/v1/completions", 0.3)],
    ids=["busy", "lost connection", "busy during an update", "slow"],
)
def test_temporary_failures_do_not_change_the_weights(tmp_path, stand_in, weights_without_failures, path, failure):
    stand_in.fail(path, failure, skip=1)
    trainer = make_trainer(tmp_path, stand_in, ddp_timeout=60)
    trainer.train()
    assert_bitwise_equal(weights(trainer), weights_without_failures)


@pytest.mark.parametrize("path", ["/v1/completions", "/update_weights", "/reset_prefix_cache"])
def test_an_unresponsive_server_ends_training_after_ddp_timeout_without_a_retry(tmp_path, stand_in, path):
    trainer = make_trainer(tmp_path, stand_in, ddp_timeout=1)
    stand_in.fail(path, "hang")  # a second request would succeed
    with pytest.raises(requests.exceptions.ReadTimeout):
        trainer.train()
