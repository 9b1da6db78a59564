"""Test dynamic sampling in CESTrainer: equality with TRL on kept prompts, epochs, resuming, and two processes."""

import json

import pytest
import torch
from datasets import Dataset
from dynamic_sampling_processes import CASES as PROCESS_CASES
from processes import run_processes
from sampling_runs import PROMPTS, make_trainer, record_batches, rollout_with_logprobs
from tiny import AS_TRL, random_script, settings, tiny_model
from trainers import (
    assert_bitwise_equal,
    assert_weights_changed,
    prepare_trainer,
    short_reward,
    tiny_trainer,
    vowel_accuracy_reward,
    weights,
    with_reference,
)
from trl import GRPOConfig, GRPOTrainer

from trl_ces import CESConfig, CESTrainer
from trl_ces.layers.sampler import PromptStream

OUTCOMES = [[1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0], [1, None, None, None], [1, 1, None, 0]]
INFORMATIVE = {prompt for number, prompt in enumerate(PROMPTS) if number % 5 in (1, 4)}
ORDER = [PROMPTS[number] for number in PromptStream(40, 7, True).peek(40)]  # one epoch


def make_script(prompts=PROMPTS, outcomes=OUTCOMES, **options):
    """Create a script with the sampler's log-probs, in which the accuracies depend only on the prompt."""
    generator = torch.Generator().manual_seed(1)
    accuracies = [outcomes[number % len(outcomes)] for number in range(len(prompts))]
    script = random_script(prompts, accuracies, generator, **options)
    for group in script.values():
        for row in group:
            row["logprobs"] = (-3 - torch.rand(len(row["completion_ids"]), generator=generator)).tolist()
    return script


def one_batch(trainer, examples=()):
    return prepare_trainer(trainer)._generate_and_score_completions(list(examples))


def logged_batches(trainer):
    """Return the optimizer step and the metrics of each new batch, with the prefix removed from the names."""
    prefix = "dynamic_sampling/"
    return [
        {name.removeprefix(prefix): value for name, value in entry.items() if name == "step" or prefix in name}
        for entry in trainer.state.log_history
        if "dynamic_sampling/rounds" in entry
    ]


# Equality with TRL.


def alternating_accuracy_reward(completions, **kwargs):
    """Make every group informative, regardless of the completions."""
    return [float(index % 2) for index in range(len(completions))]


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("case", ["nothing dropped", "one round"])
def test_training_with_one_round_per_batch_is_bitwise_identical_to_trl(tmp_path, accumulation, case):
    """Train with real sampling on 16 prompts, four per rollout, so that the run reaches its third epoch."""
    accuracy = alternating_accuracy_reward if case == "nothing dropped" else vowel_accuracy_reward
    rounds = {} if case == "nothing dropped" else {"dynamic_sampling_max_rounds": 1}
    steps = {"gradient_accumulation_steps": accumulation, "steps_per_generation": 2 * accumulation}
    runs = []
    for trainer_class, config_class, more in (
        (GRPOTrainer, GRPOConfig, {}),
        (CESTrainer, CESConfig, {"shaping": "none", "dynamic_sampling": True, **AS_TRL, **rounds}),
    ):
        trainer = tiny_trainer(
            tmp_path,
            [accuracy, short_reward],
            PROMPTS[:16],
            trainer_class,
            config_class,
            max_steps=20,
            epsilon_high=0.28,
            per_device_train_batch_size=8 // accumulation,
            **steps,
            **more,
        )
        trainer.train()
        runs.append(trainer)
    assert_weights_changed(runs[0])
    assert_bitwise_equal(weights(runs[0]), weights(runs[1]))
    assert [entry["rounds"] for entry in logged_batches(runs[1])] == [1] * 10
    assert runs[1]._sampler.stream.position == 40
    uninformative = [entry["uninformative_groups"] for entry in logged_batches(runs[1])]
    assert (max(uninformative) == 0) == (case == "nothing dropped")


