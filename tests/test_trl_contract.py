"""Check CESTrainer's assumptions about TRL with TRL's own GRPOTrainer, one assumption per test.

Without these tests, a TRL release that breaks an assumption might change training results unnoticed. This file does
not import trl_ces.
"""

import json
import math
import re
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from processes import free_port
from reference import float64_copy, logps_and_bits
from requests import Session
from requests.adapters import HTTPAdapter
from server_runs import FLAGS, serve_in_thread, use_vllm_stub
from tiny import (
    random_script,
    scripted_accuracy_reward,
    scripted_bonus_reward,
    scripted_rollout,
    settings,
    tiny_model,
    tiny_tokenizer,
)
from trl import GRPOConfig, GRPOTrainer
from trl.generation.vllm_client import VLLMClient
from trl.trainer.utils import RepeatSampler, get_callable_name, shuffle_sequence_dict, split_tensor_dict

PROMPTS = ["1+2=", "3+4="]
ACCURACIES = [[1, 0, None, 1], [0, 0, 1, 0]]
SCRIPT = random_script(PROMPTS, ACCURACIES, torch.Generator().manual_seed(1))
TEMPERATURE = 0.8


def make_trainer(folder, trainer_class=GRPOTrainer, data=None, more=None, **changes):
    """Create a trainer; `more` replaces the scripted completions and rewards."""
    defaults = {
        "reward_funcs": [scripted_accuracy_reward, scripted_bonus_reward],
        "rollout_func": scripted_rollout(SCRIPT, 4),
    }
    return trainer_class(
        model=tiny_model(),
        args=GRPOConfig(**settings(folder, **changes)),
        train_dataset=data or Dataset.from_dict({"prompt": PROMPTS}),
        processing_class=tiny_tokenizer(),
        **(more or defaults),
    )


@pytest.fixture
def trainer(tmp_path):
    trainer = make_trainer(tmp_path, temperature=TEMPERATURE, epsilon_high=0.28, max_completion_length=40)
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer


@pytest.fixture
def examples():
    return [{"prompt": prompt} for prompt in PROMPTS for _ in range(4)]


def spy(trainer, monkeypatch, name):
    """Record the arguments and the result of each call to a trainer method."""
    calls = []
    method = getattr(trainer, name)

    def record_call(*args, **kwargs):
        result = method(*args, **kwargs)
        calls.append((args, kwargs, result))
        return result

    monkeypatch.setattr(trainer, name, record_call)
    return calls


def test_grpo_trainer_has_every_method_that_the_layers_call():
    package = Path(__file__).parents[1] / "trl_ces"
    layers = [package / "trainer.py", *(package / "layers").glob("*.py")]
    methods = set().union(*(re.findall(r"super\(\)\.(\w+)", file.read_text()) for file in layers))
    methods -= {"_required_inputs", "_rollout_settings", "state_dict", "load_state_dict"}  # methods of our layers
    methods -= {"increment"}  # a method of urllib3's Retry
    missing = sorted(name for name in methods if not hasattr(GRPOTrainer, name))
    assert len(methods) > 10
    assert not missing, f"TRL's GRPOTrainer no longer has {', '.join(missing)}"


def test_the_loss_computes_entropies_once_and_reads_the_advantages_afterwards(trainer, examples, monkeypatch):
    calls = spy(trainer, monkeypatch, "_get_per_token_logps_and_entropies")
    batch = trainer._generate_and_score_completions(examples)
    calls.clear()
    calls_before_read = []

    class RecordingDict(dict):
        def __getitem__(self, key):
            if key == "advantages":
                calls_before_read.append(len(calls))
            return super().__getitem__(key)

    trainer._compute_loss(trainer.model, RecordingDict(batch))
    assert len(calls) == 1, "the loss must run one forward pass, or CES would shape the advantages twice"
    assert calls[0][1]["compute_entropy"] is True, "the loss must request entropies"
    assert calls_before_read == [1], (
        "advantages must be read once, after the entropies are computed, because CESTrainer sets them in between"
    )


