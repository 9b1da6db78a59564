"""Started by test_entropy_control.py: the entropies, clip bounds and zetas of a training. Not a test file."""

import json
import sys
from pathlib import Path

from group_processes import make_script
from processes import end_processes
from trainers import scripted_trainer


def controlled(output, processes=1, **changes):
    """Trains for six steps, each with a rollout; returns the rollouts' entropies, and the trainer."""
    arguments = {
        "shaping": "repo_r",
        "repo_r_zeta": 0.3,
        "epsilon_high_target_entropy": 3.0,
        "epsilon_high_delta": 0.1,
        "per_device_train_batch_size": 12 // processes,
        "max_steps": 6,
        "max_completion_length": 40,
        "shuffle_dataset": False,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        **changes,
    }
    trainer = scripted_trainer(output, make_script(), **arguments)
    assert trainer.accelerator.num_processes == processes
    found, control = [], trainer._control_rule

    def record(entropy):
        found.append(entropy)
        control(entropy)

    trainer._control_rule = record
    trainer.train()
    return found, trainer


def logged(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


if __name__ == "__main__":
    entropies, trainer = controlled(sys.argv[1], int(sys.argv[2]))
    names = ("clip_ratio/epsilon_high", "repo_r/zeta")
    series = {"entropies": entropies, **{name: logged(trainer, name) for name in names}}
    state = [trainer.epsilon_high, trainer._rule_state["zeta"]]
    file = Path(sys.argv[1], f"rank{trainer.accelerator.process_index}.json")
    file.write_text(json.dumps({**series, "state": state}))
    end_processes()
