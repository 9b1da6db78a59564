"""Train with dynamic sampling and save the results. Started by test_dynamic_sampling.py; not a test file."""

import sys

import torch
from processes import end_processes
from sampling_runs import PROMPTS, make_trainer, record_batches
from tiny import random_script

# name: (completions per prompt, accuracies of successive prompts, settings). A rollout has 12 rows in total, and each
# optimizer step uses all rows, so shuffling has no effect.
CASES: dict[str, tuple[int, list[list], dict]] = {
    # With two processes, each process has half of the middle group.
    "split group": (4, [[1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0], [1, None, None, None], [1, 1, None, 0]], {}),
    # Two processes cannot split an odd number of prompts, so they draw more prompts than a single process.
    "even rounds": (3, [[1, 1, 1], [0, 1, 0], [0, 0, 0], [1, 0, None], [1, 0, 1]], {"shaping": "entropy_advantage"}),
    "out of rounds": (4, [[1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0]], {"dynamic_sampling_max_rounds": 2}),
}


def train(output, processes, group_size, outcomes, changes):
    accuracies = [outcomes[number % len(outcomes)] for number in range(len(PROMPTS))]
    script = random_script(PROMPTS, accuracies, torch.Generator().manual_seed(1))
    for group in script.values():
        for row in group:
            row["logprobs"] = None
    defaults = {
        "num_generations": group_size,
        "per_device_train_batch_size": 4 // processes,
        "gradient_accumulation_steps": 3,
        "steps_per_generation": 3,
        "num_iterations": 2,
        "max_steps": 6,
        "optim": "sgd",
        "learning_rate": 0.1,
    }
    trainer = make_trainer(output, script, **{**defaults, **changes})
    assert trainer.accelerator.num_processes == processes
    rounds = []
    peek = trainer._sampler.stream.peek
    trainer._sampler.stream.peek = lambda count: rounds.append(count) or peek(count)
    batches, _ = record_batches(trainer, whole_groups=False)
    trainer.train()
    names = ("rounds", "dropped_groups", "prompts", "uninformative_groups", "epoch")
    return {
        "weights": trainer.accelerator.unwrap_model(trainer.model).state_dict(),
        "used": batches,
        "rounds": rounds,
        "log": [
            [entry[f"dynamic_sampling/{name}"] for name in names]
            for entry in trainer.state.log_history
            if "dynamic_sampling/rounds" in entry
        ],
        "position": trainer._sampler.stream.position,
        "old": all("old_per_token_logps" in rows for rows in trainer._buffered_inputs),
    }, trainer.accelerator.process_index


def main(output, processes):
    results = {}
    for case, (group_size, outcomes, changes) in CASES.items():
        results[case], rank = train(output, processes, group_size, outcomes, changes)
    torch.save(results, f"{output}/result{rank}.pt")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
    end_processes()