def test_entropies_are_differentiable_in_nats_at_the_sampling_temperature(trainer, examples, monkeypatch):
    calls = spy(trainer, monkeypatch, "_get_per_token_logps_and_entropies")
    batch = trainer._generate_and_score_completions(examples)
    trainer._compute_loss(trainer.model, batch)
    logps, entropies, _ = calls[-1][2]
    assert entropies.requires_grad, (
        "entropies must require gradients, or CES becomes the ablation without the entropy gradient"
    )
    assert entropies.dtype == torch.float32
    model = float64_copy(trainer.model)
    row = {"prompt_ids": trainer.processing_class.encode(PROMPTS[0]), **SCRIPT[PROMPTS[0]][0]}
    with torch.no_grad():
        expected_logps, expected_bits = logps_and_bits(model, row, TEMPERATURE)
    length = len(expected_bits)
    nats = torch.stack(expected_bits).float() * math.log(2)
    torch.testing.assert_close(entropies[0, :length].detach(), nats, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logps[0, :length].detach(), torch.stack(expected_logps).float(), rtol=1e-4, atol=1e-4)
    assert entropies[0, length:].abs().sum() == 0, "entropies must be 0 on padding"


def test_the_gradient_of_the_entropies_is_correct(trainer, examples, monkeypatch):
    calls = spy(trainer, monkeypatch, "_get_per_token_logps_and_entropies")
    trainer._compute_loss(trainer.model, trainer._generate_and_score_completions(examples))
    calls[-1][2][1][0].sum().backward()
    model = float64_copy(trainer.model)
    model.zero_grad()
    row = {"prompt_ids": trainer.processing_class.encode(PROMPTS[0]), **SCRIPT[PROMPTS[0]][0]}
    (sum(logps_and_bits(model, row, TEMPERATURE)[1]) * math.log(2)).backward()
    for (name, parameter), reference in zip(trainer.model.named_parameters(), model.parameters(), strict=True):
        difference = (parameter.grad.double() - reference.grad).norm() / reference.grad.norm()
        assert difference < 1e-4, name


def test_the_loss_accepts_advantages_of_shape_b_t(trainer, examples):
    batch = trainer._generate_and_score_completions(examples)
    per_token = {**batch, "advantages": batch["advantages"].unsqueeze(1).expand_as(batch["completion_ids"])}
    loss = trainer._compute_loss(trainer.model, batch)
    assert torch.equal(loss, trainer._compute_loss(trainer.model, per_token))


def test_gathered_rewards_are_unweighted_and_none_becomes_nan(trainer, examples, monkeypatch):
    calls = spy(trainer, monkeypatch, "_calculate_rewards")
    trainer._generate_and_score_completions(examples)
    (inputs, prompts, completions, completion_ids), _, rewards = calls[0]
    rows = [row for prompt in PROMPTS for row in SCRIPT[prompt]]
    assert [example["prompt"] for example in inputs] == prompts == [row["prompt"] for row in examples]
    assert completion_ids == [row["completion_ids"] for row in rows]
    expected = [[float("nan") if row["accuracy"] is None else row["accuracy"], row["bonus"]] for row in rows]
    torch.testing.assert_close(rewards, torch.tensor(expected), equal_nan=True)
    assert len(completions) == 8


def test_a_column_added_to_the_inputs_reaches_the_reward_functions(trainer, examples):
    received = []

    def reward(completions, thinking_prefilled, **kwargs):
        received.append(thinking_prefilled)
        return [0.0] * len(completions)

    trainer.reward_funcs = [scripted_accuracy_reward, reward]
    inputs = [{**row, "thinking_prefilled": index == 2, "accuracy": 0} for index, row in enumerate(examples)]
    trainer._calculate_rewards(inputs, [row["prompt"] for row in inputs], [""] * 8, [[1]] * 8)
    assert received == [[False, False, True, False, False, False, False, False]]


def test_the_rollout_keeps_the_order_of_the_inputs(trainer, examples):
    batch = trainer._generate_and_score_completions(examples)
    rows = [row for prompt in PROMPTS for row in SCRIPT[prompt]]
    for index, row in enumerate(rows):
        length = len(row["completion_ids"])
        assert batch["completion_ids"][index, :length].tolist() == row["completion_ids"]
        assert batch["completion_mask"][index].sum() == length
    assert batch["advantages"].shape == (8,)


