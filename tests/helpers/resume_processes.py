"""Started by test_resume.py: trains, from a checkpoint if one is named. Not a test file."""

import sys

import torch
from processes import end_processes
from resume_runs import make_trainer


def main(output, checkpoint):
    trainer = make_trainer(output, per_device_train_batch_size=2)
    trainer.train(resume_from_checkpoint=checkpoint or None)
    if trainer.accelerator.is_main_process:
        torch.save(trainer.accelerator.unwrap_model(trainer.model).state_dict(), f"{output}/weights.pt")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[3])
    end_processes()
