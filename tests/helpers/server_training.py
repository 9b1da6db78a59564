"""Run `trl-ces train` with the stand-in for vLLM's server, for test_server.py and test_faults.py."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from processes import environment, free_port
from safetensors.torch import load_file
from server_runs import stub_environment
from tiny import save_tiny

TIMEOUT = 400
RECIPE = {
    "dataset_name": "rows.jsonl",
    "system_prompt": None,
    "reward_funcs": ["engines.faults.vowel_accuracy_reward"],
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "use_vllm": True,
    "vllm_mode": "server",
    "vllm_server_timeout": 5.0,
    "max_completion_length": 12,
    "num_generations": 4,
    "responses_per_step": 8,
    "responses_per_rollout": 16,  # two steps per rollout, so that some checkpoints fall in the middle of a rollout
    "per_device_train_batch_size": 4,
    "ces_tau": 0.3,
    "max_steps": 6,
    "learning_rate": 1e-2,
    "lr_scheduler_type": "constant",
    "save_steps": 1,
    "logging_steps": 1,
    "report_to": "none",
    "disable_tqdm": True,
}


def make_job(folder):
    """Write a model and data to `folder`."""
    save_tiny(folder / "model")
    rows = [{"question": f"{n}+{n}=", "answer": str(2 * n)} for n in range(16)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@dataclass
class CompletedCommand:
    """Exit code and output of a command."""

    code: int
    stdout: str
    errors: str

    def error_messages(self):
        """Return the error messages that the command printed."""
        return [line for line in self.errors.splitlines() if line.startswith("trl-ces train: error: ")]


class Training:
    """A running `trl-ces train` process that uses the model and data in `folder`."""

    def __init__(self, folder, output, url, flags=(), fault=None, variables=(), stub=True, **changes):
        fields = {**RECIPE, "model_name_or_path": str(folder / "model"), "output_dir": str(output)}
        fields |= {"dataset_name": str(folder / "rows.jsonl"), "vllm_server_base_url": url}
        fields |= {"vllm_group_port": free_port(), **changes}
        recipe = output.with_suffix(".yaml")
        recipe.write_text(json.dumps(fields))  # JSON is YAML
        variables_of_child = {"TRL_CES_TEST_FAULT": json.dumps(fault), "HF_HUB_OFFLINE": "1", **dict(variables)}
        self.output = output
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trl_ces.cli.main", "train", "--config", str(recipe), *flags],
            env=stub_environment(**variables_of_child) if stub else environment(**variables_of_child),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait(self, timeout=TIMEOUT):
        """Wait for the command; raise `subprocess.TimeoutExpired` after `timeout` seconds."""
        try:
            stdout, errors = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            for process in [*psutil.Process(self.process.pid).children(recursive=True), self.process]:
                process.kill()
            raise
        return CompletedCommand(self.process.returncode, stdout, errors)


def train(folder, output, url, flags=(), **changes):
    return Training(Path(folder), Path(output), url, flags, **changes).wait()


def weights(output):
    return load_file(output / "model.safetensors")


def assert_same_weights(output, expected):
    actual, expected_weights = weights(output), weights(expected)
    assert actual.keys() == expected_weights.keys()
    for name, value in expected_weights.items():
        assert torch.equal(actual[name], value), name


def machine_flags(*more):
    """Return the flags for two machines with one process each; `ddp` uses gloo if the recipe sets `use_cpu`."""
    shared = ["--accelerate_config", "ddp", "--num_processes", "2", "--num_machines", "2", *more]
    shared += ["--main_process_ip", "127.0.0.1", "--main_process_port", str(free_port())]
    return [[*shared, "--machine_rank", str(rank)] for rank in range(2)]
