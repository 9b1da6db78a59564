# /// script
# requires-python = ">=3.11"
# dependencies = ["trl_ces[vllm,flash,lab]"]
#
# [tool.uv.sources]
# trl_ces = { git = "https://REPOSITORY" }
# ///
"""
Train with CES on Hugging Face Jobs and push the model to a private repository.

    hf jobs uv run --flavor h200 --timeout 24h --secrets HF_TOKEN docs/examples/ces_jobs.py --hub_model_id ME/MODEL

Replace REPOSITORY above with the repository's address, and set RECIPE below to your recipe. Without `--timeout`, the
Hub stops a job after its default time limit and deletes the job's disk; the model is pushed only when training ends.
Options after the script's path are passed to `trl-ces train`. This script has not yet been run as a job.
"""

import sys

from trl_ces.cli.main import main

RECIPE = "R1-1.5B"


def train_args(options: list[str]) -> list[str]:
    """Return the command-line arguments for `trl-ces`."""
    hub = ["--push_to_hub", "true", "--hub_private_repo", "true"]
    return ["train", "--config", RECIPE, "--output_dir", "outputs/ces", *hub, *options]


if __name__ == "__main__":
    sys.exit(main(train_args(sys.argv[1:])))