MULTI = {"steps_per_generation": 2, "num_iterations": 2, "per_device_train_batch_size": 8}
VLLM = {"vllm_importance_sampling_clip_max": 3.0}
CASES: dict[str, dict] = {
    "plain": {},
    "old log-probabilities": MULTI,
    "reference model": {"beta": 0.3, **MULTI},
    "padded to multiples": {"pad_to_multiple_of": 8, **MULTI},
    "truncated completions masked": {"mask_truncated_completions": True, **MULTI},
    "grpo loss": {"loss_type": "grpo"},
    "standard deviation of the batch": {"scale_rewards": "batch"},
    "rewards normalized separately": {"multi_objective_aggregation": "normalize_then_sum"},
    "entropy advantage": {"shaping": "entropy_advantage"},
    "ces": {"shaping": "ces", "ces_allow_dynamic_sampling": True, "ces_tau": 0.3, **MULTI},
    "vllm token": {"vllm_importance_sampling_mode": "token_truncate", **VLLM},
    "vllm sequence": {"vllm_importance_sampling_mode": "sequence_truncate", **VLLM},
    "accumulation": {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 8},
}


@pytest.mark.parametrize("masked", [False, True], ids=["", "tool mask"])
@pytest.mark.parametrize("case", CASES)
def test_batches_losses_and_gradients_match_training_on_the_kept_prompts(tmp_path, case, masked):
    """Compare two consecutive rollouts whose rounds have different padded widths."""
    changes = CASES[case]
    script = make_script(masked=masked, truncated=range(0, 160, 3))

    trainer = make_trainer(tmp_path, script, model=with_reference(tiny_model(), tmp_path), **changes)
    shaped = changes.get("shaping", "none") != "none"
    # TRL excludes a completion from its group only if the completion has no reward at all.
    no_rewards = {"accuracy": None, "bonus": None}
    upstream_script = {
        prompt: [row | no_rewards if row["accuracy"] is None else row for row in group]
        for prompt, group in script.items()
    }
    plain = make_trainer(
        tmp_path,
        upstream_script,
        model=with_reference(tiny_model(), tmp_path),
        trainer_class=CESTrainer if shaped else GRPOTrainer,
        **{**changes, "dynamic_sampling": False},
    )
    for each in (trainer, plain):
        each.use_vllm, each._last_loaded_step = case.startswith("vllm"), 0  # as if the sampler had the current weights
    used_prompts, rounds = record_batches(trainer)
    for number in range(2):
        rounds.clear()
        batch = one_batch(trainer)
        assert len(rounds) > 1, "the test needs more than one round"
        assert set(used_prompts[number]) <= INFORMATIVE
        assert len(set(used_prompts[number])) == 4
        expected = one_batch(plain, [{"prompt": prompt} for prompt in used_prompts[number] for _ in range(4)])
        assert batch.keys() == expected.keys()
        for name, values in expected.items():
            assert batch[name].dtype == values.dtype, name
            torch.testing.assert_close(
                batch[name], values, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: name + text
            )
        for each in (trainer, plain):
            with torch.no_grad():
                for parameter in each.model.parameters():  # so that the ratios are not 1
                    parameter.mul_(1.02)
            each.model.zero_grad()
        losses = [each._compute_loss(each.model, rows) for each, rows in ((trainer, batch), (plain, expected))]
        assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-4, abs=1e-5)
        for loss in losses:
            loss.backward()
        for (name, parameter), other in zip(trainer.model.named_parameters(), plain.model.parameters(), strict=True):
            assert other.grad.norm() > 0
            assert (parameter.grad - other.grad).norm() / other.grad.norm() < 1e-4, name


# Complete runs.