def test_added_tensors_are_shuffled_and_split_with_the_rollout():
    rollout = {"ids": torch.arange(8).view(8, 1), "correct": torch.arange(8) % 2 == 0, "items": torch.tensor(5)}
    parts = split_tensor_dict(shuffle_sequence_dict(rollout), 4)
    ids = []
    for part in parts:
        assert torch.equal(part["correct"], part["ids"][:, 0] % 2 == 0)
        assert part["items"] == 5
        ids += part["ids"].flatten().tolist()
    assert sorted(ids) == list(range(8))


def test_the_next_iteration_reuses_the_buffered_rollout(trainer, examples):
    trainer.num_iterations = 2
    first = trainer._prepare_inputs(examples)
    trainer._step = 1
    assert trainer._prepare_inputs(examples) is first, "CESTrainer copies the inputs because TRL reuses them"


def test_metrics_are_lists_per_mode_and_log_clears_them(trainer):
    trainer._metrics["train"]["ces/x"] += [1.0, 3.0, float("nan")]
    logs = {}
    trainer.log(logs)
    assert logs["ces/x"] == 2.0
    assert not trainer._metrics["train"]


def test_the_attributes_that_the_trainer_reads_exist(trainer):
    assert trainer.reward_func_names == ["scripted_accuracy_reward", "scripted_bonus_reward"]
    assert trainer.reward_weights.tolist() == [1.0, 1.0]
    assert trainer.eos_token_ids == [1]
    assert trainer._tokenizer.pad_token_id == 0
    assert (trainer.num_generations, trainer.num_generations_eval) == (4, 4)
    assert get_callable_name(scripted_bonus_reward) == "scripted_bonus_reward"


def test_advantages_follow_eq_3_with_the_sample_deviation(trainer, examples):
    batch = trainer._generate_and_score_completions(examples)
    group = [(row["accuracy"] or 0) + row["bonus"] for row in SCRIPT[PROMPTS[1]]]
    mean = sum(group) / 4
    deviation = math.sqrt(sum((reward - mean) ** 2 for reward in group) / 3)
    expected = [(reward - mean) / (deviation + 1e-4) for reward in group]
    assert batch["advantages"][4:].tolist() == pytest.approx(expected, abs=1e-5)


def test_rows_of_nan_are_excluded_from_eq_3(trainer, examples, monkeypatch):
    nan = float("nan")
    rewards = torch.tensor([[1.0, 1.0], [1.0, 1.0], [nan, nan], [0.0, 1.0], *[[1.0, 0.0]] * 4])
    monkeypatch.setattr(trainer, "_calculate_rewards", lambda *args: rewards)
    advantages = trainer._generate_and_score_completions(examples)["advantages"]
    # The rewards 2, 2 and 1 have mean 5 / 3 and standard deviation 0.577.
    assert advantages.tolist() == pytest.approx([0.577, 0.577, 0.0, -1.155, 0.0, 0.0, 0.0, 0.0], abs=1e-3)


# Assumptions of dynamic sampling and the other layers.


def test_a_rollout_may_have_any_number_of_groups(trainer, examples):
    for rows in (examples[:4], examples + examples[4:], examples):
        batch = trainer._generate_and_score_completions([dict(row) for row in rows])
        assert batch["advantages"].shape == (len(rows),)


def test_a_rollout_has_exactly_the_known_tensors(trainer, examples):
    """Check the tensors listed in trl_ces/layers/rows.py. If there are unknown tensors, rows may stay unsorted."""
    batch = trainer._generate_and_score_completions(examples)
    assert set(batch) == {
        "prompt_ids",
        "prompt_mask",
        "completion_ids",
        "completion_mask",
        "advantages",
        "num_items_in_batch",
    }
    assert next(iter(batch)) == "prompt_ids"
    assert (batch["num_items_in_batch"].shape, batch["num_items_in_batch"].dtype) == ((), torch.int64)
    assert batch["num_items_in_batch"] == batch["completion_mask"].sum()
    pad = trainer._tokenizer.pad_token_id
    for name, side in (("prompt", "left"), ("completion", "right")):
        ids, mask = batch[f"{name}_ids"], batch[f"{name}_mask"]
        assert (ids[mask == 0] == pad).all()
        ordered = mask if side == "left" else mask.flip(1)
        assert torch.equal(ordered, ordered.sort(dim=1).values), f"{name}s must be padded on the {side}"


