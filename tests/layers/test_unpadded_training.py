"""Check that training without padding, on rows sorted by length, gives TRL's gradients with fewer token positions."""

import math
from itertools import chain

import pytest
import torch
from peft import LoraConfig
from processes import run_processes
from tiny import AS_TRL, tiny_model
from trl import GRPOTrainer
from unpadded_runs import CASES, OFF_POLICY, assert_same_gradients, train

from trl_ces import CESTrainer


@pytest.mark.parametrize("case", CASES)
def test_gradients_match_trl_with_fewer_token_positions(tmp_path, case):
    upstream, padded = train(GRPOTrainer, tmp_path / "trl", **CASES[case])
    ours, record = train(CESTrainer, tmp_path / "ces", **CASES[case])
    assert_same_gradients(padded, record)
    assert record.positions() < 0.8 * padded.positions()
    assert record.positions(with_gradient=False) <= padded.positions(with_gradient=False)
    if "pieces" not in case:
        assert len(record.forwards) == len(padded.forwards)
    for entry, expected in zip(ours.state.log_history, upstream.state.log_history, strict=True):
        for name in ("loss", "reward", "completions/mean_length"):
            if name in expected:
                assert entry[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-6), name
        if "kl" in expected:  # TRL logs the mean of the micro-batches' means
            assert entry["kl"] == pytest.approx(expected["kl"], rel=0.05)


@pytest.mark.parametrize("changes", [{}, OFF_POLICY, {"packing": True}, CASES["pieces"]], ids=str)
@pytest.mark.parametrize("shaping", ["ces", "entropy_advantage"])
def test_shaped_gradients_do_not_depend_on_padding(tmp_path, shaping, changes):
    only_unpadded = ("packing", "max_tokens_per_micro_batch")
    plain = {name: value for name, value in changes.items() if name not in only_unpadded}
    plain_trainer, padded = train(CESTrainer, tmp_path / "padded", shaping=shaping, **plain, **AS_TRL)
    trainer, record = train(CESTrainer, tmp_path / "unpadded", shaping=shaping, **changes)
    assert_same_gradients(padded, record)
    if shaping == "ces":
        logs = (trainer.state.log_history[:2], plain_trainer.state.log_history[:2])
        for entry, expected in zip(*logs, strict=True):
            for name in expected:
                if name.startswith("ces/"):
                    assert entry[name] == pytest.approx(expected[name], rel=1e-4), name


def test_adapter_gradients_match_trl_with_fewer_token_positions(tmp_path):
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    torch.manual_seed(0)
    _, padded = train(GRPOTrainer, tmp_path / "trl", peft_config=lora, beta=0.04)
    torch.manual_seed(0)
    _, record = train(CESTrainer, tmp_path / "ces", peft_config=lora, beta=0.04)
    assert all("lora" in name for name in record.gradients[0])
    assert_same_gradients(padded, record)
    assert record.positions() < 0.8 * padded.positions()


@pytest.mark.parametrize("changes", [{}, {"pad_to_multiple_of": 8}], ids=str)
def test_no_forward_pass_exceeds_the_budget(tmp_path, changes):
    _, record = train(CESTrainer, tmp_path, beta=0.04, **CASES["pieces"], **changes)
    assert all(positions <= 90 for _, positions in record.forwards)
    assert record.positions(with_gradient=False) > 0


def is_sorted_by_length(trainer):
    """Return whether the rows of each optimizer step are sorted, longest first."""
    size, buffer = trainer.args.gradient_accumulation_steps, trainer._buffered_inputs
    lengths = [(batch["prompt_mask"].sum(1) + batch["completion_mask"].sum(1)).tolist() for batch in buffer]
    steps = [list(chain(*lengths[start : start + size])) for start in range(0, len(buffer), size)]
    return all(step == sorted(step, reverse=True) for step in steps)


def test_rows_are_not_sorted_if_the_loss_depends_on_micro_batches(tmp_path):
    trainer, _ = train(CESTrainer, tmp_path / "dapo")
    assert is_sorted_by_length(trainer)
    # In the second case, optimizer steps begin in one rollout and end in the next.
    for changes in ({"loss_type": "bnpo"}, {"gradient_accumulation_steps": 6, "steps_per_generation": 8}):
        trainer, _ = train(CESTrainer, tmp_path / "unsorted", **changes)
        assert not is_sorted_by_length(trainer)


class WithUnknownInput(CESTrainer):
    """Trainer that emulates a newer TRL with an additional entry in the rollout."""

    make_entry = staticmethod(lambda completion_ids: completion_ids.sum(dim=1))

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        return {**batch, "upstream": self.make_entry(batch["completion_ids"]), "count": torch.tensor(7)}


