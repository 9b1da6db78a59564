"""Train on scripted rollouts and save the weights and the log. Started by test_distributed.py; not a test file."""

import sys

import torch
from margins import selection_margins
from processes import end_processes
from tiny import random_script
from trainers import scripted_trainer

PROMPTS = ["1+2=", "3+4=", "5+6="]
ACCURACIES = [[1, 0, None, 1], [1, 0, 1, 1], [0, 0, 0, 0]]


def main(output, processes):
    # The rollout has three groups of four completions. With two processes, each process has half of the second group.
    script = random_script(PROMPTS, ACCURACIES, torch.Generator().manual_seed(3), truncated=(1, 6, 9))
    trainer = scripted_trainer(
        output,
        script,
        per_device_train_batch_size=12 // processes // 2,
        gradient_accumulation_steps=2,
        max_steps=4,
        max_completion_length=40,
        ces_tau=0.3,
        optim="sgd",
        learning_rate=0.2,
        logging_steps=2,
    )
    assert trainer.accelerator.num_processes == processes
    with selection_margins() as margins:
        trainer.train()
    model = trainer.accelerator.unwrap_model(trainer.model)
    if trainer.accelerator.is_main_process:
        distributed_type = str(trainer.accelerator.distributed_type)
        result = {"weights": model.state_dict(), "log": trainer.state.log_history, "margin": min(margins)}
        torch.save(result | {"distributed_type": distributed_type}, f"{output}/result.pt")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
    end_processes()