def test_padding_has_log_prob_0_and_importance_ratio_1(trainer, examples):
    script = {
        prompt: [{**row, "mask": [1] * len(row["completion_ids"])} for row in group]
        for prompt, group in SCRIPT.items()
    }
    rollout_func = scripted_rollout(script, 4)

    def rollout(prompts, trainer):
        output = rollout_func(prompts, trainer)
        return {**output, "logprobs": [[-2.0] * len(ids) for ids in output["completion_ids"]]}

    trainer.rollout_func, trainer.use_vllm, trainer._last_loaded_step = rollout, True, 0
    for mode, columns in (("token_truncate", None), ("sequence_truncate", 1)):
        trainer.vllm_importance_sampling_mode = mode
        batch = trainer._generate_and_score_completions([dict(row) for row in examples])
        padding = batch["completion_mask"] == 0
        assert padding.any()
        assert (batch["old_per_token_logps"][padding] == 0).all()
        assert (batch["sampling_per_token_logps"][padding] == 0).all()
        assert (batch["tool_mask"][padding] == 1).all()
        ratio = batch["importance_sampling_ratio"]
        assert ratio.size(1) == (columns or batch["completion_ids"].size(1))
        if columns is None:
            assert (ratio[padding] == 1).all()


def test_vllms_weights_are_loaded_once_per_optimizer_step(trainer, examples):
    class SyncCounter:
        count = 0

        def sync_weights(self):
            self.count += 1

    rollout_func = trainer.rollout_func
    trainer.rollout_func = lambda prompts, trainer: {
        **rollout_func(prompts, trainer),
        "logprobs": [[-2.0] * len(row["completion_ids"]) for prompt in PROMPTS for row in SCRIPT[prompt]],
    }
    trainer.use_vllm, trainer._last_loaded_step, trainer.vllm_generation = True, -1, SyncCounter()
    for _ in range(3):
        trainer._generate_and_score_completions([dict(row) for row in examples])
    assert trainer.vllm_generation.count == 1


def test_the_data_loader_returns_the_samplers_rows_unchanged(tmp_path):
    """Check that one generator draws a new permutation per epoch, and that each prompt is repeated for its group."""
    columns = {"prompt": [f"{number}+{number}=" for number in range(6)], "level": list(range(6))}
    data = Dataset.from_dict(columns)
    trainer = make_trainer(tmp_path, data=data)
    loader = trainer.get_train_dataloader()
    generator = torch.Generator().manual_seed(7)
    for _ in range(2):
        order = torch.randperm(6, generator=generator).tolist()
        batches = list(loader)
        assert len(batches) == 3
        for index, batch in enumerate(batches):
            assert batch == data.__getitems__([row for row in order[2 * index : 2 * index + 2] for _ in range(4)])
    assert isinstance(trainer._get_train_sampler(), RepeatSampler)
    assert trainer.shuffle_dataset is True