def test_unknown_inputs_are_sorted_together_with_their_completions(tmp_path, caplog):
    trainer, _ = train(WithUnknownInput, tmp_path, max_steps=1)
    assert is_sorted_by_length(trainer)
    for batch in trainer._buffered_inputs:
        assert torch.equal(batch["upstream"], batch["completion_ids"].sum(dim=1))
        assert batch["count"] == 7
    assert "not sorted by length" not in caplog.text


@pytest.mark.parametrize(
    ("make_entry", "other_entries", "name", "budget"),
    [
        (lambda ids: ids.tolist(), {}, "upstream", None),
        (lambda ids: ids.tolist(), {}, "upstream", 90),
        (lambda ids: ids.sum(dim=1), {"upstream": False}, "upstream", None),
        (lambda ids: ids.sum(dim=1), {"upstream": None}, "upstream", None),
        (lambda ids: None, {"upstream": True}, "upstream", None),
        (lambda ids: None, {"tool_mask": True}, "tool_mask", None),
    ],
    ids=[
        "list",
        "list, budget",
        "irregular on rank 1",
        "missing on rank 1",
        "only on rank 1",
        "tool mask only on rank 1",
    ],
)
def test_inputs_with_irregular_rows_prevent_sorting_and_cause_one_warning(
    tmp_path, monkeypatch, caplog, make_entry, other_entries, name, budget
):
    def gather_from_two(objects):
        other = {**objects[0], **other_entries}
        return [*objects, {entry: movable for entry, movable in other.items() if movable is not None}]

    monkeypatch.setattr(WithUnknownInput, "make_entry", staticmethod(make_entry))
    monkeypatch.setattr("trl_ces.layers.real_tokens.gather_object", gather_from_two)
    trainer, _ = train(WithUnknownInput, tmp_path, max_steps=2, max_tokens_per_micro_batch=budget)
    ignored = " and `max_tokens_per_micro_batch` is ignored" if budget else ""
    assert not is_sorted_by_length(trainer)
    assert [record.message for record in caplog.records if "not sorted by length" in record.message] == [
        f"Rows are not sorted by length{ignored} in rollouts with the following inputs, because on at least one "
        f"process they do not have exactly one row of known shape per completion: {name}."
    ]


@pytest.fixture(scope="module")
def output_folders(tmp_path_factory):
    """Run the script with one process and then with two, and return the two output folders."""
    folder = tmp_path_factory.mktemp("exchanged")
    for processes in (1, 2):
        run_processes("unpadded_processes.py", folder / str(processes), processes, 280)
    return folder / "1", folder / "2"


@pytest.mark.parametrize("kind", ["rows", "pieces"])
def test_two_processes_exchange_rows_and_match_a_single_process_run(output_folders, kind):
    one, two = (torch.load(folder / f"{kind}.pt", weights_only=True) for folder in output_folders)
    assert one["margin"] > 1e-4, "the script needs a different seed: rounding errors could change the selected tokens"
    start = tiny_model(spread=0.1).state_dict()
    for name, value in one["weights"].items():
        torch.testing.assert_close(two["weights"][name], value, rtol=1e-5, atol=1e-6)
        assert not torch.equal(value, start[name]), f"{name} was not trained"
    assert one["exchanged"] == 0
    assert two["exchanged"] > 0
    assert two["tokens"][0] == pytest.approx(two["tokens"][1], rel=0.2)
    assert max(one["forwards"] + two["forwards"]) <= 90 or kind == "rows"


def test_a_token_budget_needs_a_whole_number_of_steps_per_rollout(tmp_path):
    with pytest.raises(ValueError, match=r"make one of .* a multiple of the other"):
        train(
            CESTrainer, tmp_path, max_tokens_per_micro_batch=90, gradient_accumulation_steps=6, steps_per_generation=8
        )


def test_a_micro_batch_in_pieces_logs_the_same_loss(tmp_path):
    step = {"shaping": "ces", "per_device_train_batch_size": 16, "gradient_accumulation_steps": 1}
    unsplit, _ = train(CESTrainer, tmp_path / "unsplit", **step)
    pieces, record = train(CESTrainer, tmp_path / "pieces", max_tokens_per_micro_batch=90, **step)
    assert len(record.forwards) > 4
    for expected, actual in zip(unsplit.state.log_history[:2], pieces.state.log_history[:2], strict=True):
        assert math.isclose(expected["loss"], actual["loss"], rel_tol=1e-4)
        assert math.isclose(expected["grad_norm"], actual["grad_norm"], rel_tol=1e-4)
