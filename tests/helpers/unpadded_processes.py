"""Train while processes exchange rows. Started by test_unpadded_training.py; not a test file."""

import sys

import torch
from accelerate.utils import gather_object
from margins import selection_margins
from processes import end_processes
from tiny import random_script, tiny_model
from trainers import scripted_trainer

PROMPTS = ["1+2=", "1+2+3+4+5+6=", "7=", "8+9+10="]
ACCURACIES = [[1, 0, 0, 1], [0, 0, 0, 1], [1, 1, None, 1], [0, 0, 1, 0]]


def main(output, processes, kind):
    # With this seed, the margins of token selection are large; see `margin` below.
    script = random_script(PROMPTS, ACCURACIES, torch.Generator().manual_seed(14), truncated=(1, 4, 9))
    rows = 16 // processes  # all rows are in one optimizer step, because TRL shuffles rows within each process
    batches = {"per_device_train_batch_size": rows // 2, "gradient_accumulation_steps": 2}
    if kind == "pieces":
        batches = {"per_device_train_batch_size": rows, "gradient_accumulation_steps": 1}
        batches["max_tokens_per_micro_batch"] = 90
    trainer = scripted_trainer(
        output,
        script,
        more={"model": tiny_model(spread=0.1)},
        max_steps=4,
        max_completion_length=40,
        ces_tau=0.3,
        optim="sgd",
        learning_rate=0.1,
        shaping="ces",
        **batches,
    )
    forwards, row_texts = [], {"generated": [], "trained": []}
    generate, backbone = trainer._generate_and_score_completions, trainer.accelerator.unwrap_model(trainer.model).model
    backbone.register_forward_hook(lambda *call: forwards.append(call[-1].last_hidden_state.shape[:2].numel()))

    def record(inputs):
        rollout = generate(inputs)
        row_texts["generated"] = [str(row[row != 0].tolist()) for row in rollout["completion_ids"]]
        return {**rollout, "unknown": rollout["completion_ids"].sum(dim=1)}

    trainer._generate_and_score_completions = record
    with selection_margins() as margins:
        trainer.train()
    for batch in trainer._buffered_inputs:
        assert torch.equal(batch["unknown"], batch["completion_ids"].sum(dim=1))
        row_texts["trained"] += [str(row[row != 0].tolist()) for row in batch["completion_ids"]]
    exchanged = len(set(row_texts["trained"]) - set(row_texts["generated"]))
    tokens = sum(int(batch["completion_mask"].sum()) for batch in trainer._buffered_inputs)
    results = gather_object([{"exchanged": exchanged, "tokens": tokens, "forwards": forwards}])
    if trainer.accelerator.is_main_process:
        result = {
            "weights": trainer.accelerator.unwrap_model(trainer.model).state_dict(),
            "exchanged": sum(entry["exchanged"] for entry in results),
            "tokens": [entry["tokens"] for entry in results],
            "forwards": [positions for entry in results for positions in entry["forwards"]],
            "margin": min(margins),
        }
        torch.save(result, f"{output}/{kind}.pt")


if __name__ == "__main__":
    for kind in ("rows", "pieces"):
        main(sys.argv[1], int(sys.argv[2]), kind)
    end_processes()