@pytest.mark.parametrize("accumulation", [1, 2])
def test_the_step_counter_starts_at_0_in_a_resumed_run(tmp_path, monkeypatch, accumulation):
    events, rollouts = [], []

    class RecordingTrainer(GRPOTrainer):
        def _save_checkpoint(self, model, trial):
            events.append(("save", self.state.global_step, self._step))
            super()._save_checkpoint(model, trial)
            assert Path(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}").is_dir()

        def _load_optimizer_and_scheduler(self, checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)
            events.append(("load", self.state.global_step, self._step))

        def _generate_and_score_completions(self, inputs):
            rollouts.append(self._step)
            return super()._generate_and_score_completions(inputs)

    def run(checkpoint=None):
        events.clear()
        rollouts.clear()
        trainer = make_trainer(
            tmp_path,
            RecordingTrainer,
            save_strategy="steps",
            save_steps=1,
            max_steps=4,
            gradient_accumulation_steps=accumulation,
            steps_per_generation=accumulation,
            num_iterations=2,
            max_completion_length=40,
            per_device_train_batch_size=8 // accumulation,
        )
        trainer.train(resume_from_checkpoint=checkpoint)
        return list(events), list(rollouts)

    assert run() == ([("save", step, step * accumulation) for step in (1, 2, 3, 4)], [0, 2 * accumulation])
    resumed, rollouts = run(str(tmp_path / "checkpoint-3"))
    assert resumed == [("load", 3, 0), ("save", 4, accumulation)]
    assert rollouts == [0], "TRL generates again when it resumes in the middle of a rollout"
    assert json.loads((tmp_path / "checkpoint-3" / "trainer_state.json").read_text())["global_step"] == 3


def test_scoring_uses_only_the_eight_outputs_of_generate(trainer, examples, monkeypatch):
    """DynamicSampling replays the `_generate` outputs of the kept groups in TRL's method."""
    generated = spy(trainer, monkeypatch, "_generate")
    first = trainer._generate_and_score_completions([dict(row) for row in examples])
    ids, completion_ids, masks, completions, logps, extra, images, tool_images = generated[0][2]
    assert ids == [trainer.processing_class.encode(row["prompt"]) for row in examples]
    assert [len(rows) for rows in (completion_ids, completions)] == [8, 8]
    assert (masks, logps, images, tool_images) == (None, None, None, [])
    assert extra.keys() == {"accuracy", "bonus"}
    rewards = [[0.0, 1.0]] * 8
    monkeypatch.setattr(trainer, "_calculate_rewards", lambda *_: torch.tensor(rewards).flip(1))
    monkeypatch.setattr(
        trainer, "_generate", lambda prompts: (ids, completion_ids, None, completions, None, {}, None, [])
    )
    replay = trainer._generate_and_score_completions([dict(row) for row in examples])
    for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "num_items_in_batch"):
        assert torch.equal(first[name], replay[name]), name
    assert not replay["advantages"].any()  # the replayed rewards are equal


def test_old_log_probs_are_computed_before_reference_log_probs(trainer, examples, monkeypatch):
    """RealTokens returns zeros from the first call and computes old log-probs later."""
    trainer.args.steps_per_generation = 2
    trainer.beta, trainer.ref_model = 0.1, tiny_model(seed=3)
    models = []

    def forward(model, input_ids, attention_mask, logits_to_keep, batch_size=None, **kwargs):
        assert batch_size == trainer.args.per_device_train_batch_size
        assert not torch.is_grad_enabled()
        models.append(model)
        return torch.full((len(input_ids), logits_to_keep), -float(len(models))), None, None

    monkeypatch.setattr(trainer, "_get_per_token_logps_and_entropies", forward)
    batch = trainer._generate_and_score_completions([dict(row) for row in examples])
    assert models == [trainer.model, trainer.ref_model]
    assert (batch["old_per_token_logps"] == -1).all()
    assert (batch["ref_per_token_logps"] == -2).all()


def test_each_rollout_is_a_new_list_of_micro_batches(trainer, examples):
    """The layers detect a new rollout by the identity of this list."""
    trainer.args.steps_per_generation = 2
    assert trainer._buffered_inputs is None
    buffers = []
    for trainer._step in range(4):
        inputs = trainer._prepare_inputs([dict(row) for row in examples])
        assert inputs is trainer._buffered_inputs[trainer._step % 2]
        buffers.append(trainer._buffered_inputs)
    assert len(buffers[0]) == 2
    assert buffers[0] is buffers[1]
    assert buffers[1] is not buffers[2]
    assert buffers[2] is buffers[3]


def test_dapo_divides_by_the_mean_tokens_per_optimizer_step(trainer, examples):
    trainer.args.steps_per_generation = 4
    trainer.accelerator.gradient_accumulation_steps = trainer.current_gradient_accumulation_steps = 2
    batch = trainer._generate_and_score_completions([dict(row) for row in examples])
    loss = trainer._compute_loss(trainer.model, batch)
    batch["num_items_in_batch"] = batch["num_items_in_batch"] * 3
    assert trainer._compute_loss(trainer.model, batch).item() == pytest.approx(loss.item() / 3, rel=1e-5)


