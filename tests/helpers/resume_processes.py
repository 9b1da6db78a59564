"""Train from scratch or from a given checkpoint. Started by test_resume.py; not a test file.

`{rank}` in the checkpoint's path is replaced with the rank of the process, to emulate machines without a shared disk.
"""

import json
import os
import sys

import torch
from processes import end_processes
from resume_runs import make_trainer


def main(output, checkpoint, changes):
    trainer = make_trainer(output, **{"per_device_train_batch_size": 2, **changes})
    trainer.train(resume_from_checkpoint=checkpoint.format(rank=os.environ["RANK"]) or None)
    if trainer.accelerator.is_main_process:
        torch.save(trainer.accelerator.unwrap_model(trainer.model).state_dict(), f"{output}/weights.pt")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[3], json.loads(sys.argv[4]))
    end_processes()