def test_an_epoch_has_full_batches_and_draws_each_prompt_once(tmp_path, caplog):
    """16 of the 40 prompts are informative and each batch takes 4, so one epoch is exactly four batches."""
    trainer = make_trainer(tmp_path, make_script(), max_steps=16, **MULTI)
    used_prompts, rounds = record_batches(trainer)
    trainer.train()
    assert [prompt for batch in used_prompts for prompt in batch] == [
        prompt for prompt in ORDER if prompt in INFORMATIVE
    ]
    assert [len(batch) for batch in used_prompts] == [4, 4, 4, 4]
    assert "informative groups for a batch" not in caplog.text
    assert_weights_changed(trainer)

    logged = logged_batches(trainer)
    ends = [ORDER.index(batch[-1]) + 1 for batch in used_prompts]
    for entry, start, end in zip(logged, [0, *ends[:-1]], ends, strict=True):
        prompts = end - start
        assert entry["prompts"] == prompts
        assert entry["dropped_groups"] == pytest.approx((prompts - 4) / prompts)
        assert entry["uninformative_groups"] == 0
        assert entry["epoch"] == end / 40
        assert entry["extra_generation_time"] > 0
    assert sum(entry["rounds"] for entry in logged) == len(rounds)
    # As without dynamic sampling, each batch is used for four optimizer steps.
    assert [entry["step"] for entry in logged] == [1, 5, 9, 13]


def test_batches_without_informative_groups_use_dropped_groups_with_a_warning(tmp_path, caplog):
    trainer = make_trainer(tmp_path, make_script(outcomes=OUTCOMES[:1]), max_steps=2, dynamic_sampling_max_rounds=3)
    used_prompts, rounds = record_batches(trainer)
    trainer.train()
    assert [prompt for prompts in rounds for prompt in prompts] == ORDER[:24]
    assert used_prompts == [ORDER[:4], ORDER[12:16]]
    names = ("rounds", "prompts", "dropped_groups", "uninformative_groups")
    assert [[entry[name] for name in names] for entry in logged_batches(trainer)] == [[3, 12, 1, 1]] * 2
    assert_weights_changed(trainer)  # the bonus still produces a gradient
    assert caplog.text.count("found only 0 informative groups for a batch of 4 in 3 rounds") == 1


def test_evaluation_neither_drops_groups_nor_advances_the_prompt_stream(tmp_path):
    runs = []
    for evaluate in ({}, {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 16}):
        trainer = make_trainer(tmp_path, make_script(), max_steps=3, **evaluate)
        used_prompts, _ = record_batches(trainer)
        trainer.train()
        runs.append(used_prompts)
    assert runs[0] == runs[1]
    evaluations = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    assert len(evaluations) == 3
    assert not any("dynamic" in name for name in evaluations[0])


# Resuming.


def test_resuming_inside_a_rollout_reuses_the_rollout_or_redraws_its_prompts(tmp_path):
    script = make_script()
    saves = {"save_strategy": "steps", "save_steps": 1}
    full = make_trainer(tmp_path / "full", script, max_steps=8, **saves, **MULTI)  # four steps per rollout
    used_prompts, _ = record_batches(full)
    full.train()
    positions = [
        json.loads((tmp_path / f"full/checkpoint-{step}/dynamic_sampling.json").read_text())["position"]
        for step in range(1, 9)
    ]
    first, second = positions[3], positions[7]
    assert 4 <= first < second
    assert positions == [0, 0, 0, first, first, first, first, second]
    for name, redrawn_prompts in (("with its rollout", []), ("without", [used_prompts[1]])):
        resumed = make_trainer(tmp_path / name, script, max_steps=8, **MULTI)
        new_prompts, _ = record_batches(resumed)
        resumed.train(resume_from_checkpoint=str(tmp_path / "full" / "checkpoint-6"))
        assert new_prompts == redrawn_prompts
        assert resumed._sampler.stream.position == second
        (tmp_path / "full" / "checkpoint-6" / "rollout-0.safetensors").unlink(missing_ok=True)