# Assumptions about TRL's client for a vLLM server, checked with the stand-in in tests/helpers/vllm_server.py.


@pytest.fixture
def model(tmp_path):
    tiny_model().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_all_client_requests_use_the_retrying_session(model, monkeypatch):
    """layers/upstream.py sets timeouts and retries in this session."""
    use_vllm_stub(monkeypatch)
    with serve_in_thread(model) as (stand_in, _):
        client, calls = VLLMClient(base_url=stand_in.url, group_port=free_port()), []
        assert isinstance(client.session, Session)
        for adapter in client.session.adapters.values():
            assert isinstance(adapter, HTTPAdapter)
            assert adapter.max_retries.total == 5
            assert adapter.max_retries.read == 5
        send, before = client.session.request, len(stand_in.log())
        monkeypatch.setattr(client.session, "request", lambda *a, **k: [calls.append(a), send(*a, **k)][1])
        client.init_communicator(device="cpu")
        client.update_model_params(tiny_model(seed=3))
        client.reset_prefix_cache()
        client.generate([[2, 3]], max_tokens=2)
        assert [url.removeprefix(stand_in.url) for _, url in calls] == [e["path"] for e in stand_in.log()[before:]]


def test_a_rejected_request_raises_a_plain_exception_with_a_fixed_prefix(model, monkeypatch):
    """train/server.py recognizes the exception by this prefix."""
    use_vllm_stub(monkeypatch)
    with serve_in_thread(model) as (stand_in, _):
        client = VLLMClient(base_url=stand_in.url)
        with pytest.raises(Exception, match=r"^Request failed: 400, .*maximum context length") as caught:
            client.generate([[2, 3]], max_tokens=1000)
        assert type(caught.value) is Exception


def test_the_client_checks_the_configuration_of_a_server(model, monkeypatch):
    """train/server.py checks the same settings before a run; TRL itself only warns about the log-probs mode."""
    use_vllm_stub(monkeypatch)
    with serve_in_thread(model, *FLAGS[2:]) as (stand_in, _):
        client = VLLMClient(base_url=stand_in.url)
        assert client.model == str(model)
        assert client.get_server_info()["model_config"]["logprobs_mode"] == "processed_logprobs"
        with pytest.raises(RuntimeError, match="has no weight-transfer engine"):
            client.init_communicator(device="cpu")
    with serve_in_thread(model, development=False) as (stand_in, _):
        client = VLLMClient(base_url=stand_in.url)
        with pytest.raises(RuntimeError, match="does not expose its development endpoints"):
            client.init_communicator(device="cpu")


def test_weights_are_sent_to_a_server_only_from_cuda_devices(model, monkeypatch):
    """The stub in tests/vllm_stub removes this restriction."""
    use_vllm_stub(monkeypatch, any_device=False)
    with serve_in_thread(model) as (stand_in, _):
        client = VLLMClient(base_url=stand_in.url)
        with pytest.raises(NotImplementedError, match=r"needs a CUDA device, got 'cpu'\. Generation .* is unaffected"):
            client.init_communicator(device="cpu")


def test_weights_are_sent_and_the_prefix_cache_is_reset_before_each_rollout(model, tmp_path, monkeypatch):
    use_vllm_stub(monkeypatch)
    with serve_in_thread(model) as (stand_in, _):
        server = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": stand_in.url}
        rewards = {"reward_funcs": lambda completions, **_: [float(len(text)) for text in completions]}
        trainer = make_trainer(tmp_path, more=rewards, max_steps=2, vllm_group_port=free_port(), **server)
        before = len(stand_in.log())
        trainer.train()
        update = ["/start_weight_update", "/update_weights", "/finish_weight_update", "/reset_prefix_cache"]
        assert [entry["path"] for entry in stand_in.log()[before:]] == 2 * [*update, "/v1/completions"]