def test_a_checkpoint_without_dynamic_sampling_is_rejected(tmp_path):
    script = make_script()
    changes = {"save_strategy": "steps", "save_steps": 1, **MULTI}
    make_trainer(tmp_path / "off", script, max_steps=2, **{**changes, "dynamic_sampling": False}).train()
    assert not list(tmp_path.rglob("dynamic_sampling.json"))
    trainer = make_trainer(tmp_path / "on", script, max_steps=4, **MULTI)
    with pytest.raises(ValueError, match="saved without dynamic sampling: resume it with `dynamic_sampling=False`"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "off" / "checkpoint-2"))


# Unsupported inputs.


def test_unsupported_datasets_are_rejected_before_the_model_is_loaded(tmp_path):
    args = CESConfig(**settings(tmp_path, shaping="none", dynamic_sampling=True))
    data = Dataset.from_dict({"prompt": PROMPTS})
    stream = data.to_iterable_dataset()
    with pytest.raises(ValueError, match=r"`train_dataset` is an IterableDataset.*`dynamic_sampling=False`"):
        CESTrainer("no/such-model", vowel_accuracy_reward, args, train_dataset=stream)
    for column in ("image", "images"):
        with_images = data.add_column(column, [None] * 40)
        with pytest.raises(ValueError, match=rf"`train_dataset` has the column '{column}'.*`dynamic_sampling=False`"):
            CESTrainer("no/such-model", vowel_accuracy_reward, args, with_images)


def test_images_from_generation_raise_an_error(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path, make_script())
    upstream = GRPOTrainer._generate

    def with_images(self, prompts):
        *outputs, _, tool_images = upstream(self, prompts)
        return *outputs, [["an image"]] * len(prompts), tool_images

    monkeypatch.setattr(GRPOTrainer, "_generate", with_images)
    with pytest.raises(RuntimeError, match="does not support images: set `dynamic_sampling=False`"):
        one_batch(trainer)


def test_log_probs_are_computed_only_for_kept_groups(tmp_path):
    """Check that log-probs are computed for the 64 rows used in training, not for all 160 rows."""
    model = with_reference(tiny_model(), tmp_path)
    trainer = make_trainer(tmp_path, make_script(), model=model, beta=0.1, max_steps=16, **MULTI)
    num_rows = {"policy": 0, "reference": 0}

    def count(name):
        def hook(module, arguments, keywords, output):
            if not torch.is_grad_enabled() and keywords.get("position_ids") is None:
                num_rows[name] += output.last_hidden_state.size(0)

        return hook

    trainer.model.model.register_forward_hook(count("policy"), with_kwargs=True)
    trainer.ref_model.model.register_forward_hook(count("reference"), with_kwargs=True)
    trainer.train()
    assert sum(entry["prompts"] for entry in logged_batches(trainer)) == 40
    assert num_rows == {"policy": 64, "reference": 64}  # four rollouts of 16


def test_importance_ratios_are_logged_only_for_kept_groups(tmp_path):
    """With vLLM's correction, ratios are computed only for the rows used in training."""
    trainer = make_trainer(tmp_path, make_script(), vllm_importance_sampling_mode="token_truncate", **MULTI)
    trainer.use_vllm, trainer._last_loaded_step = True, 0
    _, rounds = record_batches(trainer)
    batch = one_batch(trainer)
    assert len(rounds) > 1
    mask = batch["completion_mask"].bool()
    difference = (batch["old_per_token_logps"] - batch["sampling_per_token_logps"]).abs()[mask]
    logged = trainer._metrics["train"]["sampling/sampling_logp_difference/mean"]
    assert logged == [pytest.approx(difference.mean().item(), rel=1e-5)]
    assert trainer.vllm_importance_sampling_correction is True
    assert len(trainer._metrics["train"]["reward"]) == len(rounds)  # scoring the kept groups does not log again


@pytest.mark.parametrize("dynamic", [True, False], ids=["dynamic sampling", "plain"])
def test_a_rollout_func_may_compute_log_probs_with_the_trainer(tmp_path, dynamic):
    """Check that the function gets log-probs, and that TRL's old log-probs are still correct."""
    script = make_script()
    scripted, minima = rollout_with_logprobs(script), []

    def rollout(prompts, trainer):
        output = scripted(prompts, trainer)
        ids = torch.tensor([output["completion_ids"][0]])
        with torch.no_grad():
            logps, _, _ = trainer._get_per_token_logps_and_entropies(
                trainer.model, ids, torch.ones_like(ids), ids.size(1) - 1, batch_size=1
            )
        minima.append(logps.abs().min().item())
        return output

    trainer = make_trainer(tmp_path, script, dynamic_sampling=dynamic, max_steps=2, trim_padding=True, **MULTI)
    trainer.rollout_func = rollout
    trainer.train()
    assert minima
    assert min(minima) > 0
    assert trainer.state.log_history[0]["log_ratio/first_step_max"] < 1e-5


@pytest.mark.parametrize("partial", ["mask", "logprobs"])
def test_missing_tool_masks_are_added_and_incomplete_log_probs_are_dropped(tmp_path, partial):
    """Every process must have the same tensors. If a mask is missing, all tokens count as generated by the policy."""
    script = make_script(masked=True)
    scripted, rounds = rollout_with_logprobs(script), []

    def rollout(prompts, trainer):
        rounds.append(len(prompts))
        output = scripted(prompts, trainer)
        if len(rounds) == 1 and partial == "mask":
            del output["env_mask"]
        if len(rounds) > 1 and partial == "logprobs":
            output["logprobs"] = None
        return output

    trainer = make_trainer(tmp_path, script, **MULTI)
    trainer.rollout_func = rollout
    trainer.use_vllm, trainer._last_loaded_step = partial == "logprobs", 0
    trainer.vllm_importance_sampling_correction = False
    batch = one_batch(trainer)
    assert len(rounds) > 1
    assert "sampling_per_token_logps" not in batch
    masked = (batch["tool_mask"] == 0).any(dim=1)
    assert masked.any()
    if partial == "mask":
        assert not masked.all()


# Processes.


@pytest.fixture(scope="module")
def process_results(tmp_path_factory):
    folder, results = tmp_path_factory.mktemp("processes"), []
    for processes in (1, 2):
        output = folder / str(processes)
        run_processes("dynamic_sampling_processes.py", output, processes, timeout=140)
        results += [torch.load(output / f"result{rank}.pt", weights_only=True) for rank in range(processes)]
    return results


@pytest.mark.slow
@pytest.mark.parametrize("case", PROCESS_CASES)
def test_two_processes_match_the_prompts_and_weights_of_one_process(process_results, case):
    one, first, second = (result[case] for result in process_results)
    assert len(one["used"]) == len(one["log"]) == 3
    # The batch consists of the halves of the two processes in order.
    assert [left + right for left, right in zip(first["used"], second["used"], strict=True)] == one["used"]
    assert first["position"] == second["position"] == one["position"]
    assert first["rounds"] == second["rounds"]
    if case == "out of rounds":
        assert any(entry[3] > 0 for entry in one["log"]), "the test needs a batch with too few informative groups"
    else:
        assert sum(entry[0] > 1 for entry in one["log"]) >= 2, "the test needs dropped groups"
        assert all(entry[3] == 0 for entry in one["log"])
    if case == "even rounds":
        assert any(size % 2 for size in one["rounds"])
        assert all(size % 2 == 0 for size in first["rounds"])
        # The numbers of rounds may differ.
        assert [entry[1:] for entry in first["log"]] == [entry[1:] for entry in one["log"]]
    else:
        assert first["rounds"] == one["rounds"]
        assert first["log"] == second["log"] == one["log"]
    assert one["old"]
    assert first["old"]
    start = tiny_model().state_dict()
    for name, value in one["weights"].items():
        torch.testing.assert_close(first["weights"][name], value, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(second["weights"][name], value, rtol=1e-5, atol=1e-5)
        assert not torch.equal(value, start[name]), f"{name} was not trained"
